"""Timed flows over RDMA against a lab that is not there: perftest's children are canned, the rest is real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from fake_lab import FakeLab, small_lab

from testbed.base.errors import CapabilityError, ScenarioError
from testbed.base.units import Duration
from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.plan.operations import CreateRdma
from testbed.record.record import Record
from testbed.run.emulated.sweep import run_sweep
from testbed.run.programs.perftest_flows import udp_source_port
from testbed.run.schema.model import Scenario, TopologyRef, Transport, TransportKind, Workload
from testbed.run.sweep.points import plan_points
from testbed.run.sweep.runner import ScenarioStopped
from testbed.run.trust.machine import MAX_CPU_BUSY, check_machine

pytestmark = pytest.mark.process

STAYS = ("tail", "-f", "/dev/null")
TRAFFIC = "testbed.run.programs.perftest_traffic"
TABLE = """\
 Number of qps   : 1\t\tTransport type : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      760              0.00               0.080   \t\t     0.000152
---------------------------------------------------------------------------------------
"""


@pytest.fixture(autouse=True)
def machine(perftest_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its devices count."""
    counted = iter(range(10_000))
    monkeypatch.setattr(
        rdma, "counters", lambda device: {"rcvd_bytes": 1000 * next(counted), "completer_retry_err": next(counted)}
    )


Client = Callable[[str, Sequence[str]], Sequence[str]]


def printed(text: str) -> Client:
    return lambda node, argv: ("printf", "%s", text)


def lab_with(client: Client, *, devices: bool = True, server: Sequence[str] = STAYS) -> FakeLab:
    model, plan = small_lab(hosts=2, rails=1, spines=2, k=4000)
    if devices:
        made = [CreateRdma(node=n.node, name=n.name, device=f"fake-{n.node}") for h in plan.hosts for n in h.nics]
        plan = replace(plan, operations=tuple(made))
    return FakeLab(model, plan, lambda node, argv: client(node, argv) if "--out_json" in argv else server)


def run(lab: FakeLab, options: Mapping[str, str | int] | None = None) -> Record:
    asked = Scenario(
        name="test",
        topology=TopologyRef(file="fake.yml"),
        transport=Transport(kind=TransportKind.RDMA, options=options or {}),
        workload=Workload(kind="permutation", parameters={"scope": "inter-leaf"}, duration=Duration.parse("5s")),
    )
    return run_sweep(asked, plan_points(asked), lambda _: lab)


def test_flows_become_channels_as_those_of_iperf3_do() -> None:
    record = run(lab_with(printed(TABLE)))
    (measured,) = record.points[0].runs
    assert [channel.source_rank for channel in measured.channels] == [0, 1, 2, 3]
    for channel in measured.channels:
        assert channel.goodput_bps == pytest.approx(80e6)
        assert channel.received_bytes == 65536 * 760
        assert channel.ideal_bps == pytest.approx(100e6 * 4096 / (4096 + 58))
        assert (channel.destination_port, channel.counters["messages"]) == (4791, 760)
        assert channel.source_port is not None and channel.source_port >= 0xC000
        assert channel.retransmits > 0, "the asking device's"
        assert channel.samples.acked_bytes[0] == 0
    assert measured.metrics["aggregate_share"] == pytest.approx(0.8 * (4096 + 58) / 4096)
    assert any(item.oracle.startswith("max-min") or "ECMP" in item.oracle for item in record.points[0].predictions)
    assert "no congestion control" in " ".join(record.environment.approximations)


def test_commands() -> None:
    lab = lab_with(printed(TABLE))
    run(lab, {"message_bytes": 4096, "tx_depth": 8, "path_mtu": 1024, "qp_timeout": 22})
    assert ["--out_json" in argv for _, argv in lab.started] == [False] * 4 + [True] * 4
    (server, asked), (client, asking) = lab.started[0], lab.started[4]
    assert (server, client) == ("p1-s2-h1", "p1-s1-h1")
    shared = " ".join(asked).replace("fake-p1-s2-h1", "fake-p1-s1-h1")
    assert shared.startswith(
        "nice -n 19 ib_write_bw -F -d fake-p1-s1-h1 -x 1 -D 7 -f 1 -p 18515 -u 22 -s 4096 -q 1 --report_gbits -m 1024"
        " -t 8 --flow_label="
    )
    assert " ".join(asking).startswith(shared) and shared.endswith("--tclass=2"), "ECT(0)"
    assert asking[-1] == "10.2.1.1" and "--bind_source_ip=10.1.1.1" in asking


def test_who_gets_the_data_asks_for_a_read() -> None:
    lab = lab_with(printed(TABLE))
    record = run(lab, {"verb": "read"})
    assert lab.started[0][0] == "p1-s1-h1", "its server is the source"
    assert lab.started[4][0] == "p1-s2-h1"
    assert record.points[0].runs[0].channels[0].source.node == "p1-s1-h1"


def test_several_queue_pairs_have_ports_of_their_own() -> None:
    lab = lab_with(printed(TABLE))
    record = run(lab, {"qps": 2})
    (labels,) = [word for word in lab.started[0][1] if word.startswith("--flow_label=")]
    assert len(set(labels.partition("=")[2].split(","))) == 2
    assert record.points[0].runs[0].channels[0].source_port is None


def test_a_flow_that_fails_says_what_perftest_says() -> None:
    lab = lab_with(
        lambda node, argv: ("sh", "-c", "echo Completion with error at client; echo Failed status 12; exit 1")
    )
    with pytest.raises(ScenarioStopped, match=r"flow (\d) .* failed on p1-s1-h\1: .*did not acknowledge in time"):
        run(lab)


def test_a_server_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{TRAFFIC}.listens", lambda pid, port: False)
    lab = lab_with(printed(TABLE), server=("true",))
    with pytest.raises(ScenarioStopped, match=r"failed on p1-s2-h[12]: ib_write_bw ended before its client came"):
        run(lab)


def test_a_server_that_is_late_is_named_with_the_time_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """More flows have more time, and what is said is the time that they had."""
    monkeypatch.setattr(f"{TRAFFIC}.listens", lambda pid, port: False)
    monkeypatch.setattr(f"{TRAFFIC}.LISTEN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(f"{TRAFFIC}.LISTEN_TIMEOUT_PER_FLOW_S", 0.2)
    lab = lab_with(printed(TABLE))
    with pytest.raises(ScenarioStopped, match="not listening after 1 s"):
        run(lab)


def test_hosts_without_devices_are_refused_before_anything_starts() -> None:
    lab = lab_with(printed(TABLE), devices=False)
    with pytest.raises(ScenarioError, match="p1-s1-h1:rail1 has no RDMA device") as caught:
        run(lab)
    assert "rxe" in (caught.value.hint or "")
    assert lab.started == []


def test_perftest_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{TRAFFIC}.search_path", lambda: "/nonexistent")
    with pytest.raises(CapabilityError, match="ib_write_bw is not installed"):
        run(lab_with(printed(TABLE)))


@pytest.mark.parametrize(("label", "port"), [(1234, 50386), (77, 49229), (400, 49552), (1 << 14, 0xC001)])
def test_udp_ports_follow_from_flow_labels(label: int, port: int) -> None:
    """The first three were seen on Linux 7.3."""
    assert udp_source_port(label) == port


def test_time_spent_looking_is_no_work() -> None:
    from testbed.run.machine.cpu import CpuUse

    busy = CpuUse(busy=0.98, steal=0.0, softirq=0.2)
    assert not check_machine(busy)[0].ok
    (cpu, _) = check_machine(busy, 0.3)
    assert cpu.ok and cpu.value == pytest.approx(0.68) and cpu.limit == MAX_CPU_BUSY
    assert "30% looking for completions" in cpu.message
