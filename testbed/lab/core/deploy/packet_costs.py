"""The measured CPU time of a data packet of each transport in user space, kept by machine and build.

Whoever measures is above (`run.sweep.packet_cost`); this is what is kept beside the machine's calibration, for
those who choose a time scale, and for those who show it.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed.base.compiled.modules import build_key
from testbed.lab.core.deploy.records.files import write_state
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.protocols import is_compiled

FILE = "packet-costs.json"
MOST_KEPT = 32
"""Builds of which costs are kept: the oldest goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketCost:
    """The CPU time that a data packet costs both its ends and its acknowledgement, in us."""

    transport: str
    us: float
    compiled: bool


class PacketCosts:
    """The costs of packets on this machine with this build, as the state directory keeps them."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._path = state.state / FILE

    def find(self, transport: str) -> PacketCost | None:
        """Return what was measured of a transport; None where nothing was."""
        us = self._read().get(_key(transport))
        return None if us is None else PacketCost(transport=transport, us=us, compiled=is_compiled())

    def all(self) -> list[PacketCost]:
        """Return what was measured of this build on this machine, by transport."""
        build = _key("")
        names = sorted(key.removeprefix(build) for key in self._read() if key.startswith(build))
        return [cost for name in names if (cost := self.find(name)) is not None]

    def keep(self, transport: str, us: float) -> PacketCost:
        """Keep what was measured, and return it."""
        self._state.prepare(run=False)
        kept = {key: value for key, value in self._read().items() if key != _key(transport)}
        kept = dict(list(kept.items())[-(MOST_KEPT - 1) :])
        write_state(self._path, json.dumps(kept | {_key(transport): round(us, 1)}, indent=1))
        return PacketCost(transport=transport, us=round(us, 1), compiled=is_compiled())

    def _read(self) -> dict[str, float]:
        try:
            document = json.loads(self._path.read_text())
            return {str(key): float(value) for key, value in document.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # never measured, or not by this version


@cache
def _build() -> str:
    """Return what tells apart builds whose packets may cost differently: sources, interpreter, compiled or not."""
    return f"{build_key()} {'compiled' if is_compiled() else 'interpreted'}"


@cache
def _processor() -> str:
    """Return the processor's name; a virtual machine that moves to another one is another machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _key(transport: str) -> str:
    return f"{_processor()} {platform.release()} {len(os.sched_getaffinity(0))} {_build()} {transport}"
