"""`plan_lab`: a resolved lab becomes numbers and a list of operations. Pure and deterministic.

The planner itself knows the features of a lab, and stands above them: `testbed.lab.assembly.planner`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, cast

from testbed.base.errors import PlanError
from testbed.lab.core.assembly import assembly
from testbed.lab.core.model import DelayBy, Lab, LagBy, VrfBy
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.link_delays import check_losses
from testbed.lab.core.plan.stable import DEFAULT_REACTION_NS, SLOTS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBasis:
    """The part of a plan that is not the lab's own, but decided by the machine that it is planned for."""

    k: float
    """The time scale."""
    slot: int = 0
    """The slot (0..511) of the machine."""
    auto_delay: DelayBy = DelayBy.ENDPOINT
    """The meaning of `delay: {by: auto}` there (`testbed.lab.core.plan.link_delays.decide_delay`)."""
    auto_vrf: VrfBy = VrfBy.NAMESPACE
    """The meaning of `vrf_by: auto` there (`testbed.lab.core.deploy.mechanisms.decide_vrf`)."""
    auto_lag: LagBy = LagBy.EBPF
    """The meaning of `lag_by: auto` there (`testbed.lab.core.deploy.mechanisms.decide_lag`)."""
    reaction_ns: int = DEFAULT_REACTION_NS
    """The reaction to a pause, in lab time, that headroom is computed from."""
    any_size: bool = False
    """A lab that nobody is going to deploy may have more ports than the data path has room for."""


class Planner(Protocol):
    """The numbers of a lab, decided."""

    def plan(self) -> LabPlan:
        """Make the plan of them. Raises `PlanError`."""

    def outline(self) -> LabPlan:
        """Make a plan of ports, hosts and queues alone."""


class Planning(Protocol):
    """The part of the assembly that makes plans."""

    def planner(self, lab: Lab, basis: PlanBasis) -> Planner:
        """Decide the numbers of a lab. Raises `PlanError`."""


def plan_lab(  # noqa: PLR0913  # what a machine decides
    lab: Lab,
    *,
    slot: int = 0,
    k: float,
    auto_delay: DelayBy = DelayBy.ENDPOINT,
    auto_vrf: VrfBy = VrfBy.NAMESPACE,
    auto_lag: LagBy = LagBy.EBPF,
    reaction_ns: int = DEFAULT_REACTION_NS,
    any_size: bool = False,
) -> LabPlan:
    """Decide every number of `lab` for time scale `k` and one slot (0..511) of the machine; the rest is as `PlanBasis`
    says.

    Raises `PlanError` where the lab does not fit the address space, the AS numbers, the names or the buffers.
    """
    if not 0 <= slot < SLOTS:
        raise PlanError(f"a slot is 0..{SLOTS - 1}, not {slot}", code="slot")
    if not k > 0:
        raise PlanError(f"the time scale must be positive, not {k}", field="scale.time", code="scale")
    check_losses(lab)
    basis = PlanBasis(
        k=k,
        slot=slot,
        auto_delay=auto_delay,
        auto_vrf=auto_vrf,
        auto_lag=auto_lag,
        reaction_ns=reaction_ns,
        any_size=any_size,
    )
    return _planner(lab, basis).plan()


def outline_lab(lab: Lab, *, k: float) -> LabPlan:
    """Plan a lab that nobody is going to deploy: its ports, NICs and queues, without operations, and without routes
    where these are the shortest ways.

    It may have more ports than the data path has room for. Raises `PlanError` as `plan_lab` does.
    """
    check_losses(lab)
    return _planner(lab, PlanBasis(k=k, auto_delay=DelayBy.KERNEL, reaction_ns=0, any_size=True)).outline()


def check_addresses(lab: Lab) -> None:
    """Raise `PlanError` where the lab's addresses, names or AS numbers do not fit, whatever the time scale."""
    _planner(_without_queues(lab), PlanBasis(k=1))


def plan_addresses(lab: Lab) -> LabPlan:
    """Plan a lab that nobody is going to deploy without its queues: its addresses and AS numbers are right, whatever
    the time scale, which its buffers may not fit. Raises `PlanError`."""
    return _planner(_without_queues(lab), PlanBasis(k=1, any_size=True)).plan()


def _without_queues(lab: Lab) -> Lab:
    return replace(lab, qos=None, networks=tuple(replace(each, qos=None) for each in lab.networks))


def _planner(lab: Lab, basis: PlanBasis) -> Planner:
    return cast(Planning, assembly()).planner(lab, basis)
