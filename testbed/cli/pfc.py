"""The verbs `pfc show` and `pfc storm`: pausing as ports see it, and a port that pauses its peer without a reason."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from testbed.cli.labs import open_lab, split_port
from testbed.cli.output import Format, emit_rows
from testbed.errors import TestbedError
from testbed.units import Duration

if TYPE_CHECKING:
    from testbed.collect.port_table import PortTable
    from testbed.datapath.maps import LabMaps
    from testbed.portd.client import AgentStatus, LabStatus

COLUMNS = (
    "port",
    "class",
    "state",
    "xoff_in",
    "xon_in",
    "paused_ms",
    "xoff_out",
    "xon_out",
    "asked_ms",
    "reaction_p50_us",
    "reaction_p99_us",
    "reaction_max_us",
    "watchdog",
)


def show(name: str | None, patterns: Sequence[str], *, every: bool, form: Format) -> None:
    """Print every lossless queue that was paused or asked for pause; with `every` the others, too."""
    from testbed.collect.port_table import tabulate_ports
    from testbed.portd.errors import PauseAgentError

    lab = open_lab(name)
    maps = lab.maps()
    status: AgentStatus | None = None
    missing = ""
    try:
        status = lab.pause_agent.status()
    except PauseAgentError as error:
        missing = error.message
    served = status.labs.get(lab.name) if status else None
    rows = pause_rows(tabulate_ports(lab.plan), maps, served, patterns, every=every, now_ns=time.monotonic_ns())
    agent = dataclasses.asdict(status) if status else {}
    agent.pop("labs", None)
    latencies = {key: dataclasses.asdict(getattr(served, key)) for key in _LATENCIES} if served else {}
    document = {"lab": lab.name, "agent": agent or None, **latencies, "queues": rows}
    emit_rows(rows, COLUMNS, form, title=_title(lab.name, served), json_document=document)
    if served is None:
        print(f"warning: nobody serves the pause frames of {lab.name}: {missing or 'not attached'}", file=sys.stderr)
    for weakness in status.weaknesses if status else ():
        print(f"warning: pause agent: {weakness}", file=sys.stderr)


_LATENCIES = ("reaction", "event_to_frame", "frame_to_gate")


def _title(lab: str, served: LabStatus | None) -> str:
    if served is None or not served.reaction.count:
        return f"{lab}: congestion has paused nothing yet"
    reaction = served.reaction
    return (
        f"{lab}: XOFF to closed gate p50 {reaction.p50_ns / 1e3:.0f} us, p99 {reaction.p99_ns / 1e3:.0f} us,"
        f" max {reaction.max_ns / 1e3:.0f} us, of {reaction.count}"
    )


def pause_rows(
    table: PortTable, maps: LabMaps, served: LabStatus | None, patterns: Sequence[str], *, every: bool, now_ns: int
) -> list[dict[str, Any]]:
    """One row for each lossless queue. `in` and `paused` are what its port was told, `out` and `asked` what it told
    its peer; times count up to now (CLOCK_MONOTONIC). Raises `NothingSelected` for a pattern that no port matches."""
    rows = []
    pauses = maps.by_port("pauses")
    selected = table.select(patterns) & table.lossless
    for port, priority in zip(*(axis.tolist() for axis in selected.nonzero()), strict=True):
        record = {field: int(pauses[port, priority][field]) for field in pauses.dtype.names}
        if not every and not (record["xoff_received"] or record["xoff_sent"]):
            continue
        latency = served.queues.get((port, priority)) if served else None
        rows.append(
            {
                "port": table.place(port),
                "class": table.class_name(port, priority),
                "state": _state(record),
                "xoff_in": record["xoff_received"],
                "xon_in": record["xon_received"],
                "paused_ms": _elapsed_ms(record["paused_ns"], record["paused_since"], now_ns),
                "xoff_out": record["xoff_sent"],
                "xon_out": record["xon_sent"],
                "asked_ms": _elapsed_ms(record["asked_ns"], record["asked_since"], now_ns),
                "reaction_p50_us": round(latency.p50_ns / 1e3) if latency else None,
                "reaction_p99_us": round(latency.p99_ns / 1e3) if latency else None,
                "reaction_max_us": round(latency.max_ns / 1e3) if latency else None,
                "watchdog": record["watchdog_events"],
            }
        )
    return rows


def _state(record: dict[str, int]) -> str:
    """What holds of a queue now."""
    states = (
        ("freed", record["ignored"]),
        ("paused", record["closed"]),
        ("storm", record["storm"]),
        ("pausing its peer", record["asked_since"] and not record["storm"]),
    )
    return ", ".join(name for name, holds in states if holds) or "-"


def _elapsed_ms(total_ns: int, since_ns: int, now_ns: int) -> float:
    return round((total_ns + (max(0, now_ns - since_ns) if since_ns else 0)) / 1e6, 1)


def storm(name: str | None, port: str, *, class_name: str | None, priority: int | None, duration: str) -> None:
    """Have NODE:IF pause its peer for `duration` of lab time."""
    from testbed.collect.port_table import tabulate_ports

    try:
        length = Duration.parse(duration)
    except ValueError as error:
        raise TestbedError(f"--for {duration}: {error}", hint="for example 2s or 500ms") from error
    lab = open_lab(name)
    node, interface = split_port(port)
    lab.port(node, interface)
    lab.maps().close()
    table = tabulate_ports(lab.plan)
    number = next(
        number
        for number in range(1, table.count + 1)
        if (table.nodes[number], table.interfaces[number]) == (node, interface)
    )
    chosen = storm_priority(table, number, class_name, priority)
    lab.pause_agent.storm(lab.name, number, chosen, length.ns)
    peer = table.place(int(table.peer[number]))
    print(f"{port} pauses {table.class_name(number, chosen)} at {peer} for {duration}")


def storm_priority(table: PortTable, port: int, class_name: str | None, priority: int | None) -> int:
    """The priority that is meant, or the only lossless one. Raises `TestbedError`."""
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
