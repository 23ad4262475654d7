"""All figures of a design together: those of a network of a lab, by which one chooses it or another one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from testbed.lab.core.fabric.figures.cables import CableCount, count_cables
from testbed.lab.core.fabric.figures.failures import FailureDomain, find_failure_domains
from testbed.lab.core.fabric.figures.largest import LargestFabric, find_largest
from testbed.lab.core.fabric.figures.prices import Bill, PartKind, PriceList, make_bill
from testbed.lab.core.fabric.figures.traffic import TrafficLoad, TrafficPattern
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.fabric.sizing import RoleSizing, Sizing, measure_sizing, seen_for_sizing
from testbed.lab.core.model import BACKEND, Lab

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignFigures:
    """The figures of one network. `bill` is None where there are no prices."""

    network: str
    design: str
    sizing: Sizing
    failures: tuple[FailureDomain, ...]
    cables: tuple[CableCount, ...]
    bill: Bill | None
    largest: tuple[LargestFabric, ...] = ()
    """Fabrics of the most GPUs on switches of the radix that the file names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """One figure of a network, for programs (`value`) and for people (`text`)."""

    network: str
    what: str
    value: float | str | None
    text: str


def measure_design(lab: Lab, network: str, prices: PriceList | None = None) -> DesignFigures:
    """Measure one network of a lab; `lab` without networks is its back end. The management network has no figures."""
    seen = seen_for_sizing(lab, network) if lab.network_names else lab
    graph = LabGraph(seen)
    carried = lab.carrier_of(network) != network  # its links are among those of its carrier
    cables = () if carried else count_cables(seen)
    return DesignFigures(
        network=network,
        design=seen.design,
        sizing=measure_sizing(seen, graph),
        failures=find_failure_domains(seen, graph, network),
        cables=cables,
        bill=None if prices is None or carried else make_bill(seen, cables, prices),
        largest=find_largest(seen) if network == BACKEND else (),
    )


def measure_designs(lab: Lab, prices: PriceList | None = None) -> list[DesignFigures]:
    """Measure every network of a lab that carries data, the back end first."""
    return [measure_design(lab, network, prices) for network in lab.data_networks or (BACKEND,)]


def figures_document(figures: DesignFigures) -> dict[str, Any]:
    """Return what is known of a network beside its sizing, as JSON data."""
    document: dict[str, Any] = {
        "failures": [dataclasses.asdict(one) for one in figures.failures],
        "cables": [{"cable": one.cable.value, "rate_bps": one.rate.bps, "count": one.count} for one in figures.cables],
    }
    if figures.largest:
        document["largest"] = [dataclasses.asdict(one) for one in figures.largest]
    if (bill := figures.bill) is not None:
        document["cost"] = {
            "currency": bill.currency,
            "price": bill.price,
            "watts": bill.watts,
            "energy": bill.energy,
            "total": bill.total,
            "items": [dataclasses.asdict(item) for item in bill.items],
            "missing": list(bill.missing),
        }
    return document


def figure_rows(figures: DesignFigures) -> list[FigureRow]:
    """All figures of a network, one in each row, in the order in which they are shown."""
    row = partial(FigureRow, network=figures.network)
    gpus = figures.sizing.gpus if figures.network == BACKEND else 0
    return [
        *_counts(figures, row),
        *_oversubscription(figures.sizing, row),
        *_ways(figures.sizing, row),
        *(row(what=f"{one.what} dies", value=loss_text(one), text=loss_text(one)) for one in figures.failures),
        *(
            row(what=f"cables, {one.cable.shown} {one.rate}", value=one.count, text=f"{one.count:,}")
            for one in figures.cables
        ),
        *(row(what=largest_title(one), value=one.gpus, text=f"{one.gpus:,} GPUs") for one in figures.largest),
        *([] if figures.bill is None else _costs(figures.bill, gpus, row)),
    ]


def largest_title(one: LargestFabric) -> str:
    """Tell for people what a fabric of given switches is the largest of."""
    return f"most on such switches, {one.tiers} tiers" if one.tiers else "most on such switches, as wired"


_Row = partial[FigureRow]


def _number(row: _Row, what: str, number: int) -> FigureRow:
    return row(what=what, value=number, text=f"{number:,}")


def _counts(figures: DesignFigures, row: _Row) -> Iterator[FigureRow]:
    """Count what there is, and the ports that it uses."""
    sizing = figures.sizing
    if figures.network == BACKEND:
        yield _number(row, "GPUs", sizing.gpus)
        yield _number(row, "NICs", sizing.nics)
    yield _number(row, "hosts", sizing.hosts)
    if sizing.targets:
        yield _number(row, "storage targets", sizing.targets)
    yield _number(row, "switches", sizing.switches)
    for role in sizing.roles:
        yield _number(row, f"{role.role} switches", role.switches)
    for role in sizing.roles:
        yield row(what=f"ports used, {role.role} switches", value=_ports(role), text=_ports(role))
    yield _number(row, "links", sizing.links)
    yield _number(row, "links to hosts", sizing.host_links)
    for what, number in (
        ("leaf to spine", sizing.rail_spine_links),
        ("spine to super-spine", sizing.spine_super_spine_links),
    ):
        if number:
            yield _number(row, f"links, {what}", number)


def _ports(role: RoleSizing) -> str:
    return f"{role.ports} of {role.radix}" if role.radix else str(role.ports)


def _oversubscription(sizing: Sizing, row: _Row) -> Iterator[FigureRow]:
    for role in sizing.roles:
        if (over := role.oversubscription) is not None:
            yield row(what=f"oversubscription, {role.role} switches", value=over, text=_ratio(over))
    for pattern in TrafficPattern:
        if loads := [load for load in sizing.traffic if load.pattern is pattern]:
            worst = max(loads, key=lambda load: math.inf if load.oversubscription is None else load.oversubscription)
            yield row(what=f"{pattern} traffic", value=worst.oversubscription, text=load_text(worst, sizing))
    for load in sizing.traffic:
        what = f"{load.pattern} traffic between {load.places}"
        yield row(what=what, value=load.oversubscription, text=load_text(load, sizing))


def load_text(load: TrafficLoad, sizing: Sizing) -> str:
    """Tell the oversubscription of a kind of traffic, or which part of it has no path."""
    if load.oversubscription is not None:
        return _ratio(load.oversubscription)
    if load.is_joined:
        return _UNKNOWN
    relayed = next(
        (
            other.oversubscription
            for other in sizing.traffic
            if other.pattern is TrafficPattern.RAIL is not load.pattern and other.between == load.between
        ),
        None,
    )
    if relayed is not None:
        return f"rails apart; {_ratio(relayed)} if hosts relay"
    return f"{_percent(1 - load.joined)} has no path"


def _ways(sizing: Sizing, row: _Row) -> Iterator[FigureRow]:
    """Tell how far it is from NIC to NIC, and by how many ways."""
    for path in sizing.paths:
        passed = _span(path.fewest_switches, path.most_switches) if path.most else "not joined"
        yield row(what=f"switches passed, {path.relation}", value=passed, text=passed)
    for path in sizing.paths:
        number = _span(path.fewest, path.most)
        yield row(what=f"equal-cost paths, {path.relation}", value=number, text=number)
    for one in sizing.widths:
        text = str(one.ways) if one.installed == one.ways else f"{one.installed} of {one.ways} ways"
        yield row(what=f"ECMP width, {one.role} switches", value=one.installed, text=text)


def _costs(bill: Bill, gpus: int, row: _Row) -> Iterator[FigureRow]:
    def money(what: str, value: float | None) -> FigureRow:
        text = _UNKNOWN if value is None else f"{value:,.0f} {bill.currency}"
        return row(what=what, value=None if value is None else round(value, 2), text=text)

    def power(what: str, watts: float | None) -> FigureRow:
        text = _UNKNOWN if watts is None else f"{watts / 1000:,.1f} kW"
        return row(what=what, value=None if watts is None else round(watts, 3), text=text)

    for kind in PartKind:
        yield money(f"price of {kind}", bill.price_of(kind))
    yield money("price of all parts", bill.price)
    for kind in PartKind:
        yield power(f"power of {kind}", bill.watts_of(kind))
    yield power("power of all parts", bill.watts)
    if bill.energy_price is not None:
        yield money(f"energy of {bill.energy_price.years:g} years", bill.energy)
        yield money("price with energy", bill.total)
    if gpus:
        each = None if bill.total is None else bill.total / gpus
        yield money("price for each GPU", each)


def loss_text(domain: FailureDomain) -> str:
    """Tell who loses which share of bandwidth."""
    if domain.affected == 1:
        return f"1 {domain.unit.removesuffix('s')} loses {_percent(domain.share)}"
    return f"{domain.affected:,} {domain.unit} lose {_percent(domain.share)}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}:1"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _span(fewest: int, most: int) -> str:
    return str(fewest) if fewest == most else f"{fewest} to {most}"
