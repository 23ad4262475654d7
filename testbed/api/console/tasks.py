"""Tasks, which take longer than a request: command lines of this program, run as they are shown, told line by line."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from testbed.api.console.answers import RefusedRequest, not_found

MOST_RUNNING = 8
MOST_KEPT = 50
MOST_LINES = 2_000
SHOWN_LINES = 200
_LONGEST_LINE = 4_000
_SECOND_S = 5.0
"""The time after which another wish to end a task is more than Ctrl-C."""
LAST_S = 20.0
"""The time that tasks have to end when the console does, and once more after SIGTERM; then they are killed."""
PROGRAM = "testbed"


def command_text(words: Sequence[str]) -> str:
    """Return a command line as a person would write it."""
    return shlex.join([PROGRAM, *words])


class TaskState(StrEnum):
    """The progress of a task."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True, kw_only=True)
class Task:
    """One or several command lines, one after the other; the first that fails is the last."""

    id: str
    title: str
    words: Sequence[Sequence[str]]
    lab: str
    started: str
    state: TaskState = TaskState.RUNNING
    ended: str = ""
    code: int | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    told: int = 0
    """Lines that there have been, those among them that are not kept."""
    process: asyncio.subprocess.Process | None = None
    asked_to_end_s: float = 0.0

    def to_json(self, most_lines: int | None) -> dict[str, Any]:
        """Return what pages are told of it, with the last lines; None: with all that are kept."""
        lines = list(self.lines)
        return {
            "id": self.id,
            "title": self.title,
            "command": " && ".join(map(command_text, self.words)),
            "lab": self.lab,
            "state": self.state,
            "started": self.started,
            "ended": self.ended,
            "code": self.code,
            "line_count": self.told,
            "lines": lines if most_lines is None else lines[len(lines) - most_lines :] if most_lines else [],
        }


class Tasks:
    """The tasks of a console. `tell` is called with each that changed, and with its new lines, in the loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, directory: Path, tell: Callable[[Task, list[str]], None]
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._tell = tell
        self._tasks: dict[str, Task] = {}
        self._running: set[asyncio.Task[None]] = set()

    def start(self, words: Sequence[str], *, title: str, lab: str = "") -> Task:
        """Run one command line; `start_all` has the rest."""
        return self.start_all([words], title=title, lab=lab)

    def start_all(self, words: Sequence[Sequence[str]], *, title: str, lab: str = "") -> Task:
        """Run command lines of this program one after the other. May be called in any thread.

        Raises `RefusedRequest` where too many run already.
        """
        if sum(task.state is TaskState.RUNNING for task in list(self._tasks.values())) >= MOST_RUNNING:
            raise RefusedRequest(429, f"{MOST_RUNNING} tasks run already", hint="wait for one of them, or cancel it")
        task = Task(id=secrets.token_hex(6), title=title, words=[list(line) for line in words], lab=lab, started=_now())
        self._tasks[task.id] = task
        self._loop.call_soon_threadsafe(self._begin, task)
        return task

    def find(self, number: str) -> Task:
        """Raises `RefusedRequest` for a task that there is not."""
        if number not in self._tasks:
            raise not_found("there is no such task: it may have been forgotten")
        return self._tasks[number]

    def to_json(self, most_lines: int = SHOWN_LINES) -> list[dict[str, Any]]:
        """Return all tasks, the latest first."""
        return [task.to_json(most_lines) for task in reversed(list(self._tasks.values()))]

    def cancel(self, number: str) -> None:
        """Ask a task to end as Ctrl-C does; asked again after a while it gets SIGTERM. In the loop's thread."""
        task = self.find(number)
        if task.state is not TaskState.RUNNING:
            return
        again = task.asked_to_end_s and self._loop.time() - task.asked_to_end_s >= _SECOND_S
        task.asked_to_end_s = task.asked_to_end_s or self._loop.time()
        if task.process is not None:  # else it ends as soon as there is one
            self._signal(task, signal.SIGTERM if again else signal.SIGINT)

    @staticmethod
    def _signal(task: Task, number: signal.Signals) -> None:
        assert task.process is not None
        with suppress(ProcessLookupError):
            os.killpg(task.process.pid, number)

    async def close(self, tell: Callable[[str], None]) -> None:
        """End all tasks, and wait until they have ended: what a deploy has made, it undoes.

        Those that take long get SIGTERM, and at last SIGKILL: none goes on without its console. `tell` gets a sentence
        for each step.
        """
        for task in list(self._tasks.values()):
            self.cancel(task.id)
        for number, what in ((signal.SIGTERM, "ended (SIGTERM)"), (signal.SIGKILL, "killed")):
            if self._running:
                await asyncio.wait(self._running, timeout=LAST_S)
            for task in [one for one in self._tasks.values() if one.state is TaskState.RUNNING]:
                tell(f"{command_text(task.words[-1])} still runs after {LAST_S:g} s, and is {what}")
                if number == signal.SIGKILL:
                    about = f" of {task.lab}" if task.lab else ""
                    tell(f"it could not undo its work: see what is left{about} with `testbed list`, and destroy it")
                if task.process is not None:
                    self._signal(task, number)
        if self._running:
            await asyncio.wait(self._running, timeout=LAST_S)

    def _begin(self, task: Task) -> None:
        while len(self._tasks) > MOST_KEPT:
            oldest = next((one for one in self._tasks.values() if one.state is not TaskState.RUNNING), None)
            if oldest is None:
                break
            del self._tasks[oldest.id]
        self._spawn(self._run(task))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        running = self._loop.create_task(work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    async def _run(self, task: Task) -> None:
        self._tell(task, [])
        done = False
        try:
            for words in task.words:
                task.code = await self._run_line(task, words)
                done = not task.code and words is task.words[-1]
                if task.code or task.asked_to_end_s:
                    break
        except OSError as error:
            self._add(task, [f"error: {error.strerror}"])
            task.code = -1
        broken = TaskState.CANCELLED if task.asked_to_end_s else TaskState.FAILED
        task.state = TaskState.DONE if done else broken
        task.ended = _now()
        task.process = None
        self._tell(task, [])

    async def _run_line(self, task: Task, words: Sequence[str]) -> int:
        """Run one command line; its exit code. `-P`: no module of the working directory stands for one of ours."""
        self._add(task, [f"$ {command_text(words)}"])
        task.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", PROGRAM),
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._directory,
            process_group=0,
        )
        if task.asked_to_end_s:
            self._signal(task, signal.SIGINT)
        assert task.process.stdout is not None
        rest = b""
        while chunk := await task.process.stdout.read(65536):
            *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            rest = rest[-_LONGEST_LINE:]
            self._add(task, [line[:_LONGEST_LINE].decode(errors="replace") for line in lines])
        if rest:
            self._add(task, [rest.decode(errors="replace")])
        return await task.process.wait()

    def _add(self, task: Task, lines: list[str]) -> None:
        if lines:
            task.lines.extend(lines)
            task.told += len(lines)
            self._tell(task, lines[-SHOWN_LINES:])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
