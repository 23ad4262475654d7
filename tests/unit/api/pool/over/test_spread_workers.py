"""Workers on other machines, by pipes here: what they say arrives, how they end is known, and times are theirs."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import pytest

from testbed.api.pool.over.workers import RemoteProcess, SpreadWorkers
from testbed.run.emulated.workers import WorkerProcess
from testbed.vm.errors import ConnectionLost

Sink = Callable[[bytes], object]


class Machine:
    """A machine that answers each line by itself, or loses its connection at the word "lost"."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        self.begun = 0

    def run_module(self, module: str, arguments: list[str], *, stdin: BinaryIO, stdout: Sink, stderr: Sink) -> int:
        assert (module, arguments) == ("testbed.endpoints.worker", ["--shared"])
        self.begun += 1
        for line in stdin:
            self.told.append(json.loads(line))
            if self.told[-1]["do"] == "lost":
                raise ConnectionLost(f"the SSH connection to {self.name} broke")
            stdout(line)
        return 0


def read_event(worker: WorkerProcess) -> tuple[str, dict[str, Any]]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not worker.dead:
        for event in worker.read():
            return event
        threading.Event().wait(0.005)
    raise AssertionError(f"nothing came: {worker.dead}")


def workers_of(*machines: Machine) -> SpreadWorkers:
    places = {"h1": "a", "h2": "b"}
    return SpreadWorkers(machines, places, {machine.name: 1 for machine in machines})  # type: ignore[arg-type]


def test_a_host_has_a_worker_on_its_machine_that_begins_by_the_clock_there() -> None:
    near, far = Machine("a"), Machine("b")
    with workers_of(near, far) as workers:
        workers.set_clock("b", 5_000_000)
        for host, ahead_ns in (("h1", 0), ("h2", 5_000_000)):
            worker = workers.next(host)
            assert worker is workers.next(host), "the process is kept"
            worker.put(host, {"do": "start", "at_ns": 1_000})
            assert read_event(worker) == (host, {"do": "start", "at_ns": 1_000 + ahead_ns})
        workers.set_clock("b", 7_000_000)
        workers.next("h2").put("h2", {"do": "start", "at_ns": 1_000})
        assert read_event(workers.next("h2"))[1]["at_ns"] == 7_001_000
    assert (near.begun, far.begun) == (1, 1)
    assert [told["host"] for told in far.told] == ["h2", "h2"]


def test_a_machine_that_is_lost_is_named_and_its_worker_begun_anew() -> None:
    near, far = Machine("a"), Machine("b")
    with workers_of(near, far) as workers:
        worker = workers.next("h2")
        worker.put("h2", {"do": "lost"})
        with pytest.raises(AssertionError, match="nothing came"):
            read_event(worker)
        assert "the SSH connection to b broke" in worker.dead
        worker.put("h2", {"do": "nothing"})  # nobody reads it, and nothing is raised
        again = workers.next("h2")
        again.put("h2", {"do": "anything"})
        assert read_event(again)[0] == "h2" and again is not worker and far.begun == 2


def test_a_process_that_does_not_end_with_its_input_is_let_go_of() -> None:
    ended = threading.Event()

    def stubborn(source: BinaryIO, output: Sink, words: Sink) -> int:
        ended.wait(30)
        return 0

    with tempfile.TemporaryFile() as errors:
        process = RemoteProcess(stubborn, errors)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None
        process.kill()
        assert process.wait(0.01) == -9
        ended.set()
