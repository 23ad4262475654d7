"""The verbs `pfc show` and `pfc storm`: pausing as ports see it, and a port that pauses its peer without a reason."""

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.base.rows import column
from testbed.cli import options
from testbed.cli.command import Group, argument, option

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps
    from testbed.daemons.portd.client import AgentStatus, LabStatus
    from testbed.lab.observe.port_table import PortTable

pfc = Group("pfc", help="Show pausing, and provoke it.")
LATENCIES = ("reaction", "event_to_frame", "frame_to_gate")
"""The latencies that the pause agent measures of itself."""


@pfc.command("show")
@argument("patterns", nargs=-1, metavar="[NODE|NODE:IF...]", help="Only these nodes or ports.")
@options.lab_name
@option("--all", "-a", is_flag=True, help="Lossless queues that never paused, too.")
@options.format_option
def show(patterns: tuple[str, ...], name: str | None, all: bool, format: options.Format) -> None:
    """Show each lossless queue: paused or not, pause frames each way, paused time, how fast it was paused."""
    from testbed.base.rows import row_json
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.output import emit, warn
    from testbed.daemons.portd.errors import PauseAgentError
    from testbed.lab.observe.port_table import tabulate_ports

    lab = open_lab(name)
    maps = lab.maps()
    status: AgentStatus | None = None
    missing = ""
    try:
        status = lab.pause_agent.status()
    except PauseAgentError as error:
        missing = error.message
    served = status.labs.get(lab.name) if status else None
    table = tabulate_ports(lab.plan)
    rows = pause_rows(table, maps, served, patterns, every=all, now_ns=time.monotonic_ns())
    agent = dataclasses.asdict(status) if status else {}
    agent.pop("labs", None)
    latencies = {key: dataclasses.asdict(getattr(served, key)) for key in LATENCIES} if served else {}
    document = {"lab": lab.name, "agent": agent or None, **latencies, "queues": list(map(row_json, rows))}
    emit(rows, PauseRow, format, title=_title(lab.name, served), document=document)
    if served is None:
        warn(f"nobody serves the pause frames of {lab.name}: {missing or 'not attached'}")
    for weakness in status.weaknesses if status else ():
        warn(f"pause agent: {weakness}")


@pfc.command("storm")
@options.port
@option("duration", "--for", required=True, help="How long, in lab time: 2s, 500ms.")
@option("traffic_class", "--class", help="Its name; default: the only one.")
@option("--priority", type=int, help="Or its priority, 0 to 7.")
@options.lab_name
def storm(port: str, duration: str, traffic_class: str | None, priority: int | None, name: str | None) -> None:
    """Have NODE:IF pause a lossless class of its peer without a reason, as a broken NIC does."""
    from testbed.base.units import Duration, QuantityError
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.records.kept_events import keep_event
    from testbed.lab.observe.port_table import tabulate_ports

    try:
        length = Duration.parse(duration)
    except QuantityError as error:
        raise TestbedError(f"--for {duration}: {error}", hint=error.hint) from error
    lab = open_lab(name)
    node, _, interface = port.partition(":")
    lab.port(node, interface)
    lab.maps().close()
    table = tabulate_ports(lab.plan)
    number = lab.plan.port_numbers.get(f"{node}:{interface}")
    if number is None:
        raise TestbedError(f"{port} has no traffic classes", hint="add `qos:` to its network and deploy again")
    chosen = storm_priority(table, number, traffic_class, priority)
    lab.pause_agent.storm(lab.name, number, chosen, length.ns)
    paused = f"class {table.class_name(number, chosen)} for {duration}"
    keep_event(lab.state_directory, lab.name, node, "pfc-storm", interface, paused)
    peer = table.place(int(table.peer[number]))
    print(f"{port} pauses {table.class_name(number, chosen)} at {peer} for {duration}")


def _title(lab: str, served: "LabStatus | None") -> str:
    """Tell in a line above the table how fast the agent closed gates."""
    if served is None or not served.reaction.count:
        return f"{lab}: congestion has paused nothing yet"
    reaction = served.reaction
    return (
        f"{lab}: XOFF to closed gate p50 {reaction.p50_ns / 1e3:.0f} us, p99 {reaction.p99_ns / 1e3:.0f} us,"
        f" max {reaction.max_ns / 1e3:.0f} us, of {reaction.count}"
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
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
    table: "PortTable",
    maps: "LabMaps",
    served: "LabStatus | None",
    patterns: Sequence[str],
    *,
    every: bool,
    now_ns: int,
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


def storm_priority(table: "PortTable", port: int, class_name: str | None, priority: int | None) -> int:
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
