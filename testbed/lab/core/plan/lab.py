"""`plan_lab`: a resolved lab becomes numbers and a list of operations. Pure and deterministic.

The planner itself knows the features of a lab, and stands above them: `testbed.lab.assembly.planner`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, cast

from testbed.base.errors import PlanError
from testbed.lab.core.assembly import assembly
from testbed.lab.core.model import DelayBy, Lab, LagBy, VrfBy
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.link_delays import check_losses
from testbed.lab.core.plan.stable import DEFAULT_REACTION_NS, SLOTS


class Planner(Protocol):
    """The numbers of a lab, decided."""

    def plan(self) -> LabPlan:
        """Make the plan of them. Raises `PlanError`."""

    def outline(self) -> LabPlan:
        """Make a plan of ports, hosts and queues alone."""


class Planning(Protocol):
    """The part of the assembly that makes plans."""

    def planner(  # noqa: PLR0913  # what a machine decides
        self,
        lab: Lab,
        *,
        slot: int,
        k: float,
        auto_delay: DelayBy,
        auto_vrf: VrfBy,
        auto_lag: LagBy,
        reaction_ns: int,
        any_size: bool = False,
    ) -> Planner:
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
    """Decide every number of `lab` for time scale `k` and one slot (0..511) of the machine.

    `auto_delay` is what `delay: {by: auto}` means there (`testbed.lab.core.plan.link_delays.decide_delay`), `auto_vrf`
    what `vrf_by: auto` does (`testbed.lab.core.deploy.mechanisms.decide_vrf`), `auto_lag` what `lag_by: auto`
    does (`testbed.lab.core.deploy.mechanisms.decide_lag`).

    `reaction_ns` is the reaction to a pause, in lab time, that headroom is computed from. A lab that nobody is going to
    deploy may be of `any_size`: it may have more ports than the data path has room for.

    Raises `PlanError` where the lab does not fit the address space, the AS numbers, the names or the buffers.
    """
    if not 0 <= slot < SLOTS:
        raise PlanError(f"a slot is 0..{SLOTS - 1}, not {slot}", code="slot")
    if not k > 0:
        raise PlanError(f"the time scale must be positive, not {k}", field="scale.time", code="scale")
    check_losses(lab)
    planner = cast(Planning, assembly()).planner(
        lab,
        slot=slot,
        k=k,
        auto_delay=auto_delay,
        auto_vrf=auto_vrf,
        auto_lag=auto_lag,
        reaction_ns=reaction_ns,
        any_size=any_size,
    )
    return planner.plan()


def outline_lab(lab: Lab, *, k: float) -> LabPlan:
    """Plan a lab that nobody is going to deploy: its ports, NICs and queues, without operations, and without routes
    where these are the shortest ways.

    It may have more ports than the data path has room for. Raises `PlanError` as `plan_lab` does.
    """
    check_losses(lab)
    planner = cast(Planning, assembly()).planner(
        lab,
        slot=0,
        k=k,
        auto_delay=DelayBy.KERNEL,
        auto_vrf=VrfBy.NAMESPACE,
        auto_lag=LagBy.EBPF,
        reaction_ns=0,
        any_size=True,
    )
    return planner.outline()


def check_addresses(lab: Lab) -> None:
    """Raise `PlanError` where the lab's addresses, names or AS numbers do not fit, whatever the time scale."""
    cast(Planning, assembly()).planner(
        replace(lab, qos=None, networks=tuple(replace(each, qos=None) for each in lab.networks)),
        slot=0,
        k=1,
        auto_delay=DelayBy.ENDPOINT,
        auto_vrf=VrfBy.NAMESPACE,
        auto_lag=LagBy.EBPF,
        reaction_ns=DEFAULT_REACTION_NS,
    )
