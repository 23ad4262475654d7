"""Scenarios on the simulator, from the file to the record."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from testbed.base.errors import ScenarioError, SpecError, TestbedError
from testbed.base.interrupt import Interrupt
from testbed.protocols.simulation.events import Ended
from testbed.record.catalogue import CATALOGUE
from testbed.record.journal import JOURNAL_FILE
from testbed.record.record import Backend, Outcome, Record
from testbed.record.report import write_report_files
from testbed.record.store import RECORD_FILE, SESSION_FILE, load_record
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.observation import Observation
from testbed.run.simulated.execution import Execution, SimulatedRun
from testbed.run.simulated.fabric import planned_lab
from testbed.run.simulated.point import RunOutcome, SimulatedPoint, check_datagrams
from testbed.run.simulated.processes import Job, run_jobs
from testbed.run.simulated.support import simulated_approximations
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.points import Sweep
from testbed.run.sweep.progress import Phase, Progress
from testbed.run.sweep.runner import RecordOptions, ScenarioStopped
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process

SCENARIOS = Path(__file__).parents[4] / "scenarios"
SMALL = """
name: small
topology:
  inline:
    name: small
    scale: {time: auto}
    fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, nic: {per: gpu, rate: 400G}}
    qos: {preset: uec, base_rtt: 12us}
transport: {kind: uet, cc: nscc}
workload: {kind: permutation, scope: inter-leaf, bytes: 1bdp}
repeat: {runs: 2, seed: 3}
expect:
  - {metric: tail_fct_ratio, max: 2, source: "ideal serialisation + base RTT"}
"""
LOSSLESS = SMALL.replace("kind: uet, cc: nscc", "kind: uet, cc: none, traffic_class: rdma").replace(
    "preset: uec", "preset: dcqcn"
)


def run(text: str | Path, directory: Path | None = None, *, processes: int = 1, **overrides: object) -> Record:
    sweep = read_sweep(text, overrides)
    outcome = run_simulated(sweep, RecordOptions(directory=directory), processes=processes)
    assert outcome.failure is None
    return outcome.record


def test_a_scenario_comes_to_a_verdict_without_a_lab() -> None:
    record = run(SMALL)
    assert record.verdict.outcome is Outcome.PASS, record.verdict
    assert record.environment.backend is Backend.SIMULATION and record.environment.clock == "simulated"
    [point] = record.points
    assert point.lab.k == 1 and point.lab.nic_bps == 400_000_000_000
    assert [one.seed for one in point.runs] == [3, 4]
    for one in point.runs:
        assert {check.name: check.ok for check in one.checks} == {"datagrams": True, "reconcile": True, "ideal": True}
        assert one.metrics["drops"] == 0 and one.metrics["fct_slowdown_p50"] is not None
        assert 1 < one.metrics["fct_slowdown_p50"] < 2
        assert all(0 < (end or 0) < 1e-3 for end in one.transfers.end_s), "real time: microseconds"
        assert one.series and one.ports
    assert "cpu_busy" not in point.runs[0].metrics, "the machine's CPU says nothing here"


def test_the_same_seed_gives_the_same_bytes_whatever_is_said_beside(tmp_path: Path) -> None:
    files = []
    for number, processes in enumerate((1, 2)):
        directory = tmp_path / str(number)
        directory.mkdir()
        options = RecordOptions(directory=directory, command=("testbed", "run", "small.yml", "-o", str(directory)))
        run_simulated(read_sweep(SMALL), options, processes=processes)
        files.append((directory / RECORD_FILE).read_bytes())
        loaded = load_record(directory)
        assert loaded.wall_s is not None and loaded.command[-1] == str(directory)
        assert loaded.started[:4] != "1970" and (directory / SESSION_FILE).is_file()
    assert files[0] == files[1]
    assert str(tmp_path).encode() not in files[0] and b'"wall_s": null' in files[0]


def test_another_seed_gives_other_bytes() -> None:
    one, other = run(SMALL), run(SMALL, **{"repeat.seed": 50})
    assert one.points[0].runs[0].transfers.end_s != other.points[0].runs[0].transfers.end_s


def test_collectives_carry_their_data_and_it_is_checked_to_the_bit() -> None:
    text = SMALL.replace("kind: permutation, scope: inter-leaf, bytes: 1bdp", "kind: all-reduce, bytes: 200kB")
    record = run(text.replace("tail_fct_ratio, max: 2", "wrong, max: 0"))
    assert record.verdict.outcome is Outcome.PASS
    assert record.points[0].runs[0].metrics["wrong"] == 0


PAIR = """{kind: tenants, tenants: [
    {name: ring, ranks: [0, 2], workload: {kind: all-reduce, bytes: 200kB}},
    {name: late, ranks: [1, 3], start: 300us, workload: {kind: incast, senders: 1, bytes: 100kB}}]}"""


def test_a_tenant_has_the_metrics_of_what_it_did_itself() -> None:
    """The one ends before the other begins; neither has what queues and links say of both."""
    text = SMALL.replace("{kind: permutation, scope: inter-leaf, bytes: 1bdp}", PAIR)
    expect = "{metric: wrong, tenant: ring, max: 0, source: every element is compared}\n"
    record = run(text[: text.index("  - {metric: tail_fct_ratio")] + f"  - {expect}")
    assert record.verdict.outcome is Outcome.PASS, record.verdict.reasons
    [point] = record.points
    for one in point.runs:
        ring, late = (
            {name.removesuffix(f"[tenant={who}]"): value for name, value in one.metrics.items() if f"={who}]" in name}
            for who in ("ring", "late")
        )
        assert ring["wrong"] == 0 and "wrong" not in late and "busbw" not in late
        for mine, ranks in ((ring, {0, 2}), (late, {1, 3})):
            rows = [row for row, source in enumerate(one.transfers.source) if source in ranks]
            begin, end = (min(one.transfers.start_s[row] or 0.0 for row in rows), 0.0)
            end = max(one.transfers.end_s[row] or 0.0 for row in rows)
            assert mine["jct"] == pytest.approx(end - begin)
            assert mine["jct_ratio"] is not None and 1.0 <= mine["jct_ratio"] < 2.0, "of what it moved, not of its wait"
            assert mine["s_fabric"] == sum(one.transfers.size_bytes[row] for row in rows)
        assert (one.metrics["jct"] or 0.0) > 300e-6 > (ring["jct"] or 1.0)
        assert not {"drops", "queue_max", "cpu_busy", "mmr_uplinks"} & {*ring, *late}
    titles = {item.name: (item.title, item.headline) for item in point.metrics}
    assert titles["jct[tenant=late]"] == ("Job completion time, tenant=late", False)


def test_ranks_of_two_tenants_cannot_be_told_apart() -> None:
    text = SMALL.replace("{kind: permutation, scope: inter-leaf, bytes: 1bdp}", PAIR.replace("[1, 3]", "[1, 2]"))
    metrics = run(text.replace("max: 2", "max: 99").replace("runs: 2", "runs: 1")).points[0].runs[0].metrics
    assert "jct" in metrics and not any("tenant=" in name for name in metrics)


def test_lossless_classes_pause_and_lose_nothing() -> None:
    text = LOSSLESS.replace(
        "kind: permutation, scope: inter-leaf, bytes: 1bdp", "kind: incast, senders: 3, bytes: 4bdp"
    )
    record = run(text.replace("max: 2", "max: 9"))
    checks = {check.name: check.ok for check in record.points[0].runs[0].checks}
    assert checks == {"datagrams": True, "lossless": True, "reconcile": True, "ideal": True}
    metrics = record.points[0].runs[0].metrics
    assert metrics["pause_frames"] and metrics["pause_time"] and metrics["drops"] == 0


def test_a_packet_that_vanishes_once_the_traffic_has_ended_is_missed() -> None:
    left = iter([1, 0])
    network = SimpleNamespace(now=0, nics={}, in_flight=lambda: next(left), accounted=lambda: 4)

    def run_on(until: int) -> Ended:
        network.now = until
        return Ended.TIME

    network.run = run_on
    done = SimulatedRun(measured=Measured(observation=Observation(cpu=None)), sent=5)
    execution: Any = SimpleNamespace(_base_rtt_ns=10)
    fabric: Any = SimpleNamespace(network=network)
    assert Execution._drain(execution, fabric, done)
    assert done.unaccounted == 1


@pytest.mark.parametrize(("k", "said"), [(1.0, True), (20_000.0, False)])
def test_the_watchdog_is_said_not_to_act_where_it_does_not(k: float, said: bool) -> None:
    """It guards in lab time, of which a run at the fabric's own times has none."""
    sweep = read_sweep(LOSSLESS.replace("preset: dcqcn", "preset: dcqcn, watchdog: {detect: 100ms, restore: 100ms}"))
    [point] = sweep.points
    sentences = simulated_approximations(planned_lab(sweep.lab_of(point), k), point.scenario)
    assert any("watchdog does not act" in sentence for sentence in sentences) == said


def test_without_qos_there_are_plain_queues() -> None:
    text = SMALL.replace("    qos: {preset: uec, base_rtt: 12us}\n", "").replace("1bdp", "500kB")
    record = run(text)
    assert record.verdict.outcome is Outcome.PASS
    assert {check.name for check in record.points[0].runs[0].checks} == {"datagrams", "ideal"}
    assert any("plain tail-drop" in sentence for sentence in record.environment.approximations)
    measured, refused = set(record.points[0].runs[0].metrics), []
    for name in [metric.name for metric in CATALOGUE.values() if metric.needs and not metric.by_network]:
        try:
            read_sweep(text.replace("{metric: tail_fct_ratio", f"{{metric: {name}"))
        except SpecError as error:
            refused += [name for problem in error.problems if problem.code == "not-measured"]
    assert {"drops", "queue_p99", "pause_fraction", "detection_time", "busbw", "mean_ttft", "ib_lost"} <= set(refused)
    assert "tail_fct_ratio" in measured and not measured & set(refused), "what is refused is what no run has"


@pytest.mark.parametrize("secured", [False, True])
def test_transport_security_is_the_same_from_run_to_run(secured: bool) -> None:
    text = SMALL.replace("cc: nscc", f"cc: nscc, tss: {str(secured).lower()}").replace("runs: 2", "runs: 1")
    one, other = run(text), run(text)
    assert one.points[0].runs == other.points[0].runs
    assert one.verdict.outcome is Outcome.PASS


@pytest.mark.parametrize(
    "name", ["incast-trimming", "rail-alignment", "moe-all-to-all", "rail-only-hierarchy", "pxn", "nvls"]
)
def test_shipped_scenarios_keep_to_their_bands(name: str) -> None:
    record = run(SCENARIOS / f"{name}.yml")
    assert record.verdict.outcome is Outcome.PASS, record.verdict.reasons


HOST_LINK = "p1-s1-rail1:uplink1"
FAULT = f"faults: [{{at: 1ms, link: '{HOST_LINK}', down: true}}]"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: uet, cc: nscc", "kind: rdma", "no real programs, and rdma is perftest or rsocket"),
        (
            "spines: 2,",
            "spines: 2, uplink: {delay: {value: 1us, jitter: 100ns}},",
            "constant delay, and that of .* varies",
        ),
        ("repeat:", f"{FAULT.replace('down: true', 'set: {jitter: 1us}').replace('1ms', '0s')}\nrepeat:", "is to vary"),
        (
            "base_rtt: 12us",
            "base_rtt: 12us, classes: {rdma: {ecn: {by: kernel, mark_at: enqueue}}}",
            "not by a qdisc of the kernel",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_anything_runs(old: str, new: str, message: str) -> None:
    sweep = read_sweep(SMALL.replace(old, new))
    seen: list[Progress] = []
    with pytest.raises(ScenarioError, match=message) as caught:
        run_simulated(sweep, RecordOptions(), seen.append)
    assert caught.value.hint and not seen


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [("rate: 25%", 1.5, 9.0), ("rate: 100G", 1.5, 9.0), ("delay: 40us", 1.2, 9.0), ("loss: 0.05", 1.01, 50.0)],
)
def test_a_link_can_be_another_one_for_a_whole_run(settings: str, least: float, most: float) -> None:
    fault = f"faults: [{{at: 0s, link: '{HOST_LINK}', set: {{{settings}, both: true}}}}]"
    text = SMALL.replace("max: 2", "max: 99").replace("cc: nscc", "cc: nscc, paths: oblivious")
    fine, broken = run(text), run(text.replace("repeat:", f"{fault}\nrepeat:"))
    assert broken.verdict.outcome is Outcome.PASS, broken.verdict.reasons
    one = broken.points[0].runs[0]
    assert [(event.kind, event.target) for event in one.events] == [("link-set", HOST_LINK)]
    assert all(check.ok for check in one.checks)
    before, after = fine.points[0].runs[0].metrics["tail_fct"], one.metrics["tail_fct"]
    assert before is not None and after is not None and least < after / before < most


def test_prove_scale_has_nothing_to_prove() -> None:
    with pytest.raises(ScenarioError, match="no time scale"):
        run_simulated(read_sweep(SMALL), RecordOptions(prove_scale=True))


def test_progress_is_told_of_every_run_from_every_process() -> None:
    seen: list[Progress] = []
    run_simulated(read_sweep(SMALL), RecordOptions(), seen.append, processes=2)
    assert sorted(event.run for event in seen if event.phase is Phase.RUN) == [1, 2]


def test_a_time_limit_ends_a_run_and_the_record_says_so() -> None:
    sweep = read_sweep(SMALL)
    [point] = sweep.points
    workload = replace(point.scenario.workload, time_limit=type(point.scenario.workload.time_limit)(20_000))
    point = replace(point, scenario=replace(point.scenario, workload=workload))
    outcome = SimulatedPoint(point, sweep.lab_of(point)).run(1, lambda share: False)
    assert outcome.failure is not None and "time limit" in outcome.failure.message
    assert outcome.result is not None and not outcome.result.complete


def test_an_interrupt_keeps_what_was_measured() -> None:
    def on_progress(event: Progress) -> None:
        if event.phase is Phase.RUN:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = run_simulated(read_sweep(SMALL), RecordOptions(), on_progress, processes=1)
    assert outcome.record.incomplete == "interrupted after 1 of 2 runs"
    assert len(outcome.record.points[0].runs) == 1
    assert outcome.record.verdict.outcome is Outcome.INVALID


def test_a_resumed_sweep_runs_only_what_is_left() -> None:
    text = SMALL.replace(
        "repeat: {runs: 2, seed: 3}", "repeat: {runs: 1, seed: 3}\nmatrix: {transport.paths: [oblivious, reps]}"
    )
    sweep = read_sweep(text)
    whole = run_simulated(sweep, RecordOptions(), processes=1).record
    half = replace(whole, points=whole.points[:1], incomplete="interrupted")
    seen: list[Progress] = []
    resumed = run_simulated(sweep, RecordOptions(previous=half), seen.append, processes=1).record
    assert {event.point for event in seen} == {2}
    assert [point.name for point in resumed.points] == [point.name for point in whole.points]
    assert [point.runs for point in resumed.points] == [point.runs for point in whole.points]
    emulated = replace(half, environment=replace(half.environment, backend=Backend.EMULATION))
    with pytest.raises(ScenarioError, match="another backend: emulation"):
        run_simulated(sweep, RecordOptions(previous=emulated), processes=1)


class Dying(SimulatedPoint):
    """A point whose runs end as `how` says; `tried` is a directory in which each try leaves a file."""

    how = ""
    tried: Path | None = None

    def run(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        before = 0
        if self.tried is not None:
            before = len(list(self.tried.glob(f"{index}-*")))
            (self.tried / f"{index}-{before + 1}").touch()
        if self.how == "killed" or (self.how == "killed once" and not before):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "killed once":
            return super().run(index, on_progress)
        if self.how == "exits":
            os._exit(3)
        if self.how == "raises":
            raise TestbedError("it broke", hint="mend it")
        if self.how == "has a mistake":
            return super().run(index, self.stumble)
        return RunOutcome(result=None, failure=TestbedError("no traffic", hint="none"))

    def stumble(self, share: float) -> bool:
        return bool(1 / 0)

    def run_once(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        if self.how == "has a mistake":
            on_progress(0.5)
        return super().run_once(index, on_progress)


def dying(sweep: Sweep, how: str, tried: Path | None = None) -> Dying:
    point = Dying(sweep.points[0], sweep.lab_of(sweep.points[0]))
    point.how, point.tried = how, tried
    return point


def outcomes_of(point: SimulatedPoint, runs: int = 2) -> dict[int, RunOutcome]:
    jobs = [Job(point=1, run=run) for run in range(1, runs + 1)]
    with Interrupt() as interrupt:
        done = run_jobs(jobs, lambda _: point, interrupt, processes=2, on_share=lambda job, share: None)
        return {job.run: outcome for job, outcome in done}


def test_what_a_run_raises_ends_all() -> None:
    with pytest.raises(ScenarioError, match="it broke"):
        outcomes_of(dying(read_sweep(SMALL), "raises"))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_mistake_in_the_program_is_told_as_one(processes: int, tmp_path: Path) -> None:
    """Not as a run that was lost, nor as a verdict without a reason; and it is not tried again."""
    sweep = read_sweep(SMALL)
    point = dying(sweep, "has a mistake", tmp_path)
    jobs = [Job(point=1, run=1), Job(point=1, run=2)]
    with Interrupt() as interrupt:
        [(_, outcome), *_] = run_jobs(
            jobs, lambda _: point, interrupt, processes=processes, on_share=lambda job, share: None
        )
    failure = outcome.failure
    assert failure is not None and outcome.result is None
    assert "raised ZeroDivisionError: division by zero (test_simulated_runs.py:" in failure.message
    assert failure.trace.startswith("Traceback (most recent call last):") and "in stumble" in failure.trace
    assert "mistake in the program" in (failure.hint or "")
    assert all(path.name.endswith("-1") for path in tmp_path.iterdir())


def test_a_record_says_what_a_mistake_was_and_the_traceback_goes_with_the_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("testbed.run.simulated.sweep.SimulatedPoint", Dying)
    monkeypatch.setattr(Dying, "how", "has a mistake")
    outcome = run_simulated(read_sweep(SMALL), RecordOptions(directory=tmp_path), processes=1)
    assert isinstance(outcome.failure, ScenarioStopped) and "in stumble" in outcome.failure.trace
    record = load_record(tmp_path)
    assert record.verdict.outcome is Outcome.INVALID
    assert record.verdict.reasons[0].startswith("it did not run to its end: run 1 raised ZeroDivisionError")
    assert "Traceback" not in (tmp_path / RECORD_FILE).read_text(), "paths of this machine are nobody else's business"
    write_report_files(record, tmp_path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("killed", "its process was ended 2 times by SIGKILL; is there memory enough?"),
        ("exits", "its process ended 2 times without a word (exit code 3)"),
    ],
)
def test_a_run_whose_process_dies_is_tried_once_more_and_then_lost(how: str, message: str, tmp_path: Path) -> None:
    found = outcomes_of(dying(read_sweep(SMALL), how, tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-1", "1-2", "2-1", "2-2"]
    for number, outcome in found.items():
        assert outcome.failure is None and outcome.result is not None and not outcome.result.complete
        assert (outcome.result.index, outcome.result.seed) == (number, 2 + number)
        assert [check.message for check in outcome.result.checks] == [message]


class Endless(SimulatedPoint):
    """A point whose runs tell of their progress for ever; `where` has a file for each process of one."""

    where = Path()

    def run(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        (self.where / str(os.getpid())).touch()
        while True:
            on_progress(0.5)


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    sweep = read_sweep(SMALL)
    point = Endless(sweep.points[0], sweep.lab_of(sweep.points[0]))
    point.where = tmp_path
    parent = multiprocessing.get_context("fork").Process(target=outcomes_of, args=(point,))
    parent.start()
    try:
        until(lambda: len(list(tmp_path.iterdir())) == 2, "two children")
        parent.kill()
        parent.join()
        until(lambda: not any(Path("/proc", path.name).exists() for path in tmp_path.iterdir()), "none of them")
    finally:
        parent.kill()
        for path in tmp_path.iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name), signal.SIGKILL)


def test_a_second_try_counts_as_the_first_would_have(tmp_path: Path) -> None:
    sweep = read_sweep(SMALL)
    found = outcomes_of(dying(sweep, "killed once", tmp_path))
    whole = SimulatedPoint(sweep.points[0], sweep.lab_of(sweep.points[0]))
    assert [found[run].result for run in (1, 2)] == [whole.run(run, lambda share: False).result for run in (1, 2)]


def test_a_lost_point_is_invalid_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SMALL.replace(
        "repeat: {runs: 2, seed: 3}", "repeat: {runs: 1, seed: 3}\nmatrix: {transport.paths: [oblivious, reps, single]}"
    )
    ran = SimulatedPoint.run

    def run_point(self: SimulatedPoint, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        if self.point.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return ran(self, index, on_progress)

    monkeypatch.setattr(SimulatedPoint, "run", run_point)
    record = run(text, tmp_path, processes=2)
    assert record.incomplete == "" and record.verdict.outcome is Outcome.INVALID
    assert [len(point.runs) for point in record.points] == [1, 1, 1]
    assert [all(check.ok for check in point.runs[0].checks) for point in record.points] == [True, False, True]
    assert record.verdict.reasons[0] == (
        "paths=reps, run 1: its process was ended 2 times by SIGKILL; is there memory enough?"
    )
    assert [item.outcome for item in record.expectations] == [Outcome.PASS, Outcome.INVALID, Outcome.PASS]
    assert load_record(tmp_path).points == record.points and not (tmp_path / JOURNAL_FILE).exists()
    assert "SIGKILL" in write_report_files(record, tmp_path).read_text()
    monkeypatch.setattr(SimulatedPoint, "run", ran)
    resumed = run_simulated(read_sweep(text), RecordOptions(previous=record), processes=2).record
    assert resumed.verdict.outcome is Outcome.PASS, "a lost point is run again"


def test_after_a_failure_nothing_else_begins() -> None:
    assert 1 <= len(outcomes_of(dying(read_sweep(SMALL), "fails"), runs=8)) <= 3


def test_a_datagram_that_is_not_accounted_for_breaks_trust() -> None:
    assert check_datagrams(10, 0).ok
    assert not check_datagrams(10, 1).ok and not check_datagrams(10, -1).ok
