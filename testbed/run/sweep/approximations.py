"""Approximations of a run: sentences for the report on what it does not reproduce of the fabric it models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.base.datapath.markers import KERNEL_MARKERS
from testbed.base.units import Duration
from testbed.lab.core.model import DelayBy, HashEngine
from testbed.lab.core.plan.qos.qos_plan import QosPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import lab_transports
from testbed.run.scale_up.domains import goes_by_packets
from testbed.run.scale_up.loads import NOT_EMULATED
from testbed.run.schema.model import Scenario


def _longer_watchdogs(lab: LiveLab, qos: QosPlan) -> Iterator[str]:
    """Tell of watchdogs that wait longer than is written."""
    networks = {node.name: node.network for node in lab.model.switches}
    waits: set[tuple[int, int]] = set()
    for buffer in qos.buffers:
        policy = lab.model.qos_of(networks[buffer.node]) if buffer.node in networks else None
        written = None if policy is None else policy.of(buffer.node).watchdog
        if written is not None:
            waits.add((written.detect.ns, buffer.watchdog_detect_ns))
    for written_ns, waited_ns in sorted(waits):
        if waited_ns > written_ns:
            yield (
                f"The watchdog waits for {Duration(waited_ns)} and not for the {Duration(written_ns)} that are written:"
                " congestion alone pauses a queue so long at this time scale."
            )


def approximations(lab: LiveLab, scenario: Scenario) -> list[str]:
    """One sentence each, most telling first."""
    found = [f"Rates are divided by k = {lab.plan.k:g}; bytes (MTU, message sizes) are not scaled."]
    if scenario.workload.is_program:
        from testbed.run.programs.carries_over import program_approximations

        found += program_approximations(lab.of_network(*scenario.workload.ranks.networks_in(lab.model)), scenario)
    qos = lab.plan.qos
    if qos is None:
        found.append(
            "Switch queues are plain tail-drop at the shaped line rate: no ECN marking, no PFC pause, no shared buffer."
        )
    else:
        found.append(
            "Queues, ECN marking and the shared buffer are byte-exact in eBPF at the port's exit; an ASIC's cells,"
            " pipeline latency and memory banks are not modelled."
        )
        classes = [item for profile in qos.profiles for item in profile.classes]
        if any(not profile.marks_account for profile in qos.profiles):
            found.append(
                "ECN marks were not counted by queue depth (marks_account: false): the report has no marking curves"
                " of such ports, and marking_error says nothing of them."
            )
        for marker in KERNEL_MARKERS:
            if marked := sorted({item.name for item in classes if item.mark_by is marker.by}):
                names = ", ".join(marked)
                found.append(f"ECN marks of {names} are not ours but {marker.noun}'s: {marker.approximation}.")
        if any(item.lossless for profile in qos.profiles for item in profile.classes):
            found.append(
                "Lossless classes: the pause frames are real 802.1Qbb frames at byte-exact thresholds, but a process"
                " obeys them and no MAC; how long that took is among the trust checks, and headroom is planned for"
                f" {qos.reaction_ns / 1e6:g} ms of lab time."
            )
        found += _longer_watchdogs(lab, qos)
    if any(port.delay_by is DelayBy.ENDPOINT for port in lab.plan.ports):
        found.append(
            "Link delays are realised by our own transports, which hold received packets: kernel TCP and kernel RDMA"
            " get none and meet only the machine's own latency."
        )
    if any(goes_by_packets(lab.model, one) for one in (scenario.transport, *scenario.tenant_transports)):
        found.append(NOT_EMULATED)
    found += dict.fromkeys(said for one in lab_transports(scenario, lab) for said in one.approximations())
    if qos is None or any(buffer.node and buffer.hash is HashEngine.KERNEL for buffer in qos.buffers):
        found.append(
            "ECMP picks by the kernel's flow hash, not by a switch ASIC's; before Linux 6.11 its seed differs from boot"
            " to boot, and is the same in all runs."
        )
    else:
        fixed = qos is not None and any(buffer.fixed_seed for buffer in qos.buffers)
        seeded = "as the topology says" if fixed else "anew for each run, by the run's seed"
        found.append(f"ECMP picks by a hash of our own, not by a switch ASIC's, which is seeded {seeded}.")
    hashing = {buffer.node for buffer in qos.buffers if buffer.hash is HashEngine.EBPF} if qos is not None else set()
    links = lab.model.tenant_links
    groups = {nic for nic, count in Counter(link.nic for link in links).items() if count > 1}
    if any(link.b.node not in hashing and link.nic not in groups for link in links):  # hosts hash for their groups
        found.append(
            "The source port of VXLAN, by which ECMP picks the path of a tenant's packets, is the kernel's: another one"
            " for each connection of TCP and, of other packets, after each boot, whatever the run's seed."
        )
    return found
