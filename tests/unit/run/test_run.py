"""The runner against a lab that is not there: children are canned, the rest is real."""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_lab import FakeLab, small_lab
from run_rows import LISTENING, timed_scenario

from testbed.base.errors import CapabilityError, DriverError, ScenarioError
from testbed.base.units import Duration
from testbed.record.record import Outcome, Record
from testbed.record.report.comparison import compare_records
from testbed.record.store import decode_record, encode_record
from testbed.run.emulated.sweep import run_sweep
from testbed.run.machine.environment import collect_environment
from testbed.run.schema.model import Expectation, Repeat, Scenario, Transport
from testbed.run.sweep.points import plan_points
from testbed.run.sweep.progress import Phase, Progress, ProgressListener, ignore_progress
from testbed.run.sweep.runner import ScenarioStopped

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("idle_machine")]

DATA = Path(__file__).parents[2] / "data" / "iperf3"


def run_scenario(
    asked: Scenario,
    lab: FakeLab,
    *,
    on_progress: ProgressListener = ignore_progress,
    command: Sequence[str] = (),
    previous: Record | None = None,
) -> Record:
    return run_sweep(
        asked, plan_points(asked), lambda _: lab, on_progress=on_progress, command=command, previous=previous
    )


def lab_with(client: Callable[[str, Sequence[str]], Sequence[str]]) -> FakeLab:
    model, plan = small_lab(hosts=2, rails=1, spines=2, k=4000)
    lab = FakeLab(model, plan, lambda node, argv: LISTENING if "-s" in argv else client(node, argv))
    lab.sent = {
        ("p1-s1-rail1", "uplink1"): 24_000_000,
        ("p1-s1-rail1", "uplink2"): 0,
        ("p1-s2-rail1", "uplink1"): 12_000_000,
        ("p1-s2-rail1", "uplink2"): 12_000_000,
    }
    return lab


def timed(node: str, argv: Sequence[str]) -> Sequence[str]:
    return ("cat", str(DATA / "timed.json"))


def test_a_run_measures_every_flow_and_uplink() -> None:
    lab = lab_with(timed)
    events: list[Progress] = []
    record = run_scenario(timed_scenario(), lab, on_progress=events.append, command=["testbed", "run", "x.yml"])
    (point,) = record.points
    (run,) = point.runs
    assert [channel.source_rank for channel in run.channels] == [0, 1, 2, 3]
    assert all(channel.goodput_bps == pytest.approx(11996256 * 8 / 1.028741) for channel in run.channels)
    assert run.metrics["mmr_uplinks"] == pytest.approx(2.0)
    assert run.metrics["mmr_worst_switch"] == pytest.approx(2.0)
    assert [port.tx_bytes for port in run.ports if port.tier == "uplink"] == [24_000_000, 0, 12_000_000, 12_000_000]
    assert point.lab.nic_bps == 100_000_000 and point.lab.nic_real_bps == 400_000_000_000
    assert record.scenario.topology == {"file": "fake.yml", "set": {}}
    assert "Link delays are realised by our own transports" in " ".join(record.environment.approximations)
    assert record.verdict.outcome is Outcome.PASS
    assert {event.phase for event in events} == {Phase.LAB, Phase.SERVERS, Phase.TRAFFIC, Phase.RUN}
    assert [event.done for event in events if event.phase is Phase.SERVERS] == [1, 2, 3, 4]
    assert decode_record(encode_record(record)) == record


def test_servers_listen_before_any_client_starts() -> None:
    lab = lab_with(timed)
    run_scenario(timed_scenario(), lab)
    assert ["-s" in argv for _, argv in lab.started] == [True] * 4 + [False] * 4


def test_commands() -> None:
    lab = lab_with(timed)
    run_scenario(timed_scenario(), lab)
    server, client = lab.started[0], lab.started[4]
    assert server == ("p1-s2-h1", ("iperf3", "-s", "-1", "--forceflush", "-i", "0", "-B", "10.2.1.1", "-p", "5201"))
    assert client[0] == "p1-s1-h1"
    assert " ".join(client[1]) == (
        "iperf3 -c 10.2.1.1 -p 5201 -B 10.1.1.1 --cport 21612 -J -i 0.25 --connect-timeout 5000 -t 1 -O 1 -C cubic"
    )


def test_repeats_draw_other_permutations_from_following_seeds() -> None:
    record = run_scenario(timed_scenario(repeat=Repeat(runs=3, seed=5)), lab_with(timed))
    (point,) = record.points
    assert [run.seed for run in point.runs] == [5, 6, 7]
    assert len({tuple(channel.source_port for channel in run.channels) for run in point.runs}) == 3
    share = next(metric for metric in point.metrics if metric.name == "aggregate_share")
    assert len(share.values) == 3 and share.ideal == 1.0


def test_expectations_decide() -> None:
    expect = (Expectation(metric="aggregate_share", minimum=0.99, source="a wish"),)
    record = run_scenario(timed_scenario(expect=expect), lab_with(timed))
    assert record.verdict.outcome is Outcome.FAIL
    assert record.expectations[0].measured == pytest.approx(0.9467, abs=1e-3)


def test_a_flow_that_fails_names_flow_node_and_iperf3s_words() -> None:
    def client(node: str, argv: Sequence[str]) -> Sequence[str]:
        return ("cat", str(DATA / ("refused.json" if node == "p1-s2-h1" else "timed.json")))

    with pytest.raises(ScenarioStopped) as caught:
        run_scenario(timed_scenario(), lab_with(client))
    assert caught.value.message == (
        "flow 3 (p1-s2-h1:rail1 -> p1-s1-h1:rail1) failed on p1-s2-h1:"
        " iperf3: unable to connect to server: Connection refused"
    )
    assert caught.value.exit_code == 2
    assert caught.value.record.incomplete == caught.value.message
    assert caught.value.record.verdict.outcome is Outcome.INVALID


def test_a_killed_client() -> None:
    killed = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(ScenarioStopped, match="failed on p1-s1-h1: iperf3 was killed by signal 9"):
        run_scenario(timed_scenario(), lab_with(lambda node, argv: killed if node == "p1-s1-h1" else ("sleep", "60")))


def test_a_server_that_cannot_listen() -> None:
    model, plan = small_lab(rails=1)
    words = "iperf3: error - unable to start listener for connections: Address already in use"
    lab = FakeLab(model, plan, lambda node, argv: ("printf", words))
    with pytest.raises(ScenarioStopped, match="Address already in use") as caught:
        run_scenario(timed_scenario(), lab)
    assert caught.value.record.points == []


def test_iperf3_missing() -> None:
    model, plan = small_lab(rails=1)
    lab = FakeLab(model, plan, lambda node, argv: ("/nonexistent/iperf3",))
    with pytest.raises(CapabilityError, match="iperf3 is not installed"):
        run_scenario(timed_scenario(), lab)


def test_a_lab_that_goes_away_between_runs() -> None:
    lab = lab_with(timed)
    spawn = lab.spawn

    def gone(node, argv, **options):  # type: ignore[no-untyped-def]
        if len(lab.started) == 8:
            raise DriverError("cannot enter the network namespace fake-p1-s2-h1")
        return spawn(node, argv, **options)

    lab.spawn = gone  # type: ignore[method-assign]
    with pytest.raises(ScenarioStopped, match="cannot enter the network namespace") as caught:
        run_scenario(timed_scenario(repeat=Repeat(runs=2)), lab)
    assert [run.complete for run in caught.value.record.points[0].runs] == [True]
    assert caught.value.record.incomplete


def test_no_child_outlives_a_failure() -> None:
    started: list[int] = []

    class Watched(FakeLab):
        def spawn(self, node, argv, **options):  # type: ignore[no-untyped-def]
            process = super().spawn(node, argv, **options)
            started.append(process.pid)
            return process

    model, plan = small_lab(rails=1)

    def program(node: str, argv: Sequence[str]) -> Sequence[str]:
        if "-s" in argv:
            return ("sh", "-c", "echo Server listening; exec sleep 60")
        return ("cat", str(DATA / "refused.json")) if node == "p1-s2-h2" else ("sleep", "60")

    with pytest.raises(ScenarioStopped):
        run_scenario(timed_scenario(), Watched(model, plan, program))
    assert len(started) == 8
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


PATIENT_CLIENT = """
import os, pathlib, signal, sys
def stop(*_):
    print(pathlib.Path(sys.argv[1]).read_text())
    sys.exit(1)
signal.signal(signal.SIGINT, stop)
signal.alarm(60)
pathlib.Path(sys.argv[2], str(os.getpid())).touch()
while True:
    signal.pause()
"""
"""Answers SIGINT as iperf3 does: with a report of what it sent."""


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    pressed: list[Progress] = []
    started = 0
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background of a shell

    def client(node: str, argv: Sequence[str]) -> Sequence[str]:
        nonlocal started
        started += 1
        if started <= 4:
            return ("cat", str(DATA / "timed.json"))
        return (sys.executable, "-c", PATIENT_CLIENT, str(DATA / "interrupted.json"), str(tmp_path))

    def press_once_all_run(event: Progress) -> None:
        if event.phase is Phase.TRAFFIC and not pressed and len(list(tmp_path.iterdir())) == 4:
            pressed.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    record: Record = run_scenario(
        timed_scenario(repeat=Repeat(runs=3, seed=1)), lab_with(client), on_progress=press_once_all_run
    )
    assert record.incomplete == "interrupted in run 2 of 3"
    assert record.verdict.outcome is Outcome.INVALID
    (point,) = record.points
    assert [(run.complete, len(run.channels)) for run in point.runs] == [(True, 4), (False, 4)]
    assert all(channel.goodput_bps > 0 for channel in point.runs[1].channels)
    assert signal.getsignal(signal.SIGINT) is before


def test_infeasible_before_anything_starts() -> None:
    model, plan = small_lab(segments=1, rails=1)
    lab = FakeLab(model, plan, lambda node, argv: LISTENING)
    with pytest.raises(ScenarioError, match="workload permutation: "):
        run_scenario(timed_scenario(), lab)
    assert lab.started == []


def test_a_sweep_goes_on_where_it_ended() -> None:
    asked = timed_scenario()
    first = run_scenario(asked, lab_with(timed))
    lab = lab_with(timed)
    again = run_scenario(asked, lab, previous=first)
    assert lab.started == []
    assert again.points == first.points and again.verdict == first.verdict


def elsewhere(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Move to another machine."""
    real = collect_environment([])
    monkeypatch.setattr(
        "testbed.run.sweep.runner.collect_environment",
        lambda _: replace(real, **changes),  # type: ignore[arg-type]
    )


def swept(cc: str) -> Callable[[str, Sequence[str]], Sequence[str]]:
    """Flows that fail with this congestion control, which end a sweep at its point."""
    return lambda node, argv: ("false",) if cc in argv else timed(node, argv)


def test_a_resumed_record_says_what_each_session_ran_on(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ("cubic", "reno", "bbr")
    variants = [replace(timed_scenario(transport=Transport(cc=cc)), values={"transport.cc": cc}) for cc in values]
    asked = timed_scenario(matrix={"transport.cc": values}, variants=tuple(variants))
    elsewhere(monkeypatch, kernel="6.1.0-a")
    with pytest.raises(ScenarioStopped) as stopped:
        run_scenario(asked, lab_with(swept("reno")))
    first = decode_record(encode_record(stopped.value.record))
    assert (first.environment.kernel, first.earlier) == ("6.1.0-a", [])
    elsewhere(monkeypatch, kernel="6.8.0-b", cores=64)
    with pytest.raises(ScenarioStopped) as stopped:
        run_scenario(asked, lab_with(swept("bbr")), previous=first)
    second = decode_record(encode_record(stopped.value.record))
    assert (second.environment.kernel, second.environment.cores) == ("6.8.0-b", 64)
    assert [(item.environment, item.started, item.points) for item in second.earlier] == [
        (first.environment, first.started, ["cc=cubic"])
    ]
    elsewhere(monkeypatch, kernel="6.12.0-c")
    third = decode_record(encode_record(run_scenario(asked, lab_with(timed), previous=second)))
    assert third.environment.kernel == "6.12.0-c" and not third.incomplete
    assert [(item.environment.kernel, item.points) for item in third.earlier] == [
        ("6.1.0-a", ["cc=cubic"]),
        ("6.8.0-b", ["cc=reno"]),
    ]


def test_a_session_that_measures_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(monkeypatch, kernel="6.1.0-a")
    first = run_scenario(timed_scenario(), lab_with(timed))
    elsewhere(monkeypatch, kernel="6.8.0-b")
    again = run_scenario(timed_scenario(), lab_with(timed), previous=first)
    assert (again.environment, again.earlier) == (first.environment, [])


def test_wall_time_and_virtual_time_do_not_meet_in_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_scenario(timed_scenario(), lab_with(timed))
    elsewhere(monkeypatch, clock="virtual")
    with pytest.raises(ScenarioError, match="were measured by the wall clock, and this machine's is virtual"):
        run_scenario(timed_scenario(), lab_with(timed), previous=first)


def test_results_of_another_scenario_are_not_gone_on_with() -> None:
    first = run_scenario(timed_scenario(), lab_with(timed))
    with pytest.raises(ScenarioError, match="another scenario or of other parameters"):
        run_scenario(timed_scenario(repeat=Repeat(runs=2)), lab_with(timed), previous=first)


def test_record_is_json_of_schema_3() -> None:
    document = json.loads(encode_record(run_scenario(timed_scenario(), lab_with(timed))))
    assert document["schema"] == 3
    assert {"name", "topology", "transport", "workload", "repeat", "expect"} <= set(document["scenario"])
    assert document["points"][0]["runs"][0]["channels"][0]["samples"]["acked_bytes"]


def test_runs_of_other_seeds_can_be_compared() -> None:
    base, other = (run_scenario(timed_scenario(repeat=Repeat(runs=2, seed=seed)), lab_with(timed)) for seed in (1, 7))
    assert compare_records(base, other, force=True).differing == {}
    assert [record.scenario.repeat["seed"] for record in (base, other)] == [1, 7]
    slower = run_scenario(
        timed_scenario(workload=replace(timed_scenario().workload, duration=Duration.parse("2s"))), lab_with(timed)
    )
    assert set(compare_records(base, slower, force=True).differing) == {"workload.duration"}
