"""Every trust check of a run, in the order in which records have them. A check counts as soon as it stands here.

A check is a function of the run's `Evidence` that returns a `Check`, or none where it has nothing to judge. One that
is not ok makes the scenario's verdict invalid (`run.sweep.verdict`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.protocols.infiniband.data_path import FULL_PACKET_BYTES, frame_bytes
from testbed.record.record import Check
from testbed.run.faults.registry import lab_fault
from testbed.run.measuring.touches import check_touches
from testbed.run.probes.planning import is_single_path
from testbed.run.trust.evidence import Evidence
from testbed.run.trust.ideals import ahead_bytes, check_ideals
from testbed.run.trust.machine import (
    check_backlogs,
    check_delays,
    check_late_steps,
    check_lateness,
    check_machine,
    check_start_skew,
    check_wires,
)
from testbed.run.trust.machines import check_machines
from testbed.run.trust.ports import check_balance, check_domains, check_lossless, check_rates, check_reaction
from testbed.run.trust.programs import check_fabric_used
from testbed.run.trust.traffic import (
    check_congestion_control,
    check_faults,
    check_neighbours,
    check_order,
    check_pace,
    check_request_lateness,
)

TrustCheck = Callable[[Evidence], Iterable[Check]]

TRUST_CHECKS: tuple[TrustCheck, ...] = (
    lambda run: (
        [] if run.measured.observation.cpu is None else check_machine(run.measured.observation.cpu, run.polling)
    ),
    lambda run: check_lateness(run.measured.lateness),
    lambda run: check_late_steps(run.measured.counters, run.measured.observation.elapsed_s),
    lambda run: check_backlogs(*run.measured.softnet),
    lambda run: [] if run.measured.machines is None else check_machines(run.measured.machines, run.base_rtt_ns),
    lambda run: (
        [] if run.measured.wires_late is None else check_wires(run.measured.wires_late, full_frame_ns(run.lab.plan))
    ),
    lambda run: check_request_lateness(run.measured.counters),
    lambda run: check_delays(run.measured.counters, run.base_rtt_ns),
    lambda run: (
        []
        if run.measured.flow_starts_s is None
        else check_start_skew(run.measured.flow_starts_s, [one.seconds for one in run.measured.channels])
    ),
    lambda run: check_rates(run.measured.observation, mtus_of(run), disturbed_ports(run)),
    lambda run: (
        []
        if run.measured.ports is None
        else check_lossless(run.lab.plan, run.measured.observation, disturbed_ports(run))
    ),
    lambda run: [] if run.measured.ports is None else check_reaction(run.measured.ports.pausing, run.lab.plan),
    lambda run: [] if run.measured.ports is None else check_balance(run.measured.ports.balance),
    lambda run: [] if run.measured.probes is None else check_pace(run.measured.probes),
    lambda run: [] if run.congestion_controls is None else check_congestion_control(run.congestion_controls),
    lambda run: [] if run.measured.unresolved is None else check_neighbours(run.measured.unresolved),
    lambda run: (
        check_order(run.measured.probes, run.in_order, run.measured.events)
        if is_single_path(run.scenario, run.lab)
        else []
    ),
    lambda run: [] if run.measured.faults is None else check_faults(run.measured.faults),
    lambda run: [] if run.measured.touches is None else check_touches(run.measured.touches),
    lambda run: [] if run.measured.program is None else check_fabric_used(run.measured.program),
    lambda run: [] if run.result is None else check_domains(run.result.scale_up),
    lambda run: [] if run.result is None else check_ideals(run.result, ahead_bytes(run.lab.plan)),
)


def judge_run(run: Evidence) -> list[Check]:
    """Return what all checks say of a run."""
    return [check for judge in TRUST_CHECKS for check in judge(run)]


def full_frame_ns(plan: LabPlan) -> float:
    """The time of a full frame of InfiniBand on the link of the fastest HCA of a lab, ns."""
    rate_bps = max((nic.rate_bps for host in plan.hosts for nic in host.nics), default=1)
    return 8e9 * frame_bytes(FULL_PACKET_BYTES) / rate_bps


def mtus_of(run: Evidence) -> dict[int, int]:
    """The MTU of each port that has QoS, by its number in the lab, whatever networks the run was in."""
    return {item.port: item.mtu_bytes for item in run.lab.plan.installs}


def disturbed_ports(run: Evidence) -> frozenset[str]:
    """The ports, as "node:interface", that a fault of the scenario keeps from sending at their rate."""
    faults = [lab_fault(fault) for fault in run.scenario.faults]
    ports = run.lab.plan.ports
    return frozenset(f"{port.node}:{port.name}" for port in ports if any(fault.disturbs(port) for fault in faults))
