"""The share of this machine that others use: a moment ago, and, of what a hypervisor gave away, in the last minute.

Steal comes in waves, so a moment says little of it. Readings of /proc/stat are kept beside the machine's calibration
whenever a time scale is chosen and when a scenario ends; what was stolen since the oldest of the last minute counts.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass

from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.records.files import write_state
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.scale import MachineLoad
from testbed.run.machine.cpu import CpuTimes, cpu_use, read_cpu_times

FILE = "cpu-readings.json"
WINDOW_S = 0.3
"""The time for which the machine is watched: 60 ticks of two CPUs."""
REMEMBERED_S = 60.0
LEAST_S = 2.0
"""A reading younger than this says no more than the moment does."""
MOST_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(CpuTimes):
    """The CPU times, and when they were read: s of CLOCK_BOOTTIME."""

    at_s: float


def watch_machine(state: StateDirectory, *, keep: bool) -> MachineLoad:
    """Watch the machine for a moment, before anything of ours runs. With `keep` what was read is kept."""
    before = take_reading()
    time.sleep(WINDOW_S)
    now = take_reading()
    kept = _kept(state, now)
    if keep:
        _keep(state, [*kept, now])
    return judge_load(before, now, kept)


def keep_reading(state: StateDirectory) -> None:
    """Keep what /proc/stat says now, for who chooses a time scale in the next minute."""
    now = take_reading()
    _keep(state, [*_kept(state, now), now])


def judge_load(before: Reading, now: Reading, kept: list[Reading]) -> MachineLoad:
    """Return what others used between two readings, and what was stolen since the oldest of those kept."""
    moment = cpu_use(before, now)
    steal = moment.steal
    if kept:
        steal = max(steal, cpu_use(kept[0], now).steal)
    return MachineLoad(busy=max(0.0, moment.busy - moment.steal), steal=steal)


def take_reading() -> Reading:
    times = asdict(read_cpu_times())
    return Reading(at_s=time.clock_gettime(time.CLOCK_BOOTTIME), **times)


def _kept(state: StateDirectory, now: Reading) -> list[Reading]:
    """Return the readings of the last minute and of this boot, oldest first."""
    try:
        found = [Reading(**item) for item in json.loads((state.state / FILE).read_text())]
    except (OSError, ValueError, TypeError):
        return []  # none yet, or those of another version
    return [one for one in found if LEAST_S <= now.at_s - one.at_s <= REMEMBERED_S and one.total <= now.total]


def _keep(state: StateDirectory, readings: list[Reading]) -> None:
    document = [asdict(one) for one in readings[-MOST_KEPT:]]
    with contextlib.suppress(TestbedError):  # it is worth no error of its own: who cannot write here hears of it soon
        state.prepare(run=False)
        write_state(state.state / FILE, json.dumps(document), durable=False)
