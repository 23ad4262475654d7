"""Checks that the counters add up: conservation of packets at each queue, on each link, in each switch.

Traffic runs while the counters are read, so a sum is only believed where two readings in a row agree, and a difference
only where it does not vanish within `PATIENCE_NS`: until then it may be packets between the two places, which a busy
machine leaves there for long. A place that did not hold still within `SETTLE_NS` is `MOVING`: nothing contradicts it,
and nothing proves it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath.maps import LabMaps
from testbed.lab.observe.laws import Law, SwitchCounts, all_laws, count_switches
from testbed.lab.observe.port_table import PortTable

SETTLE_NS = 50_000_000
PATIENCE_NS = 1_000_000_000
PAUSE_NS = 200_000
"""Between two attempts: long against a packet's way over a veth, short against `SETTLE_NS`."""
LONG_PAUSE_NS = 10_000_000
"""The pause between two readings when `SETTLE_NS` is over."""
_AT_ONCE = 64
"""Places read twice together: few enough for a busy port to hold still meanwhile."""


class Balance(StrEnum):
    RECONCILED = "reconciled"
    MOVING = "moving"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """A place whose sum was not right. Differences are left minus right of the `law`, as it is written."""

    law: str
    place: str
    state: Balance
    packets: int
    bytes: int

    def __str__(self) -> str:
        parts = [f"{self.packets:+d} packets"] if self.packets else []
        parts += [f"{self.bytes:+d} bytes"] if self.bytes else []
        return f"{self.place}: {self.law}: off by {', '.join(parts) or 'something that never held still'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchBalance:
    """A traffic class in one switch: what came in at ports, and what of it was offered to a queue of another port.

    `rest_packets` ended in the switch, had no route or is on a delaying link. It is below zero where a bridge flooded.
    """

    node: str
    class_name: str
    priority: int
    in_packets: int
    forwarded_packets: int
    trimmed_packets: int
    """Left this class by being trimmed (above zero), or came to it so (below)."""

    @property
    def rest_packets(self) -> int:
        return self.in_packets - self.forwarded_packets - self.trimmed_packets


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The verdict, and what stands against it. `checked` counts the places by law."""

    balance: Balance
    checked: dict[str, int] = field(hash=False)
    imbalances: tuple[Imbalance, ...]
    switches: tuple[SwitchBalance, ...]

    def __str__(self) -> str:
        broken = [item for item in self.imbalances if item.state is Balance.BROKEN]
        if broken:
            more = f" (and {len(broken) - 1} more places)" if len(broken) > 1 else ""
            return f"counters do not reconcile: {broken[0]}{more}"
        places = ", ".join(f"{name} {count}" for name, count in self.checked.items())
        if self.imbalances:
            return f"counters reconcile but for {len(self.imbalances)} places that never held still ({places})"
        return f"counters reconcile ({places})"


def reconcile(
    maps: LabMaps,
    table: PortTable,
    *,
    clock_ns: Callable[[], int] = time.monotonic_ns,
    rest: Callable[[float], None] = time.sleep,
) -> Reconciliation:
    """Check every law at every place that saw traffic.

    Takes up to `SETTLE_NS` while traffic runs, and up to `PATIENCE_NS` before it says that something is wrong.
    """
    laws = all_laws(maps, table)
    pending = [_Pending(law) for law in laws]
    begin = clock_ns()
    while True:
        for item in pending:
            item.attempt()
        took_ns = clock_ns() - begin
        patience_ns = PATIENCE_NS if any(item.is_wrong for item in pending) else SETTLE_NS
        if not any(item.left.size for item in pending) or took_ns >= patience_ns:
            break
        rest((PAUSE_NS if took_ns < SETTLE_NS else LONG_PAUSE_NS) / 1e9)
    imbalances = [imbalance for item in pending for imbalance in item.imbalances()]
    switches, impossible = _switches(count_switches(maps, table), table)
    imbalances += impossible
    checked: dict[str, int] = {}
    for law in laws:
        checked[law.places_are] = max(checked.get(law.places_are, 0), len(law.places))
    checked["switches"] = len({item.node for item in switches})
    return Reconciliation(
        balance=_worst(imbalances), checked=checked, imbalances=tuple(imbalances), switches=tuple(switches)
    )


def _worst(imbalances: Sequence[Imbalance]) -> Balance:
    states = {item.state for item in imbalances}
    return next((state for state in (Balance.BROKEN, Balance.MOVING) if state in states), Balance.RECONCILED)


class _Pending:
    """The places of a law that have not added up yet."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self.left = law.places
        self._still = np.zeros(len(law.places), bool)
        """Held still at least once, with a sum that was not right."""
        self._smallest = np.zeros((len(law.places), 2), np.int64)

    @property
    def is_wrong(self) -> bool:
        """Tell whether a place that is left held still with a sum that was not right."""
        return bool(self._still.any())

    def attempt(self) -> None:
        """Read what is left twice; forget the places that hold still and add up."""
        keep = np.ones(len(self.left), bool)
        for start in range(0, len(self.left), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            places = self.left[part]
            first = self.law.read(places)
            second = self.law.read(places)
            still = (first == second).all(axis=1)
            off = self.law.difference(second)
            done = still & ~off.any(axis=1)
            keep[part] = ~done
            self._remember(np.arange(start, start + len(places)), still & ~done, off)
        self.left = self.left[keep]
        self._still = self._still[keep]
        self._smallest = self._smallest[keep]

    def _remember(self, rows: NDArray[np.intp], wrong: NDArray[np.bool_], off: NDArray[np.int64]) -> None:
        """Keep each place's smallest difference: more than that was on its way at the time."""
        known = self._still[rows]
        smaller = np.abs(off).sum(axis=1) < np.abs(self._smallest[rows]).sum(axis=1)
        take = wrong & (~known | smaller)
        self._smallest[rows[take]] = off[take]
        self._still[rows] |= wrong

    def imbalances(self) -> list[Imbalance]:
        return [
            Imbalance(
                law=self.law.name,
                place=self.law.place(int(place)),
                state=Balance.BROKEN if still else Balance.MOVING,
                packets=int(off[0]),
                bytes=int(off[1]),
            )
            for place, still, off in zip(self.left, self._still, self._smallest, strict=True)
        ]


def _switches(counts: Sequence[SwitchCounts], table: PortTable) -> tuple[list[SwitchBalance], list[Imbalance]]:
    """The rest of each switch and class. More forwarded than received is impossible, except where a bridge floods."""
    balances, impossible = [], []
    for item in counts:
        of_node = [
            SwitchBalance(
                node=item.node,
                class_name=item.class_name(priority),
                priority=priority,
                in_packets=int(item.received[priority]),
                forwarded_packets=int(item.forwarded[priority]),
                trimmed_packets=int(item.trimmed[priority]),
            )
            for priority in np.flatnonzero(item.received | item.forwarded).tolist()
        ]
        balances += of_node
        if item.node in table.bridging:
            continue
        # where ports put a packet into different classes, only the sum over classes means something
        rests = (
            [(balance.class_name, balance.rest_packets) for balance in of_node]
            if item.comparable
            else [("all classes", sum(balance.rest_packets for balance in of_node))]
        )
        impossible += [
            Imbalance(
                law="forwarded <= in", place=f"{item.node} {name}", state=Balance.BROKEN, packets=-lacking, bytes=0
            )
            for name, lacking in rests
            if lacking < 0
        ]
    return balances, impossible
