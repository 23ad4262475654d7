"""The time scale a lab runs at: the file's number, or what this machine can carry."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.deploy.records.files import write_state
from testbed.deploy.records.journal import boot_id
from testbed.deploy.records.state import StateDirectory
from testbed.drivers.probing.calibration import MTU_BYTES, measure_forwarding
from testbed.drivers.probing.machine_probe import clock
from testbed.errors import LabNotFound
from testbed.model import Lab
from testbed.plan import (
    MachineProfile,
    PacketDemand,
    choose_packet_scale,
    choose_scale,
    judge_packet_scale,
    judge_scale,
)
from testbed.units import Rate

REFERENCE = MachineProfile(cores=2, forwarding_bps=7.8e9 * 3, mtu_bytes=9000)
"""Measured on two cores over three hops; used where this machine cannot be calibrated (no root)."""

VIRTUAL_SHARE, VIRTUAL_BURST_SHARE = 0.2, 0.5
VIRTUAL_SLOWEST_PORT = Rate(200_000)
"""What a lab may use in virtual time, and how slow its ports may become for that (see `in_virtual_time`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleResolution:
    """`k`, why, and a warning where it asks more of the machine than it has.

    `slowest`: no larger k was to be chosen.
    """

    k: float
    reason: str
    warning: str = ""
    slowest: bool = False


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
    write_state(path, json.dumps({"key": key, "forwarding_bps": measured}))
    return _profile(cores, measured)


def _profile(cores: int, forwarding_bps: float) -> MachineProfile:
    return MachineProfile(cores=cores, forwarding_bps=forwarding_bps, mtu_bytes=MTU_BYTES)


def in_virtual_time(machine: MachineProfile) -> MachineProfile:
    """Return what may be asked of a machine whose clock counts instructions.

    One instruction takes a nanosecond there, so a packet costs ten times what it does elsewhere, and idle time is
    skipped: a larger k costs nothing, and a packet's cost is kept small against its time on the wire.
    """
    return replace(
        machine, usable_share=VIRTUAL_SHARE, burst_share=VIRTUAL_BURST_SHARE, slowest_port=VIRTUAL_SLOWEST_PORT
    )


def resolve_scale(
    lab: Lab, state: StateDirectory, *, measure: bool = True, demands: Sequence[PacketDemand | None] = (None,)
) -> ScaleResolution:
    """The k of a lab on this machine. A running lab keeps its k, so that deploying twice changes nothing.

    `measure` as of `machine_profile`. `demands` are of what is going to run on it, one after the other: packets of a
    transport in user space, or None for all NICs sending at once by the kernel. The one that asks for most decides.
    """
    profile = machine_profile(state, measure=measure)
    if clock() == "virtual":
        profile = in_virtual_time(profile)
    if lab.scale.time is not None:
        return _given(lab, profile, demands, lab.scale.time, "fixed by the file", "this machine cannot carry")
    if (k := _deployed_k(lab, state)) is not None:
        if all(demand is None for demand in demands):
            return ScaleResolution(k=k, reason="as deployed")  # by this very rule, or another machine's
        return _given(lab, profile, demands, k, "as deployed", f"{lab.name} is deployed, and this machine cannot carry")
    choices = [
        choose_scale(lab, profile) if demand is None else choose_packet_scale(lab, profile, demand)
        for demand in demands
    ]
    choice = max(choices, key=lambda one: (one.k, one.fitting_k))
    # that all NICs of a large fabric cannot send at once is known to who makes one; traffic that is going to run must
    crowded = [one for one, demand in zip(choices, demands, strict=True) if demand is not None and not one.fits]
    warning = f"this machine cannot carry k = {choice.k:g}: {crowded[0].reason}" if crowded else ""
    return ScaleResolution(
        k=choice.k, reason=choice.reason + _of_reference(profile), warning=warning, slowest=bool(crowded)
    )


def _deployed_k(lab: Lab, state: StateDirectory) -> float | None:
    """That of the lab of this name; None where there is none, or only remains, or one of another version."""
    try:
        return state.read(lab.name).k
    except LabNotFound:
        return None


def _given(
    lab: Lab, profile: MachineProfile, demands: Sequence[PacketDemand | None], k: float, reason: str, complaint: str
) -> ScaleResolution:
    """A k that is not to be chosen, with a warning where it does not fit."""
    choices = [
        judge_scale(lab, profile, k) if demand is None else judge_packet_scale(lab, profile, demand, k)
        for demand in demands
    ]
    worst = max(choices, key=lambda one: (not one.fits, one.fitting_k))
    warning = "" if worst.fits else f"{complaint} k = {k:g}: {worst.reason}"
    return ScaleResolution(k=k, reason=f"{reason}: {worst.reason}{_of_reference(profile)}", warning=warning)


def _of_reference(profile: MachineProfile) -> str:
    return " (of a reference machine: this one was not measured)" if profile is REFERENCE else ""
