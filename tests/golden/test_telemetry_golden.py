"""The table of `stats` and the text of `serve metrics`, word for word."""

import io
import itertools

from fake_ports import BULK, CONTROL, RDMA, FakePorts
from golden_files import Golden
from memory_maps import queue_index

from testbed.cli.counters import view
from testbed.lab.core.model.telemetry import DropCause
from testbed.lab.observe.lab_reader import LabReading
from testbed.lab.observe.openmetrics import render_metrics
from testbed.lab.observe.reconcile import SETTLE_NS, reconcile
from testbed.lab.observe.telemetry import Snapshot, link_rows, queue_rows, spray_rows, take_snapshot

UP = "p1-s1-rail1:uplink1"


def busy() -> tuple[FakePorts, Snapshot]:
    """A lab after some traffic, and its first reading."""
    ports = FakePorts()
    up, other = ports.number(UP), ports.number("p1-s1-rail1:uplink2")
    down, host = ports.number("p1-s1-rail1:down1"), ports.number("p1-s1-h1:rail1")
    before = take_snapshot(ports.maps, now_ns=0)
    ports.carry(host, RDMA, 61_234)
    ports.carry(host, CONTROL, 12, size=90)
    ports.offer(up, RDMA, 31_000, came_in_at=down, marked=1_550)
    ports.send(up, RDMA, 31_000, came_in_at=down)
    ports.receive(int(ports.table.peer[up]), RDMA, 31_000, lost=31)
    ports.carry(other, RDMA, 30_000)
    ports.offer(up, BULK, 5_000, dropped={DropCause.BUFFER: 900, DropCause.TAIL: 7})
    ports.send(up, BULK, 4_000)
    ports.receive(int(ports.table.peer[up]), BULK, 4_000)
    ports.offer(down, RDMA, 2, dropped={DropCause.HEADROOM: 2})
    pause = ports.maps.pauses[queue_index(host, RDMA)]
    pause["paused_ns"], pause["paused_since"] = 12_345_000, 1_900_000_000
    pause["watchdog_events"] = 1
    ports.maps.ingress[queue_index(host, RDMA)]["pause_frames"] = 118
    asked = ports.maps.pauses[queue_index(down, RDMA)]
    asked["asked_ns"], asked["xoff_sent"], asked["xon_sent"] = 12_300_000, 60, 58
    return ports, before


def table(*, growth: bool, room: int | None = None) -> str:
    from rich.console import Console

    ports, before = busy()
    now = take_snapshot(ports.maps, now_ns=2_000_000_000)
    counters = now.since(before) if growth else now
    rows = queue_rows(ports.table, counters, now.active)
    others = {
        "links": view.link_documents(link_rows(ports.table, counters, now.active) if growth else []),
        "spray": view.spray_documents(spray_rows(ports.table, counters)),
    }
    result = reconcile(ports.maps, ports.table, clock_ns=itertools.count(0, SETTLE_NS).__next__, rest=lambda _: None)
    output = io.StringIO()
    console = Console(file=output, width=150, color_system=None)
    console.print(view.queue_table(rows, counters.seconds, title="fake: since the deploy", room=room))
    console.print(view.queue_footer(rows, others, result), soft_wrap=True)
    return "".join(line.rstrip() + "\n" for line in output.getvalue().splitlines())


def metrics() -> str:
    ports, _ = busy()
    now = take_snapshot(ports.maps, now_ns=2_000_000_000)
    networks = dict.fromkeys(zip(ports.table.nodes, ports.table.interfaces, strict=True), "backend")
    readings = [LabReading(lab="fake", k=1000, table=ports.table, snapshot=now, networks=networks)]
    return render_metrics(lambda: readings, histograms=True).decode()


def test_table_since_the_deploy(golden: Golden) -> None:
    golden("telemetry/stats.txt").check(table(growth=False))


def test_table_of_a_span_on_a_small_screen(golden: Golden) -> None:
    golden("telemetry/stats-watch.txt").check(table(growth=True, room=5))


def test_metrics(golden: Golden) -> None:
    golden("telemetry/metrics.txt").check(metrics())
