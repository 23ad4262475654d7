"""Compiled and interpreted endpoints do the same, to the byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.base.compiled.build import missing
from testbed.base.compiled.finder import PURE, find_build

PROGRAM = Path(__file__).parents[3] / "support/uet/seeded_traces.py"
ROOT = Path(__file__).parents[4]


def traces(seed: int, congestion_control: str, *, pure: bool) -> tuple[str, list[str]]:
    """How the modules ran, and everything that happened."""
    environment = os.environ | {PURE: "1" if pure else "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(seed), congestion_control],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    how, *events = done.stdout.splitlines()
    return how, events


@pytest.mark.process
@pytest.mark.parametrize("congestion_control", ["nscc", "rccc"])
@pytest.mark.parametrize("seed", [1, 2])
def test_both_give_the_same_traces(seed: int, congestion_control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PURE, raising=False)
    if not find_build():
        assert not (os.environ.get("CI") and not missing()), "CI compiles before it tests"
        pytest.skip("nothing is compiled: python -m testbed.base.compiled")
    interpreted = traces(seed, congestion_control, pure=True)
    compiled = traces(seed, congestion_control, pure=False)
    assert (interpreted[0], compiled[0]) == ("interpreted", "compiled")
    assert len(compiled[1]) > 1000
    assert compiled[1] == interpreted[1]
