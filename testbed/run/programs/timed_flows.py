"""Timed flows as pairs of programs: waiting for the senders, which run together, and ending all of them.

Nothing here sleeps: it waits for the exit of children, or for an interrupt.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any, Protocol, runtime_checkable

from testbed.base.errors import CapabilityError, ExitCode, ScenarioError
from testbed.base.interrupt import Interrupt
from testbed.base.units import Duration
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.lab import LiveLab

WARM_UP_S = 1
"""The first second is left out of a flow's figures: TCP starts slowly, and other flows are still starting."""
SAMPLE_S = 0.25
LISTEN_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 3.0
GRACE_S = 20.0
"""The time by which a flow may end later than planned."""
_TICK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFlow:
    """One flow that is to send data from `source` to `destination`. `id` counts from 1."""

    id: int
    source_rank: int
    destination_rank: int
    source: PortPlan
    destination: PortPlan

    def __str__(self) -> str:
        a, b = self.source, self.destination
        return f"flow {self.id} ({a.node}:{a.name} -> {b.node}:{b.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowWatch:
    """The watch over flows while they run, by those who may end them.

    `around` is entered when every server listens and left when the last sender has ended, so that counters can be read
    there. `on_listening` gets how many servers listen, `on_elapsed` how many seconds have passed; each also gets of how
    many.
    """

    interrupt: Interrupt
    around: Callable[[], AbstractContextManager[None]]
    on_listening: Callable[[int, int], None]
    on_elapsed: Callable[[float, float], None]


class FarProgram(Protocol):
    """A program on another machine, as far as one of this machine is had."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Return what reads what it says, where that goes to no file."""

    def end_descriptor(self) -> int:
        """Return a descriptor that can be read once it has ended; whoever asks closes it."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""

    def send_signal(self, number: int, /) -> None:
        """Have it end."""

    def kill(self) -> None:
        """Let go of it."""


FlowProgram = subprocess.Popen[bytes] | FarProgram
"""The program of a flow."""


@runtime_checkable
class FarLab(Protocol):
    """A lab whose hosts are on other machines."""

    def start_program(self, node: str, argv: Sequence[str], output: IO[bytes] | int | None) -> FarProgram:
        """Start a program in a host. Its words go to the file `output`, or for `subprocess.PIPE` to its `stdout`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedTraffic:
    """Flows to be run at once by pairs of programs."""

    lab: LiveLab
    duration: Duration
    tos: int
    """The IP header's former type of service: DSCP and ECN (RFC 2474, RFC 3168)."""
    watch: FlowWatch

    def start(self, node: str, argv: Sequence[str], *, package: str, stdout: IO[bytes] | int) -> FlowProgram:
        """Start a program inside a node, wherever that is. Raises as `spawn`, where it is here."""
        if isinstance(self.lab, FarLab):
            return self.lab.start_program(node, argv, stdout)
        return self.spawn(node, argv, package=package, stdout=stdout, bufsize=0)

    def spawn(self, node: str, argv: Sequence[str], *, package: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a program inside a node. Raises `CapabilityError` where it is not installed; `package` has it."""
        try:
            return self.lab.spawn(
                node,
                argv,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                process_group=0,  # a terminal's Ctrl-C is ours to pass on
                **options,
            )
        except FileNotFoundError as error:
            hint = f"apt-get install {package}"
            raise CapabilityError(f"{argv[0]} is not installed", missing=argv[0], hint=hint) from error


class FlowFailed(ScenarioError):
    """A flow's program failed. `node` is where; `reason` is the program's own error."""

    exit_code = ExitCode.INVALID

    def __init__(self, flow: TimedFlow, node: str, reason: str) -> None:
        super().__init__(
            f"{flow} failed on {node}: {reason}",
            hint="`testbed check` tells whether every NIC reaches every other of its rail",
        )
        self.flow = flow
        self.node = node
        self.reason = reason


def require_flows(flows: Sequence[TimedFlow]) -> None:
    """Raises `ScenarioError` where there is nothing to send."""
    if not flows:
        raise ScenarioError("this workload sends nothing over the fabric")


class SendingProgram(Protocol):
    """The program of a flow that ends when the flow does."""

    @property
    def process(self) -> FlowProgram: ...

    @property
    def node(self) -> str: ...

    @property
    def flow(self) -> TimedFlow: ...

    def collect(self, *, interrupted: bool) -> None:
        """Takes what the program measured, once it has ended. Raises `FlowFailed`, unless all is being stopped."""


def wait_for_senders(
    senders: Sequence[SendingProgram],
    *,
    planned_s: float,
    interrupt: Interrupt,
    on_elapsed: Callable[[float, float], None],
) -> bool:
    """Waits until every sender has ended, and returns whether there was an interrupt.

    Each sender is asked what it measured as it ends, so that a failure stops the rest; after an interrupt all are asked
    to stop. Raises `FlowFailed`.
    """
    begin = time.monotonic()
    deadline = begin + planned_s + GRACE_S
    interrupted = False
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as descriptors:
        running: dict[int, SendingProgram] = {}
        for sender in senders:
            descriptor = _end_of(sender.process)
            descriptors.callback(os.close, descriptor)
            running[descriptor] = sender
            selector.register(descriptor, selectors.EVENT_READ)
        selector.register(interrupt, selectors.EVENT_READ)
        while running:
            for key, _ in selector.select(_TICK_S):
                selector.unregister(key.fileobj)
                ended = running.pop(key.fd, None)
                if ended is not None:
                    ended.collect(interrupted=interrupted)
                else:
                    interrupted = True
                    signal_all((sender.process for sender in running.values()), signal.SIGINT)
                    deadline = time.monotonic() + STOP_TIMEOUT_S
            now = time.monotonic()
            on_elapsed(now - begin, planned_s)
            if now > deadline and running:
                if interrupted:
                    return True
                late = next(iter(running.values()))
                raise FlowFailed(late.flow, late.node, f"not done after {now - begin:.0f} s")
    return interrupted


def _end_of(program: FlowProgram) -> int:
    """Return a descriptor that can be read once a program has ended."""
    return os.pidfd_open(program.pid) if isinstance(program, subprocess.Popen) else program.end_descriptor()


@contextlib.contextmanager
def children() -> Iterator[list[FlowProgram]]:
    """Gives a list of children none of which survives the context: they are asked to end, then killed, and all are
    reaped."""
    found: list[FlowProgram] = []
    try:
        yield found
    finally:
        signal_all(found, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for child in found:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()


def signal_all(processes: Iterable[FlowProgram], number: signal.Signals) -> None:
    for process in processes:
        process.send_signal(number)  # a no-op for one that has ended and been reaped
