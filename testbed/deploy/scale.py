"""The time scale a lab runs at: the file's number, or what this machine can carry."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass

from testbed.deploy.journal import boot_id
from testbed.deploy.state import StateDirectory, write_durably
from testbed.drivers.calibration import MTU_BYTES, measure_forwarding
from testbed.model import Lab
from testbed.plan import MachineProfile, choose_scale, judge_scale

REFERENCE = MachineProfile(cores=2, forwarding_bps=7.8e9 * 3, mtu_bytes=9000)
"""Measured on two cores over three hops; used where this machine cannot be calibrated (no root)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleResolution:
    """`k`, why, and a warning where a fixed k asks more of the machine than it has."""

    k: float
    reason: str
    warning: str = ""


def machine_profile(state: StateDirectory, *, measure: bool = True) -> MachineProfile:
    """This machine's forwarding capacity, measured once a boot and kept in the state directory.

    Without `measure` what is kept is taken, or the reference; nothing is written.
    """
    cores = len(os.sched_getaffinity(0))
    if os.geteuid() != 0:
        return REFERENCE
    if measure:
        state.prepare(run=False)
    key = f"{boot_id()} {platform.release()} {cores} shaped"
    path = state.state / "calibration.json"
    try:
        kept = json.loads(path.read_text())
        if kept["key"] == key:
            return _profile(cores, float(kept["forwarding_bps"]))
    except (OSError, ValueError, KeyError):
        pass  # never measured, or not by this version: measure
    if not measure:
        return REFERENCE
    measured = measure_forwarding()
    write_durably(path, json.dumps({"key": key, "forwarding_bps": measured}))
    return _profile(cores, measured)


def _profile(cores: int, forwarding_bps: float) -> MachineProfile:
    return MachineProfile(cores=cores, forwarding_bps=forwarding_bps, mtu_bytes=MTU_BYTES)


def resolve_scale(lab: Lab, state: StateDirectory, *, measure: bool = True) -> ScaleResolution:
    """The k of a lab on this machine. A running lab keeps its k, so that deploying twice changes nothing.

    `measure` as of `machine_profile`.
    """
    if lab.scale.time is not None:
        choice = judge_scale(lab, machine_profile(state, measure=measure), lab.scale.time)
        if choice.k > lab.scale.time:
            return ScaleResolution(
                k=lab.scale.time,
                reason="fixed by the file",
                warning=f"this machine cannot carry k = {lab.scale.time:g}: {choice.reason};"
                f" k = {choice.k:g} would fit",
            )
        return ScaleResolution(k=lab.scale.time, reason="fixed by the file")
    if state.exists(lab.name):
        running = state.read(lab.name)
        return ScaleResolution(k=running.k, reason="as deployed")
    choice = choose_scale(lab, machine_profile(state, measure=measure))
    return ScaleResolution(k=choice.k, reason=choice.reason)
