"""Prices and power of parts, and what a design costs by them: its bill.

A switch is the cheapest model that has room for the links which the switch has, unless its node's label `model` names
another one. A port takes one link of up to its rate; one that may be split takes several slower ones. An optical link
has a transceiver at each end, of its rate, and one fibre.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from testbed.base.units import Rate
from testbed.lab.core.fabric.figures.cables import Cable, CableCount
from testbed.lab.core.model import Lab, LinkKind

MODEL_LABEL = "model"
"""The label of a switch that names its model in the price list."""
HOURS_A_YEAR = 8766
"""365.25 days."""


class PartKind(StrEnum):
    """A kind of thing that one pays for, and powers."""

    SWITCHES = "switches"
    OPTICS = "optics"
    CABLES = "cables"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPrice:
    """The price of a part in the currency of the list, and the power that it takes, in watts."""

    price: float
    watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchModel:
    """A switch that one can buy. Each of its `ports` takes a link of `rate`, or up to `split` slower ones."""

    name: str
    ports: int
    rate: Rate
    split: int
    part: PartPrice

    def has_room(self, links: Mapping[Rate, int]) -> bool:
        """Tell whether there are ports for so many links of each rate."""
        taken = 0
        for rate, number in links.items():
            ways = min(self.split, self.rate.bps // rate.bps)
            if not ways:
                return False
            taken += -(-number // ways)
        return taken <= self.ports


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPrice:
    """The price of a kilowatt-hour, the factor by which cooling and conversion add to it (PUE), and for how many years
    it is paid."""

    per_kwh: float
    pue: float
    years: float

    def cost(self, watts: float) -> float:
        """The price of so much power over the years."""
        return watts / 1000 * self.pue * HOURS_A_YEAR * self.years * self.per_kwh


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """The prices of one file. None or absent: it has no price for that."""

    source: str
    currency: str
    switches: Sequence[SwitchModel]
    optics: Mapping[Rate, PartPrice]
    cables: Mapping[tuple[Cable, Rate], PartPrice]
    """The prices of copper and of active optical cables."""
    fibre: PartPrice | None
    energy: EnergyPrice | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BillItem:
    """So many of one part: what all of them cost, and the power that they take, in watts."""

    kind: PartKind
    part: str
    number: int
    price: float
    watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The cost of a design. `missing` names what the list has no price for: nothing is summed up where that is any."""

    currency: str
    items: tuple[BillItem, ...]
    missing: tuple[str, ...]
    energy_price: EnergyPrice | None

    def price_of(self, kind: PartKind) -> float | None:
        """The price of all parts of a kind; None where one has none."""
        return None if self.missing else sum(item.price for item in self.items if item.kind is kind)

    def watts_of(self, kind: PartKind) -> float | None:
        """The power of all parts of a kind, in watts; None where one has no price."""
        return None if self.missing else sum(item.watts for item in self.items if item.kind is kind)

    @property
    def price(self) -> float | None:
        """The price of all parts."""
        return None if self.missing else sum(item.price for item in self.items)

    @property
    def watts(self) -> float | None:
        """The power of all parts, in watts."""
        return None if self.missing else sum(item.watts for item in self.items)

    @property
    def energy(self) -> float | None:
        """The price of the energy over the years; None where the list has no price of energy."""
        return None if self.watts is None or self.energy_price is None else self.energy_price.cost(self.watts)

    @property
    def total(self) -> float | None:
        """The price of parts and energy together."""
        return None if self.price is None else self.price + (self.energy or 0.0)


def make_bill(lab: Lab, cables: Sequence[CableCount], prices: PriceList) -> Bill:
    """The bill of a network's switches and cables. Its NICs are not on it: they come with the hosts."""
    items: list[BillItem] = []
    missing: list[str] = []
    for kind, part, number, price in (*_switches(lab, prices), *_cables(cables, prices)):
        if price is None:
            missing.append(f"{number} x {part}")
        else:
            items.append(
                BillItem(kind=kind, part=part, number=number, price=number * price.price, watts=number * price.watts)
            )
    return Bill(currency=prices.currency, items=tuple(items), missing=tuple(missing), energy_price=prices.energy)


_Priced = tuple[PartKind, str, int, PartPrice | None]


def _switches(lab: Lab, prices: PriceList) -> Iterator[_Priced]:
    """The models of switches, and how many of each; by what it would need where none has room."""
    links: dict[str, Counter[Rate]] = {node.name: Counter() for node in lab.switches}
    for link in lab.links:
        if link.kind is not LinkKind.MANAGEMENT:
            for end in (link.a, link.b):
                if end.node in links:
                    links[end.node][link.rate] += 1
    alike = Counter((node.labels.get(MODEL_LABEL, ""), frozenset(links[node.name].items())) for node in lab.switches)
    chosen: Counter[SwitchModel | str] = Counter()
    for (said, used), number in alike.items():
        chosen[_choose(said, dict(used), prices)] += number
    for model, number in chosen.items():
        if isinstance(model, str):
            yield PartKind.SWITCHES, model, number, None
        else:
            yield PartKind.SWITCHES, model.name, number, model.part


def _choose(said: str, links: Mapping[Rate, int], prices: PriceList) -> SwitchModel | str:
    """The model of a switch with such links, or what is wanted and not there."""
    if said:
        named = next((model for model in prices.switches if model.name == said), None)
        called = f"switch called {said!r}"
        return called if named is None else named if named.has_room(links) else _wanted(called, links)
    fitting = [model for model in prices.switches if model.has_room(links)]
    if fitting:
        return min(fitting, key=lambda model: (model.part.price, model.part.watts, model.ports))
    return _wanted("switch", links)


def _wanted(what: str, links: Mapping[Rate, int]) -> str:
    return f"{what} with " + " and ".join(f"{number} ports of {rate}" for rate, number in sorted(links.items()))


def _cables(cables: Sequence[CableCount], prices: PriceList) -> Iterator[_Priced]:
    fibres = 0
    for one in cables:
        if one.cable is Cable.OPTICS:
            yield PartKind.OPTICS, f"transceiver of {one.rate}", 2 * one.count, prices.optics.get(one.rate)
            fibres += one.count
        else:
            priced = prices.cables.get((one.cable, one.rate))
            yield PartKind.CABLES, f"{one.cable.shown} of {one.rate}", one.count, priced
    if fibres:
        yield PartKind.CABLES, "fibre", fibres, prices.fibre
