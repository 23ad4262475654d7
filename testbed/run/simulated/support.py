"""The limits of the simulator: what it cannot run is refused before anything runs, what it leaves out is told."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from testbed.base.datapath.markers import MARKERS
from testbed.base.errors import ScenarioError
from testbed.lab.core.model import Lab
from testbed.lab.core.model.overlay import VXLAN_BYTES
from testbed.lab.core.model.storage import ServedBy
from testbed.lab.core.plan.user_space.uet import UDP_BYTES
from testbed.protocols.scale_up.domain.build import build as build_domain
from testbed.run.placed.lab import LiveLab, go_over_subnet, lab_of_transports
from testbed.run.placed.traffic import lab_transports
from testbed.run.scale_up.domains import goes_by_packets
from testbed.run.scale_up.loads import NOT_EMULATED
from testbed.run.schema.model import Scenario, Transport
from testbed.run.schema.transports import TRANSPORTS
from testbed.run.simulated.beside import convergence_of
from testbed.run.simulated.fabric import LAB_JITTER_NS, NIC_JITTER_PACKETS, OVERHEAD_BYTES
from testbed.run.simulated.faults import INSTEAD, check_fault
from testbed.run.simulated.infiniband.faults import check_subnet_fault
from testbed.run.simulated.time_scale import REAL_TIME, is_timed
from testbed.run.simulated.timed import TIMED
from testbed.run.simulated.transport_registry import simulated_names, simulated_transport
from testbed.run.sweep.points import Point, Sweep

REAL_PROGRAMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nbd": "fio at the hosts and nbdkit at the targets",
        "nfs": "fio at the hosts and Ganesha at the targets",
        "rdma": "perftest or rsocket over the kernel's soft RDMA",
    }
)
"""The transports that are programs of others, and which."""

SUBNET_APPROXIMATIONS: Final = (
    "Simulated at the fabric's own times: frames, buffers and links are events of a program. Tables are those of a real"
    " OpenSM over ibsim; what forwards by them is this project's switch, which is no vendor's.",
    "Store and forward: a switch has a frame whole before it sends it on, where InfiniBand cuts through. Latencies of"
    " hops are not to be read off.",
    "Management packets go by ibsim, and not by the fabric: a fabric that is full does not delay them.",
    "Credits have the sizes of buffers that are ours, and a frame's room is free as it begins to leave.",
    "The head of a queue has no lifetime: what waits for a buffer waits for ever, where a switch discards it after a"
    " second or so.",
)
"""Says what a run over an InfiniBand subnet does not reproduce."""


def check_supported(sweep: Sweep) -> None:
    """Raise `ScenarioError` for the first thing of these points that cannot be simulated."""
    for point in sweep.points:
        lab = lab_of_transports(sweep.lab_of(point), point.scenario.transports)
        seen = lab.of_network(*point.scenario.workload.ranks.networks_in(lab))
        _check_scenario(point, lab, seen)
        _check_lab(seen, point)


def _check_scenario(point: Point, lab: Lab, seen: Lab) -> None:
    """Check a point on its lab, which is `seen` in the networks of its ranks."""
    scenario: Scenario = point.scenario
    if scenario.workload.is_program:
        raise _refusal(
            point,
            "--backend simulation has no hosts that a program could run on, and the workload is one",
            hint="a workload of the bytes that it sends, such as all-reduce, or " + INSTEAD,
        )
    for transport in scenario.transports:
        _check_transport(point, transport)
    kind = scenario.transport.kind.value
    if scenario.by_programs and kind not in TIMED:
        raise _refusal(
            point,
            f"--backend simulation has flows of {' and '.join(TIMED)} alone for a given time, and not of {kind}",
            hint="workload.bytes instead of workload.duration, or " + INSTEAD,
        )
    _check_link_layer(point)
    if any(goes_by_packets(lab, one) for one in scenario.transports):
        build_domain()  # so that a compiler that is missing is told of before anything runs
    for fault in scenario.faults:
        if go_over_subnet(scenario.transports) and seen.infiniband is not None:
            check_subnet_fault(fault, seen.infiniband)
        else:
            check_fault(fault, lab)


def _check_link_layer(point: Point) -> None:
    """Refuse what is missing on this machine for a subnet, before anything runs."""
    if not go_over_subnet(point.scenario.transports):
        return
    from testbed.lab.features.infiniband.plane import require_programs
    from testbed.protocols.infiniband.binding import build as build_data_path

    require_programs()
    build_data_path()


def _check_transport(point: Point, transport: Transport) -> None:
    kind, able = transport.kind.value, simulated_names()
    if kind in REAL_PROGRAMS:
        raise _refusal(
            point,
            f"--backend simulation runs no real programs, and {kind} is {REAL_PROGRAMS[kind]}",
            hint=INSTEAD,
        )
    if kind not in able:
        hint = "--only kind={} where the matrix has it, or " if point.values else "transport: {{kind: {}}}, or "
        raise _refusal(
            point,
            f"--backend simulation carries {' and '.join(able)}, and not {kind}",
            hint=hint.format(able[-1]) + INSTEAD,
        )
    simulated_transport(kind).check(transport)


def _check_lab(lab: Lab, point: Point) -> None:
    by_kernel = [node.name for node in lab.targets if node.target and node.target.served_by is ServedBy.KERNEL]
    if by_kernel and any(TRANSPORTS[one.kind.value].to_targets for one in point.scenario.transports):
        raise _refusal(
            point,
            f"--backend simulation has targets of our own, and the kernel is to serve {by_kernel[0]}",
            hint="a target without served_by, or " + INSTEAD,
        )
    jittery = next((link for link in lab.links if link.delay is not None and link.delay.jitter.ns), None)
    if jittery is not None:
        raise _refusal(
            point,
            f"--backend simulation has links of a constant delay, and that of {jittery.a} to {jittery.b} varies",
            hint="delay without jitter",
        )
    for profile in lab.qos.profiles if lab.qos is not None else ():
        for item in profile.classes:
            if item.ecn is not None and MARKERS[item.ecn.by].qdisc:
                raise _refusal(
                    point,
                    f"--backend simulation marks by the curve of class {item.name}, and not by a qdisc of the kernel",
                    hint="ecn: {by: ebpf}",
                )


def _refusal(point: Point, message: str, *, hint: str) -> ScenarioError:
    return ScenarioError(f"{message} ({point.name})" if point.name else message, hint=hint)


def simulated_approximations(lab: LiveLab, scenario: Scenario) -> list[str]:
    """Say what a simulated run does not reproduce of the fabric it models: a sentence each, most telling first."""
    if go_over_subnet(scenario.transports):
        return [*SUBNET_APPROXIMATIONS, *_of_transports(lab, scenario)]
    found = [
        f"Simulated at k = {lab.plan.k:g}: packets, queues and links are events of a program; nothing of this"
        " machine's kernel, and none of its routing daemons, takes part.",
        f"A datagram costs a port its payload and {OVERHEAD_BYTES} bytes of headers, and a segment of TCP its own"
        f" header and {OVERHEAD_BYTES - UDP_BYTES}, as in an emulated lab: no preamble, checksum and gap.",
        "A packet leaves its NIC up to "
        + (
            f"{NIC_JITTER_PACKETS:.0%} of a full packet's time"
            if lab.plan.k == REAL_TIME
            else f"{LAB_JITTER_NS / 1e6:g} ms of lab time"
        )
        + " late, at random, so that hosts which begin together do not stay in step.",
        "Routes are those that BGP is planned to have converged to"
        + (", until faults change them." if any(map(is_timed, scenario.faults)) else ", and never change."),
    ]
    if any(is_timed(fault) for fault in scenario.faults):
        found += convergence_of(lab.plan, scenario.convergence_ns).sentences()
    if any(goes_by_packets(lab.model, one) for one in scenario.transports):
        found.append(NOT_EMULATED)
    if any(port.tenant for port in lab.plan.ports):
        found.append(f"VXLAN adds {VXLAN_BYTES} bytes between leaves; switches hash what is inside of it.")
    if lab.plan.k != REAL_TIME:
        found.append(
            "A packet leaves a port as a whole, and the port waits after it, as the shaper of an emulated lab does."
        )
    overlay = lab.model.overlay
    if overlay is not None and any(tenant.traffic_class for tenant in overlay.tenants):
        found.append(
            "The class of a tenant holds from its NICs on, where an emulated leaf gives it to the outer packet."
        )
    qos = lab.plan.qos
    if qos is None:
        found.append("Switch queues are plain tail-drop at line rate: no ECN marking, no PFC pause, no shared buffer.")
    else:
        found.append("An ASIC's cells, pipeline latency and memory banks are not modelled.")
        if any(item.lossless for profile in qos.profiles for item in profile.classes):
            found.append(
                "Pauses overtake all that waits, and are obeyed as they arrive; a MAC may take 1.2 us at 400 Gbit/s."
            )
        if lab.plan.k == REAL_TIME and any(buffer.watchdog_detect_ns for buffer in qos.buffers):
            found.append("The PFC watchdog does not act: a deadlock of pauses ends the run.")
    found += _of_transports(lab, scenario)
    found.append("ECMP picks by a seeded hash of our own, not by a switch ASIC's.")
    return found


def _of_transports(lab: LiveLab, scenario: Scenario) -> list[str]:
    """Return what transports say of themselves, each sentence once."""
    found = (
        item
        for part in lab_transports(scenario, lab)
        for item in simulated_transport(part.transport.kind.value).approximations(part)
    )
    return list(dict.fromkeys(found))
