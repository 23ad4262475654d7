"""Virtual time: the same scenario and seed give the same figures, whatever else this machine does.

The acceptance test runs a fabric of four FRR switches twice, the second time beside work on every CPU; it takes the
longest of this tier.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import CapabilityError
from testbed.vm.image import require_tools

pytestmark = [pytest.mark.labvm, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
SCENARIO = "two-tier-permutation.yml"
TOLERANCE = 0.005
TIMEOUT_S = 1500.0


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
def busy_machine() -> Iterator[None]:
    """Every CPU has something else to do, twice over."""
    workers = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(2 * (os.cpu_count() or 1))]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def run_record(results: Path) -> dict[str, Any]:
    done = virtual("run", SCENARIO, "--results", str(results))
    assert done.returncode in {0, 1, 2}, done.stderr
    (file,) = results.rglob("record.json")
    assert list(results.rglob("report.html")), done.stdout
    record: dict[str, Any] = json.loads(file.read_text())
    return record


def numbers(value: Any, path: str = "") -> dict[str, float]:
    """Every number in a document, by where it is."""
    match value:
        case dict():
            return {
                key: number for name, item in value.items() for key, number in numbers(item, f"{path}/{name}").items()
            }
        case list():
            return {
                key: number
                for index, item in enumerate(value)
                for key, number in numbers(item, f"{path}/{index}").items()
            }
        case bool():
            return {}
        case int() | float():
            return {path: value}
    return {}


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    try:
        require_tools()
    except CapabilityError as error:
        pytest.skip(error.message)


def test_the_same_figures_on_an_idle_and_on_a_busy_machine(tmp_path: Path) -> None:
    idle = run_record(tmp_path / "idle")
    with busy_machine():
        busy = run_record(tmp_path / "busy")
    assert {idle["environment"]["clock"], busy["environment"]["clock"]} == {"virtual"}
    assert busy["wall_s"] > 0
    first, second = (numbers(record["points"]) for record in (idle, busy))
    assert first.keys() == second.keys()
    apart = {
        path: (value, second[path])
        for path, value in first.items()
        if abs(value - second[path]) > TOLERANCE * max(abs(value), abs(second[path]))
    }
    assert apart == {}


def test_a_verb_that_cannot_run_there_is_refused() -> None:
    done = virtual("deploy", "-t", "two-tier.yml")
    assert done.returncode == 1
    assert "cannot run in virtual time" in done.stderr


def test_a_mistake_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("name: bad\nfabrik: {}\n")
    done = virtual("validate", "-t", "bad.yml", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.yml:2:1" in done.stderr
    assert "virtual time: the guest's clock" in done.stderr
