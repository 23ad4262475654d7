"""Captures what two devices of soft RDMA send each other in the namespaces of `interop_fabric.sh`: FOLDER.

It writes `rxe-ipv4.pcap`, `rxe-ipv6.pcap` and `rxe-errors.pcap`, the test vectors of tests/data/roce: every operation
of RC, UC and UD with messages of one packet, two and more; and NAKs, RNR NAKs and what is sent again after a loss.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rxe_process import RxeProcess

SIZE = 1 << 16
ROOM = 1 << 15
"""Where what arrives goes; what is sent lies before it."""
MTU = 256
QKEY = 0x1234_5678
SIZES = (5, 2 * MTU, 3 * MTU + 2)
DATAGRAM_HEADER = 40
"""Bytes before a datagram that is received (the GRH of verbs)."""
RKEY_OF_NOBODY = 0x00BA_D000
LOCAL_WRITE = 1
"""IBV_ACCESS_LOCAL_WRITE alone: a queue pair that executes no READ."""
WAIT_S = 20.0
POLL_S = 0.1
PACKETS_MISSING = 0.25
"""Share of those that are lost while the sequence errors are captured."""
HOSTS = {4: ("10.77.1.2", "10.77.3.2"), 6: ("fd77:1::2", "fd77:3::2")}
GID_INDEX = {4: 1, 6: 2}


class Ends:
    """Two processes of drivers, and a new pair of queue pairs for each service."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.first = RxeProcess("ri-h1-eth1", "ri-h1", SIZE)
        self.second = RxeProcess("ri-h3-eth1", "ri-h3", SIZE)
        for end in (self.first, self.second):
            end.start()
            end.ask("fill", seed="a test vector", offset=0, length=ROOM)

    def connect(self, service: str, **settings: Any) -> tuple[int, int]:
        """The QPNs of a pair, the first end's and the second's."""
        numbers = tuple(end.ask("create", service=service)["qpn"] for end in (self.first, self.second))
        psns = (0xFF_FFFA, 0x00_1000)  # the first end's wrap
        addresses = HOSTS[self.version]
        for index, end in enumerate((self.first, self.second)):
            end.ask(
                "connect",
                qpn=numbers[index],
                address=addresses[1 - index],
                gid_index=GID_INDEX[self.version],
                remote_qpn=numbers[1 - index],
                send_psn=psns[index],
                receive_psn=psns[1 - index],
                mtu=MTU,
                qkey=QKEY,
                **settings,
            )
        return numbers[0], numbers[1]

    def carry(
        self, pair: tuple[int, int], requests: list[dict[str, Any]], receives: int, room: int = ROOM
    ) -> list[int]:
        """Have the first end do it, with so many receives at the second; the statuses of both, in this order."""
        remote = {"address": self.second.address + ROOM, "rkey": self.second.rkey}
        self.second.ask("receive", qpn=pair[1], buffers=[(ROOM, room)] * receives)
        self.first.ask("post", qpn=pair[0], requests=[{"offset": 0} | remote | request for request in requests])
        ended = self.first.ask("wait", qpn=pair[0], count=len(requests), timeout_s=WAIT_S)["completions"]
        received = self.second.ask("wait", qpn=pair[1], count=receives, timeout_s=WAIT_S)["completions"]
        assert len(ended) == len(requests), f"{len(ended)} of {len(requests)} have ended"
        return [item["status"] for item in (*ended, *received)]

    def close(self) -> None:
        self.first.close()
        self.second.close()


def frames(file: Path) -> int:
    """How many frames a pcap file of this machine has, whole ones."""
    data, at, count = file.read_bytes(), 24, 0
    while at + 16 <= len(data):
        at += 16 + int.from_bytes(data[at + 8 : at + 12], sys.byteorder)
        count += at <= len(data)
    return count


@contextmanager
def captured(file: Path, version: int) -> Iterator[Ends]:
    """Two ends, and a capture at the first of all that it sends and receives while the context lasts."""
    argv = ["nsenter", "--net=/run/netns/ri-h1", "tcpdump", "-i", "eth1", "-n", "-U", "-s", "0", "-Z", "root"]
    process = subprocess.Popen([*argv, "-w", str(file), "udp", "dst", "port", "4791"], stderr=subprocess.PIPE)
    while b"listening on" not in (line := process.stderr.readline()):
        assert line, "tcpdump did not begin"
    ends = Ends(version)
    try:
        yield ends
        counted = ends.first.counted()
        end = time.monotonic() + WAIT_S
        while frames(file) < counted["sent_pkts"] + counted["rcvd_pkts"]:
            assert time.monotonic() < end, f"{frames(file)} frames were captured: {counted}"
            time.sleep(POLL_S)
    finally:
        ends.close()
        process.terminate()
        process.wait(WAIT_S)
        process.stderr.close()


def every_operation(ends: Ends) -> None:
    for service, operations in (
        ("RC", ("send", "send-immediate", "write", "write-immediate", "read")),
        ("UC", ("send", "send-immediate", "write", "write-immediate")),
    ):
        requests = [
            {"operation": operation, "length": size, "immediate": 0xCAFE_0000 + size}
            for size in SIZES
            for operation in operations
        ]
        receives = 3 * len(SIZES)
        statuses = ends.carry(ends.connect(service), requests, receives)
        assert statuses == [0] * (len(requests) + receives), statuses
    atomics = [
        {"operation": "compare-swap", "length": 8, "first": 0, "second": 41},
        {"operation": "fetch-add", "length": 8, "first": 1},
    ]
    assert ends.carry(ends.connect("RC"), atomics, 0) == [0, 0]
    pair = ends.connect("UD")
    to = {"remote": HOSTS[ends.version][1], "gid_index": GID_INDEX[ends.version], "remote_qpn": pair[1], "qkey": QKEY}
    datagrams = [
        {"operation": operation, "length": size, "immediate": 0xFEED_0000} | to
        for operation in ("send", "send-immediate")
        for size in (1, MTU - DATAGRAM_HEADER)
    ]
    statuses = ends.carry(pair, datagrams, len(datagrams))
    assert statuses == [0] * (2 * len(datagrams)), statuses


def errors(ends: Ends) -> None:
    for operation in ("write", "read", "fetch-add"):
        statuses = ends.carry(
            ends.connect("RC"), [{"operation": operation, "length": 8, "rkey": RKEY_OF_NOBODY, "first": 1}], 0
        )
        assert statuses == [10], statuses
    assert ends.carry(ends.connect("RC", access=LOCAL_WRITE), [{"operation": "read", "length": 8}], 0) == [9]
    statuses = ends.carry(ends.connect("RC"), [{"operation": "send", "length": 3 * MTU}], 1, room=64)
    assert statuses == [11, 2], "to rxe it is an error of the peer's if a receive is too short"
    for size in (8, 2 * MTU):  # an rkey that cannot be invalidated
        pair = ends.connect("RC")
        ends.carry(pair, [{"operation": "send-invalidate", "length": size, "invalidate": RKEY_OF_NOBODY}], 1)
    assert ends.carry(ends.connect("RC", rnr_retry=2, min_rnr_timer=10), [{"operation": "send", "length": 8}], 0) == [
        13
    ]
    netem = ["tc", "-n", "ri-s1", "qdisc"]
    subprocess.run([*netem, "add", "dev", "up1", "root", "netem", "loss", f"{PACKETS_MISSING:.0%}"], check=True)
    try:
        pair = ends.connect("RC", timeout=14)
        lengths = [{"operation": operation, "length": 10 * MTU} for operation in ("write", "read", "write", "read")]
        assert ends.carry(pair, lengths, 0) == [0] * len(lengths)
    finally:
        subprocess.run([*netem, "del", "dev", "up1", "root"], check=True)


def main(folder: str) -> None:
    with captured(Path(folder, "rxe-ipv4.pcap"), 4) as ends:
        every_operation(ends)
    with captured(Path(folder, "rxe-ipv6.pcap"), 6) as ends:
        every_operation(ends)
    with captured(Path(folder, "rxe-errors.pcap"), 4) as ends:
        errors(ends)


if __name__ == "__main__":
    main(*sys.argv[1:])
