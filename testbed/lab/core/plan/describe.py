"""A plan in a few lines. What it consists of says itself: `str` of an operation is its line of a dry run."""

from __future__ import annotations

from collections import Counter

from testbed.base.units import Duration, Rate
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import StartContainer
from testbed.lab.core.plan.qos.qos_plan import QosPlan


def _qos_line(qos: QosPlan) -> str:
    """`inspect qos` has the rest."""
    switch_ports = [profile for profile in qos.profiles if profile.switch]
    count = len({profile.profile for profile in switch_ports})
    lossless = any(item.lossless for profile in switch_ports for item in profile.classes)
    return (
        f"qos: {count} profile{'' if count == 1 else 's'} of switch ports, {'with' if lossless else 'without'} lossless"
        f" classes; modelled base RTT {Duration(qos.base_rtt_ns)} (real time)"
    )


def summarize_plan(plan: LabPlan) -> str:
    """A few lines: how much of everything, the time scale, the span of AS numbers."""
    counts = Counter(type(operation).__name__ for operation in plan.operations)
    sessions = sum(len(switch.neighbors) for switch in plan.speakers) // 2
    routes = sum(len(table) for table in plan.expected_routes.values())
    lines = [
        f"lab {plan.lab}: {len(plan.hosts)} hosts, {len(plan.switches)} switches, {counts['CreateVeth']} links",
        f"time scale: k = {plan.k:g}",
        f"routing: {sessions} BGP sessions, {routes} routes when converged",
        f"operations: {len(plan.operations)}",
    ]
    started = [item.container for item in plan.operations if isinstance(item, StartContainer)]
    images = Counter(container.image or container.runtime for container in started)
    if images:
        shown = ", ".join(f"{count} of {image}" for image, count in sorted(images.items()))
        lines.insert(1, f"containers: {shown}")
    rates = sorted({(port.line_rate_bps, port.rate_bps) for port in plan.ports})
    if rates:
        scaled = ", ".join(f"{Rate(line)} as {Rate(rate)}" for line, rate in rates)
        lines.insert(lines.index(f"time scale: k = {plan.k:g}") + 1, f"rates: {scaled}")
    if plan.overlay is not None:
        tenants = {vrf.tenant for vrf in plan.overlay.vrfs}
        entries = sum(len(entries) for entries in plan.overlay.expected.values())
        lines.append(
            f"overlay: {len(tenants)} tenants in {len(plan.overlay.vrfs)} VRFs, {entries} entries when converged"
        )
    if plan.qos is not None:
        lines.append(_qos_line(plan.qos))
    lines += [f"{_qos_line(qos)}, {name}" for name, qos in plan.qos_beside.items()]
    return "\n".join(lines)
