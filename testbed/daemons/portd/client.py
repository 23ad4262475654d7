"""The pause agent for other parts of testbed: start it, attach and detach labs, storm, ask how it does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.base.cleanup import closed_at_end
from testbed.base.descriptors import wait_readable
from testbed.daemons.kit import configuration
from testbed.daemons.kit.client import NOBODY, ask
from testbed.daemons.kit.process import start_module, start_ready
from testbed.daemons.portd import native, remains
from testbed.daemons.portd.attachment import ALREADY_SERVED, DIRECTORY_NAME, AttachmentFiles, LabAttachment
from testbed.daemons.portd.companion import LOG_NAME, SOCKET_NAME
from testbed.daemons.portd.errors import NoSuchPort, PauseAgentError, PauseAgentMissing, PauseAgentTimeout
from testbed.daemons.portd.histogram import Latency

AGENT_MODULE = "testbed.daemons.portd"
START_TIMEOUT_S = 60.0
"""For one that hangs, and long enough for an emulated machine; one that fails says so at once."""
ANSWER_TIMEOUT_S = 10.0
END_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LabStatus:
    """Pausing in one lab since it was attached or `reset`.

    `reaction` is from the crossing of XOFF in the ingress account to the closed gate at the peer,
    `event_to_frame` to the frame that left, `frame_to_gate` from the received frame on. `queues` has port,
    priority and reaction of each egress queue that was paused. `failures` are sends and gate changes that the
    kernel refused.
    """

    ports: int
    pin_directory: Path
    reaction: Latency
    event_to_frame: Latency
    frame_to_gate: Latency
    queues: tuple[tuple[int, int, Latency], ...]
    failures: int = 0
    broken_events: int = 0
    lost_lines: int = 0
    strays: Mapping[str, int] = field(default_factory=dict)

    @property
    def reactions(self) -> dict[tuple[int, int], Latency]:
        """The reaction of each egress queue that was paused, by port and priority."""
        return {(port, priority): latency for port, priority, latency in self.queues}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """`weaknesses` are sentences about what makes this agent slower than it could be."""

    pid: int
    guard_pid: int
    since: float
    weaknesses: tuple[str, ...]
    labs: Mapping[str, LabStatus]


class PauseAgent:
    """The agent of a run directory. Methods raise `PauseAgentError` and its kinds."""

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._files = AttachmentFiles(run_directory / DIRECTORY_NAME)

    def ensure_running(self) -> None:
        """Start the agent if no one answers, and wait until it does."""
        with self._alone():
            self._ensure_running()

    def attach(self, attachment: LabAttachment) -> None:
        """Serve a lab from now on, starting the agent if need be; one that is served is attached anew."""
        with self._alone():
            self._ensure_running()
            self._files.write(attachment)
            try:
                self._ask({"command": "attach", "lab": attachment.lab})
            except PauseAgentError:
                with contextlib.suppress(PauseAgentError):
                    self._end({"command": "detach", "lab": attachment.lab})
                raise

    def detach(self, lab: str) -> list[int]:
        """Let go of a lab: its gates open, its peers are resumed. The agent ends with the last one.

        Fine for a lab that is not attached, and where no agent runs. The numbers of the processes that ended come back.
        """
        return self._let_go({"command": "detach", "lab": lab})

    def stop(self) -> None:
        """Let go of all labs and end."""
        self._let_go({"command": "shutdown"})

    def storm(self, lab: str, port: int, priority: int, duration_ns: int) -> None:
        """Have `port` ask its peer to pause `priority`, for `duration_ns`. Raises `NoSuchPort`."""
        request = {"command": "storm", "lab": lab, "port": port, "priority": priority, "duration_ns": duration_ns}
        self._reach(request)

    def status(self) -> AgentStatus:
        """Raises `PauseAgentMissing` where no agent runs."""
        answer = self._reach({"command": "status"})
        try:
            return configuration.convert(answer, AgentStatus)
        except ValueError as error:
            raise PauseAgentError(f"the pause agent's answer cannot be read: {error}") from error

    def reset(self) -> None:
        """Forget the measured times of all labs."""
        self._reach({"command": "reset"})

    # --- inside --------------------------------------------------------------------------------------

    def _reach(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """`_ask`; where labs count on an agent and none answers, it is between two lives: wait for the next."""
        try:
            return self._ask(request)
        except PauseAgentMissing:
            if not self._files.labs():
                raise
        with self._alone():
            self._ensure_running()
        return self._ask(request)

    def _let_go(self, request: Mapping[str, Any]) -> list[int]:
        if not self._run_directory.is_dir():
            return []
        with self._alone():
            try:
                self._ask({"command": "hello"})
            except PauseAgentMissing:
                if not self._files.labs():
                    self._tidy()
                    return []
                self._ensure_running()
            return self._end(request)

    def _end(self, request: Mapping[str, Any]) -> list[int]:
        """A request that may end the agent: wait until it and its guard have gone, then tidy up."""
        with contextlib.ExitStack() as stack:
            pids = self._pids()
            processes = [stack.enter_context(_process(pid)) for pid in pids]
            if not self._ask(request).get("last"):
                return []
            _wait_for_end(processes)
            self._tidy()
            return pids

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else starts or ends the agent meanwhile: a lock on the run directory itself."""
        self._run_directory.mkdir(parents=True, exist_ok=True)
        with closed_at_end(os.open(self._run_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    def _ensure_running(self) -> None:
        if self._answers():
            return
        native.build()  # here, where someone can be told that there is no compiler
        deadline = time.monotonic() + START_TIMEOUT_S

        def spawn(ready: int) -> subprocess.Popen[bytes]:
            return start_module(AGENT_MODULE, self._run_directory, LOG_NAME, ["--ready-fd", str(ready)], [ready])

        while not self._answers():
            try:
                _, ended = start_ready(spawn, deadline - time.monotonic())
            except TimeoutError:
                message = f"the pause agent does not start within {START_TIMEOUT_S:g} s"
                raise PauseAgentTimeout(message, hint=self._log) from None
            if ended is not None and (ended != ALREADY_SERVED or time.monotonic() > deadline):
                raise PauseAgentMissing("the pause agent ended at its start", hint=self._log)

    def _answers(self) -> bool:
        with contextlib.suppress(PauseAgentMissing):
            self._ask({"command": "hello"})
            return True
        return False

    @property
    def _log(self) -> str:
        return f"see {self._run_directory / LOG_NAME}"

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request; a refusal is raised as the error it is."""
        try:
            answer = ask(self._run_directory, SOCKET_NAME, request, ANSWER_TIMEOUT_S)
        except EOFError as error:
            raise PauseAgentMissing("the pause agent ended while it was asked", hint=self._log) from error
        except TimeoutError as error:
            raise PauseAgentTimeout(f"the pause agent does not answer {request['command']}", hint=self._log) from error
        except NOBODY as error:
            raise PauseAgentMissing("no pause agent runs", hint="it comes with a lab that has `qos:`") from error
        except ConnectionError as error:
            raise PauseAgentMissing(f"the pause agent went while it was asked: {error}", hint=self._log) from error
        except OSError as error:
            raise PauseAgentError(f"the pause agent cannot be reached: {error}") from error
        if not answer.pop("ok"):
            kind = NoSuchPort if answer["kind"] == NoSuchPort.__name__ else PauseAgentError
            raise kind(answer["error"], hint=answer["hint"])
        return answer

    def _pids(self) -> list[int]:
        answer = self._ask({"command": "hello"})
        return [pid for pid in (answer["pid"], answer["guard_pid"]) if pid]

    def _tidy(self) -> None:
        remains.remove(self._run_directory)


@contextlib.contextmanager
def _process(pid: int) -> Iterator[int]:
    """A descriptor that is readable once the process has ended; at once where it has."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    with closed_at_end(descriptor):
        yield descriptor


def _wait_for_end(processes: list[int]) -> None:
    deadline = time.monotonic() + END_TIMEOUT_S
    for descriptor in processes:
        if not wait_readable(descriptor, deadline - time.monotonic()):
            raise PauseAgentTimeout("the pause agent does not end")
