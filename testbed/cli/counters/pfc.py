"""The verbs `pfc show` and `pfc storm`: pausing as ports see it, and a port that pauses its peer without a reason."""

import dataclasses
import time
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import Group, argument, option

if TYPE_CHECKING:
    from testbed.daemons.portd.client import AgentStatus, LabStatus

pfc = Group("pfc", help="Show pausing, and provoke it.")
LATENCIES = ("reaction", "event_to_frame", "frame_to_gate")
"""What the pause agent measures of its own speed."""


@pfc.command("show")
@argument("patterns", nargs=-1, metavar="[NODE|NODE:IF...]", help="Only these nodes or ports.")
@options.lab_name
@option("--all", "-a", is_flag=True, help="Lossless queues that never paused, too.")
@options.format_option
def show(patterns: tuple[str, ...], name: str | None, all: bool, format: options.Format) -> None:
    """Show each lossless queue: paused or not, pause frames each way, paused time, how fast it was paused."""
    from testbed.base.rows import row_json
    from testbed.cli.counters.pause_rows import PauseRow, pause_rows
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
    from testbed.cli.counters.pause_rows import storm_priority
    from testbed.cli.lab_choice import open_lab, split_port
    from testbed.lab.observe.port_table import tabulate_ports

    try:
        length = Duration.parse(duration)
    except QuantityError as error:
        raise TestbedError(f"--for {duration}: {error}", hint=error.hint) from error
    lab = open_lab(name)
    node, interface = split_port(port)
    lab.port(node, interface)
    lab.maps().close()
    table = tabulate_ports(lab.plan)
    number = lab.plan.port_numbers.get(f"{node}:{interface}")
    if number is None:
        raise TestbedError(f"{port} has no traffic classes", hint="add `qos:` to its network and deploy again")
    chosen = storm_priority(table, number, traffic_class, priority)
    lab.pause_agent.storm(lab.name, number, chosen, length.ns)
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
