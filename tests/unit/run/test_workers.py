"""The runner's side of workers that are none: programs that die, refuse, say nonsense, or nothing at all."""

import os
import sys
import time
from collections.abc import Sequence

import pytest
from fake_lab import FakeLab, small_lab

from testbed.base.interrupt import Interrupt
from testbed.run.emulated import workers as workers_module
from testbed.run.emulated.workers import Answers, Workers
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.schema.model import Transport, TransportKind
from testbed.workload.patterns import generate_point_to_point

pytestmark = pytest.mark.process

HELLO = 'import sys\nprint(\'{"event": "hello"}\', flush=True)\n'
ECHO = HELLO + "for line in sys.stdin: print(line, end='', flush=True)\n"
"""A worker that says whatever it is told."""
NEVER = 60.0


def workers_of(scripts: dict[str, str]) -> Workers:
    """Hosts and what runs on them."""

    def program(node: str, argv: Sequence[str]) -> Sequence[str]:
        return [sys.executable, "-S", "-c", scripts[node]]

    return Workers(FakeLab(*small_lab(), program))


def start(workers: Workers, *hosts: str) -> Answers:
    return workers.start(hosts, None)


def wait(workers: Workers, expected: str, *hosts: str, interrupt: Interrupt | None = None, **options: bool) -> Answers:
    return workers.wait(hosts, expected, time.monotonic() + NEVER, interrupt, **options)


def test_answers_come_from_all_at_once() -> None:
    workers = workers_of({"a": ECHO, "b": ECHO})
    try:
        assert start(workers, "a", "b").complete
        workers.tell({"a": {"event": "done", "n": 1}, "b": {"event": "other"}})
        workers.tell({"b": {"event": "done", "n": 2}})
        others: list[object] = []
        answers = workers.wait(
            ["a", "b"], "done", time.monotonic() + NEVER, None, lambda host, event: others.append(event)
        )
        assert answers.complete and {host: event["n"] for host, event in answers.events.items()} == {"a": 1, "b": 2}
        assert others == [{"event": "other"}]
    finally:
        workers.close()


def test_long_commands_pass_through() -> None:
    workers = workers_of({"a": ECHO})
    try:
        start(workers, "a")
        workers.tell({"a": {"event": "done", "text": "x" * 3_000_000}})
        assert len(wait(workers, "done", "a").events["a"]["text"]) == 3_000_000
    finally:
        workers.close()


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
    workers = workers_of({"a": ECHO, "b": script})
    try:
        answers = start(workers, "a", "b")
        assert answers.failure.host == "b" and reason in answers.failure.message
        assert "b" not in workers.workers
    finally:
        workers.close()


def test_a_mistake_of_a_worker_is_told_with_its_traceback() -> None:
    """Of one that dies of it, and of one that says so first."""
    workers = workers_of({"a": ECHO, "b": "def cut(): 1 / 0\ncut()"})
    try:
        dead = start(workers, "a", "b").failure
        assert dead is not None and dead.trace.startswith("Traceback (most recent call last):")
        assert "in cut" in dead.trace and "ZeroDivisionError: division by zero" in dead.trace
        workers.tell({"a": {"event": "failed", "reason": "internal error", "trace": "Traceback: here"}})
        told = wait(workers, "done", "a").failure
        assert told is not None and (told.reason, told.trace) == ("internal error", "Traceback: here")
    finally:
        workers.close()


def test_who_stays_silent_is_named_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "HELLO_TIMEOUT_S", 0.1)
    workers = workers_of({"a": "import time\ntime.sleep(60)"})
    try:
        answers = start(workers, "a")
        assert answers.failure is not None and "is not there after 0 s" in answers.failure.message
        assert workers.workers == {}
    finally:
        workers.close()


def test_a_death_is_the_reason_of_what_others_lament() -> None:
    """The one whose connection broke may be heard first."""
    workers = workers_of({"a": ECHO, "b": HELLO + "sys.stdin.readline()\nraise SystemExit(7)"})
    try:
        start(workers, "a", "b")
        workers.tell({"a": {"event": "failed", "reason": "connection reset"}, "b": {"do": "die"}})
        answers = wait(workers, "done", "a", "b")
        assert answers.failure is not None and answers.failure.host == "b" and answers.failure.is_death
    finally:
        workers.close()


def test_a_refusal_is_told() -> None:
    workers = workers_of({"a": ECHO})
    try:
        start(workers, "a")
        workers.tell({"a": {"event": "refused", "reason": "steps[3]: odd"}})
        answers = wait(workers, "done", "a")
        assert answers.failure is not None and answers.failure.message == "a: steps[3]: odd"
    finally:
        workers.close()


def test_the_tolerant_go_on_with_those_that_are_left() -> None:
    workers = workers_of({"a": ECHO, "b": HELLO + "raise SystemExit(7)"})
    try:
        start(workers, "a", "b")
        workers.tell({"a": {"event": "report"}})
        answers = wait(workers, "report", "a", "b", tolerant=True)
        assert set(answers.events) == {"a"}
        assert answers.failure is not None and answers.failure.host == "b"
    finally:
        workers.close()


def test_an_interrupt_ends_waiting() -> None:
    workers = workers_of({"a": ECHO})
    try:
        start(workers, "a")
        with Interrupt() as interrupt:
            interrupt.request()
            assert wait(workers, "done", "a", interrupt=interrupt).interrupted
    finally:
        workers.close()


def test_whoever_ended_is_started_again() -> None:
    workers = workers_of({"a": ECHO})
    try:
        start(workers, "a")
        first = workers.workers["a"].process.pid
        workers.discard(["a"])
        assert start(workers, "a").complete
        assert workers.workers["a"].process.pid != first
    finally:
        workers.close()


def test_closing_leaves_nobody() -> None:
    workers = workers_of({"a": ECHO, "b": HELLO + "import time\ntime.sleep(60)"})
    start(workers, "a", "b")
    processes = [worker.process for worker in workers.workers.values()]
    workers.close()
    assert all(process.returncode is not None for process in processes)


def test_who_keeps_talking_is_late_all_the_same() -> None:
    """Something is always ready to be read: each event that is heard is followed by the next one."""
    workers = workers_of({"a": ECHO})
    ours, theirs = os.pipe()
    news = b'{"event": "progress"}\n'

    def listen(host: str, event: object) -> None:
        assert time.monotonic() < deadline + 3.0, "it is listened to for ever"
        os.write(theirs, news)

    try:
        assert start(workers, "a").complete
        os.set_blocking(ours, False)
        os.write(theirs, news)
        workers.workers["a"].output = ours
        deadline = time.monotonic() + 0.1
        assert workers.wait(["a"], "done", deadline, None, listen).late == ("a",)
    finally:
        workers.close()
        os.close(ours)
        os.close(theirs)


def test_what_is_interrupted_before_it_begins_waits_for_nobody() -> None:
    """Hosts that fill their buffers for a long time would be heard much later, and have measured nothing."""
    model, plan = small_lab()
    lab = FakeLab(model, plan, lambda node, argv: [sys.executable, "-S", "-c", HELLO + "for line in sys.stdin: pass"])
    ranks = [host.nics[0] for host in plan.hosts[:2]]
    workload = generate_point_to_point(ranks=2, size_bytes=1000)
    with (
        Interrupt() as interrupt,
        WorkloadRunner(lab, Transport(kind=TransportKind.TCP), [rank.node for rank in ranks]) as runner,
    ):
        processes = [runner.pid(rank.node) for rank in ranks]
        interrupt.request()
        result = runner.run(workload, ranks, WorkloadRunOptions(interrupt=interrupt))
        assert result.interrupted and result.failure is None and not result.begin_monotonic_ns
        assert None not in processes and [runner.pid(rank.node) for rank in ranks] == [None, None]


def test_a_worker_that_is_not_there_yet_is_not_waited_for_after_an_interrupt() -> None:
    """Its start would be waited for until the grace for those that end by themselves is over."""
    model, plan = small_lab()
    lab = FakeLab(model, plan, lambda node, argv: [sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    ranks = [host.nics[0] for host in plan.hosts[:2]]
    with Interrupt() as interrupt, WorkloadRunner(lab, Transport(kind=TransportKind.TCP)) as runner:
        interrupt.request()
        result = runner.run(
            generate_point_to_point(ranks=2, size_bytes=1000), ranks, WorkloadRunOptions(interrupt=interrupt)
        )
        assert result.interrupted and [runner.pid(rank.node) for rank in ranks] == [None, None]
