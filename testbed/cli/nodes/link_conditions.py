"""How the links of a running lab are now, for pictures and tables of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from testbed.base.units import Duration, Rate
from testbed.cli.nodes.link_changes import changed_words
from testbed.cli.nodes.plane_changes import plane_words
from testbed.lab.core.deploy.links.changes import LinkControl, WireValues, declared_values
from testbed.lab.core.deploy.links.recorded import WireChange, read_link_state
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model import Link
from testbed.lab.core.model.link_condition import LinkCondition
from testbed.lab.features.scale_up.planes import PlaneControl, PlaneLink

_ROUNDING = 0.001
"""The kernel keeps rates in whole bytes a second."""


def read_conditions(lab: RunningLab) -> dict[str, LinkCondition]:
    """The condition of every link by its lower end, "node:interface". Rates are those that the kernel has."""
    states = lab.link_states()
    changes = read_link_state(lab.state_directory).changes
    with LinkControl(lab) as control:
        return {
            str(link.a): _condition(lab, control, link, changes, up=all(states.get(end, False) for end in _ends(link)))
            for link in lab.model.links
        }


def _ends(link: Link) -> tuple[tuple[str, str], tuple[str, str]]:
    return (link.a.node, link.a.interface), (link.b.node, link.b.interface)


def _condition(
    lab: RunningLab, control: LinkControl, link: Link, changes: dict[str, WireChange], *, up: bool
) -> LinkCondition:
    declared_bps = lab.port(*_ends(link)[0]).rate_bps
    words, rates, delays = [], [], []
    for end, other in ((link.a, link.b), (link.b, link.a)):
        change = changes.get(str(end), WireChange())
        now = _now(control, str(end), declared_values(lab.port(end.node, end.interface)), change)
        rates.append(now.rate_bps)
        delays.append(now.delay_ns)
        said = list(changed_words(replace(change, up=None)))
        if now.rate_bps != (declared_bps if change.rate_bps is None else change.rate_bps):
            said.insert(0, f"rate in the lab {Rate(now.rate_bps)}")
        if said:
            words.append(f"{end} -> {other}: {', '.join(said)}")
    slowest, k = min(rates), 1.0 if lab.port(*_ends(link)[0]).out_of_band else lab.record.k
    delayed = any(changes.get(str(end), WireChange()).delay_ns is not None for end in (link.a, link.b))
    return LinkCondition(
        up=up,
        rate=link.rate if slowest == declared_bps else Rate(round(slowest * k)),
        lab_rate=Rate(slowest),
        declared_rate=link.rate,
        declared_lab_rate=Rate(declared_bps),
        delay=Duration(round(max(delays) / k)) if delayed else None,
        changes=tuple(words),
    )


def _now(control: LinkControl, end: str, declared: WireValues, change: WireChange) -> WireValues:
    """What a direction has: as recorded, but for the rate that the kernel has."""
    recorded = declared.changed(change)
    actual = control.rate_bps(end)
    if actual is None or abs(actual - recorded.rate_bps) <= max(8, recorded.rate_bps * _ROUNDING):
        return recorded
    return declared.changed(WireChange(rate_bps=actual).over(change))


def read_plane_conditions(lab: RunningLab) -> dict[str, LinkCondition]:
    """The same for the links of scale-up domains that a picture has: all GPUs of a host to a plane, by "host:plane1".

    Those of a switch that does not run are down.
    """
    links: dict[str, list[PlaneLink]] = defaultdict(list)
    for domain in lab.plan.scale_up_domains:
        for item in PlaneControl(lab).show(f"{domain.name}:planes"):
            links[f"{item.link.host}:plane{item.link.plane}"].append(item)
    return {name: _plane_condition(lab, items) for name, items in links.items()}


def _plane_condition(lab: RunningLab, items: list[PlaneLink]) -> LinkCondition:
    declared = sum(item.rate_bps for item in items)
    now = sum((item.errors.rate_bps if item.errors else 0) or item.rate_bps for item in items)
    return LinkCondition(
        up=not all(item.errors is None or item.errors.down for item in items),
        rate=Rate(round(now * lab.record.k)),
        lab_rate=Rate(now),
        declared_rate=Rate(round(declared * lab.record.k)),
        declared_lab_rate=Rate(declared),
        changes=tuple(_of_gpus(items)),
    )


def _of_gpus(items: list[PlaneLink]) -> Iterator[str]:
    for item in items:
        words = plane_words(item)
        if words:
            yield f"{item.link.name}: {words}"
