"""A filter takes the place of another: no packet passes in between, and counters go on."""

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from typing import Any

import pytest
from waiting import until

from testbed.base.errors import DriverError
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.nftables import NetfilterSocket
from testbed.base.names import namespace_name
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.model import Guard, Guards
from testbed.lab.core.plan.operations import (
    AddAddress,
    CreateNode,
    CreateVeth,
    GuardedPort,
    GuardSwitch,
    SetNeighbour,
    SetUp,
    VethEnd,
)
from testbed.lab.features.guards.apply import read_guards

pytestmark = pytest.mark.netns

HOST, SWITCH = "host", "switch"
OWN, STOLEN, VICTIM = "10.0.0.2", "10.0.0.9", "10.0.0.1"
PORT = 7000
HOST_END = VethEnd(node=HOST, name="rail1", ifindex=1001, mac="02:00:00:00:00:01")
SWITCH_END = VethEnd(node=SWITCH, name="down1", ifindex=1002, mac="02:00:00:00:00:02")
GUARD = GuardSwitch(
    node=SWITCH,
    guards=Guards(kinds=(Guard.SOURCE,)),
    ports=(
        GuardedPort(
            name="down1", ifindex=1002, mac=HOST_END.mac, addresses=(IPv4Address(OWN),), gateway=IPv4Address(VICTIM)
        ),
    ),
    switches=(IPv4Address(VICTIM),),
    stations=(HOST_END.mac, SWITCH_END.mac),
)
REPLACED = 200


@pytest.fixture
def kernel(sandbox: Any) -> Iterator[tuple[str, NetnsKernel]]:
    """A host on a port of a switch, which has an address that it took from another, and no guard yet."""
    name = sandbox.name()
    with closing(NetnsKernel(name)) as made:
        nodes = [CreateNode(node=node, cpu_slot=slot) for slot, node in enumerate((HOST, SWITCH))]
        identities = made.create_nodes(nodes)
        try:
            made.publish()
            made.apply([CreateVeth(a=HOST_END, b=SWITCH_END, mtu_bytes=1500)])
            for end, addresses in ((HOST_END, (OWN, STOLEN)), (SWITCH_END, (VICTIM,))):
                made.apply([SetUp(node=end.node, name=end.name, ifindex=end.ifindex)])
                made.apply(
                    [
                        AddAddress(
                            node=end.node, name=end.name, ifindex=end.ifindex, address=IPv4Interface(f"{address}/24")
                        )
                        for address in addresses
                    ]
                )
            made.apply(
                [SetNeighbour(node=HOST, name="rail1", ifindex=1001, address=IPv4Address(VICTIM), mac=SWITCH_END.mac)]
            )
            yield name, made
        finally:
            NetnsKernel(name).remove(identities)


def udp(name: str, node: str, address: str, port: int = 0) -> socket.socket:
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    opened = in_namespace(namespace_name(name, node), lambda: socket.socket(socket.AF_INET, kind))
    opened.bind((address, port))
    return opened


def attack(source: socket.socket) -> bool:
    """Send to the victim; a link that has just come up may not take it yet."""
    with suppress(BlockingIOError):
        source.sendto(b"stolen", (VICTIM, PORT))
    return True


def received(sink: socket.socket) -> int:
    for number in itertools.count():
        try:
            sink.recv(64)
        except BlockingIOError:
            return number
    raise AssertionError


def _last(sink: socket.socket) -> bytes:
    """Read all that is there, and return the last of it."""
    found = b""
    with suppress(BlockingIOError):
        while True:
            found = sink.recv(64)
    return found


@contextmanager
def flood(source: socket.socket) -> Iterator[list[int]]:
    """Datagrams to the victim as fast as they can be sent while the block runs; how many is in the list."""
    sent, stopped = [0], threading.Event()

    def send() -> None:
        while not stopped.is_set():
            sent[0] += attack(source)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        until(lambda: sent[0] > 100, "datagrams")
        yield sent
    finally:
        stopped.set()
        thread.join()


def dropped(name: str) -> int:
    def read() -> int:
        with closing(NetfilterSocket()) as item:
            return sum(counter.packets for counter in read_guards(item))

    return in_namespace(namespace_name(name, SWITCH), read)


def test_no_packet_passes_while_a_guard_takes_the_place_of_another(kernel: tuple[str, NetnsKernel]) -> None:
    name, made = kernel
    other = replace(GUARD, guards=Guards(kinds=(Guard.SOURCE, Guard.VLAN)))
    with closing(udp(name, SWITCH, VICTIM, PORT)) as sink, closing(udp(name, HOST, STOLEN)) as source:
        until(lambda: attack(source) and received(sink), "the attack succeeds without a guard")
        made.apply([GUARD])
        with closing(udp(name, HOST, OWN)) as allowed:  # what was under way without a guard has arrived before it
            allowed.sendto(b"allowed", (VICTIM, PORT))
            until(lambda: _last(sink) == b"allowed", "what may pass does")
        with flood(source) as sent:
            seen = 0
            for guard in itertools.islice(itertools.cycle((other, GUARD)), REPLACED):
                made.apply([guard], replacing=True)
                now = dropped(name)
                assert now >= seen, "counters go on"
                seen = now
        assert received(sink) == 0
        assert 0 < dropped(name) <= sent[0]
        with flood(source):
            made.undo([GUARD])
            until(lambda: received(sink), "and once the guard is gone")


def test_a_guard_that_the_kernel_refuses_leaves_the_one_before(kernel: tuple[str, NetnsKernel]) -> None:
    name, made = kernel
    made.apply([GUARD])
    impossible = replace(GUARD, ports=(*GUARD.ports, replace(GUARD.ports[0], name="a-name-of-20-letters", ifindex=9)))
    with pytest.raises(DriverError, match="nf_tables message"):
        made.apply([impossible], replacing=True)
    with closing(udp(name, SWITCH, VICTIM, PORT)) as sink, closing(udp(name, HOST, STOLEN)) as source:
        until(lambda: attack(source) and dropped(name), "it is dropped and counted")
        assert received(sink) == 0


def test_what_is_not_there_is_removed_as_well(kernel: tuple[str, NetnsKernel]) -> None:
    _, made = kernel
    made.undo([GUARD])
    made.apply([GUARD])
    made.undo([GUARD])
    made.apply([GUARD])
