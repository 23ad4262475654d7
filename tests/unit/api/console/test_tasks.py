"""Tasks that a console has begun end with it, however little they want to."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from testbed.api.console import tasks as module
from testbed.api.console.tasks import Tasks, TaskState

pytestmark = pytest.mark.process
STUBBORN = (
    "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
)


def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> tuple[Any, list[str]]:
    """Run a program as a task, close, and return the task and what was told."""
    (tmp_path / "stubborn.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "PROGRAM", "stubborn")
    monkeypatch.setattr(module, "LAST_S", 0.5)
    said: list[str] = []

    async def story() -> Any:
        up = asyncio.Event()
        tasks = Tasks(asyncio.get_running_loop(), tmp_path, lambda task, lines: up.set() if "up" in lines else None)
        task = tasks.start(["deploy", "demo.yml"], title="Deploy", lab="demo")
        async with asyncio.timeout(20):
            await up.wait()
            pid = task.process.pid if task.process else 0
            await tasks.close(said.append)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        return task

    with ThreadPoolExecutor(1) as thread:  # this one may have the loop of a browser that is open
        return thread.submit(asyncio.run, story()).result(), said


def test_a_task_that_heeds_nothing_is_killed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, said = closed(tmp_path, monkeypatch, STUBBORN)
    assert task.state is TaskState.CANCELLED and task.code == -9
    assert said == [
        "stubborn deploy demo.yml still runs after 0.5 s, and is ended (SIGTERM)",
        "stubborn deploy demo.yml still runs after 0.5 s, and is killed",
        "it could not undo its work: see what is left of demo with `testbed list`, and destroy it",
    ]


def test_a_task_that_ends_is_not_spoken_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, said = closed(tmp_path, monkeypatch, "import time\nprint('up', flush=True)\ntime.sleep(600)")
    assert task.state is TaskState.CANCELLED and said == []
    assert sys.executable
