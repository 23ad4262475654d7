"""perftest over RDMA against a lab that is not there: its children are canned, the rest is real."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_lab import FakeLab, small_lab
from recorded import screen

from testbed.base.errors import CapabilityError, ScenarioError
from testbed.base.units import ByteCount, Duration
from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.operations import CreateRdma
from testbed.record.record import Outcome, Record
from testbed.record.report import render_report
from testbed.record.report.scenario.latencies import latency_distribution, latency_rows
from testbed.record.report.scenario.tables import channels_csv
from testbed.record.store import decode_record, encode_record
from testbed.run.emulated.sweep import run_sweep
from testbed.run.machine.cpu import MAX_CPU_BUSY, CpuUse
from testbed.run.programs.perftest import PerftestTest
from testbed.run.programs.perftest_flows import ideal_latency_s, udp_source_port
from testbed.run.programs.timed_flows import SendingProgram, wait_for_senders
from testbed.run.schema.model import (
    Expectation,
    Ranks,
    Scenario,
    TopologyRef,
    Transport,
    TransportKind,
    Within,
    Workload,
)
from testbed.run.sweep.points import plan_points
from testbed.run.sweep.runner import ScenarioStopped
from testbed.run.transports.registry import transport_on
from testbed.run.trust.machine import check_machine

pytestmark = pytest.mark.process

TRAFFIC = "testbed.run.programs.perftest_traffic"
DATA = Path(__file__).parents[2] / "data/perftest"
STAYS = ("tail", "-f", "/dev/null")
NIC_BPS = 100e6
"""400 Gbit/s at k = 4000."""
TABLE = """\
 Number of qps   : 1\t\tTransport type : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      760              0.00               0.080   \t\t     0.000152
---------------------------------------------------------------------------------------
"""
Options = Mapping[str, str | int | bool]
Client = Callable[[str, Sequence[str]], Sequence[str]]


@pytest.fixture(autouse=True)
def machine(perftest_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "counters", lambda device: {"completer_retry_err": 0})


def printed(name: str) -> Client:
    text = (DATA / f"{name}.out").read_text()
    return lambda node, argv: ["printf", "%s", text]


def lab_with(client: Client, *, devices: bool = True, server: Sequence[str] = STAYS) -> FakeLab:
    model, plan = small_lab(hosts=2, rails=1, spines=2, k=4000)
    if devices:
        made = [CreateRdma(node=n.node, name=n.name, device=f"fake-{n.node}") for h in plan.hosts for n in h.nics]
        plan = replace(plan, operations=(*plan.operations, *made))
    return FakeLab(model, plan, lambda node, argv: client(node, argv) if "--out_json" in argv else server)


def swept(lab: FakeLab, options: Options, workload: Workload, *expect: Expectation) -> Record:
    asked = Scenario(
        name="test",
        topology=TopologyRef(file="fake.yml"),
        transport=Transport(kind=TransportKind.RDMA, options=options),
        workload=workload,
        expect=expect,
    )
    return run_sweep(asked, plan_points(asked), lambda _: lab)


def run(lab: FakeLab, options: Options, *expect: Expectation, size: str = "64B") -> Record:
    """Measures the latency of three pairs."""
    parameters = {"bytes": ByteCount.parse(size), "shift": 1}
    workload = Workload(kind="tornado", parameters=parameters, ranks=Ranks(count=3))
    return swept(lab, {"test": "latency", **options}, workload, *expect)


def run_for_a_time(lab: FakeLab, options: Options | None = None) -> Record:
    workload = Workload(kind="permutation", parameters={"scope": "inter-leaf"}, duration=Duration.parse("5s"))
    return swept(lab, options or {}, workload)


def clients_of(lab: FakeLab) -> list[tuple[str, ...]]:
    return [argv for _, argv in lab.started if "--out_json" in argv]


def bandwidth(node: str, argv: Sequence[str]) -> Sequence[str]:
    return ("printf", "%s", TABLE)


def test_flows_become_channels_as_those_of_iperf3_do(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = iter(range(10_000))
    counts = {"rcvd_bytes": 1000, "completer_retry_err": 1}
    monkeypatch.setattr(rdma, "counters", lambda device: {name: n * next(counted) for name, n in counts.items()})
    record = run_for_a_time(lab_with(bandwidth))
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


def test_commands_for_a_duration() -> None:
    lab = lab_with(bandwidth)
    run_for_a_time(lab, {"message_bytes": 4096, "tx_depth": 8, "path_mtu": 1024, "qp_timeout": 22})
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
    lab = lab_with(bandwidth)
    record = run_for_a_time(lab, {"verb": "read"})
    assert lab.started[0][0] == "p1-s1-h1", "its server is the source"
    assert lab.started[4][0] == "p1-s2-h1"
    assert record.points[0].runs[0].channels[0].source.node == "p1-s1-h1"


def test_several_queue_pairs_have_ports_of_their_own() -> None:
    lab = lab_with(bandwidth)
    record = run_for_a_time(lab, {"qps": 2})
    (labels,) = [word for word in lab.started[0][1] if word.startswith("--flow_label=")]
    assert len(set(labels.partition("=")[2].split(","))) == 2
    assert record.points[0].runs[0].channels[0].source_port is None


def test_a_flow_that_fails_says_what_perftest_says() -> None:
    lab = lab_with(
        lambda node, argv: ("sh", "-c", "echo Completion with error at client; echo Failed status 12; exit 1")
    )
    with pytest.raises(ScenarioStopped, match=r"flow (\d) .* failed on p1-s1-h\1: .*did not acknowledge in time"):
        run_for_a_time(lab)


def test_a_server_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{TRAFFIC}.listens", lambda pid, port: False)
    lab = lab_with(bandwidth, server=("true",))
    with pytest.raises(ScenarioStopped, match=r"failed on p1-s2-h[12]: ib_write_bw ended before its client came"):
        run_for_a_time(lab)


def test_a_server_that_is_late_is_named_with_the_time_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """More flows have more time, and what is said is the time that they had."""
    monkeypatch.setattr(f"{TRAFFIC}.listens", lambda pid, port: False)
    monkeypatch.setattr(f"{TRAFFIC}.LISTEN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(f"{TRAFFIC}.LISTEN_TIMEOUT_PER_FLOW_S", 0.2)
    lab = lab_with(bandwidth)
    with pytest.raises(ScenarioStopped, match="not listening after 1 s"):
        run_for_a_time(lab)


def test_hosts_without_devices_are_refused_before_anything_starts() -> None:
    lab = lab_with(bandwidth, devices=False)
    with pytest.raises(ScenarioError, match="p1-s1-h1:rail1 has no RDMA device") as caught:
        run_for_a_time(lab)
    assert "rxe" in (caught.value.hint or "")
    assert lab.started == []


def test_perftest_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{TRAFFIC}.search_path", lambda: "/nonexistent")
    with pytest.raises(CapabilityError, match="ib_write_bw is not installed"):
        run_for_a_time(lab_with(bandwidth))


@pytest.mark.parametrize(("label", "port"), [(1234, 50386), (77, 49229), (400, 49552), (1 << 14, 0xC001)])
def test_udp_ports_follow_from_flow_labels(label: int, port: int) -> None:
    """The first three were seen on Linux 7.3."""
    assert udp_source_port(label) == port


def test_time_spent_looking_is_no_work() -> None:
    busy = CpuUse(busy=0.98, steal=0.0, softirq=0.2)
    assert not next(check_machine(busy)).ok
    (cpu, _) = check_machine(busy, 0.3)
    assert cpu.ok and cpu.value == pytest.approx(0.68) and cpu.limit == MAX_CPU_BUSY
    assert "30% looking for completions" in cpu.message


def test_every_message_of_every_pair_is_kept() -> None:
    record = run(lab_with(printed("ib_write_lat-unsorted")), {"iterations": 20})
    (measured,) = record.points[0].runs
    assert len(measured.channels) == 3
    for channel in measured.channels:
        assert (channel.latency.test, channel.latency.size_bytes) == ("ib_write_lat", 64)
        assert not channel.latency.round_trip, "half of one"
        assert len(channel.latency.samples_us) == 19
        assert channel.seconds == pytest.approx(2 * sum(channel.latency.samples_us) / 1e6)
        assert channel.counters["messages"] == 19
    together = sorted(us for channel in measured.channels if channel.latency for us in channel.latency.samples_us)
    found = measured.metrics
    assert found["rdma_latency_min"] == pytest.approx(together[0] / 1e6)
    assert found["rdma_latency_p50"] == pytest.approx(together[28] / 1e6), "of all 57 messages, none left out"
    assert found["rdma_latency_p99"] == found["rdma_latency_max"] == pytest.approx(together[-1] / 1e6)
    assert found["retransmits"] == 0
    assert not {"aggregate_share", "s_fabric"} & set(found), "one message at a time says nothing of rates"
    assert "start-skew" not in [check.name for check in measured.checks], "they take turns"
    assert decode_record(encode_record(record)) == record
    said = " ".join(record.environment.approximations)
    assert re.search(r"sends a packet and up to [\d,]+ bytes at once and waits afterwards", said)


def test_perftest_that_knew_no_clock_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair before it is measured anew too, and only the last try counts: also of the CPU time that it polled."""
    clients = iter(["ib_write_lat-unsorted", "ib_write_lat-unsorted", "NO CLOCK"])

    def client(node: str, argv: Sequence[str]) -> list[str]:
        name = next(clients, "ib_write_lat-unsorted")
        if name == "NO CLOCK":
            return ["echo", (DATA / "ib_write_lat-duration.err").read_text()]
        return printed(name)(node, argv)

    lab = lab_with(client)
    polled: list[float] = []
    monkeypatch.setattr(f"{TRAFFIC}._children_user_s", lambda: float(len(clients_of(lab))))
    judge = "testbed.run.emulated.point.judge_run"
    monkeypatch.setattr(judge, lambda evidence: polled.append(evidence.measured.polling_s) or [])
    (measured,) = run(lab, {"iterations": 20}).points[0].runs
    assert len(clients_of(lab)) == 6 and polled == [3.0]
    assert [channel.counters["messages"] for channel in measured.channels] == [19, 19, 19]


def test_a_machine_on_which_perftest_never_knows_a_clock() -> None:
    lab = lab_with(lambda node, argv: ["echo", (DATA / "ib_write_lat-duration.err").read_text()])
    with pytest.raises(ScenarioStopped, match="Correlation coefficient"):
        run(lab, {"iterations": 20})
    assert len(clients_of(lab)) == 3


def test_what_either_end_sends_again_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device's once: at the first pair that it belongs to. The answer to a read is no request."""
    counted: dict[str, int] = {}

    def counters(device: str) -> dict[str, int]:
        counted[device] = counted.get(device, 0) + 1
        return {"completer_retry_err": counted[device]}

    monkeypatch.setattr(rdma, "counters", counters)
    monkeypatch.setattr(f"{TRAFFIC}._Recorder.read", lambda self: None)
    for verb, output, expected in (("write", "ib_write_lat-unsorted", [2, 1, 0]), ("read", "ib_read_lat", [1, 1, 1])):
        record = run(lab_with(printed(output)), {"verb": verb})
        assert [one.retransmits for one in record.points[0].runs[0].channels] == expected


def test_pairs_take_turns_unless_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counting(senders: Sequence[SendingProgram], **settings: Any) -> bool:
        seen.append(len(senders))
        return wait_for_senders(senders, **settings)

    monkeypatch.setattr(f"{TRAFFIC}.wait_for_senders", counting)
    run(lab_with(printed("ib_send_lat-unsorted")), {"verb": "send"})
    assert seen == [1, 1, 1]
    record = run(lab_with(printed("ib_send_lat-unsorted")), {"verb": "send", "together": True})
    assert seen[3:] == [3]
    assert "start-skew" in [check.name for check in record.points[0].runs[0].checks]


@pytest.mark.parametrize(
    ("verb", "program", "rest", "client", "output"),
    [
        ("write", "ib_write_lat", "-s 64", "p1-s1-h1", "ib_write_lat-unsorted"),
        ("send", "ib_send_lat", "-s 64", "p1-s1-h1", "ib_send_lat-unsorted"),
        ("read", "ib_read_lat", "-s 64", "p1-s1-h2", "ib_read_lat"),
        ("fetch-and-add", "ib_atomic_lat", "-A FETCH_AND_ADD", "p1-s1-h1", "ib_atomic_lat"),
        ("compare-and-swap", "ib_atomic_lat", "-A CMP_AND_SWAP", "p1-s1-h1", "ib_atomic_lat"),
    ],
)
def test_commands(verb: str, program: str, rest: str, client: str, output: str) -> None:
    lab = lab_with(printed(output))
    record = run(lab, {"verb": verb, "iterations": 20}, size="8B" if "-and-" in verb else "64B")
    asking = clients_of(lab)[0]
    words = f"nice -n 19 {program} -F -d fake-{client} -x 1 -n 20 -p 18515 -u 18 {rest} --flow_label="
    assert " ".join(asking).startswith(words)
    assert "--report-unsorted" in asking and "--tclass=2" in asking
    served = next(argv for _, argv in lab.started if "--out_json" not in argv)
    assert "--report-unsorted" not in served
    latency = record.points[0].runs[0].channels[0].latency
    assert latency.round_trip is (verb not in ("write", "send")), "the peer's adapter answers"
    assert record.points[0].runs[0].channels[0].source.node == "p1-s1-h1", "data goes the same way"


def test_an_atomic_for_a_duration() -> None:
    lab = lab_with(printed("ib_atomic_bw-cas"))
    tornado = Workload(kind="tornado", parameters={"shift": 1}, duration=Duration.parse("5s"), ranks=Ranks(count=2))
    record = swept(lab, {"verb": "compare-and-swap", "qps": 2}, tornado)
    argv = " ".join(clients_of(lab)[0])
    assert "ib_atomic_bw -F" in argv and "-D 7 -f 1" in argv and "-A CMP_AND_SWAP -q 2 --report_gbits" in argv
    (channel, *_) = record.points[0].runs[0].channels
    assert channel.goodput_bps == pytest.approx(0.000367e9)
    assert channel.counters["message_bytes"] == 8
    rate = record.points[0].runs[0].metrics["rdma_message_rate"]
    assert rate == pytest.approx(0.000367e9 / 64 * len(record.points[0].runs[0].channels), rel=1e-3), "operations"
    assert channel.ideal_bps == pytest.approx(NIC_BPS * 8 / (14 + 20 + 8 + 12 + 28 + 4)), "of its request's packet"


@pytest.mark.parametrize(
    ("verb", "size", "message"),
    [
        ("fetch-and-add", "64B", "fetch-and-add is of 8 bytes, not of 64"),
        ("write", "16MB", "ib_write_lat sends messages of 1 to 8388608 bytes, not of 16000000"),
    ],
)
def test_messages_that_a_test_cannot_have(verb: str, size: str, message: str) -> None:
    lab = lab_with(printed("ib_write_lat-unsorted"))
    with pytest.raises(ScenarioError, match=message):
        run(lab, {"verb": verb}, size=size)
    assert lab.started == []


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("printf '%s' \"$TEXT\"; exit 1", "ib_write_lat ended with status 1"),
        ("echo Completion with error at client; echo Failed status 12; exit 1", "did not acknowledge in time"),
        ("printf '%s' \"$TEXT\" | grep -v '^[0-9]*, '", "listed no latencies of its messages"),
        ("printf '%s' \"$TEXT\" | sed 's/^3, .*/3, inf/'", "could not tell how fast its clock counts"),
    ],
)
def test_a_pair_that_fails_says_why(output: str, reason: str) -> None:
    text = (DATA / "ib_write_lat-unsorted.out").read_text()
    lab = lab_with(lambda node, argv: ["env", f"TEXT={text}", "sh", "-c", output])
    with pytest.raises(ScenarioStopped, match=reason):
        run(lab, {})


def test_an_expectation_may_point_at_the_ideal() -> None:
    """The captured latencies are those of a busy emulated machine: far above."""
    within = Expectation(metric="rdma_latency_p50", within=Within.ORACLE, tolerance=0.25, relative=True)
    record = run(
        lab_with(printed("ib_write_lat-unsorted")), {}, within, Expectation(metric="rdma_latency_p50", maximum=1)
    )
    assert [item.outcome for item in record.expectations] == [Outcome.FAIL, Outcome.PASS]
    (predicted, *_) = [item for item in record.points[0].predictions if item.metric == "rdma_latency_p50"]
    (summary,) = [item for item in record.points[0].metrics if item.name == "rdma_latency_p50"]
    assert summary.ideal == pytest.approx(predicted.mean)
    assert record.expectations[0].minimum == pytest.approx(0.75 * predicted.mean)


def ends(lab: FakeLab, *, same_leaf: bool) -> tuple[PortPlan, PortPlan]:
    nics = {host.node: host.nics[0] for host in lab.plan.hosts}
    return nics["p1-s1-h1"], nics["p1-s1-h2" if same_leaf else "p1-s2-h1"]


@pytest.mark.parametrize(("same_leaf", "hops"), [(True, 2), (False, 4)])
@pytest.mark.parametrize(
    ("test", "size", "there", "back", "factor"),
    [
        (PerftestTest.WRITE_LAT, 64, 58 + 16 + 64, 58 + 16 + 64, 0.5),
        (PerftestTest.SEND_LAT, 64, 58 + 64, 58 + 64, 0.5),
        (PerftestTest.READ_LAT, 64, 58 + 16, 58 + 4 + 64, 1.0),
        (PerftestTest.ATOMIC_LAT, 8, 58 + 28, 58 + 4 + 8, 1.0),
    ],
)
def test_the_ideal_is_each_packet_sent_at_each_hop(
    test: PerftestTest, size: int, there: int, back: int, factor: float, same_leaf: bool, hops: int
) -> None:
    """Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4: 58 bytes."""
    lab = lab_with(printed("ib_write_lat-unsorted"))
    transport = transport_on(lab, Transport(kind=TransportKind.RDMA))
    a, b = ends(lab, same_leaf=same_leaf)
    expected = factor * hops * (there + back) * 8 / NIC_BPS
    assert ideal_latency_s(transport, test, a, b, size) == pytest.approx(expected, rel=1e-4)


def test_packets_of_a_large_message_follow_each_other() -> None:
    """Four packets through the first port, and the last one through the others."""
    lab = lab_with(printed("ib_write_lat-unsorted"))
    transport = transport_on(lab, Transport(kind=TransportKind.RDMA))
    a, b = ends(lab, same_leaf=False)
    packet = 4096 + 58
    expected = (4 * packet + 3 * packet) * 8 / NIC_BPS
    assert ideal_latency_s(transport, PerftestTest.SEND_LAT, a, b, 4 * 4096) == pytest.approx(expected, rel=1e-4)
    more = 74 * 4 * 8 / NIC_BPS + 8 * 8 / NIC_BPS  # the request, and an AETH in the first and the last packet
    assert ideal_latency_s(transport, PerftestTest.READ_LAT, a, b, 4 * 4096) == pytest.approx(expected + more, rel=1e-4)


def test_the_console_has_a_row_for_each_pair() -> None:
    record = run(lab_with(printed("ib_read_lat")), {"verb": "read", "iterations": 20})
    lines = screen(record).splitlines()
    (heading,) = [line for line in lines if "P99.9" in line and "P50 / ideal" in line]
    assert heading.split()[:4] == ["pair", "test", "bytes", "messages"]
    rows = [line for line in lines if "ib_read_lat" in line]
    assert len(rows) == 3
    assert "62 ms" in rows[0] and "28.9 ms" in rows[0], "maximum and P50 of what was captured"
    assert not any("Share of ideal" in line for line in lines)


def test_the_page_and_the_table_have_them() -> None:
    record = run(lab_with(printed("ib_read_lat")), {"verb": "read", "iterations": 20})
    page = render_report(record)
    assert "latency of 3 pairs" in page and "<td>ib_read_lat</td>" in page
    assert "Histogram: Latency of messages" in page
    assert "<th>Share of ideal</th>" not in page
    rows = list(csv.DictReader(io.StringIO(channels_csv(record))))
    assert [float(row["latency_p50_s"]) for row in rows] == pytest.approx([0.0281] * 3, rel=0.05)
    assert all(float(row["latency_max_s"]) == pytest.approx(0.062035) for row in rows)
    assert all(float(row["latency_ideal_s"]) > 0 for row in rows)


def test_a_histogram_counts_every_message() -> None:
    (measured,) = run(lab_with(printed("ib_read_lat")), {"verb": "read"}).points[0].runs
    distribution = latency_distribution(measured)
    assert distribution is not None and sum(distribution.counts) == 57
    assert len(latency_rows(measured)) == 3
    bare = replace(measured, channels=[replace(one, latency=None) for one in measured.channels])
    assert latency_distribution(bare) is None and latency_rows(bare) == []
