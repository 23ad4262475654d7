"""The agent's guard: when the agent ends and labs still count on it, gates open, and a new agent starts.

`python -m testbed.daemons.portd.guard --run-directory DIR --agent-fd N`, started by the agent, which in turn starts
another guard should this one end. It ends with an agent that leaves no attachment behind.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import sys
import time
from pathlib import Path

import numpy as np

from testbed.base.cleanup import closed_at_end
from testbed.base.datapath.maps import LabMaps
from testbed.base.descriptors import wait_readable
from testbed.base.errors import TestbedError
from testbed.daemons.kit import realtime
from testbed.daemons.kit.events import EventLog
from testbed.daemons.portd import native
from testbed.daemons.portd.attachment import DIRECTORY_NAME, PRIORITIES, AttachmentFiles, LabAttachment
from testbed.daemons.portd.companion import Companion
from testbed.daemons.portd.core import PauseCore
from testbed.daemons.portd.port_io import PortIo

AGENT_MODULE = "testbed.daemons.portd"
QUIET_S = 10.0
"""An agent that lived so long did not die of its start."""
FIRST_DELAY_S = 0.1
LAST_DELAY_S = 5.0


def fail_open(attachment: LabAttachment) -> int:
    """Open every gate of a lab that the maps call closed; how many. Raises `TestbedError` where the maps are gone."""
    with contextlib.closing(LabMaps.open(attachment.pin_directory, writable=True)) as maps:
        return open_closed_gates(attachment, maps)


def open_closed_gates(attachment: LabAttachment, maps: LabMaps) -> int:
    """Do as `fail_open`, on maps that are there already. A gate of a port that is gone counts as open."""
    core, port_io = PauseCore(attachment.ports, maps), PortIo(attachment.ports)
    vectors: dict[int, int] = {}
    known = {port.number for port in attachment.ports}
    for index in np.flatnonzero(maps.pauses["closed"]).tolist():
        port, priority = divmod(index, PRIORITIES)
        if port in known:
            vectors[port] = vectors.get(port, 0) | 1 << priority
    with contextlib.closing(port_io):
        for port, vector in vectors.items():
            port_io.open_gates(port, vector)
            core.opened(port, vector, time.monotonic_ns())
    return sum(vector.bit_count() for vector in vectors.values())


class PauseGuard:
    """Watches one agent after the other."""

    def __init__(self, run_directory: Path, agent: Companion) -> None:
        self._run_directory = run_directory
        self._files = AttachmentFiles(run_directory / DIRECTORY_NAME)
        self._agent = agent

    def run(self) -> None:
        """Run until an agent ends that nobody needs any more, or another agent is there, with a guard of its own."""
        delay_s = FIRST_DELAY_S
        began = time.monotonic()
        while True:
            self._wait_for(None)
            self._agent.close()
            if not self._fail_open():
                return
            lived_s = time.monotonic() - began
            if lived_s < QUIET_S:
                delay_s = min(2 * delay_s, LAST_DELAY_S)
                select.select([], [], [], delay_s)  # an agent that dies of its start must not start all the time
            else:
                delay_s = FIRST_DELAY_S
            began = time.monotonic()
            if not self._restart():
                return

    def _wait_for(self, timeout_s: float | None) -> None:
        wait_readable(self._agent, timeout_s)

    def _fail_open(self) -> bool:
        """Open the gates of all labs; False where there are none, or another agent serves them by now."""
        try:
            claim = self._files.claim()
        except FileNotFoundError:
            return False
        if claim is None:
            return False
        with closed_at_end(claim):
            labs = self._files.labs()
            for lab in labs:
                self._fail_open_lab(lab)
            return bool(labs)

    def _fail_open_lab(self, lab: str) -> None:
        try:
            attachment = self._files.read(lab)
            opened = fail_open(attachment)
        except (TestbedError, OSError) as error:
            print(f"the lab {lab} is left as it is: {error}", file=sys.stderr, flush=True)
            return
        log = EventLog(attachment.events_file, lab)
        log.write("portd-died", detail=f"agent {self._agent.pid}; {opened} closed gates opened")

    def _restart(self) -> bool:
        while True:
            try:
                self._agent = Companion.spawn(AGENT_MODULE, self._run_directory, "--guard-fd")
            except FileNotFoundError:
                return False  # the run directory is gone, and all labs with it
            except OSError as error:
                print(f"the agent does not start: {error}", file=sys.stderr, flush=True)
                select.select([], [], [], LAST_DELAY_S)
            else:
                return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.daemons.portd.guard", description=__doc__)
    parser.add_argument("--run-directory", type=Path, required=True)
    parser.add_argument("--agent-fd", type=int, required=True, help="pidfd of the agent that started us")
    options = parser.parse_args()
    why = realtime.become_realtime(realtime.GUARD_PRIORITY)
    if why:
        print(why, file=sys.stderr, flush=True)
    native.library()  # not only when it is needed most
    with contextlib.suppress(KeyboardInterrupt):
        PauseGuard(options.run_directory, Companion.parent(options.agent_fd)).run()


if __name__ == "__main__":
    main()
