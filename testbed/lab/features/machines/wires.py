"""The wires of cut links on one machine: VXLAN devices, redirects between them and stubs, and the process of carriers.

The UDP socket of a VXLAN device stays in the namespace that it is made from, the machine's own; the device itself is in
the namespace of stubs, with which it goes. Each link has a source port of its own, so that the underlay, which may
spread flows over paths and CPUs, keeps its frames in order. Formats: linux/if_link.h (IFLA_VXLAN_...).
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path

from testbed.base.datapath import bpf, pins
from testbed.base.datapath.cut import PROGRAM, load_cut
from testbed.base.datapath.load import CUT
from testbed.base.errors import DriverError
from testbed.base.linux import rtnetlink
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.namespaces import open_namespaces
from testbed.base.linux.processes import launch_servers
from testbed.base.linux.rtnetlink import RouteSocket, attribute, new_link, u32
from testbed.base.names import namespace_name
from testbed.daemons.kit import configuration
from testbed.daemons.kit.lock import is_held
from testbed.daemons.wires.configuration import (
    LOCK_NAME,
    STATUS_NAME,
    WiredLink,
    WiredMachine,
    WiresConfiguration,
    WiresStatus,
)
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.machines.part import WIRES, CutLink, LabPart

VXLAN_PORT = 14789
"""The UDP port of tunnels; that of RFC 7348 is the fabric's own, and may be the machine's."""
FIRST_BEAT_PORT = 14800
"""The UDP port at which the machines of the lab in slot 0 hear each other."""
OUTER_BYTES = 64
"""By so much the underlay's MTU must be larger than that of a cut link: IP 20, UDP 8, VXLAN 8 and the inner Ethernet
header 14 make 50 (RFC 7348, section 5), and the rest is to spare."""
_FIRST_SOURCE_PORT, _SOURCE_PORTS = 20000, 12000
_TTL = 16
DIRECTORY_NAME = ".wires"
"""In the lab's run directory; no node can have this name."""
KEY_NAME = "wires-key"
"""In the lab's state directory: what the machines of the lab sign their messages with."""
EVENTS_FILE = "wires-events.jsonl"
"""In the lab's state directory: which machines were lost and heard, a `LabEvent` for each line."""
CONFIGURATION = "configuration.json"
LOG = "wires.log"
_IFLA_VXLAN_ID, _IFLA_VXLAN_GROUP, _IFLA_VXLAN_LINK, _IFLA_VXLAN_LOCAL, _IFLA_VXLAN_TTL = 1, 2, 3, 4, 5
_IFLA_VXLAN_LEARNING, _IFLA_VXLAN_PORT_RANGE, _IFLA_VXLAN_PORT = 7, 10, 15


def make_wires(part: LabPart, plan: LabPlan, run: Path) -> None:
    """Join the stubs of this machine's part of a lab to its other machines. Raises `DriverError`, `CapabilityError`.

    Must be called in the machine's own network namespace, once the lab's namespaces have their names.
    """
    cuts = part.cuts(plan)
    if not cuts:
        return
    underlay = socket.if_nametoindex(part.device)
    name = namespace_name(plan.lab, WIRES)
    place = open_namespaces([name])[name]
    plain = load_cut()
    leaving = plain if plan.tables is None else bpf.get_pinned(pins.lab_directory(run) / CUT)
    with_queues = plan.port_numbers  # a network without QoS may be beside one that has it
    try:
        with closing(RouteSocket()) as route:
            devices = [_new_tunnel(cut, part, underlay, place.fd) for cut in cuts]
            route.expect(devices, [f"tunnel of {cut.port} to {cut.machine}" for cut in cuts])
        batch = [
            item
            for cut in cuts
            for item in _joined(cut, plain, *((leaving, CUT) if cut.port in with_queues else (plain, PROGRAM)))
        ]
        place.route.expect(batch, ["wires between machines"] * len(batch))
    finally:
        place.close()
        for descriptor in {plain, leaving}:
            os.close(descriptor)


def _new_tunnel(cut: CutLink, part: LabPart, underlay: int, namespace: int) -> bytes:
    source = _FIRST_SOURCE_PORT + cut.number % _SOURCE_PORTS
    options = (
        u32(_IFLA_VXLAN_ID, cut.vni)
        + attribute(_IFLA_VXLAN_GROUP, IPv4Address(part.peers[cut.machine].address).packed)
        + attribute(_IFLA_VXLAN_LOCAL, IPv4Address(part.address).packed)
        + u32(_IFLA_VXLAN_LINK, underlay)
        + attribute(_IFLA_VXLAN_TTL, bytes([_TTL]))
        + attribute(_IFLA_VXLAN_LEARNING, b"\0")
        + attribute(_IFLA_VXLAN_PORT_RANGE, struct.pack("!HH", source, source + 1))
        + attribute(_IFLA_VXLAN_PORT, struct.pack("!H", VXLAN_PORT))
    )
    more = u32(rtnetlink.IFLA_MTU, cut.mtu_bytes) + u32(rtnetlink.IFLA_NET_NS_FD, namespace)
    return new_link(cut.tunnel, f"tunnel{cut.number}", "vxlan", more, options)


def _joined(cut: CutLink, plain: int, leaving: int, program: str) -> list[bytes]:
    """The messages that lead what comes in at one end of a wire out at its other."""
    return [
        rtnetlink.set_link_state(cut.tunnel, True),
        traffic.new_ingress(cut.tunnel),
        traffic.new_bpf_filter(cut.tunnel, traffic.CLSACT_INGRESS, plain, PROGRAM, cut.stub),
        traffic.new_ingress(cut.stub),
        traffic.new_bpf_filter(cut.stub, traffic.CLSACT_INGRESS, leaving, program, cut.tunnel),
    ]


def wires_configuration(part: LabPart, plan: LabPlan, state: StateDirectory) -> WiresConfiguration:
    """Return what the process of this machine's cut links is started from."""
    directory = state.lab_directory(plan.lab)
    return WiresConfiguration(
        lab=plan.lab,
        machine=part.machine,
        namespace=namespace_name(plan.lab, WIRES),
        address=part.address,
        port=FIRST_BEAT_PORT + plan.slot,
        key=directory / KEY_NAME,
        events=directory / EVENTS_FILE,
        status=wires_directory(plan, state) / STATUS_NAME,
        machines=tuple(WiredMachine(name=name, address=peer.address) for name, peer in part.peers.items()),
        links=tuple(
            WiredLink(
                number=cut.number,
                machine=cut.machine,
                namespace=namespace_name(plan.lab, cut.node),
                ifindex=cut.ifindex,
                stub=cut.stub,
                port=cut.port,
                peer=cut.peer,
            )
            for cut in part.cuts(plan)
        ),
    )


def wires_directory(plan: LabPlan, state: StateDirectory) -> Path:
    """Return where the process of a lab's cut links has its files."""
    return state.run_directory(plan.lab) / DIRECTORY_NAME


def start_carriers(part: LabPart, plan: LabPlan, state: StateDirectory) -> None:
    """Start the process of carriers unless it runs; returns when it is at work. Raises `DriverError`."""
    directory = wires_directory(plan, state)
    if carriers_run(plan, state):
        return
    path = directory / CONFIGURATION
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        configuration.write(path, wires_configuration(part, plan, state))
    except OSError as error:
        raise DriverError(f"the wires between machines do not start: {error}", operation="wires") from error
    launch_servers("testbed.daemons.wires", [str(path)], directory / LOG, what="the wires between machines do")


def carriers_run(plan: LabPlan, state: StateDirectory) -> bool:
    """Tell whether the process of carriers is at work."""
    return is_held(wires_directory(plan, state) / LOCK_NAME)


def wires_status(plan: LabPlan, state: StateDirectory) -> WiresStatus:
    """Return what the process of carriers hears. Raises `DriverError` where it says nothing."""
    try:
        return configuration.read(wires_directory(plan, state) / STATUS_NAME, WiresStatus)
    except (OSError, ValueError) as error:
        raise DriverError(f"the wires between machines say nothing: {error}", operation="wires") from error
