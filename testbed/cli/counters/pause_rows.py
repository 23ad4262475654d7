"""Pausing as ports see it, in rows for `pfc show`, and the priority that `pfc storm` means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.base.rows import column

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps
    from testbed.daemons.portd.client import LabStatus
    from testbed.lab.observe.port_table import PortTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRow:
    """A lossless queue. `in` and `paused` are what its port was told, `out` and `asked` what it told its peer."""

    port: str
    class_name: str = column("class")
    state: str
    xoff_in: int
    xon_in: int
    paused_ms: float
    xoff_out: int
    xon_out: int
    asked_ms: float
    reaction_p50_us: int | None
    reaction_p99_us: int | None
    reaction_max_us: int | None
    watchdog: int


def pause_rows(
    table: PortTable, maps: LabMaps, served: LabStatus | None, patterns: Sequence[str], *, every: bool, now_ns: int
) -> list[PauseRow]:
    """Make a row for each lossless queue; times count up to now (CLOCK_MONOTONIC). Raises `NothingSelected`."""
    rows = []
    pauses = maps.by_port("pauses")
    reactions = {} if served is None else served.reactions
    selected = table.select(patterns) & table.lossless
    for port, priority in zip(*(axis.tolist() for axis in selected.nonzero()), strict=True):
        record = {field: int(pauses[port, priority][field]) for field in pauses.dtype.names}
        if not every and not (record["xoff_received"] or record["xoff_sent"]):
            continue
        latency = reactions.get((port, priority))
        rows.append(
            PauseRow(
                port=table.place(port),
                class_name=table.class_name(port, priority),
                state=_state(record),
                xoff_in=record["xoff_received"],
                xon_in=record["xon_received"],
                paused_ms=_elapsed_ms(record["paused_ns"], record["paused_since"], now_ns),
                xoff_out=record["xoff_sent"],
                xon_out=record["xon_sent"],
                asked_ms=_elapsed_ms(record["asked_ns"], record["asked_since"], now_ns),
                reaction_p50_us=round(latency.p50_ns / 1e3) if latency else None,
                reaction_p99_us=round(latency.p99_ns / 1e3) if latency else None,
                reaction_max_us=round(latency.max_ns / 1e3) if latency else None,
                watchdog=record["watchdog_events"],
            )
        )
    return rows


def _state(record: dict[str, int]) -> str:
    """Tell in words what holds of a queue now."""
    states = (
        ("freed", record["ignored"]),
        ("paused", record["closed"]),
        ("storm", record["storm"]),
        ("pausing its peer", record["asked_since"] and not record["storm"]),
    )
    return ", ".join(name for name, holds in states if holds) or "-"


def _elapsed_ms(total_ns: int, since_ns: int, now_ns: int) -> float:
    return round((total_ns + (max(0, now_ns - since_ns) if since_ns else 0)) / 1e6, 1)


def storm_priority(table: PortTable, port: int, class_name: str | None, priority: int | None) -> int:
    """Find the priority that is named, or the only lossless one of a port. Raises `TestbedError` where that is none."""
    lossless = {table.class_name(port, p): p for p in range(8) if table.lossless[port, p]}
    known = ", ".join(f"{name} (priority {p})" for name, p in lossless.items())
    hint = f"lossless there: {known}" if known else "no class of this port is lossless"
    if class_name is not None and priority is not None:
        raise TestbedError("--class and --priority are two ways to say one thing: give one")
    if priority is not None:
        if priority not in lossless.values():
            raise TestbedError(f"priority {priority} of {table.place(port)} is not lossless", hint=hint)
        return priority
    if class_name is not None:
        if class_name not in lossless:
            raise TestbedError(f"class {class_name!r} of {table.place(port)} is not lossless", hint=hint)
        return lossless[class_name]
    if len(lossless) != 1:
        raise TestbedError("which class? give --class or --priority", hint=hint)
    return next(iter(lossless.values()))
