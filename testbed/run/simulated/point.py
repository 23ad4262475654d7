"""The runs of a point on the simulator, each by itself, so that they can be spread over processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import ClassVar

from testbed.lab.core.model import Lab
from testbed.lab.features.scale_up.counters.balance import PlaneBalance
from testbed.record.record import EPOCH, Check
from testbed.run.faults.registry import lab_fault
from testbed.run.placed.lab import lab_of_transports
from testbed.run.placed.placed_workload import DATA_LIMIT_BYTES
from testbed.run.placed.traffic import RunTraffic
from testbed.run.probes.planning import QUEUED_RTTS, plan_probes
from testbed.run.probes.traffic import THRESHOLD_S
from testbed.run.simulated.beside import Beside
from testbed.run.simulated.execution import SimulatedRun, execute
from testbed.run.simulated.fabric import planned_lab
from testbed.run.simulated.time_scale import REAL_TIME, time_scale
from testbed.run.simulated.timed import execute_timed
from testbed.run.sweep.point_runs import RunOutcome, UndeployedPoint
from testbed.run.sweep.points import Point
from testbed.run.transports.registry import transport_on
from testbed.run.trust.ideals import ahead_bytes, check_ideals
from testbed.run.trust.ports import check_balance, check_lossless
from testbed.run.trust.traffic import check_faults

PLANNED_CPUS = 2
"""Probes are as many as on a machine with so many cores, whatever this one has."""


_SPARE_ADDRESSES = IPv4Network("198.18.0.0/15")
"""No lab has these (RFC 2544)."""


def with_own_addresses(traffic: RunTraffic) -> RunTraffic:
    """Return traffic none of whose NICs has the address of another one, as those of different tenants may have: the
    simulator knows NICs by their addresses."""
    owners: dict[IPv4Address, tuple[str, str]] = {}
    spare, nics = _SPARE_ADDRESSES.hosts(), list(traffic.placement.nics)
    for rank, nic in enumerate(nics):
        mine = (nic.node, nic.name)
        if nic.address is not None and owners.setdefault(nic.address.ip, mine) != mine:
            own = next((ip for ip, owner in owners.items() if owner == mine), None) or next(spare)
            owners[own] = mine
            nics[rank] = replace(nic, address=IPv4Interface(own))
    return replace(traffic, placement=replace(traffic.placement, nics=tuple(nics)))


class SimulatedPoint(UndeployedPoint):
    """A point on its planned lab."""

    folds_large: ClassVar[bool] = True
    data_limit_bytes = DATA_LIMIT_BYTES
    """Collectives carry data, which is checked, as far as it goes."""

    def __init__(self, point: Point, model: Lab) -> None:
        model = lab_of_transports(model, point.scenario.transports)
        seen = model.of_network(*point.scenario.workload.ranks.networks_in(model))
        k = time_scale(model, point.scenario) if seen.infiniband is None else REAL_TIME
        super().__init__(point, planned_lab(model, k))
        self.traffic = [with_own_addresses(one) for one in self.traffic]

    def run_once(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        scenario = self.scenario
        traffic, duration = self.traffic[index - 1], scenario.workload.duration
        first = traffic.parts[0] if traffic.parts else None
        transport = transport_on(
            self.lab if first is None else first.view(self.lab),
            scenario.transport if first is None else first.transport,
        )
        beside = self._beside(traffic)
        if duration is not None:
            done = execute_timed(self.lab, transport, traffic, duration, on_progress=on_progress, beside=beside)
        else:
            limit_s = scenario.workload.time_limit.seconds
            done = self._execute(
                self.lab,
                transport,
                traffic,
                limit_s=limit_s,
                on_progress=on_progress,
                beside=beside,
                data_limit_bytes=self.data_limit_bytes,
            )
        measured, result = done.measured, None
        if measured.anything:
            result = self.run_result(index, EPOCH, measured)
        if result is not None and measured.complete:
            result = replace(result, checks=[*self._checks(done), *check_ideals(result, self._ahead_bytes)])
        return RunOutcome(result=result, failure=measured.failure, interrupted=measured.interrupted)

    @property
    def _execute(self) -> Callable[..., SimulatedRun]:
        """Return what runs the traffic: over the fabric, or over an InfiniBand subnet."""
        if self.lab.model.infiniband is None:
            return execute
        from testbed.run.simulated.infiniband.execution import execute_subnet  # most labs have none

        return execute_subnet

    def _beside(self, traffic: RunTraffic) -> Beside:
        """Return the faults of the scenario, and probes where one of them may lose packets at some time."""
        scenario = self.scenario
        probes = None
        if self.lab.plan.k != REAL_TIME and any(lab_fault(fault).may_lose for fault in scenario.faults):
            probes = plan_probes(scenario, self.lab, traffic, cpus=PLANNED_CPUS)
        if probes is None:
            return Beside(faults=scenario.faults, convergence_ns=scenario.convergence_ns)
        unqueued_s = max(THRESHOLD_S, QUEUED_RTTS * self.ideals.base_rtt_s)
        return Beside(
            faults=scenario.faults,
            convergence_ns=scenario.convergence_ns,
            probes=probes,
            unqueued_s=unqueued_s,
        )

    @property
    def _ahead_bytes(self) -> float:
        """Return what a port may be ahead of its rate by: something at the lab's scale, where ports are shaped."""
        return 0.0 if self.lab.plan.k == REAL_TIME else ahead_bytes(self.lab.plan)

    def _checks(self, done: SimulatedRun) -> list[Check]:
        """Return what the trust checks of the data say; those of the machine have nothing to judge here."""
        found = [check_datagrams(done.sent, done.unaccounted)]
        if done.planes is not None:
            found.append(check_planes(done.planes))
        found += check_lossless(self.lab.plan, done.measured.observation)
        if done.measured.faults is not None:
            found += check_faults(done.measured.faults)
        return found if done.balance is None else [*found, *check_balance(done.balance)]


def check_planes(balance: PlaneBalance) -> Check:
    """Tell whether it is known of every frame and credit of scale-up domains what became of it."""
    return Check.at_most(
        name="scale-up-balance",
        title="Frames and credits of scale-up domains add up",
        value=len(balance.imbalances),
        limit=0,
        message=str(balance),
    )


def check_datagrams(sent: int, unaccounted: int) -> Check:
    """Tell whether it is known of every datagram what became of it."""
    return Check(
        name="datagrams",
        title="Every datagram is accounted for",
        value=abs(unaccounted),
        limit=0,
        ok=not unaccounted,
        message=f"of {sent} datagrams that were sent, {abs(unaccounted)} are neither delivered nor counted as lost",
    )
