"""The sources that `stats` reads: the data path's maps, or the kernel's port counters of a lab that has none."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from testbed.base.linux.port_counters import PortCounters
from testbed.base.rows import row_json
from testbed.cli.counters import view
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model.telemetry import DEPTH_LIMITS_BYTES, QueueTelemetry
from testbed.lab.observe.dropped import Dropped, DroppedRow, dropped_rows, dropped_sentence, read_dropped
from testbed.lab.observe.port_table import matching_places, tabulate_ports
from testbed.lab.observe.reconcile import Reconciliation, reconcile
from testbed.lab.observe.telemetry import (
    Snapshot,
    buffer_rows,
    link_rows,
    queue_rows,
    reset_maxima,
    silent_uplinks,
    spray_rows,
    take_snapshot,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


class StatsFrame(ABC):
    """One reading, in the forms that can be printed."""

    columns: Sequence[str]

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Make flat rows for CSV."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Put everything into one JSON document."""

    @abstractmethod
    def table(self, room: int | None) -> Table:
        """Make a table for a screen with `room` rows; None takes all rows."""

    @abstractmethod
    def footer(self) -> Text: ...


class StatsSource(ABC):
    """Something that can be read again and again."""

    @abstractmethod
    def read(self, before: Any) -> Any:
        """Read what was counted since the frame `before`, or since the deploy if it is None."""

    @abstractmethod
    def reset_maxima(self) -> None: ...


def open_source(lab: RunningLab, patterns: Sequence[str], *, class_name: str | None, every: bool) -> StatsSource:
    """Choose the maps where the lab has them. A class, which only they know, raises `NoDataPath` elsewhere."""
    if lab.model.policies or class_name is not None:
        return QueueSource(lab, patterns, class_name=class_name, every=every)
    return KernelSource(lab, patterns)


class QueueSource(StatsSource):
    """Reads the queues that the patterns and the class choose; without `every` only those that saw anything."""

    def __init__(self, lab: RunningLab, patterns: Sequence[str], *, class_name: str | None, every: bool) -> None:
        self._maps = lab.maps()
        self._lab = lab
        self._table = tabulate_ports(lab.plan)
        self._chosen = self._table.select(patterns, class_name)
        self._every = every

    def read(self, before: QueueFrame | None) -> QueueFrame:
        now = take_snapshot(self._maps)
        result = reconcile(self._maps, self._table)
        shown = self._chosen & (self._table.present if self._every else now.active)
        counters = now if before is None else now.since(before.snapshot)
        dropped = read_dropped(self._lab)
        guards = dropped_rows(self._lab, dropped, None if before is None else before.dropped)
        down = self._down() if silent_uplinks(self._table, counters) else frozenset()
        return QueueFrame(
            lab=self._lab.name,
            k=self._table.k,
            snapshot=now,
            counters=counters,
            queues=queue_rows(self._table, counters, shown),
            others={
                "links": view.link_documents(
                    link_rows(self._table, counters, shown) if counters.seconds is not None else []
                ),
                "spray": view.spray_documents(spray_rows(self._table, counters, down=down)),
                "buffers": list(map(asdict, buffer_rows(self._table, now))),
            },
            reconciliation=result,
            dropped=dropped,
            guards=guards,
        )

    def _down(self) -> frozenset[int]:
        states = self._lab.link_states()
        return frozenset(
            number
            for number in range(1, self._table.count + 1)
            if not states.get((self._table.nodes[number], self._table.interfaces[number]), False)
        )

    def reset_maxima(self) -> None:
        with contextlib.closing(self._lab.maps(writable=True)) as maps:
            reset_maxima(maps)


@dataclass(frozen=True, kw_only=True)
class QueueFrame(StatsFrame):
    """The queues of a lab; `counters` are those of `snapshot` since the frame before."""

    lab: str
    k: float
    snapshot: Snapshot
    counters: Snapshot
    queues: list[QueueTelemetry]
    others: Mapping[str, Any]
    reconciliation: Reconciliation
    dropped: Dropped
    guards: list[DroppedRow]
    columns: Sequence[str] = view.QUEUE_COLUMNS

    def rows(self) -> list[dict[str, Any]]:
        return [view.flat_queue(row, self.counters.time_ns, self.counters.seconds) for row in self.queues]

    def document(self) -> dict[str, Any]:
        return {
            "lab": self.lab,
            "k": self.k,
            "time_ns": self.counters.time_ns,
            "seconds": self.counters.seconds,
            "depth_limits_bytes": list(DEPTH_LIMITS_BYTES),
            "queues": [view.queue_document(row, self.counters.seconds) for row in self.queues],
            **self.others,
            **_guards_json(self.guards),
            "totals": view.totals_document(self.queues),
            "reconciliation": view.reconciliation_document(self.reconciliation),
        }

    def table(self, room: int | None) -> Table:
        span = "since the deploy" if self.counters.seconds is None else f"in {self.counters.seconds:.1f} s"
        return view.queue_table(self.queues, self.counters.seconds, title=f"{self.lab}: {span}", room=room)

    def footer(self) -> Text:
        footer = view.queue_footer(self.queues, self.others, self.reconciliation)
        return footer.append(f"\n{words}") if (words := dropped_sentence(self.guards)) else footer


def _guards_json(rows: Sequence[DroppedRow]) -> dict[str, Any]:
    return {"guards": list(map(row_json, rows))} if rows else {}


class KernelSource(StatsSource):
    """Reads what the kernel counts, which is all that is known of plain ports."""

    def __init__(self, lab: RunningLab, patterns: Sequence[str]) -> None:
        places = [f"{port.node}:{port.name}" for port in lab.plan.ports]
        self._lab = lab
        self._ports = [lab.plan.ports[index] for index in matching_places(lab.name, places, patterns)]

    def read(self, before: KernelFrame | None) -> KernelFrame:
        counters = self._lab.counters()
        now = {(port.node, port.name): counters.get((port.node, port.name), PortCounters()) for port in self._ports}
        dropped = read_dropped(self._lab)
        guards = dropped_rows(self._lab, dropped, None if before is None else before.dropped)
        return KernelFrame(self._lab.name, time.monotonic_ns(), now, before, dropped, guards)

    def reset_maxima(self) -> None:
        self._lab.maps(writable=True).close()  # raises the error that says why there are none


class KernelFrame(StatsFrame):
    def __init__(
        self,
        lab: str,
        time_ns: int,
        now: Mapping[tuple[str, str], PortCounters],
        before: KernelFrame | None,
        dropped: Dropped,
        guards: list[DroppedRow],
    ) -> None:
        self.dropped = dropped
        self._guards = guards
        self.columns = view.PORT_COLUMNS
        self.now = now
        self.time_ns = time_ns
        self._lab = lab
        self._seconds = (time_ns - before.time_ns) / 1e9 if before else None
        self._counters = {key: value.since(before.now[key]) if before else value for key, value in now.items()}

    def rows(self) -> list[dict[str, Any]]:
        return [{"node": node, "interface": port, **asdict(seen)} for (node, port), seen in self._counters.items()]

    def document(self) -> dict[str, Any]:
        return {
            "lab": self._lab,
            "time_ns": self.time_ns,
            "seconds": self._seconds,
            "ports": self.rows(),
        } | _guards_json(self._guards)

    def table(self, room: int | None) -> Table:
        return view.port_table(self.rows(), self._seconds, title=f"{self._lab}: the kernel's counters", room=room)

    def footer(self) -> Text:
        from rich.text import Text

        footer = Text("this lab has no qos: section, so there are no queues, marks or pauses to show", style="dim")
        return footer.append(f"\n{words}") if (words := dropped_sentence(self._guards)) else footer
