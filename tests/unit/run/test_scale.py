"""What a scenario asks of the CPU, and the one time scale that its labs get."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.cli.options import Format
from testbed.cli.scenarios.dry_run import print_dry_run
from testbed.cli.scenarios.named_files import read_sweeps
from testbed.lab.core.deploy import scale
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.scale import (
    MachineLoad,
    MachineProfile,
    PacketDemand,
    choose_packet_scale,
    judge_packet_scale,
)
from testbed.run.schema.model import TopologyRef
from testbed.run.sweep.points import Sweep
from testbed.run.sweep.scales import ScenarioScales, packet_demand

ROOT = Path(__file__).parents[3]
MACHINE = MachineProfile(cores=2, forwarding_bps=2 * 36_000 / 35e-6, mtu_bytes=4500)
LINE_RATE = 400e9 / 8 / (4096 + 98)
"""Packets/s of a 400G NIC with 4 KiB in each."""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "machine_profile", lambda state, measure: MACHINE)
    monkeypatch.setattr("testbed.run.sweep.packet_cost.packet_cost", lambda transport, state, measure: None)
    monkeypatch.setattr("testbed.run.sweep.scales.watch_machine", lambda state, keep: MachineLoad())
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TESTBED_RUN_DIR", str(tmp_path / "run"))


def sweep_of(tmp_path: Path, workload: str, rest: str = "", settings: str = "fabric.segments: 1") -> Sweep:
    path = tmp_path / "x.yml"
    path.write_text(
        f"name: x\ntopology: {{file: {ROOT}/topologies/uec-spray.yml,"
        f" set: {{fabric.hosts: 9, fabric.gpus: 1, {settings}}}}}\ntransport: {{kind: uet}}\n"
        f"workload: {{{workload}}}\n{rest}"
    )
    return read_sweeps([path])[0]


def demand(sweep: Sweep, k: float = 1000) -> PacketDemand | None:
    (point,) = sweep.points
    lab = sweep.lab_of(point)
    return packet_demand(point.scenario, lab, plan_lab(lab, k=k))


def ks(sweep: Sweep) -> list[float]:
    scales = ScenarioScales(sweep.points, sweep.labs, StateDirectory())
    return [scales(point.topology, sweep.lab_of(point)).k for point in sweep.points]


def test_an_incast_asks_for_one_nic_in_the_mean_and_for_all_at_its_beginning(tmp_path: Path) -> None:
    found = demand(sweep_of(tmp_path, "kind: incast, senders: 8, bytes: 40MB"))
    assert found is not None and found.senders == 8
    assert found.packets_per_s == pytest.approx(LINE_RATE, rel=0.01)
    assert found.burst_packets_per_s == pytest.approx(8 * LINE_RATE, rel=0.01)


def test_what_is_asked_does_not_depend_on_the_scale(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp")
    fast, slow = demand(sweep, 100), demand(sweep, 50_000)
    assert fast.packets_per_s == pytest.approx(slow.packets_per_s, rel=1e-3)
    assert fast.packets_per_s == pytest.approx(9 * LINE_RATE, rel=0.2), "nine senders, and a round trip"


def test_small_messages_are_packets_too(tmp_path: Path) -> None:
    large, small = (demand(sweep_of(tmp_path, f"kind: permutation, bytes: {size}")) for size in ("8MB", "1kB"))
    assert small.packets_per_s < large.packets_per_s, "they wait for a round trip"
    assert small.packets_per_s > 0


def test_the_kernel_asks_for_no_packets_of_ours(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp", "matrix: {transport.kind: [tcp]}\n")
    assert demand(sweep) is None
    assert ks(sweep) == [5000.0], "all NICs at once: 9 x 400G over one hop"


def test_points_that_share_a_lab_share_the_scale_of_the_dearest(tmp_path: Path) -> None:
    both = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp", "matrix: {transport.kind: [tcp, uet]}\n")
    assert len(both.labs) == 1 and ks(both) == [40_000.0, 40_000.0]


def test_labs_of_one_scenario_have_one_scale(tmp_path: Path) -> None:
    matrix = "matrix: {fabric.hosts: [2, 9]}\n"
    sweep = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp", matrix)
    assert len(sweep.labs) == 2 and ks(sweep) == [40_000.0, 40_000.0]
    alone = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp", matrix.replace(", 9", ""))
    assert ks(alone) == [8000.0]


def test_room_for_others_ends_where_the_time_limit_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = MachineLoad(busy=0.5)
    monkeypatch.setattr("testbed.run.sweep.scales.watch_machine", lambda state, keep: load)
    short = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp")
    assert ks(short) == [80_000.0]
    long = sweep_of(tmp_path, "kind: permutation, bytes: 8MB, time_limit: 10s")
    assert ks(long) == [40_000.0]
    scales = ScenarioScales(long.points, long.labs, StateDirectory())
    assert "beyond their time limit" in scales(long.points[0].topology, long.lab_of(long.points[0])).reason


def test_others_are_watched_before_anything_of_ours_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = [MachineLoad(), MachineLoad(busy=0.5)]  # the second is what our own processes would be taken for
    monkeypatch.setattr("testbed.run.sweep.scales.watch_machine", lambda state, keep: loads.pop(0))
    sweep = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp")
    scales = ScenarioScales(sweep.points, sweep.labs, StateDirectory())
    scales.watch_others()
    assert len(loads) == 1
    assert scales(sweep.points[0].topology, sweep.lab_of(sweep.points[0])).k == 40_000
    given = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp", "matrix: {scale.time: [4000, 80000]}\n")
    ScenarioScales(given.points, given.labs, StateDirectory()).watch_others()
    assert len(loads) == 1, "a scale that is given asks for nothing"


def test_a_scale_that_is_given_stays(tmp_path: Path) -> None:
    matrix = "matrix: {scale.time: [4000, 80000]}\n"
    assert ks(sweep_of(tmp_path, "kind: permutation, bytes: 8bdp", matrix)) == [4000.0, 80_000.0]


def test_a_topology_that_no_point_has_is_judged_by_itself(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "kind: permutation, bytes: 8bdp")
    scales = ScenarioScales(sweep.points, sweep.labs, StateDirectory())
    (lab,) = sweep.labs.values()
    assert scales(TopologyRef(file="another.yml"), lab).k == 5000


def test_a_dry_run_says_why_and_what_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = "kind: incast, senders: 8, bytes: 1MB"
    sweep = sweep_of(tmp_path, workload)
    print_dry_run([sweep], Format.TABLE)
    said = capsys.readouterr().out
    assert "x: k = 8000: 1,4" in said and "while 8 senders begin" in said
    print_dry_run([sweep], Format.JSON)
    assert "the traffic, 15% the runner, 0% others now), and 90% are allowed, so a run is likely to be valid" in said
    (lab,) = json.loads(capsys.readouterr().out)[0]["labs"]
    assert lab["expected"]["valid"] == "likely" and 0 < lab["expected"]["traffic"] < lab["expected"]["busy"] < 0.75
    assert lab["k"] == 8000 and "packets/s" in lab["k_reason"] and lab["k_warning"] == ""
    print_dry_run([sweep_of(tmp_path, workload, settings="fabric.segments: 1, scale.time: 2000")], Format.TABLE)
    said = capsys.readouterr().out
    assert "warning: this machine cannot carry k = 2000" in said and "k = 8000 would stay within" in said


MIXED = """name: mixed
topology:
  inline:
    name: mixed
    fabric: {{design: rail-optimized, hosts: 4, gpus: 1, spines: 1, segments: 1}}
    qos: {{preset: uec}}
    networks: {{frontend: {{design: single-switch, nic: {{per: host, ports: 1, rate: 100G}}}}}}
workload:
  kind: tenants
  ranks: {{network: [backend, frontend]}}
  tenants:
    - {{name: training, ranks: [0, 1, 2, 3], transport: {{kind: uet}}, workload: {{kind: all-reduce, bytes: 4MB}}}}
    - {{name: users, ranks: [4, 5, 6, 7], transport: {{kind: tcp}}, workload: {workload}}}
"""
INCAST = "{kind: incast, senders: 3, bytes: 1MB}"


def mixed(tmp_path: Path, workload: str = INCAST) -> Sweep:
    path = tmp_path / "mixed.yml"
    path.write_text(MIXED.format(workload=workload))
    return read_sweeps([path])[0]


def test_what_tenants_send_by_the_kernel_is_added_to_packets_of_ours(tmp_path: Path) -> None:
    """Three send to one: no more than a NIC of 100 Gbit/s arrives. The mean of the others is over the same time."""
    both = demand(mixed(tmp_path))
    assert both is not None and both.senders == 4, "those in user space"
    assert both.kernel_packets_per_s == pytest.approx(100e9 / 8 / 1514)
    around = demand(mixed(tmp_path, workload="{kind: permutation, bytes: 1MB}"))
    assert around is not None and around.kernel_packets_per_s == pytest.approx(4 * both.kernel_packets_per_s)
    assert around.burst_packets_per_s == both.burst_packets_per_s


def test_the_scale_has_room_for_all_transports_together(tmp_path: Path) -> None:
    sweep = mixed(tmp_path, "{kind: permutation, bytes: 1MB}")
    (point,) = sweep.points
    lab, both = sweep.lab_of(point), demand(sweep)
    alone = replace(both, kernel_packets_per_s=0.0)
    hop_s = 8 * 1500 / MACHINE.capacity_bps(1500)
    loads = [judge_packet_scale(lab, MACHINE, one, 1.0).load for one in (both, alone)]
    assert loads[0] - loads[1] == pytest.approx(both.kernel_packets_per_s * hop_s), "over one switch"
    near = replace(both, base_rtt_s=0.0)  # that alone would ask for a larger k here
    more = replace(near, kernel_packets_per_s=10 * both.kernel_packets_per_s)
    assert choose_packet_scale(lab, MACHINE, more).k > choose_packet_scale(lab, MACHINE, near).k
    found = ScenarioScales(sweep.points, sweep.labs, StateDirectory())(point.topology, lab)
    assert found.load == pytest.approx(loads[0] / found.k)
    assert "packets/s of the kernel" in found.reason and found.bound, "the kernel may send less"


def test_scenarios_that_are_only_looked_at_are_so_in_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = [MachineLoad()]
    monkeypatch.setattr("testbed.run.sweep.scales.watch_machine", lambda state, keep: loads.pop(0))
    sweeps = [sweep_of(tmp_path, "kind: permutation, bytes: 8bdp")] * 3
    print_dry_run(sweeps, Format.JSON)
    assert loads == []
