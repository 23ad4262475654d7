"""Virtual time: the same scenario and seed give the same record, to the last byte, whatever else this machine does.

A fabric of four FRR switches, and flows that collide, mark, lose and react: where senders react, a nanosecond decides
in which order two packets are queued, and what follows drifts apart. So two records are the same if time is.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab_vm import LabVm, command_line, skip_without_tools

from testbed.record.store import SESSION_FILE

HERE = Path(__file__).parent
TIMEOUT_S = 1500.0
WALL_CLOCK = "wall_s"
"""The one figure that speaks of this machine's time: it is kept beside the record."""

pytestmark = [pytest.mark.labvm, pytest.mark.timeout(1800)]


def virtual(*arguments: str, cwd: Path = HERE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "testbed", "--on", "vm", "--clock", "virtual", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy_machine(processes: int = 2 * (os.cpu_count() or 1)) -> Iterator[None]:
    """Every CPU has something else to do, twice over, or there are so many processes that take all they get."""
    workers = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def run_record(scenario: str, results: Path) -> dict[str, Any]:
    """The record of a scenario in virtual time, as its file has it."""
    done = virtual("run", scenario, "--results", str(results))
    assert done.returncode in {0, 1, 2}, done.stderr
    assert "may differ" not in done.stderr, done.stderr
    (file,) = results.rglob("record.json")
    assert str(file) in done.stdout  # and not where it was in there
    assert list(results.rglob("report.html")), done.stdout
    record: dict[str, Any] = json.loads(file.read_text())
    assert record["environment"]["clock"] == "virtual"
    session = json.loads(file.with_name(SESSION_FILE).read_text())
    assert session[WALL_CLOCK] > 0 and record[WALL_CLOCK] is None
    assert scenario in session["command"], "as it was asked for, with directories of here"
    assert str(results) in session["command"] and str(results) not in record["command"]
    return record


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{place}[{index}]")
    else:
        yield place, value


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Every metric, sample, counter and time stamp; the first that differ are named."""
    one, other = dict(leaves(first)), dict(leaves(second))
    assert len(one) > 500, "there is something to compare"
    apart = [(place, value, other.get(place)) for place, value in one.items() if other.get(place) != value]
    assert apart[:20] == []
    assert one.keys() == other.keys()


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    skip_without_tools()


def test_two_machines_side_by_side_beside_other_work_write_the_same(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "testbed", "vm", "build"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    with busy_machine(1), ThreadPoolExecutor(2) as pool:  # each is other work to the other, too
        first, second = pool.map(lambda name: run_record("two-tier-both.yml", tmp_path / name), ("a", "b"))
    runs = [run for point in first["points"] for run in point["runs"]]
    assert {run["seed"] for run in runs} == {1, 2}
    assert len({json.dumps(run["metrics"]) for run in runs}) == 4, "transports and seeds do differ"
    assert_same(first, second)


@pytest.mark.parametrize("scenario", ["two-tier-permutation.yml", "two-tier-spraying.yml"])
def test_the_same_on_an_idle_and_on_a_busy_machine(scenario: str, tmp_path: Path) -> None:
    idle = run_record(scenario, tmp_path / "idle")
    with busy_machine():
        busy = run_record(scenario, tmp_path / "busy")
    assert_same(idle, busy)


def test_the_same_pair_on_the_wall_clock_for_contrast(lab_vm: LabVm, tmp_path: Path) -> None:
    """Nothing is promised there; how far the two are apart is shown."""
    idle = wall_clock_metrics(lab_vm, tmp_path / "idle")
    with busy_machine():
        busy = wall_clock_metrics(lab_vm, tmp_path / "busy")
    apart = {
        name: abs(value - other) / max(abs(value), abs(other))
        for name, value in idle.items()
        if value is not None and (other := busy.get(name)) is not None and max(abs(value), abs(other)) > 0
    }
    worst = sorted(apart.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {share:.1%}" for name, share in worst[:8])
    many = sum(share > 0.005 for share in apart.values())
    warnings.warn(
        f"on the wall clock {many} of {len(apart)} metrics are more than 0.5 %"
        f" apart, of an idle and of a busy machine; most of all {shown}",
        stacklevel=1,
    )


def wall_clock_metrics(machine: LabVm, results: Path) -> dict[str, float | None]:
    words = ("run", "two-tier-both.yml", "--no-report", "--results", str(results))
    done = command_line("--on", f"vm:{machine.machine.name}", *words, cwd=HERE)
    assert done.returncode in {0, 1, 2}, done.stderr
    (file,) = results.rglob("record.json")
    return {
        f"{name} ({point['name']}, run {run['index']})": value
        for point in json.loads(file.read_text())["points"]
        for run in point["runs"]
        for name, value in run["metrics"].items()
    }


def test_a_verb_that_cannot_run_there_is_refused() -> None:
    done = virtual("deploy", "-t", "two-tier.yml")
    assert done.returncode == 3
    assert "cannot run in virtual time" in done.stderr


def test_a_mistake_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("name: bad\nfabrik: {}\n")
    done = virtual("validate", "-t", "bad.yml", cwd=tmp_path)
    assert done.returncode == 3
    assert "bad.yml:2:1" in done.stderr
    assert "virtual time: the guest's clock" in done.stderr
