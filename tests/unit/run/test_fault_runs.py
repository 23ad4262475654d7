"""Runs whose faults do not happen as planned: they are invalid and say why; a lab that is left changed ends them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_lab import FakeLab, small_lab
from run_rows import LISTENING, timed_scenario

from testbed.base.units import Duration
from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.lab.core.deploy.live import RunningLab
from testbed.record.record import Check, Outcome, Record, RunResult
from testbed.run.emulated.sweep import run_sweep
from testbed.run.faults import acts as acts_module
from testbed.run.faults import timeline as timeline_module
from testbed.run.schema.model import Fault, Probes, Repeat
from testbed.run.sweep.points import plan_points
from testbed.run.sweep.runner import ScenarioStopped

pytestmark = pytest.mark.process

DATA = Path(__file__).parents[2] / "data" / "iperf3"
SENDERS = 4
UPLINK = "p1-s1-rail1:uplink1"


class QuietLab(FakeLab, RunningLab):
    """A lab that is not there, and passes for one that is."""

    @property
    def record(self) -> Any:
        return SimpleNamespace(model={}, revision=1)

    @property
    def state_directory(self) -> Path:
        return Path("nowhere")

    def node(self, name: str) -> None:  # type: ignore[override]
        pass

    def port(self, node: str, interface: str) -> None:  # type: ignore[override]
        pass


class Links:
    """Stands for `LinkControl`. The traffic ends as soon as a link is to go down, whether that worked or not."""

    down: Exception | None = None
    up: Exception | None = None

    def __init__(self, lab: object) -> None:
        pass

    def is_beside(self, port: str) -> bool:
        return False

    def prepare(self, port: str) -> None:
        pass

    def set(self, port: str, change: LinkChange, *, both: bool = False) -> None:
        error = self.up if change.up else self.down
        if not change.up:
            os.write(GATE[0], b"go\n" * SENDERS)
        if error is not None:
            raise error

    def close(self) -> None:
        pass


GATE: list[int] = []


class Stream:
    """Stands for `EventStream`: a lab in which nothing is seen."""

    def __init__(self, lab: object) -> None:
        self._read, self._write = os.pipe()

    def __iter__(self) -> Iterator[object]:
        os.read(self._read, 1)
        yield from ()

    def stop(self) -> None:
        os.write(self._write, b"x")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[QuietLab]:
    """Its senders end once a line for each of them stands in the gate, which a fault writes."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    GATE[:] = [os.open(gate, os.O_RDWR)]
    waits = ("sh", "-c", f"read go < {gate}; cat {DATA / 'timed.json'}")

    def program(node: str, argv: Sequence[str]) -> Sequence[str]:
        return LISTENING if "-s" in argv else waits

    monkeypatch.setattr(timeline_module, "LinkControl", Links)
    monkeypatch.setattr(timeline_module, "EventStream", Stream)
    monkeypatch.setattr("testbed.run.emulated.point.measure_rtt", lambda lab, probes: None)
    monkeypatch.setattr("testbed.run.emulated.point.resolve_next_hops", lambda lab, hops: [])
    monkeypatch.setattr("testbed.run.emulated.point.set_hash_seeds", lambda lab, run: None)
    yield QuietLab(*small_lab(hosts=2, rails=1, spines=2, k=4000), program)
    os.close(GATE.pop())


def run_scenario(lab: QuietLab, *faults: Fault, runs: int = 1) -> Record:
    asked = timed_scenario(faults=faults, repeat=Repeat(runs=runs), probes=Probes(enabled=False))
    return run_sweep(asked, plan_points(asked), lambda _: lab)


def fault(kind: str = "link-down", target: str = UPLINK) -> Fault:
    return Fault(at=Duration.parse("0ms"), kind=kind, target=target)


def check_of(run: RunResult) -> Check:
    (found,) = (check for check in run.checks if check.name == "faults")
    return found


def test_faults_that_happened_leave_a_run_as_it_is(lab: QuietLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts_module, "LATEST_S", 60.0)
    monkeypatch.setattr(acts_module, "LONGEST_S", 60.0)
    (run,) = run_scenario(lab, fault()).points[0].runs
    assert check_of(run).ok, check_of(run).message
    assert [event.kind for event in run.events] == ["link-down", "undone-link-down"]


@pytest.mark.parametrize("error", [OSError("no buffer space"), KeyError("a bug")])
def test_a_fault_that_could_not_be_done_makes_its_run_invalid(
    lab: QuietLab, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(Links, "down", error)
    record = run_scenario(lab, fault(), runs=2)
    assert record.verdict.outcome is Outcome.INVALID and record.incomplete == ""
    runs = record.points[0].runs
    assert [check_of(run).ok for run in runs] == [False, False], "the lab is whole: the next run may follow"
    assert f"link-down of {UPLINK} at 0 ns did not happen: " in check_of(runs[0]).message
    assert any(reason.startswith("run 1: link-down of") for reason in record.verdict.reasons)
    assert [event.kind for event in runs[0].events] == []


def test_a_lab_that_is_left_changed_ends_the_scenario(lab: QuietLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Links, "up", OSError("no such device"))
    with pytest.raises(ScenarioStopped, match="the lab is not as its topology declares") as caught:
        run_scenario(lab, fault(), runs=2)
    record = caught.value.record
    (run,) = record.points[0].runs
    assert f"link-down of {UPLINK} was not undone: no such device" in check_of(run).message
    assert not run.complete and record.verdict.outcome is Outcome.INVALID
    assert [event.kind for event in run.events] == ["link-down"], "what was measured and seen until then is kept"


def test_programs_are_no_worker_that_could_be_killed(lab: QuietLab) -> None:
    record = run_scenario(lab, fault("agent-kill", "p1-s1-h1"), fault())
    (run,) = record.points[0].runs
    assert "agent-kill of p1-s1-h1 at 0 ns did not happen: p1-s1-h1 has no worker" in check_of(run).message
    assert "agent-kill" not in {event.kind for event in run.events}
