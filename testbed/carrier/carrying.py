"""Carrying TCP between NICs of a lab, as long as a context lasts.

    with carry(lab, nics, "uet") as carrying:
        ...

Processes of the carrier are started, one for each CPU, each for some of the hosts; then the hosts' TCP is steered. What
is steered stands in the lab's journal before, so that it is taken back whoever is killed: by the processes of the
carrier when they lose their starter, by the starter when it loses them, and where both are gone, by the next context
or by `destroy`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from testbed.base.errors import CapabilityError, DriverError, TestbedError
from testbed.base.linux.processes import last_line, package_environment
from testbed.base.typed_json import encode
from testbed.carrier.configuration import KINDS, CarrierConfiguration
from testbed.carrier.endpoint_settings import CarrierRefused
from testbed.carrier.planning import configure
from testbed.carrier.steered import steer, unsteer
from testbed.carrier.steering import steering_object
from testbed.daemons.kit import lock
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import CARRIER_LOCK
from testbed.lab.core.plan.lab_plan import PortPlan

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 5.0
_LOG = "carrier.log"


class CarrierBusy(TestbedError):
    """TCP of the lab is being carried already."""


class CarrierFailed(DriverError):
    """A process of the carrier did not start."""


class _Process:
    """One process of the carrier. `hosts` are those that it works for."""

    def __init__(self, name: str, configuration: CarrierConfiguration, log: Path, held: int) -> None:
        self.name = name
        self.configuration = configuration
        self._log = log
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "testbed.carrier"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                bufsize=0,
                cwd="/",
                env=package_environment() | {"OPENBLAS_NUM_THREADS": "1"},
                pass_fds=(held,),  # the lock is held until all have ended, whoever is killed
                process_group=0,  # a terminal's Ctrl-C is ours to pass on
            )
        self.pidfd = os.pidfd_open(self.process.pid)

    def configure(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(encode(self.configuration) + b"\n")

    def hear(self, timeout_s: float) -> dict[str, object]:
        """Return the next line that it says. Raises `CarrierFailed` where there is none in time."""
        assert self.process.stdout is not None
        output = self.process.stdout
        deadline = time.monotonic() + timeout_s
        said = b""
        while not said.endswith(b"\n"):
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(output.fileno(), 1 << 20) if ready else b""
            if not data:
                why = f"no answer in {timeout_s:.0f} s" if not ready else last_line(self._log) or "it has ended"
                raise CarrierFailed(f"the {self.name} does not work: {why}", operation="carrier")
            said += data
        return dict(json.loads(said))

    def ask(self) -> None:
        """Ask for its counters, which are heard next."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"counters\n")

    def stop(self) -> None:
        """Have it end; it is not waited for."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def wait(self, deadline: float) -> None:
        """Wait for its end, and end it at the deadline (of `time.monotonic`)."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.pidfd)
        assert self.process.stdout is not None
        self.process.stdout.close()


class RunningCarrier:
    """The carrier of a lab at work."""

    def __init__(self, processes: Sequence[_Process]) -> None:
        self._processes = tuple(processes)

    def environment(self, nic: PortPlan) -> Mapping[str, str]:
        """Return nothing: programs are not told that they are carried."""
        return {}

    @property
    def watched(self) -> Mapping[str, int]:
        """Descriptors (pidfd_open(2)) of the processes that programs depend on, by their names."""
        return {process.name: process.pidfd for process in self._processes}

    def counters(self) -> Mapping[str, int]:
        """Return what all processes have counted: connections, bytes, packets, and CPU time in us.

        Raises `CarrierFailed` where one does not answer.
        """
        try:
            for process in self._processes:
                process.ask()
        except OSError as error:
            raise CarrierFailed(f"the carrier does not work: {error.strerror}", operation="carrier") from error
        total: Counter[str] = Counter()
        for process in self._processes:
            answer = process.hear(ASK_TIMEOUT_S)
            total.update({name: count for name, count in answer.items() if isinstance(count, int)})
        return dict(total)

    def sent_again(self) -> int | None:
        """Return how many packets endpoints have sent again; None where a process has ended."""
        try:
            return self.counters().get("packets_again", 0)
        except CarrierFailed:
            return None


@contextlib.contextmanager
def carry(lab: RunningLab, nics: Sequence[PortPlan], kind: str) -> Iterator[RunningCarrier]:
    """Carry TCP between these NICs of different hosts over `kind`, "uet" or "roce", until the context is left.

    Connections between them that are there already break. Raises `CarrierBusy` where it is carried already,
    `CarrierRefused` for NICs that cannot be, `CapabilityError` without what it needs, and `DriverError` or
    `CarrierFailed` where something does not work: all is undone then.
    """
    if kind not in KINDS:
        raise CarrierRefused(f"TCP is carried over {' or '.join(KINDS)}, not {kind}")
    steering_object()  # once, before processes want it
    held = lock.hold(lab.processes_directory / CARRIER_LOCK, create=True)
    if held is None:
        raise CarrierBusy(
            f"TCP of the lab {lab.name} is being carried already", hint="one launch with --transport at a time"
        )
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, held)
        unsteer(lab.name, lab.state_directory)  # of one whose processes were all killed
        processes: list[_Process] = []
        undo.callback(_stop, processes)
        configurations = configure(lab, nics, kind)
        log = lab.processes_directory / _LOG
        for number, configuration in enumerate(configurations, 1):
            name = f"carrier {number} of {len(configurations)}"
            processes.append(_Process(name, configuration, log, held))
        for process in processes:
            process.configure()
        for process in processes:
            _await_ready(process)
        undo.callback(unsteer, lab.name, lab.state_directory)
        steer(lab, nics)
        yield RunningCarrier(processes)


def _await_ready(process: _Process) -> None:
    answer = process.hear(START_TIMEOUT_S)
    if not answer.get("ready"):
        hint = answer.get("hint")
        raise CapabilityError(
            f"the {process.name} does not start: {answer.get('error')}",
            missing="carrier",
            hint=str(hint) if hint else None,
        )


def _stop(processes: Sequence[_Process]) -> None:
    for process in processes:
        process.stop()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for process in processes:
        process.wait(deadline)
