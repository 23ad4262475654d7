"""The runner's side of workers that are none: programs that die, refuse, say nonsense, or nothing at all."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import pytest
from fake_lab import FakeLab, small_lab

from testbed.scenario.run import workers as crew_module
from testbed.scenario.run.interrupt import Interrupt
from testbed.scenario.run.workers import Answers, Workers

HELLO = 'import sys\nprint(\'{"event": "hello"}\', flush=True)\n'
ECHO = HELLO + "for line in sys.stdin: print(line, end='', flush=True)\n"
"""A worker that says whatever it is told."""
NEVER = 60.0


def crew_of(scripts: dict[str, str]) -> Workers:
    """Hosts and what runs on them."""

    def program(node: str, argv: Sequence[str]) -> Sequence[str]:
        return [sys.executable, "-S", "-c", scripts[node]]

    return Workers(FakeLab(*small_lab(), program))


def start(crew: Workers, *hosts: str) -> Answers:
    return crew.start(hosts, None)


def wait(crew: Workers, expected: str, *hosts: str, interrupt: Interrupt | None = None, **options: bool) -> Answers:
    return crew.wait(hosts, expected, time.monotonic() + NEVER, interrupt, **options)


def test_answers_come_from_all_at_once() -> None:
    crew = crew_of({"a": ECHO, "b": ECHO})
    try:
        assert start(crew, "a", "b").complete
        crew.tell({"a": {"event": "done", "n": 1}, "b": {"event": "other"}})
        crew.tell({"b": {"event": "done", "n": 2}})
        others: list[object] = []
        answers = crew.wait(
            ["a", "b"], "done", time.monotonic() + NEVER, None, lambda host, event: others.append(event)
        )
        assert answers.complete and {host: event["n"] for host, event in answers.events.items()} == {"a": 1, "b": 2}
        assert others == [{"event": "other"}]
    finally:
        crew.close()


def test_long_commands_pass_through() -> None:
    crew = crew_of({"a": ECHO})
    try:
        start(crew, "a")
        crew.tell({"a": {"event": "done", "text": "x" * 3_000_000}})
        assert len(wait(crew, "done", "a").events["a"]["text"]) == 3_000_000
    finally:
        crew.close()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("raise SystemExit(3)", "its worker ended with status 3"),
        ("raise ValueError('no such luck')", "status 1: ValueError: no such luck"),
        ("import os\nos.kill(os.getpid(), 9)", "was killed by signal SIGKILL"),
        ("print('hello world', flush=True)\nimport time\ntime.sleep(60)", "was killed by signal SIGKILL"),
    ],
)
def test_who_does_not_start_is_named(script: str, reason: str) -> None:
    crew = crew_of({"a": ECHO, "b": script})
    try:
        answers = start(crew, "a", "b")
        assert answers.failure is not None
        assert answers.failure.host == "b" and reason in answers.failure.message
        assert "b" not in crew.workers
    finally:
        crew.close()


def test_who_stays_silent_is_named_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "HELLO_TIMEOUT_S", 0.1)
    crew = crew_of({"a": "import time\ntime.sleep(60)"})
    try:
        answers = start(crew, "a")
        assert answers.failure is not None and "is not there after 0 s" in answers.failure.message
        assert crew.workers == {}
    finally:
        crew.close()


def test_a_death_is_the_reason_of_what_others_lament() -> None:
    """The one whose connection broke may be heard first."""
    crew = crew_of({"a": ECHO, "b": HELLO + "sys.stdin.readline()\nraise SystemExit(7)"})
    try:
        start(crew, "a", "b")
        crew.tell({"a": {"event": "failed", "reason": "connection reset"}, "b": {"do": "die"}})
        answers = wait(crew, "done", "a", "b")
        assert answers.failure is not None and answers.failure.host == "b" and answers.failure.is_death
    finally:
        crew.close()


def test_a_refusal_is_told() -> None:
    crew = crew_of({"a": ECHO})
    try:
        start(crew, "a")
        crew.tell({"a": {"event": "refused", "reason": "steps[3]: odd"}})
        answers = wait(crew, "done", "a")
        assert answers.failure is not None and answers.failure.message == "a: steps[3]: odd"
    finally:
        crew.close()


def test_the_tolerant_go_on_with_those_that_are_left() -> None:
    crew = crew_of({"a": ECHO, "b": HELLO + "raise SystemExit(7)"})
    try:
        start(crew, "a", "b")
        crew.tell({"a": {"event": "report"}})
        answers = wait(crew, "report", "a", "b", tolerant=True)
        assert set(answers.events) == {"a"}
        assert answers.failure is not None and answers.failure.host == "b"
    finally:
        crew.close()


def test_an_interrupt_ends_waiting() -> None:
    crew = crew_of({"a": ECHO})
    try:
        start(crew, "a")
        with Interrupt() as interrupt:
            interrupt.request()
            assert wait(crew, "done", "a", interrupt=interrupt).interrupted
    finally:
        crew.close()


def test_whoever_ended_is_started_again() -> None:
    crew = crew_of({"a": ECHO})
    try:
        start(crew, "a")
        first = crew.workers["a"].process.pid
        crew.discard(["a"])
        assert start(crew, "a").complete
        assert crew.workers["a"].process.pid != first
    finally:
        crew.close()


def test_closing_leaves_nobody() -> None:
    crew = crew_of({"a": ECHO, "b": HELLO + "import time\ntime.sleep(60)"})
    start(crew, "a", "b")
    processes = [worker.process for worker in crew.workers.values()]
    crew.close()
    assert all(process.returncode is not None for process in processes)
