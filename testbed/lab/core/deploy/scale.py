"""The time scale a lab runs at: the file's number, or what this machine can carry."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.base.errors import LabNotFound
from testbed.base.units import Rate
from testbed.lab.core.deploy.records.files import write_state
from testbed.lab.core.deploy.records.journal import boot_id
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.probing.machine_probe import clock
from testbed.lab.core.feature import ScaleDemand, features
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.scale import (
    MEASURED_MTU_BYTES,
    MachineLoad,
    MachineProfile,
    PacketDemand,
    beside,
    choose_packet_scale,
    choose_scale,
    judge_packet_scale,
    judge_scale,
    largest_k,
)

REFERENCE = MachineProfile(cores=2, forwarding_bps=7.8e9 * 3, mtu_bytes=9000)
"""Measured on two cores over three hops; used where this machine cannot be calibrated (no root)."""

VIRTUAL_SHARE, VIRTUAL_BURST_SHARE = 0.2, 0.5
VIRTUAL_SLOWEST_PORT = Rate(200_000)
"""The shares of the CPUs in virtual time, and how slow ports may become for them (see `in_virtual_time`)."""

AS_DEPLOYED = "as deployed"

NO_LOAD = MachineLoad()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleResolution:
    """`k`, why, and a warning where it asks more of the machine than it has.

    `slowest`: no larger k was to be chosen. `load` is the share of the CPUs that the traffic is expected to use, which
    is a `bound` where nothing is known of it but that all NICs may send at once. `others` is what else used them.
    """

    k: float
    reason: str
    warning: str = ""
    slowest: bool = False
    load: float = 0.0
    bound: bool = True
    others: MachineLoad = NO_LOAD


def machine_profile(state: StateDirectory, *, measure: bool = True) -> MachineProfile:
    """This machine's forwarding capacity, measured once a boot and kept in the state directory.

    Without `measure` what is kept is taken, or the reference; nothing is written. Who may make no lab gets the
    reference, too, and whoever finds the machine so busy that nothing was forwarded.
    """
    cores = len(os.sched_getaffinity(0))
    if os.geteuid() != 0 or _lacks_capabilities():
        return REFERENCE
    if measure:
        state.prepare(run=False)
    key = f"{boot_id()} {platform.release()} {cores} shaped"
    path = state.state / "calibration.json"
    try:
        kept = json.loads(path.read_text())
        if kept["key"] == key and kept["forwarding_bps"] > 0:
            return _profile(cores, float(kept["forwarding_bps"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # never measured, or not by this version: measure
    if not measure:
        return REFERENCE
    from testbed.lab.core.drivers.probing.calibration import measure_forwarding

    if not (measured := measure_forwarding()):
        return REFERENCE
    write_state(path, json.dumps({"key": key, "forwarding_bps": measured}))
    return _profile(cores, measured)


def _lacks_capabilities() -> bool:
    from testbed.lab.core.drivers.probing.machine import missing_capabilities

    return bool(missing_capabilities())


def _profile(cores: int, forwarding_bps: float) -> MachineProfile:
    return MachineProfile(cores=cores, forwarding_bps=forwarding_bps, mtu_bytes=MEASURED_MTU_BYTES)


def in_virtual_time(machine: MachineProfile) -> MachineProfile:
    """Return what may be asked of a machine whose clock counts instructions.

    One instruction takes a nanosecond there, so a packet costs ten times what it does elsewhere, and idle time is
    skipped: a larger k costs nothing, and a packet's cost is kept small against its time on the wire.
    """
    return replace(
        machine, usable_share=VIRTUAL_SHARE, burst_share=VIRTUAL_BURST_SHARE, slowest_port=VIRTUAL_SLOWEST_PORT
    )


def resolve_scale(
    lab: Lab,
    state: StateDirectory,
    *,
    measure: bool = True,
    demands: Sequence[PacketDemand | None] = (None,),
    others: MachineLoad = NO_LOAD,
    replaces: bool = False,
) -> ScaleResolution:
    """The k of a lab on this machine. A running lab keeps its k, so that deploying twice changes nothing, unless the
    new one `replaces` it as another one.

    `measure` as of `machine_profile`. `demands` are of what is going to run on it, one after the other: packets of a
    transport in user space, or None for all NICs sending at once by the kernel. The one that asks for most decides.
    `others` is what else uses the machine, for which room is left.
    """
    profile = machine_profile(state, measure=measure)
    if clock() == "virtual":
        profile = in_virtual_time(profile)
    shared = beside(profile, others)
    known = None if replaces or lab.scale.time is not None else _deployed_k(lab, state)
    found = _resolve(lab, shared, demands, known)
    for feature in features():
        if (needed := feature.scale(lab, shared.usable_share)) is not None:
            found = _with_feature(lab, found, shared, needed)
    crowd = "" if shared is profile else _of_others(others)
    of_reference = "" if profile is not REFERENCE else " (of a reference machine: this one was not measured)"
    return replace(found, reason=found.reason + crowd + of_reference, others=others)


def _resolve(
    lab: Lab, profile: MachineProfile, demands: Sequence[PacketDemand | None], k: float | None
) -> ScaleResolution:
    """`k`: that of the lab as it is deployed, if it is."""
    if lab.scale.time is not None:
        return _given(lab, profile, demands, lab.scale.time, "fixed by the file", "this machine cannot carry")
    if k is not None:
        if all(demand is None for demand in demands):
            # by this very rule, or another machine's
            return ScaleResolution(k=k, reason=AS_DEPLOYED, load=_expected_load(lab, profile, demands, k)[0])
        return _given(lab, profile, demands, k, AS_DEPLOYED, f"{lab.name} is deployed, and this machine cannot carry")
    choices = [
        choose_scale(lab, profile) if demand is None else choose_packet_scale(lab, profile, demand)
        for demand in demands
    ]
    choice = max(choices, key=lambda one: (one.k, one.fitting_k))
    # that all NICs of a large fabric cannot send at once is known to who makes one; traffic that is going to run must
    crowded = [one for one, demand in zip(choices, demands, strict=True) if demand is not None and not one.fits]
    warning = f"this machine cannot carry k = {choice.k:g}: {crowded[0].reason}" if crowded else ""
    load, bound = _expected_load(lab, profile, demands, choice.k)
    return ScaleResolution(
        k=choice.k, reason=choice.reason, warning=warning, slowest=bool(crowded), load=load, bound=bound
    )


def _with_feature(lab: Lab, found: ScaleResolution, profile: MachineProfile, needed: ScaleDemand) -> ScaleResolution:
    """The larger of both demands: that of the NICs, and that of a feature.

    A k that is given is kept, with a warning where it is too small for the feature.
    """
    given = lab.scale.time is not None or found.reason.startswith(AS_DEPLOYED)
    k = found.k if given else max(found.k, min(needed.k, largest_k(lab, profile)))
    load = max(found.load * found.k / k, needed.load(k))
    found = replace(found, k=k, load=load, reason=f"{found.reason}; {needed.reason(k)}")
    if k >= needed.k:
        return found
    warning = "; ".join(filter(None, (found.warning, needed.complaint(k))))
    return replace(found, warning=warning, slowest=found.slowest or not given)


def _expected_load(
    lab: Lab, profile: MachineProfile, demands: Sequence[PacketDemand | None], k: float
) -> tuple[float, bool]:
    """Return the largest share of the machine that what is going to run uses at `k`, and whether it is a bound."""
    known = [judge_packet_scale(lab, profile, demand, k).load for demand in demands if demand is not None]
    if len(known) == len(demands):
        return max(known), any(demand.kernel_packets_per_s for demand in demands if demand is not None)
    return max([*known, judge_scale(lab, profile, k).load]), True


def _of_others(others: MachineLoad) -> str:
    stolen = f", and {others.steal:.0%} were stolen in the last minute" if others.steal >= 0.005 else ""
    return f"; others keep {others.busy:.0%} of the CPUs busy now{stolen}, for which room is left"


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
    load, bound = _expected_load(lab, profile, demands, k)
    return ScaleResolution(k=k, reason=f"{reason}: {worst.reason}", warning=warning, load=load, bound=bound)
