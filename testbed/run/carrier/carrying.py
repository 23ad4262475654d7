"""Carrying TCP between NICs of a lab, as long as a context lasts.

    with carry(lab, nics, "uet") as carrying:
        ...

Processes of the carrier are started, as few as keep up, each for some of the hosts; then the hosts' TCP is steered.
What is steered stands in the lab's journal before, so that it is taken back whoever is killed: by the processes of the
carrier when they lose their starter, by the starter when it loses them, and where both are gone, by the next context
or by `destroy`.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from testbed.base.errors import DriverError, TestbedError
from testbed.base.typed_json import encode
from testbed.daemons.kit import lock
from testbed.daemons.kit.line_process import LineProcess, stop_all
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import CARRIER_LOCK
from testbed.lab.core.drivers.probing.machine import require_root
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.carrier.configuration import KINDS
from testbed.run.carrier.endpoint_settings import CarrierRefused
from testbed.run.carrier.planning import configure
from testbed.run.carrier.steered import steer, unsteer
from testbed.run.carrier.steering import steering_object

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 5.0
_LOG = "carrier.log"


class CarrierBusy(TestbedError):
    """TCP of the lab is being carried already."""


class RunningCarrier:
    """The carrier of a lab at work."""

    def __init__(self, processes: Sequence[LineProcess]) -> None:
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

        Raises `DriverError` where one does not answer.
        """
        for process in self._processes:
            process.tell(b"counters")
        total: Counter[str] = Counter()
        for process in self._processes:
            answer = process.hear(ASK_TIMEOUT_S)
            total.update({name: count for name, count in answer.items() if isinstance(count, int)})
        return dict(total)

    def sent_again(self) -> int | None:
        """Return how many packets endpoints have sent again; None where a process has ended."""
        try:
            return self.counters().get("packets_again", 0)
        except DriverError:
            return None


@contextlib.contextmanager
def carry(lab: RunningLab, nics: Sequence[PortPlan], kind: str) -> Iterator[RunningCarrier]:
    """Carry TCP between these NICs of different hosts over `kind`, "uet" or "roce", until the context is left.

    Connections between them that are there already break. Raises `CarrierBusy` where it is carried already,
    `CarrierRefused` for NICs that cannot be, `CapabilityError` without a right or a program that it needs, and
    `DriverError` where something does not work: all is undone then.
    """
    if kind not in KINDS:
        raise CarrierRefused(f"TCP is carried over {' or '.join(KINDS)}, not {kind}")
    require_root()
    steering_object()  # once, before processes want it
    held = lock.hold(lab.processes_directory / CARRIER_LOCK, create=True)
    if held is None:
        raise CarrierBusy(
            f"TCP of the lab {lab.name} is being carried already", hint="one launch with --transport at a time"
        )
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, held)
        unsteer(lab.name, lab.state_directory)  # of one whose processes were all killed
        processes: list[LineProcess] = []
        undo.callback(stop_all, processes, STOP_TIMEOUT_S)
        configurations = configure(lab, nics, kind)
        log = lab.processes_directory / _LOG
        for number, configuration in enumerate(configurations, 1):
            name = f"carrier {number} of {len(configurations)}"
            # The lock is held until all have ended, whoever is killed.
            process = LineProcess("testbed.run.carrier", name, operation="carrier", log=log, pass_fds=(held,))
            processes.append(process)
            process.tell(encode(configuration))
        for process in processes:
            process.await_ready(START_TIMEOUT_S)
        undo.callback(unsteer, lab.name, lab.state_directory)
        steer(lab, nics)
        yield RunningCarrier(processes)
