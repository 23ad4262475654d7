"""What two machines have seen of one lab becomes what one would have seen of all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spread_lab import LOSSLESS, TOPOLOGY

from testbed.api.pool.over.clocks import ClockReading
from testbed.api.pool.over.joined import join_watched
from testbed.api.pool.over.lab import SpreadLab
from testbed.api.pool.over.messages import ANSWERS, line_of, read_line
from testbed.api.pool.over.programs import RemotePrograms
from testbed.api.pool.over.run_messages import Packed, PackedSamples, PartSeen
from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import MAPS
from testbed.base.linux.port_counters import PortCounters
from testbed.daemons.portd.client import LabStatus
from testbed.daemons.portd.histogram import Latency
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.observe.port_table import PortTable, tabulate_ports
from testbed.lab.observe.reconcile import Balance, Imbalance, Reconciliation
from testbed.lab.observe.sampler import Samples
from testbed.record.samples import MarkingCurve, RunEvent
from testbed.run.machine.canary import Lateness
from testbed.run.machine.cpu import CpuUse, SoftnetCounts
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.observation import Observation

AHEAD = {"a": 0, "b": 1_000_000}
MS = 1_000_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> SpreadLab:
    file = tmp_path_factory.mktemp("lab") / "two.yml"
    file.write_text(TOPOLOGY.format(name="two") + LOSSLESS)
    model = load_topology(file)
    return SpreadLab(model=model, plan=plan_lab(model, k=20_000), controls={}, programs=RemotePrograms("two", [], {}))


@pytest.fixture(scope="module")
def table(lab: SpreadLab) -> PortTable:
    return tabulate_ports(lab.plan)


@pytest.fixture(scope="module")
def places(lab: SpreadLab) -> dict[str, str]:
    second = ("p1-s2", "p1-spine2")
    return {node.name: "b" if node.name.startswith(second) else "a" for node in lab.model.nodes}


def growth(table: PortTable, value: int, *, ports: int | None = None) -> Mapping[str, Packed]:
    """Counters of a machine, which has a row for each port, its own or not."""
    count = table.count + 1 if ports is None else ports
    found: dict[str, Any] = {name: np.zeros((count, CLASSES), MAPS[name]) for name in ("queues", "ingress", "pauses")}
    found["queues"]["out_packets"] = value
    found["buffers"] = np.zeros(1 + int(table.buffer.max()), MAPS["buffers"])
    found["buffers"]["max_bytes"] = value
    return {name: Packed.of(array) for name, array in found.items()}


def samples(times_ns: list[int], values: list[int], queue: tuple[int, int], paused_since: int) -> PackedSamples:
    columns = {
        "queues.out_bytes": np.array(values, np.uint64)[:, None],
        "pauses.paused_since": np.array([0] * (len(values) - 1) + [paused_since], np.uint64)[:, None],
    }
    packed = PackedSamples.of(
        Samples(times_ns=np.array(times_ns, np.int64), columns=columns, queues=(queue,), complete=True)
    )
    assert packed is not None
    return packed


def curve(queues: int, packets: list[int]) -> MarkingCurve:
    return MarkingCurve(
        class_name="rdma",
        marker="eBPF",
        queues=queues,
        kmin_bytes=1,
        kmax_bytes=9,
        pmax=1.0,
        edges_bytes=[0, 5],
        packets=packets,
        marked=[1, 1],
        ideal=[0.0, 1.0],
    )


def watched(table: PortTable, number: int, **others: Any) -> PartSeen:
    """What the machine of this number has seen, larger for the second."""
    node = ("p1-s1-rail1", "p1-s2-rail1")[number - 1]
    port = next(port for port in range(1, table.count + 1) if table.nodes[port] == node)
    ahead = list(AHEAD.values())[number - 1]
    times = [ahead + at * MS + number for at in (10, 20, 30)]
    found = PartSeen(
        cpu=CpuUse(busy=0.4 * number, steal=0.1 / number, softirq=0.1),
        sent=((node, "up", PortCounters(tx_bytes=number)),),
        dropped=((node, "up", number),),
        guarded=(),
        seconds=1.0,
        growth=growth(table, number),
        samples=samples(times, [number * at for at in (1, 2, 3)], (port, 3), ahead + 25 * MS),
        port_samples=None,
        marking=(curve(number, [number, 10 * number]),),
        lateness=Lateness(count=9, p50_ns=1, p99_ns=100 * number, max_ns=1_000),
        softnet=SoftnetCounts(dropped=number, squeezed=0),
        balance=Reconciliation(balance=Balance.RECONCILED, checked={"queues": number}, imbalances=(), switches=()),
        pausing=LabStatus(
            ports=1,
            pin_directory=Path("/x"),
            reaction=Latency(count=number, p50_ns=10, p99_ns=20, max_ns=30 * number),
            event_to_frame=Latency(),
            frame_to_gate=Latency(),
            queues=(),
        ),
        touches=(RunEvent(at_s=0.1, kind="touched", target=node),),
    )
    return replace(found, **others)


def joined(lab: SpreadLab, places: Mapping[str, str], parts: dict[str, PartSeen]) -> Measured:
    measured = Measured(observation=Observation(begin_ns=0, elapsed_s=0.1, cpu=None))
    clocks = {name: ClockReading(ahead_ns=ahead, error_ns=10) for name, ahead in AHEAD.items()}
    as_told = {name: read_line(line_of(part).rstrip(), ANSWERS) for name, part in parts.items()}
    join_watched(as_told, clocks, places, lab, measured)
    return measured


def test_each_port_has_the_counters_of_its_machine(lab: SpreadLab, table: PortTable, places: dict[str, str]) -> None:
    seen = joined(lab, places, {"a": watched(table, 1), "b": watched(table, 2)}).observation
    assert seen.growth is not None and seen.table is not None
    for port in range(1, table.count + 1):
        wanted = 1 if places[table.nodes[port]] == "a" else 2
        assert set(seen.growth.queues["out_packets"][port].tolist()) == {wanted}, table.place(port)
        if buffer := int(table.buffer[port]):
            assert seen.growth.buffers["max_bytes"][buffer] == wanted
    assert seen.growth.queues["out_packets"][0].sum() == 0, "no port is not anybody's"
    assert {node: counters.tx_bytes for (node, _), counters in seen.sent.items()} == {
        "p1-s1-rail1": 1,
        "p1-s2-rail1": 2,
    }
    assert seen.dropped == {("p1-s1-rail1", "up"): 1, ("p1-s2-rail1", "up"): 2}


def test_samples_are_at_the_times_of_the_first_machine_on_our_clock(
    lab: SpreadLab, table: PortTable, places: dict[str, str]
) -> None:
    seen = joined(lab, places, {"a": watched(table, 1), "b": watched(table, 2)}).observation
    assert seen.samples is not None
    assert seen.samples.times_ns.tolist() == [10 * MS + 1, 20 * MS + 1, 30 * MS + 1]
    # the second one's sample of 20 ms is a nanosecond later than the first one's, which so has that of 10 ms
    assert seen.samples.columns["queues.out_bytes"].tolist() == [[1, 2], [2, 2], [3, 4]]
    assert seen.samples.columns["pauses.paused_since"].tolist() == [[0, 0], [0, 0], [25 * MS, 0]]
    assert len(seen.samples.queues) == 2


def test_a_time_of_another_machine_is_moved_to_our_clock(
    lab: SpreadLab, table: PortTable, places: dict[str, str]
) -> None:
    late = watched(table, 1, samples=samples([40 * MS, 50 * MS], [5, 6], (1, 3), 45 * MS))
    seen = joined(lab, places, {"a": late, "b": watched(table, 2)}).observation
    assert seen.samples is not None
    assert seen.samples.columns["pauses.paused_since"][:, 1].tolist() == [25 * MS, 25 * MS]


def test_the_worst_of_the_machines_counts(lab: SpreadLab, table: PortTable, places: dict[str, str]) -> None:
    broken = Imbalance(law="out = in", place="x", state=Balance.BROKEN, packets=1, bytes=0)
    second = watched(
        table,
        2,
        balance=Reconciliation(balance=Balance.BROKEN, checked={"queues": 2}, imbalances=(broken,), switches=()),
    )
    measured = joined(lab, places, {"a": watched(table, 1), "b": second})
    assert measured.observation.cpu == CpuUse(busy=0.8, steal=0.1, softirq=0.1)
    assert measured.lateness is not None and measured.lateness.p99_ns == 200
    assert measured.softnet[1].dropped == 3, "packets of all"
    assert measured.ports is not None and measured.ports.pausing is not None
    assert (measured.ports.balance.balance, measured.ports.balance.checked) == (Balance.BROKEN, {"queues": 3})
    assert measured.ports.balance.imbalances == (broken,)
    assert measured.ports.pausing.reaction == Latency(count=3, p50_ns=10, p99_ns=20, max_ns=60)
    [marks] = measured.observation.marking
    assert (marks.queues, list(marks.packets), list(marks.marked)) == (3, [3, 30], [2, 2])
    assert measured.touches is not None and [event.target for event in measured.touches] == [
        "p1-s1-rail1",
        "p1-s2-rail1",
    ]


def test_a_machine_that_counts_too_few_ports_is_not_believed(
    lab: SpreadLab, table: PortTable, places: dict[str, str]
) -> None:
    short = watched(table, 2, growth=growth(table, 2, ports=3))
    with pytest.raises(ValueError, match="b counts other ports"):
        joined(lab, places, {"a": watched(table, 1), "b": short})


def test_an_array_of_another_shape_is_refused() -> None:
    packed = Packed.of(np.arange(6, dtype=np.int64))
    assert packed.unpack(np.dtype(np.int64)).tolist() == list(range(6))
    for wrong in (replace(packed, shape=(7,)), replace(packed, data=b"nonsense")):
        with pytest.raises(ValueError):
            wrong.unpack(np.dtype(np.int64))
