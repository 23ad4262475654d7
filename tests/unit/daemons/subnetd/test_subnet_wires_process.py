"""The process of wires as its users have it: HCAs, links, leaks, deadlocks and captures, without a lab."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from formula_subnets import fat_tree, hca, ring
from waiting import until

from testbed.base.files import write_atomically
from testbed.base.unix_sockets import connect_in
from testbed.daemons.kit import configuration
from testbed.daemons.subnetd.adapters import SEND_QUEUE
from testbed.daemons.subnetd.captures import BUFFER_BYTES, CAPTURE_SOCKET, MOST_LISTENERS
from testbed.daemons.subnetd.client import SubnetWires
from testbed.daemons.subnetd.description import WiresDescription
from testbed.daemons.subnetd.errors import WiresError, WiresMissing
from testbed.daemons.subnetd.process import DESCRIPTION_NAME, SUBNET_NAME
from testbed.endpoints.infiniband.adapter import HostAdapter
from testbed.protocols.infiniband.data_path import PathLink
from testbed.protocols.infiniband.local_routing import decode_unchecked
from testbed.protocols.infiniband.subnet import Subnet

pytestmark = [pytest.mark.process, pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")]
TIME_SCALE = 5_000
"""A frame of 4 kB takes 0.4 ms."""
PATIENCE_S = 20.0
PAYLOAD = bytes(range(256)) * 16
ONE, OTHER = hca(0, 0), hca(1, 0)
UPLINK = ("leaf0", 3)

Start = Callable[[Subnet], SubnetWires]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the wires of a subnet."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(subnet: Subnet) -> SubnetWires:
        links = [
            PathLink(a=one.a, a_port=one.a_port, b=one.b, b_port=one.b_port, rate_bps=one.rate_bps, delay_ns=100)
            for one in subnet.links
        ]
        configuration.write(tmp_path / DESCRIPTION_NAME, WiresDescription(time_scale=TIME_SCALE, links=links))
        write_atomically(tmp_path / SUBNET_NAME, subnet.to_json(), durable=False)
        command = [sys.executable, "-m", "testbed.daemons.subnetd", "--run-directory", str(tmp_path)]
        started.append(subprocess.Popen(command))
        wires = SubnetWires(run_directory=tmp_path)
        until(wires.is_running, "the wires run")
        return wires

    yield begin
    for process in started:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def opened(wires: SubnetWires, name: str) -> HostAdapter:
    return HostAdapter(wires.adapter(name), PATIENCE_S)


def test_a_capture_has_both_directions_of_its_port_alone(start: Start) -> None:
    wires = start(fat_tree(2, 2, 1))
    with (
        opened(wires, ONE) as one,
        opened(wires, OTHER) as other,
        wires.capture(*UPLINK) as capture,
        wires.capture(OTHER, 1) as beside,
    ):
        for number in range(5):
            one.send(other.lid, PAYLOAD, psn=number)
            assert other.receive() is not None
        other.send(one.lid, PAYLOAD[:64], psn=99)
        assert one.receive() is not None
        seen = [capture.read() for _ in range(6)]
        capture.end()
        assert capture.read() is None
        assert (capture.frames, capture.dropped) == (6, 0)
        assert [found.leaves for found in seen if found is not None] == [True] * 5 + [False]
        times = [found.at_ns for found in seen if found is not None]
        assert times == sorted(times)
        first, last = seen[0], seen[-1]
        local, packet = decode_unchecked(first.data)
        assert (local.slid, local.dlid, packet[20:]) == (one.lid, other.lid, PAYLOAD)
        assert decode_unchecked(last.data)[0].slid == other.lid
        found = beside.read()
        assert not found.leaves, "it comes in at the HCA"


def test_a_listener_that_does_not_read_loses_frames_and_is_told(start: Start) -> None:
    """Its socket has room for so much: more than that is dropped, and the wires go on."""
    wires = start(fat_tree(2, 2, 1))
    frames = 2 * BUFFER_BYTES // len(PAYLOAD) + 500  # Linux doubles the size of a socket's buffer
    with opened(wires, ONE) as one, opened(wires, OTHER) as other, wires.capture(*UPLINK) as capture:
        for number in range(frames):
            one.send(other.lid, PAYLOAD, psn=number)
            assert other.receive() is not None
        capture.end()
        count = 0
        while capture.read() is not None:
            count += 1
        assert capture.frames == frames
        assert capture.dropped > 0
        assert count == frames - capture.dropped


def test_captures_that_cannot_be_are_refused(start: Start, tmp_path: Path) -> None:
    wires = start(fat_tree(2, 2, 1))
    for node, port in (("leaf0", 9), ("leaf9", 1), ("leaf0", 0)):
        with pytest.raises(WiresError, match="cannot be captured"):
            wires.capture(node, port)
    for hostile in (b"\0", b"[" * 1000, os.urandom(300), b"end", b'{"node": 1}'):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as item:
            connect_in(item, tmp_path, CAPTURE_SOCKET)
            item.settimeout(PATIENCE_S)
            item.send(hostile)
            item.recv(1 << 16)
    captures = [wires.capture(*UPLINK) for _ in range(MOST_LISTENERS)]
    with pytest.raises(WiresError, match="no more at once"):
        wires.capture(*UPLINK)
    for capture in captures:
        capture.close()
    until(lambda: _can_capture(wires), "those that have gone make room")


def _can_capture(wires: SubnetWires) -> bool:
    try:
        wires.capture(*UPLINK).close()
    except WiresError:
        return False
    return True


def test_a_capture_says_that_its_wires_have_ended(start: Start) -> None:
    wires = start(fat_tree(2, 2, 1))
    with wires.capture(*UPLINK) as capture:
        wires.stop()
        with pytest.raises(WiresMissing, match="have ended"):
            capture.read()


def test_a_switch_that_is_killed_loses_what_it_has(start: Start) -> None:
    wires = start(fat_tree(2, 2, 1))
    with opened(wires, ONE) as one, opened(wires, OTHER) as other:
        wires.set_leak("spine0", 2, 0, 1.0)
        for number in range(5):
            one.send(other.lid, PAYLOAD, psn=number)
        until(lambda: wires.status()["hops"] == 10, "all are in the spine's buffer")
        assert wires.status()["in_flight"] == 5
        assert wires.status()["leaks"] == [["spine0", 2, 0, 1.0]]
        wires.set_links("spine0", [1, 2], up=False)
        until(lambda: not wires.status()["in_flight"], "they are lost")
        assert sum(wires.status()["lost"].values()) == 5
        assert wires.status()["down"] == ["leaf0:3", "leaf1:3", "spine0:1", "spine0:2"]
        wires.set_links("spine0", [1, 2], up=True)
        assert not wires.status()["leaks"], "links have all their credits when they come back"
        one.send(other.lid, PAYLOAD, psn=7)
        found = other.receive()
        assert found.psn == 7


def test_credits_that_leak_hold_frames_up_until_they_are_back(start: Start) -> None:
    wires = start(fat_tree(2, 2, 1))
    with opened(wires, ONE) as one, opened(wires, OTHER) as other:
        wires.set_leak(*UPLINK, 0, 1.0)
        one.send(other.lid, PAYLOAD, psn=3)
        until(lambda: wires.status()["hops"] == 1, "it is in the leaf")
        reading = wires.counters()
        assert not reading.stuck, "it waits for no other frame"
        until(lambda: wires.deadlock()[1] > 10**8, "nothing moves for a long time")
        assert wires.deadlock()[0] == [], "and that is no deadlock"
        wires.set_leak(*UPLINK, 0, 0.0)
        found = other.receive()
        assert found.psn == 3
        waits = wires.counters().since(reading)
        (uplink,) = (port for port in waits.ports if (port.node, port.port) == UPLINK)
        assert uplink.counters["xmit_wait_ns"] > 10**7


def test_a_deadlock_is_told_with_its_lanes(start: Start) -> None:
    subnet = ring(6, 2, layers=1)
    wires = start(subnet)
    names = [one.name for one in subnet.hcas]
    adapters = {name: opened(wires, name) for name in names}
    try:
        for adapter in adapters.values():
            adapter._socket.setblocking(False)

        def are_deadlocked() -> bool:
            for place, name in enumerate(names):
                with contextlib.suppress(BlockingIOError):  # it waits already
                    while True:
                        adapters[name].send(adapters[names[(place + 4) % len(names)]].lid, PAYLOAD)
            return bool(wires.deadlock()[0])

        until(are_deadlocked, "each waits for the next one")
        lanes, still_ns = wires.deadlock()
        assert sorted(lanes) == [f"leaf{place}:3 VL 0" for place in range(6)]
        assert still_ns > 0
        assert wires.counters().stuck > 0
    finally:
        for adapter in adapters.values():
            adapter.close()


def test_a_deadlock_goes_with_the_programs_whose_frames_wait(start: Start) -> None:
    """Also where none of them waits for its turn to send more, and they end one after the other."""
    subnet = ring(6, 4, layers=1)
    wires = start(subnet)
    names = [one.name for one in subnet.hcas]
    each, two_away = SEND_QUEUE - 2, 8
    adapters = {name: opened(wires, name) for name in names}
    for place, name in [*enumerate(names)] * each:
        adapters[name].send(adapters[names[(place + two_away) % len(names)]].lid, PAYLOAD)
    until(lambda: _sent(wires) == each * len(names), "all is taken")
    until(lambda: wires.counters().stuck, "each waits for the next one")
    descriptors = Path(f"/proc/{wires.status()['pid']}/fd")  # it looks who has gone whenever it is asked something
    for adapter in adapters.values():
        there = len([*descriptors.iterdir()])
        adapter.close()
        until(lambda there=there: len([*descriptors.iterdir()]) < there, "its end is seen")
    until(lambda: not wires.status()["in_flight"], "whoever comes next waits behind nothing", timeout_s=5)


def _sent(wires: SubnetWires) -> int:
    return sum(one["sent"] for one in wires.status()["hcas"].values())
