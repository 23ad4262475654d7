"""Which probes a scenario gets, and what is made of them."""

from dataclasses import replace

import pytest
from fake_lab import FakeLab, small_lab

from testbed.base.units import ByteCount, Duration
from testbed.lab.core.drivers.nodes.probe_packet import FRAME_BYTES
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams, UplinkParams
from testbed.lab.core.model import Delay, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.record.samples import RunEvent
from testbed.run.faults.registry import lab_fault
from testbed.run.machine.cpu import CpuUse
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.measures import RunData, compute_metrics
from testbed.run.measuring.observation import Observation
from testbed.run.placed.traffic import make_traffic
from testbed.run.probes.findings import probe_findings
from testbed.run.probes.ledger import ProbeReport, ProbeStream, StreamResult
from testbed.run.probes.planning import (
    MOST_OF_NIC,
    MOST_ORDERED,
    MOST_PPS_OF_CPU,
    MOST_STREAMS,
    ORDERED_PPS,
    PORTS,
    RATE_PPS,
    SOURCE_PORTS,
    TRAIN,
    ProbePlan,
    is_single_path,
    plan_probes,
)
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import Fault, Probes, Scalar, Scenario, TopologyRef, Workload
from testbed.run.schema.written import scenario_as_run
from testbed.run.trust.evidence import Evidence
from testbed.run.trust.registry import judge_run
from testbed.run.trust.traffic import check_order, check_pace

LAB, PLAN = small_lab(segments=2, hosts=2, rails=1, spines=4)
AT = Duration.parse("1s")
UPLINK = "p1-s1-rail1:uplink1"


def fault(kind: str = "link-set", **settings: Scalar) -> Fault:
    return Fault(at=AT, kind=kind, target=UPLINK, settings=settings)


SILENT = fault(silent=True, both=True)


def scenario(*faults: Fault, **probes: object) -> Scenario:
    return Scenario(
        name="x",
        topology=TopologyRef(file="x.yml"),
        workload=Workload(kind="permutation", parameters={"bytes": ByteCount(1000)}),
        faults=faults,
        probes=Probes(**probes),  # type: ignore[arg-type]
    )


def lab(model: Lab = LAB, plan: object = PLAN) -> FakeLab:
    return FakeLab(model, plan, lambda node, argv: argv)  # type: ignore[arg-type]


def planned(one: Scenario, on: FakeLab | None = None, *, seed: int = 1, cpus: int = 8) -> ProbePlan | None:
    on = on or lab()
    return plan_probes(one, on, make_traffic(one, on, seed=seed), cpus=cpus)


def certain(one: Scenario, on: FakeLab | None = None, *, seed: int = 1, cpus: int = 8) -> ProbePlan:
    found = planned(one, on, seed=seed, cpus=cpus)
    assert found is not None
    return found


def test_a_fault_that_may_lose_packets_is_timed_over_many_ports() -> None:
    found = certain(scenario(SILENT))
    assert (found.rate_pps, found.train) == (RATE_PPS, 1)
    pairs = {(flow.source.node, flow.destination.node) for flow in found.flows}
    assert len(pairs) == 4 and len(found.flows) == 4 * PORTS
    assert len({(flow.source.node, flow.source_port) for flow in found.flows}) == len(found.flows)
    assert all(SOURCE_PORTS[0] <= flow.source_port < SOURCE_PORTS[1] for flow in found.flows)
    assert certain(scenario(SILENT)) == found != certain(scenario(SILENT), seed=2)


def test_without_a_fault_short_trains_watch_the_order() -> None:
    found = certain(scenario())
    assert (found.rate_pps, found.train) == (ORDERED_PPS, TRAIN)
    assert len(found.flows) == 4


def test_probes_of_order_add_little_to_what_comes_as_it_pleases() -> None:
    parameters: dict[str, Scalar] = {"sizes": "FbHdp", "load": 0.02, "span": Duration.parse("1ms")}
    light = replace(scenario(), workload=Workload(kind="mice", parameters=parameters))
    on = lab(plan=replace(PLAN, k=50_000.0))
    found = certain(light, on)
    workload = make_traffic(light, on, seed=1).workload
    lasts_s = max(step.start_ns for step in workload.transfers) * on.plan.k / 1e9
    sent = sum(step.size_bytes for step in workload.transfers)
    assert found.train == TRAIN and found.rate_pps < ORDERED_PPS
    assert found.rate_pps * lasts_s * len(found.flows) * FRAME_BYTES <= 0.01 * sent * (1 + 1e-9)


def test_none_are_sent_where_they_are_off_or_would_tell_nothing() -> None:
    assert planned(scenario(SILENT, enabled=False)) is None
    assert planned(scenario(), sprayed()) is None
    assert planned(scenario(SILENT), sprayed()) is not None


def test_what_the_file_says_is_done() -> None:
    found = certain(scenario(SILENT, rate_pps=100.0, ports=3))
    assert found.rate_pps == 100.0 and len(found.flows) == 4 * 3


@pytest.mark.parametrize(("faults", "most"), [((SILENT,), MOST_STREAMS), ((), MOST_ORDERED)])
def test_of_many_pairs_some_stand_for_all(faults: tuple[Fault, ...], most: int) -> None:
    model, plan = small_lab(segments=4, hosts=4, rails=1)
    wide = replace(scenario(*faults), workload=Workload(kind="all-to-all", parameters={"bytes": ByteCount(64_000)}))
    found = certain(wide, lab(model, plan))
    assert most // 2 < len(found.flows) <= most
    assert len({flow.source.node for flow in found.flows}) == 16, "every host sends some"


def test_slow_nics_carry_fewer() -> None:
    model, plan = small_lab(segments=2, hosts=2, rails=1, k=1_000_000)
    found = certain(scenario(SILENT), lab(model, plan))
    nic = found.flows[0].source
    assert found.rate_pps < RATE_PPS
    assert PORTS * found.rate_pps * FRAME_BYTES * 8 == pytest.approx(MOST_OF_NIC * nic.rate_bps)


def test_small_machines_send_fewer() -> None:
    model, plan = small_lab(segments=2, hosts=4, rails=2)
    found = certain(scenario(SILENT), lab(model, plan), cpus=1)
    assert found.rate_pps * len(found.flows) == pytest.approx(MOST_PPS_OF_CPU)
    assert certain(scenario(SILENT, rate_pps=50.0), cpus=1).rate_pps == 50.0, "what the file says is done"


def test_faults_that_may_lose_packets() -> None:
    lossy = [SILENT, fault(loss=0.1), fault(loss_every=9), fault(corruption=0.1)]
    lossy += [fault(kind) for kind in ("link-down", "link-flap", "node-kill")]
    assert all(lab_fault(item).may_lose for item in [*lossy, fault("daemon-kill", daemon="bgpd")])
    others = [fault(rate="50%"), fault(delay="1ms"), fault("agent-kill"), fault("pfc-storm")]
    assert not any(lab_fault(item).may_lose for item in others)


def sprayed() -> FakeLab:
    """A lab with `qos:`, whose switches spray."""
    document = load_scenario_text(
        "name: x\ntopology: {inline: {name: x, qos: {preset: uec, load_balancing: {mode: spray}},"
        " fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1}}}\n"
        "workload: {kind: permutation, bytes: 1kB}\n",
        file="x.yml",
    )
    model = document.load_lab(document.scenario)
    return lab(model, plan_lab(model, slot=0, k=1000.0))


def test_where_a_flow_keeps_to_one_path() -> None:
    assert is_single_path(scenario(), lab())
    assert is_single_path(scenario(fault(rate="50%", both=True)), lab())
    assert is_single_path(scenario(fault("agent-kill")), lab())
    assert not is_single_path(scenario(), sprayed())
    for moved in (SILENT, fault("link-down"), fault(delay="1us"), fault(jitter="1us"), fault(rate="1G", loss=0)):
        assert not is_single_path(scenario(moved), lab())


def test_a_wire_whose_delay_varies_may_reorder() -> None:
    delay = Delay(value=Duration.parse("1us"), jitter=Duration.parse("100ns"))
    params = FabricParams(design="rail-optimized", segments=2, hosts=2, gpus=1, uplink=UplinkParams(delay=delay))
    model = generate_fabric(params, name="x")
    assert not is_single_path(scenario(), lab(model, plan_lab(model, slot=0, k=1000.0)))


@pytest.mark.parametrize(
    ("written", "meant", "kept"),
    [
        ("", Probes(), {}),
        ("probes: auto\n", Probes(), {}),
        ("probes: off\n", Probes(enabled=False), {"enabled": False}),
        ("probes: {rate: 50, ports: 4}\n", Probes(rate_pps=50, ports=4), {"rate": 50, "ports": 4}),
    ],
)
def test_the_section(written: str, meant: Probes, kept: dict[str, object]) -> None:
    text = f"name: x\ntopology: {{file: x.yml}}\nworkload: {{kind: permutation, bytes: 1kB}}\n{written}"
    found = load_scenario_text(text, file="s.yml").scenario
    assert found.probes == meant
    assert scenario_as_run(found).probes == kept


def stream(number: int, *, lost_s: tuple[float, ...] = (), arrived: int = 60, inversions: int = 0) -> StreamResult:
    return StreamResult(
        stream=ProbeStream(source="a:rail1", destination="b:rail1", source_port=32_000 + number),
        sent=arrived + len(lost_s),
        arrived=arrived,
        late=0,
        duplicates=0,
        inversions=inversions,
        lost_s=lost_s,
    )


DARK = tuple(1.0 + 0.05 * number for number in range(18))
"""0.9 s of losses at 20 a second."""
EVENT = RunEvent(at_s=1.0, kind="link-set", target=UPLINK, detail="silent=True")


def reported(*streams: StreamResult) -> ProbeReport:
    return ProbeReport(rate_pps=20.0, train=1, streams=streams)


def metrics(report: ProbeReport | None, *events: RunEvent) -> dict[str, float | None]:
    observation = Observation(elapsed_s=4.0, cpu=CpuUse(busy=0.25, steal=0.0, softirq=0.0))
    measured = Measured(events=list(events), observation=observation, probes=report)
    return compute_metrics(RunData(measured=measured, nic_bps=8e6))


def test_the_worst_stream_tells_the_time_lost() -> None:
    congested = stream(0, lost_s=(0.2, 2.0))
    found = metrics(reported(congested, stream(1, lost_s=(0.5, *DARK)), stream(2, lost_s=DARK[1:]), stream(3)), EVENT)
    assert found["blackhole_time_loss"] == pytest.approx(0.9), "what was lost before the fault does not count"
    assert found["streams_hit"] == 0.5


def test_nothing_lost_is_no_time_and_no_probes_are_no_metric() -> None:
    found = metrics(reported(stream(0), stream(1)), EVENT)
    assert (found["blackhole_time_loss"], found["streams_hit"]) == (0.0, 0.0)
    for without in (metrics(None, EVENT), metrics(reported(stream(0, lost_s=DARK)))):
        assert "blackhole_time_loss" not in without and "streams_hit" not in without


def judged(report: ProbeReport, asked: Scenario, *events: RunEvent) -> list[str]:
    """The names of the trust checks that probes add to those of every run."""
    silent = Evidence(scenario=asked, lab=lab(), measured=Measured(events=list(events)))
    usual = {check.name for check in judge_run(silent)}
    probed = replace(silent, measured=replace(silent.measured, probes=report))
    return [check.name for check in judge_run(probed) if check.name not in usual]


def test_what_the_record_keeps() -> None:
    report = reported(stream(0, lost_s=DARK), stream(1, lost_s=DARK[:9]), stream(2))
    found = probe_findings(report, [EVENT], 4.0)
    assert judged(report, scenario(SILENT), EVENT) == ["probe-pace"]
    assert found.counters["probes_lost"] == 27 and found.counters["probe_streams"] == 3
    dark, worst, second = found.series
    assert dark.unit == "share" and max(value or 0 for value in dark.values) == pytest.approx(2 / 3)
    night = [at for at, value in zip(dark.at_s, dark.values, strict=True) if value]
    assert night == pytest.approx([1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9])
    assert worst.name == "probes:a:rail1 -> b:rail1, port 32000"
    assert sum(value or 0 for value in worst.values) == 18 and sum(value or 0 for value in second.values) == 9
    assert len(worst.values) == 40 and all(
        at > 1.0 for at, value in zip(worst.at_s, worst.values, strict=True) if value
    )
    (histogram,) = found.distributions
    assert sum(histogram.counts) == 3 and histogram.counts[0] == histogram.counts[10] == histogram.counts[-1] == 1
    assert probe_findings(None, [EVENT], 4.0).counters == {}


def test_losses_of_a_run_without_faults_are_no_blackhole() -> None:
    report = reported(stream(0, lost_s=DARK))
    assert probe_findings(report, [], 4.0).distributions == []
    assert judged(report, scenario()) == ["probe-pace", "ordering"]


def test_a_machine_that_could_not_send_them_is_not_trusted() -> None:
    (fine,) = check_pace(replace(reported(stream(0)), skipped=3, latest_s=0.25))
    assert fine.ok and fine.value == pytest.approx(3 / 63)
    (broken,) = check_pace(replace(reported(stream(0)), skipped=4))
    assert not broken.ok and "6.2% of the probes could not be sent in time" in broken.message
    assert next(check_pace(reported())).ok


def test_order_is_a_matter_of_trust() -> None:
    (fine,) = check_order(reported(stream(0), stream(1)), [], [])
    assert fine.ok and fine.value == 0
    (broken,) = check_order(reported(stream(0), stream(1, inversions=2), stream(2, inversions=1)), [], [])
    assert not broken.ok and broken.value == 3
    assert ": 2 of probes a:rail1 -> b:rail1, port 32001, 1 of" in broken.message


@pytest.mark.parametrize("kind", ["detected", "carrier-lost", "daemon-ended"])
def test_order_is_not_judged_where_routing_moved_or_nothing_arrived(kind: str) -> None:
    moved = RunEvent(at_s=2.0, kind=kind, target="p1-spine1")
    assert list(check_order(reported(stream(0, inversions=1)), [], [moved])) == []
    assert list(check_order(reported(stream(0, arrived=1)), [], [])) == []
