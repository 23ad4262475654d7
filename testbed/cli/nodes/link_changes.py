"""Changes of links, those of scale-up domains among them: read from the options of `link`, and shown by its verbs, in
tables and in pictures."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.base.errors import TestbedError
from testbed.base.linux.port_counters import PortCounters
from testbed.base.units import SHARE, Duration, QuantityError, Rate, part_of_rate_hint, split_quantity
from testbed.base.validation.quantities import MAX_FABRIC_TIME, fabric_time_hint
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl, LinkDirection, WireValues, declared_values
from testbed.lab.core.deploy.links.recorded import WireChange, read_link_state
from testbed.lab.core.deploy.links.words import TITLES, changed_words, value_text
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model import DelayBy, Link
from testbed.lab.core.model.link_condition import LinkCondition

if TYPE_CHECKING:
    from testbed.lab.features.scale_up.planes import PlaneLink


def link_change(
    *,
    rate: str | None = None,
    lab_rate: bool = False,
    delay: str | None = None,
    jitter: str | None = None,
    loss: str | None = None,
    corruption: str | None = None,
    **others: Any,
) -> LinkChange:
    """Work out the change that options of `link set` ask for, None for what was not written; `lab_rate` says how `rate`
    is meant. Raises `TestbedError` where they ask for none."""
    chosen: dict[str, Any] = others
    if lab_rate and rate is None:
        raise wrong("--lab-rate says how --rate is meant", "for example --rate 5M --lab-rate")
    if rate is not None:
        chosen |= _chosen_rate(rate, lab_rate=lab_rate)
    for name, text in (("delay", delay), ("jitter", jitter)):
        if text is not None:
            chosen[name] = time = _quantity(Duration, f"--{name}", text)
            if time.value > MAX_FABRIC_TIME.value:
                message = f"--{name} {text}: a time of the real network is at most {MAX_FABRIC_TIME}"
                raise wrong(message, fabric_time_hint(text, of_cable=name == "delay"))
    for name, text in (("loss", loss), ("corruption", corruption)):
        if text is not None:
            chosen[name] = parse_share(f"--{name}", text)
    try:
        return LinkChange(**chosen)
    except ValueError as error:
        raise wrong(str(error), "`testbed link set --help` lists what can be changed") from error


def _chosen_rate(rate: str, *, lab_rate: bool) -> dict[str, Any]:
    if not lab_rate and (hint := part_of_rate_hint(rate)) is not None:
        raise wrong(f"--rate {rate}: the rate has no unit", hint)
    if split_quantity(rate)[1] not in SHARE.units:
        return {"lab_rate" if lab_rate else "rate": _quantity(Rate, "--rate", rate)}
    if lab_rate:
        raise wrong(f"--rate {rate} is a share of the declared rate, in the lab as in the fabric")
    return {"rate_share": parse_share("--rate", rate, most=math.inf)}


def parse_share(option: str, text: str, *, most: float = 1) -> float:
    """Read a share, "0.1%" as 0.001, of `most` at most. A plain number is refused: `tc` counts percent."""
    try:
        share = float(SHARE.read(text))
    except QuantityError as error:
        raise wrong(f"{option} {text}: {error}", error.hint) from error
    if share and split_quantity(text) == (text.strip(), "") and "/" not in text:
        if share > most:
            raise wrong(f"{option} {text}: is more than all", f"write {share:g}%, or {share:g}/100")
        raise wrong(f"{option} {text}: of a hundred, or of one?", f"write {share:g}%, or {100 * share:g}%")
    if not 0 <= share <= most:
        raise wrong(f"{option} {text}: must be from 0% to 100%")
    return share


def _quantity(kind: type[Rate | Duration], option: str, text: str) -> Rate | Duration:
    try:
        return kind.parse(text)
    except QuantityError as error:
        raise wrong(f"{option} {text}: {error}", error.hint) from error


def wrong(message: str, hint: str | None = None) -> TestbedError:
    """Make an error about what was asked for."""
    return TestbedError(message, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRow:
    """A property of a link that can be changed: as declared, as it was set, and as it is."""

    port: str
    to: str
    what: str
    declared: str | None = None
    set: str | None = None
    actual: Any


def direction_rows(direction: LinkDirection, *, everything: bool) -> Iterator[ValueRow]:
    """Yield declared, changed and actual values side by side; without `everything` only those that were changed."""
    declared, change = asdict(direction.declared), asdict(direction.change)
    for field, title in TITLES.items():
        if change[field] is None and not everything:
            continue
        is_delayed = field == "delay_ns" and direction.delay_by is not DelayBy.IGNORE
        yield ValueRow(
            port=direction.port,
            to=direction.peer,
            what=f"{title} (by {direction.delay_by.value})" if is_delayed else title,
            declared=value_text(field, declared[field]),
            set="" if change[field] is None else value_text(field, change[field]),
            actual=value_text(field, direction.actual[field]) if field in direction.actual else "",
        )
    if everything:
        yield ValueRow(port=direction.port, to=direction.peer, what="carrier", actual=direction.actual["carrier"])


def direction_document(direction: LinkDirection) -> dict[str, Any]:
    """Put one direction of a link into JSON data."""
    return {
        "port": direction.port,
        "peer": direction.peer,
        "delay_by": direction.delay_by.value,
        "declared": asdict(direction.declared),
        "changed": {name: value for name, value in asdict(direction.change).items() if value is not None},
        "now": asdict(direction.now),
        "actual": dict(direction.actual),
    }


def direction_sentence(direction: LinkDirection) -> str:
    """Tell a person what one direction of a link does now that it is changed."""
    text = f"{direction.port} -> {direction.peer}: {', '.join(changed_words(direction.change)) or 'as declared'}"
    if direction.delay_by is DelayBy.ENDPOINT and (direction.change.delay_ns or direction.change.jitter_ns):
        text += "\n  delay by the endpoints: transports of ours that start from now on hold it; TCP gets none"
    return text


# --- links of scale-up domains -------------------------------------------------------------------------


def plane_rows(item: PlaneLink, *, everything: bool) -> Iterator[ValueRow]:
    """A row for each thing that can be changed; without `everything` only for those that were."""
    row = partial(ValueRow, port=item.link.name, to=f"{item.link.domain} plane {item.link.plane}")
    if item.errors is None:
        yield row(what="switch", declared="runs", actual="does not run")
        return
    for title, declared, now in _values(item):
        if everything or now != declared:
            yield row(what=title, declared=declared, set=now if now != declared else "", actual=now)


def plane_document(item: PlaneLink) -> dict[str, Any]:
    """Put a link into JSON data. Values of the lab, in both directions."""
    errors = None if item.errors is None else asdict(item.errors)
    return {
        "port": item.link.name,
        "domain": item.link.domain,
        "plane": item.link.plane,
        "host": item.link.host,
        "gpu": item.link.local_gpu,
        "interface": item.link.interface,
        "declared_rate_bps": item.rate_bps,
        "switch_runs": errors is not None,
        "now": None if errors is None else errors | {"rate_bps": errors["rate_bps"] or item.rate_bps},
    }


def plane_sentence(place: str, links: Sequence[PlaneLink]) -> str:
    """Tell a person what links do now that they are changed, in both directions."""
    kinds = Counter(plane_words(item) or "as declared" for item in links)
    what = "; ".join(words if len(kinds) == 1 else f"{count} of them {words}" for words, count in kinds.items())
    count = "both directions" if len(links) == 1 else f"{len(links)} links, both directions"
    return f"{place} ({count}): {what}"


def subnet_sentence(lab: RunningLab, place: str) -> str:
    """Tell a person how a link of an InfiniBand subnet is, and whose tables are in force where the first routing engine
    gave up; "" for any other link."""
    if lab.model.infiniband is None:
        return ""
    from testbed.lab.features.infiniband.live import LiveSubnet

    subnet = LiveSubnet(lab)
    if not subnet.is_port(place):
        return ""
    state = subnet.link(place)
    said = [f"{state.a} - {state.b} is {'up' if state.up else 'down'}", subnet.engine_sentence()]
    reroute = subnet.last_reroute(place)
    return "; ".join(filter(None, [*said, "" if reroute is None else reroute.sentence]))


def cut_sentences(lab: RunningLab) -> list[str]:
    """Tell a person which links of an InfiniBand subnet are down; nothing for other back ends."""
    if lab.model.infiniband is None:
        return []
    from testbed.lab.features.infiniband.live import LiveSubnet

    return [f"{state.a} - {state.b} is down" for state in LiveSubnet(lab).links() if not state.up]


def plane_words(item: PlaneLink) -> str:
    """Return the difference of a link from what is declared; "" for none."""
    if item.errors is None:
        return "no switch runs"
    if item.errors.down:
        return "down"
    changed = [(title, now) for title, declared, now in _values(item) if now != declared]
    return ", ".join(title if now == "yes" else f"{title} {now}" for title, now in changed)


def _values(item: PlaneLink) -> list[tuple[str, str, str]]:
    """The properties that can be changed: the title of each, as declared, and as it is."""
    from testbed.protocols.scale_up.domain.link import LinkErrors

    errors = item.errors or LinkErrors()
    declared = str(Rate(item.rate_bps))
    return [
        ("rate in the lab", declared, str(Rate(errors.rate_bps)) if errors.rate_bps else declared),
        ("loss", "0%", f"{100 * errors.loss:.6g}%"),
        ("frames lost in a row", "1", f"{errors.burst or 1:.6g}"),
        ("one lost in", "none", str(errors.every) if errors.every else "none"),
        ("corruption", "0%", f"{100 * errors.corrupt:.6g}%"),
        ("silent", "no", "yes" if errors.silent else "no"),
        ("up", "yes", "no" if errors.down else "yes"),
    ]


# --- how the links of a running lab are now, for pictures and tables -------------------------------------

_ROUNDING = 0.001
"""The kernel keeps rates in whole bytes a second."""


def read_conditions(lab: RunningLab) -> dict[str, LinkCondition]:
    """The condition of every link by its lower end, "node:interface". Rates are those that the kernel has."""
    ports = lab.counters()
    changes = read_link_state(lab.state_directory).changes
    with LinkControl(lab) as control:
        return {str(link.a): _condition(lab, control, link, changes, ports) for link in lab.model.links}


def _ends(link: Link) -> tuple[tuple[str, str], tuple[str, str]]:
    return (link.a.node, link.a.interface), (link.b.node, link.b.interface)


def _condition(
    lab: RunningLab,
    control: LinkControl,
    link: Link,
    changes: dict[str, WireChange],
    ports: Mapping[tuple[str, str], PortCounters],
) -> LinkCondition:
    declared_bps = lab.port(*_ends(link)[0]).rate_bps
    words, rates, delays, mtus = [], [], [], []
    for end, other in ((link.a, link.b), (link.b, link.a)):
        change = changes.get(str(end), WireChange())
        now = _now(control, str(end), declared_values(lab.port(end.node, end.interface)), change)
        rates.append(now.rate_bps)
        delays.append(now.delay_ns)
        said = list(changed_words(replace(change, up=None)))
        if now.rate_bps != (declared_bps if change.rate_bps is None else change.rate_bps):
            said.insert(0, f"rate in the lab {Rate(now.rate_bps)}")
        port = ports.get((end.node, end.interface), PortCounters(up=False))
        if port.mtu_bytes not in (0, lab.port(end.node, end.interface).mtu_bytes):
            mtus.append(port.mtu_bytes)
            said.append(f"MTU {port.mtu_bytes}")
        if said:
            words.append(f"{end} -> {other}: {', '.join(said)}")
    slowest, k = min(rates), 1.0 if lab.port(*_ends(link)[0]).out_of_band else lab.record.k
    delayed = any(changes.get(str(end), WireChange()).delay_ns is not None for end in (link.a, link.b))
    return LinkCondition(
        up=all(end in ports and ports[end].up for end in _ends(link)),
        mtu_bytes=min(mtus, default=None),
        rate=link.rate if slowest == declared_bps else Rate(round(slowest * k)),
        lab_rate=Rate(slowest),
        declared_rate=link.rate,
        declared_lab_rate=Rate(declared_bps),
        delay=Duration(round(max(delays) / k)) if delayed else None,
        changes=tuple(words),
    )


def _now(control: LinkControl, end: str, declared: WireValues, change: WireChange) -> WireValues:
    """The values of a direction: as recorded, but for the rate that the kernel has."""
    recorded = declared.changed(change)
    actual = control.rate_bps(end)
    if actual is None or abs(actual - recorded.rate_bps) <= max(8, recorded.rate_bps * _ROUNDING):
        return recorded
    return declared.changed(WireChange(rate_bps=actual).over(change))


def read_plane_conditions(lab: RunningLab) -> dict[str, LinkCondition]:
    """The condition of the links of scale-up domains that a picture has: all GPUs of a host to a plane, "host:plane1".

    Those of a switch that does not run are down.
    """
    from testbed.lab.features.scale_up.planes import PlaneControl

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
