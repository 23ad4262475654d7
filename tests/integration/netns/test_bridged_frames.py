"""Frames between two NICs of one rail switch, which its bridge forwards: nothing but the fabric's queues holds them."""

import socket
import struct
from typing import Any

import pytest
from switch_ports import DSCP, FRAME, PORT, RDMA, PortLab, received, send
from waiting import WAIT_S, until

from testbed.lab.core.drivers.probing.kernel_probe import probe_kernel
from testbed.lab.core.schema.load import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]

_SO_MEMINFO, _WMEM_ALLOC = 55, 2
_SENDERS = ("p1-s1-h1", "p1-s1-h2")
_RECEIVER = "p1-s1-h3"
PACKETS = 150
TOPOLOGY = """
name: {name}
scale: {time: 1}
fabric:
  {design: rail-optimized, segments: 1, hosts: 3, gpus: 1, spines: 1, mtu: 1500, nic: {rate: 10M}, routing: {bfd: off}}
qos:
  classes:
    rdma: {dscp: [26], weight: 60, ecn: false, limit: 1MB}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40}
  watchdog: false
"""


def test_what_has_left_the_nic_is_off_its_senders_socket(sandbox: Any) -> None:
    if reason := probe_kernel()["sysctl.bridged frames"]:
        pytest.skip(f"br_netfilter: {reason}")
    model = load_topology_text(TOPOLOGY.replace("{name}", sandbox.name("a")), file="<test>", overrides={})
    lab = PortLab(sandbox.deploy(model, k=1.0).lab)
    try:
        port = lab.queue("p1-s1-rail1", "down3", RDMA)
        nics = [lab.queue(host, "rail1", RDMA) for host in _SENDERS]
        with lab.inside(_RECEIVER, _sink) as sink:
            address = lab.address(_RECEIVER, "rail1")
            items = [lab.inside(host, lambda: _sender(address)) for host in _SENDERS]
            for item in items:  # so that ARP has found the receiver
                send(item, 1)
            until(lambda: received(sink), "the receiver is there")
            lab.still()
            for _ in range(PACKETS):
                for item in items:
                    send(item, 1)
            until(lambda: not any(nic["bytes"] for nic in nics), "the NICs have sent all")
            charged = [_charged(item) for item in items]
            waiting = int(port["bytes"])
            for item in items:
                item.close()
        lab.still()
    finally:
        lab.close()
        sandbox.destroy("a")

    assert waiting > PACKETS // 2 * FRAME, "half of what two NICs sent waits at the port of the third"
    assert charged == [0, 0], "a NIC's buffers are free again, and its host may go on"


def _sender(address: str) -> socket.socket:
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, DSCP[RDMA] << 2)
    item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    item.connect((address, PORT))
    item.settimeout(WAIT_S)
    return item


def _sink() -> socket.socket:
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    item.bind(("", PORT))
    item.setblocking(False)
    return item


def _charged(item: socket.socket) -> int:
    """The memory of what was sent and counts against the socket's buffer, in bytes."""
    return int(struct.unpack_from("=9I", item.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))[_WMEM_ALLOC])
