"""A process that is driven by lines: its answers, what is said of one that has ended, and that none outlives us."""

import os
import signal
from pathlib import Path

import pytest

from testbed.base.errors import DriverError
from testbed.daemons.kit.line_process import LineProcess, stop_all

pytestmark = pytest.mark.process
MODULE = "testbed.endpoints.libfabric"


def started(tmp_path: Path) -> LineProcess:
    return LineProcess(MODULE, "process of a test", operation="test", log=tmp_path / "log")


def test_it_answers_by_lines_and_its_end_is_told_with_its_name(tmp_path: Path) -> None:
    process = started(tmp_path)
    try:
        process.tell(b"no settings")
        assert "JSON" in process.hear(60)["error"]
        with pytest.raises(DriverError, match="the process of a test does not work: it has ended"):
            process.hear(60)
        process.tell(b"counters")  # nobody reads it, which is no error of whoever asks
    finally:
        stop_all([process], 5)
    assert process.process.returncode == 1


def test_one_that_says_nothing_is_given_up_and_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    process = started(tmp_path)
    os.kill(process.process.pid, signal.SIGSTOP)
    with pytest.raises(DriverError, match="no answer in 0 s"):
        process.hear(0.05)
    stop_all([process], 0.05)
    assert process.process.returncode == -signal.SIGKILL
