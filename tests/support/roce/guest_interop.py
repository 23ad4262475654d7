"""Our RNIC and the kernel's soft RDMA (rxe) at work with each other: NAMESPACE PLACE GROUP [ARGUMENT...].

NAMESPACE is that of our endpoint, PLACE a `Place` in JSON, GROUP one of `GROUPS`. Prints JSON of what was carried and
counted; what is not as it must be is an error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from interop_pair import DATA, HALF, QKEY, Pair, Piece, Place, RxeReadLost, Site, Transfer, Wire, content, drive

from testbed.endpoints import namespace
from testbed.protocols.roce.memory import Access
from testbed.protocols.roce.packets.opcodes import Opcode, Service
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import ReceiveRequest, RemoteBuffer, WorkStatus

WRAPS = 0xFF_FFF0
"""A first PSN from which a few packets get to 0."""
MEBIBYTE = 1 << 20
LOSSY_SIZES = (1, 4095, 4097, 20_001, 65_537)
ALIGNED = HALF + 4096
"""The place of atomic operations in either buffer."""
ADDITIONS = 100
WRONG_RKEY = 0xDEAD_BEEF
WITHOUT_READ = tuple(operation for operation in DATA if operation != "read")
DATAGRAM_HEADER = 40
"""Bytes that verbs put before a datagram (GRH)."""
ECN_CAPABLE = 26 << 2 | 2
"""A traffic class: DSCP 26 and ECT(0)."""
PATTERN = bytes(range(1, 9))


def sizes_around(mtu: int) -> list[int]:
    """None to a few packets of bytes: odd sizes, and those around the boundaries of packets and of padding."""
    return [0, 1, 2, 3, 4, 5, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 7]


def transfer(place: Place, mtu: str, longest: str) -> dict[str, Any]:
    """Every operation and size both ways over a fabric that loses nothing; `longest`: also a message of so much."""
    site = Site(place)
    pair = Pair(site, int(mtu), ours=WRAPS, theirs=WRAPS)
    messages = 0
    for sizes, operations in ((sizes_around(pair.mtu), DATA), ([int(longest)], ("write", "read"))):
        task = Transfer(pair, sizes, operations, f"{mtu} {sizes}")
        messages += task.from_us()
        task = Transfer(pair, sizes, operations, f"back {mtu} {sizes}")
        messages += task.from_rxe()
    atomics(pair)
    found = {"messages": messages, "state": pair.qp.state} | site.counted()
    site.close()
    return found


def atomics(pair: Pair) -> None:
    """Both operations both ways: what is there before, and what a comparison that fails leaves."""
    site = pair.site
    steps = (("compare-swap", 7, 2**63 + 5), ("compare-swap", 7, 1), ("fetch-add", 2**63, 0), ("fetch-add", 2, 0))
    finds = (7, 2**63 + 5, 2**63 + 5, 5)
    # Ours at rxe's memory.
    site.rxe.ask("put", data=(7).to_bytes(8, "little").hex(), offset=ALIGNED)
    now = time.monotonic_ns()
    remote = RemoteBuffer(site.rxe.address + ALIGNED, site.rxe.rkey)
    results = [bytearray(8) for _ in steps]
    for result, (operation, first, second) in zip(results, steps, strict=True):
        if operation == "compare-swap":
            pair.qp.compare_swap(result, remote, (first, second), now)
        else:
            pair.qp.fetch_add(result, remote, first, now)
    assert all(item.ok for item in pair.await_ours(len(steps)))
    assert tuple(int.from_bytes(result, "little") for result in results) == finds
    assert site.rxe.ask("get", offset=ALIGNED, length=8)["data"] == (7).to_bytes(8, "little").hex()
    # Rxe's at ours.
    site.memory[ALIGNED : ALIGNED + 8] = (7).to_bytes(8, "little")
    requests = [
        {
            "operation": operation,
            "offset": ALIGNED + 64 + 8 * index,
            "length": 8,
            "address": site.region.base + ALIGNED,
            "rkey": site.region.rkey,
            "first": first,
            "second": second,
        }
        for index, (operation, first, second) in enumerate(steps)
    ]
    site.rxe.ask("post", qpn=pair.qpn, requests=requests)
    assert all(item["status"] == 0 for item in pair.await_rxe(len(steps)))
    found = bytes.fromhex(site.rxe.ask("get", offset=ALIGNED + 64, length=8 * len(steps))["data"])
    assert tuple(int.from_bytes(found[at : at + 8], "little") for at in range(0, len(found), 8)) == finds
    assert site.memory[ALIGNED : ALIGNED + 8] == (7).to_bytes(8, "little")


def impaired(place: Place, rounds: str) -> dict[str, Any]:
    """Every operation both ways over a fabric that loses or reorders.

    Rxe (of Linux 7.3) now and then ends a READ that it has asked for again from the middle on without its data, or with
    data in the wrong place. What we sent is looked at packet by packet; where it was right, rxe asks for everything
    once more over a new connection, and is told of in `rxe_reads_lost`.
    """
    site = Site(place, timeout=16)
    wire = Wire(site, 1024)
    site.put_wire(wire)
    pair = Pair(site, 1024, ours=WRAPS, theirs=WRAPS)
    messages = 0
    lost: list[str] = []
    for number in range(int(rounds)):
        messages += Transfer(pair, LOSSY_SIZES, DATA, f"impaired {number}").from_us()
        try:
            messages += Transfer(pair, LOSSY_SIZES, DATA, f"impaired back {number}").from_rxe()
        except RxeReadLost as fault:
            lost.append(str(fault))
            pair.close()
            wire.forget()
            pair = Pair(site, 1024, ours=WRAPS, theirs=WRAPS)
            messages += Transfer(pair, LOSSY_SIZES, DATA, f"impaired back {number}, again").from_rxe()
    atomics(pair)
    count_up(pair)
    found = {"messages": messages, "state": pair.qp.state, "rxe_reads_lost": lost, "responses": wire.responses}
    found |= site.counted()
    site.close()
    return found


def count_up(pair: Pair) -> None:
    """Each adds 1 to a word of the other's, many times: whatever is lost, each is executed once, and in order."""
    site = pair.site
    site.rxe.ask("clear", offset=ALIGNED, length=8)
    now = time.monotonic_ns()
    remote = RemoteBuffer(site.rxe.address + ALIGNED, site.rxe.rkey)
    adds = [pair.qp.fetch_add(bytearray(8), remote, 1, now) for _ in range(ADDITIONS)]
    assert all(item.ok for item in pair.await_ours(ADDITIONS))
    assert [item.original for item in adds] == list(range(ADDITIONS))
    site.memory[ALIGNED : ALIGNED + 8] = bytes(8)
    request = {"operation": "fetch-add", "length": 8, "first": 1, "rkey": site.region.rkey}
    request["address"] = site.region.base + ALIGNED
    requests = [request | {"offset": ALIGNED + 64 + 8 * number} for number in range(ADDITIONS)]
    site.rxe.ask("post", qpn=pair.qpn, requests=requests)
    assert all(item["status"] == 0 for item in pair.await_rxe(ADDITIONS))
    found = bytes.fromhex(site.rxe.ask("get", offset=ALIGNED + 64, length=8 * ADDITIONS)["data"])
    assert [int.from_bytes(found[at : at + 8], "little") for at in range(0, len(found), 8)] == list(range(ADDITIONS))
    assert int.from_bytes(site.memory[ALIGNED : ALIGNED + 8], "little") == ADDITIONS


def lost_responses(place: Place) -> dict[str, Any]:
    """Rxe asks us a WRITE and then what has a response, whose end is lost: it must not take the acknowledgement of the
    WRITE for it. Both arrive together, so that both are answered together."""
    site = Site(place, timeout=17)
    pair = Pair(site, 1024)
    found: dict[str, Any] = {}
    response = content("response", 4097)
    site.memory[: len(response)] = response
    remote = {"rkey": site.region.rkey, "address": site.region.base}
    write = {"operation": "write", "offset": 0, "length": 64, "rkey": site.region.rkey}
    write["address"] = site.region.base + HALF
    cases = {
        "read of a packet": ({"operation": "read", "length": 5}, Opcode.RC_READ_RESPONSE_ONLY),
        "read of packets": ({"operation": "read", "length": len(response)}, Opcode.RC_READ_RESPONSE_LAST),
        "fetch-add": ({"operation": "fetch-add", "length": 8, "first": 0}, Opcode.RC_ATOMIC_ACKNOWLEDGE),
    }
    wire = Wire(site, pair.mtu)
    site.put_wire(wire)
    for name, (asked, lost) in cases.items():
        length = asked["length"]
        site.rxe.ask("clear", offset=HALF, length=length)
        wire.lost, wire.together = {int(lost)}, 2
        address = site.region.base + (ALIGNED if name == "fetch-add" else 0)
        site.memory[ALIGNED : ALIGNED + 8] = response[:8]
        site.rxe.ask("post", qpn=pair.qpn, requests=[write, asked | remote | {"offset": HALF, "address": address}])
        drive(site.agent, lambda: not wire.lost, "no response was sent")
        wire.together = 1
        assert [item["status"] for item in pair.await_rxe(2)] == [0, 0]
        there = bytes.fromhex(site.rxe.ask("get", offset=HALF, length=length)["data"])
        found[name] = "arrived" if there == response[:length] else "never written" if not any(there) else "differs"
    found = {"responses": found, "state": pair.qp.state} | site.counted()
    site.close()
    return found


def marked(place: Place) -> dict[str, Any]:
    """Rxe's packets may be marked, and are: we tell it so by CNPs."""
    site = Site(place)
    pair = Pair(site, 1024, traffic_class=ECN_CAPABLE)
    messages = Transfer(pair, [100_001], ("write", "send"), "marked").from_rxe()
    messages += Transfer(pair, [100_001], ("read",), "marked back").from_us()
    found = {"messages": messages, "marked": pair.qp.marked, "state": pair.qp.state} | site.counted()
    site.close()
    return found


def unreliable(place: Place) -> dict[str, Any]:
    """UC and UD both ways, over a fabric that loses nothing."""
    site = Site(place)
    pair = Pair(site, 1024, service=Service.UC, ours=WRAPS, theirs=WRAPS)
    messages = Transfer(pair, sizes_around(pair.mtu), WITHOUT_READ, "UC").from_us()
    messages += Transfer(pair, sizes_around(pair.mtu), WITHOUT_READ, "UC back").from_rxe()
    pair.close()
    # One room of rxe's to each datagram: its header of 40 bytes, and as much data as there is.
    pair = Pair(site, 1024, service=Service.UD)
    sizes = (1, 7, 984, 1024)
    source = content("UD", 1024)
    rooms = [(HALF + 2048 * number, DATAGRAM_HEADER + 1024) for number in range(len(sizes))]
    site.rxe.ask("receive", qpn=pair.qpn, buffers=rooms)
    now = time.monotonic_ns()
    for number, size in enumerate(sizes):
        pair.qp.send_to((place.theirs, pair.qpn, QKEY), source[:size], now, immediate=number if number % 2 else None)
    assert all(item.ok for item in pair.await_ours(len(sizes)))
    for number, item in enumerate(pair.await_rxe(len(sizes))):
        size = sizes[number]
        assert (item["status"], item["length"] - DATAGRAM_HEADER) == (0, size), item
        assert item["immediate"] == (number if number % 2 else None)
        there = site.rxe.ask("get", offset=rooms[number][0] + DATAGRAM_HEADER, length=size)["data"]
        assert there == source[:size].hex()
    site.rxe.ask("put", data=source.hex(), offset=0)
    near = [bytearray(1024) for _ in sizes]
    for room in near:
        pair.qp.receive(room, now)
    to = {"remote": place.ours, "gid_index": place.gid_index, "remote_qpn": pair.qp.number, "qkey": QKEY}
    requests = [
        {"operation": "send-immediate" if number % 2 else "send", "offset": 0, "length": size, "immediate": number} | to
        for number, size in enumerate(sizes)
    ]
    site.rxe.ask("post", qpn=pair.qpn, requests=requests)
    assert all(item["status"] == 0 for item in pair.await_rxe(len(sizes)))
    for number, received in enumerate(pair.await_ours(len(sizes))):
        assert isinstance(received, ReceiveRequest) and received.ok
        assert (received.length, received.source_ip, received.source_qpn) == (sizes[number], place.theirs, pair.qpn)
        assert received.immediate == (number if number % 2 else None)
        assert near[number] == source[: sizes[number]].ljust(1024, b"\0")
    found = {"messages": messages + 2 * len(sizes), "state": pair.qp.state} | site.counted()
    site.close()
    return found


def trespass(place: Place) -> dict[str, Any]:
    """Reach for memory that neither may touch: who asks gets the IBTA's error, and no byte of the memory changes."""
    site = Site(place)
    found: dict[str, Any] = {"ours": {}, "rxe": {}}
    site.rxe.ask("put", data=PATTERN.hex(), offset=ALIGNED)
    read_only = site.rnic.register(bytearray(64), Access.REMOTE_READ)
    for operation in ("write", "read", "fetch-add", "beyond"):
        pair = Pair(site, 1024)
        now = time.monotonic_ns()
        wrong = RemoteBuffer(site.rxe.address + ALIGNED, WRONG_RKEY)
        if operation == "write":
            request = pair.qp.write(bytes(3000), wrong, now)
        elif operation == "read":
            request = pair.qp.read(bytearray(8), wrong, now)
        elif operation == "fetch-add":
            request = pair.qp.fetch_add(bytearray(8), wrong, 1, now)
        else:
            request = pair.qp.write(bytes(64), RemoteBuffer(site.rxe.address + 2 * HALF - 32, site.rxe.rkey), now)
        behind = pair.post("write", Piece(0, HALF, 64), 0)
        pair.await_ours(2)
        assert behind.status is WorkStatus.FLUSHED and pair.qp.state is QpState.ERR
        found["ours"][operation] = request.status
        pair.close()
    assert site.rxe.ask("get", offset=ALIGNED, length=8)["data"] == PATTERN.hex()
    site.memory[ALIGNED : ALIGNED + 8] = PATTERN
    places = {
        "write": (site.region.base + ALIGNED, WRONG_RKEY),
        "read": (site.region.base + ALIGNED, WRONG_RKEY),
        "fetch-add": (site.region.base + ALIGNED, WRONG_RKEY),
        "beyond": (site.region.base + 2 * HALF - 32, site.region.rkey),
        "permission": (read_only.base, read_only.rkey),
    }
    for name, (address, rkey) in places.items():
        pair = Pair(site, 1024)
        operation = name if name in ("read", "fetch-add") else "write"
        request = {"operation": operation, "offset": 0, "length": 8 if operation == "fetch-add" else 64}
        request |= {"address": address, "rkey": rkey, "first": 1}
        behind = {
            "operation": "write",
            "offset": 0,
            "length": 64,
            "address": site.region.base,
            "rkey": site.region.rkey,
        }
        site.rxe.ask("post", qpn=pair.qpn, requests=[request, behind])
        first, second = pair.await_rxe(2)
        assert second["status"] == WorkStatus.FLUSHED
        found["rxe"][name] = first["status"]
        pair.close()
    assert site.memory[ALIGNED : ALIGNED + 8] == PATTERN and bytes(read_only.buffer) == bytes(64)
    # A region that rxe has invalidated itself by a SEND.
    lent = site.rnic.register(bytearray(64), Access.REMOTE_WRITE)
    pair = Pair(site, 1024)
    pair.qp.receive(bytearray(2000), time.monotonic_ns())
    write = {"operation": "write", "offset": 0, "length": 64, "address": lent.base, "rkey": lent.rkey}
    send = {"operation": "send-invalidate", "offset": 0, "length": 2000, "invalidate": lent.rkey}
    site.rxe.ask("post", qpn=pair.qpn, requests=[write, send, write])
    statuses = [item["status"] for item in pair.await_rxe(3)]
    (received,) = pair.await_ours(1)
    assert isinstance(received, ReceiveRequest) and received.invalidated_rkey == lent.rkey
    assert statuses[:2] == [0, 0]
    found["rxe"]["invalidated"] = statuses[2]
    site.close()
    return found


def not_ready(place: Place) -> dict[str, Any]:
    """No receive is posted: it is asked again until there is one, or as often as was allowed."""
    site = Site(place, rnr_retry=7)
    found: dict[str, Any] = {}
    pair = Pair(site, 1024, min_rnr_timer=20)
    piece = Piece(0, HALF, 3000)
    site.memory[:3000] = b"\x5a" * 3000
    request = pair.post("send", piece, 0)
    drive(site.agent, lambda: site.rnic.counters["rnr-nak"] >= 3, "rxe says nothing of a receive that it lacks")
    assert request.status is None
    site.rxe.ask("receive", qpn=pair.qpn, buffers=[(piece.target, piece.size)])
    assert pair.await_ours(1)[0].ok and pair.await_rxe(1)[0]["status"] == 0
    assert site.rxe.ask("get", offset=piece.target, length=3000)["data"] == "5a" * 3000
    found["ours asked again"] = site.rnic.counters["rnr-nak"]
    # The other way: rxe asks again.
    site.rxe.ask("post", qpn=pair.qpn, requests=[{"operation": "send", "offset": piece.target, "length": 3000}])
    drive(site.agent, lambda: site.rnic.counters["not-ready"] >= 3, "rxe does not ask again")
    room = bytearray(3000)
    pair.qp.receive(room, time.monotonic_ns())
    (received,) = pair.await_ours(1)
    assert isinstance(received, ReceiveRequest) and received.ok and room == b"\x5a" * 3000
    assert pair.await_rxe(1)[0]["status"] == 0
    found["rxe asked again"] = site.rxe.counted()["rcvd_rnr_err"]
    pair.close()
    # As often as was allowed, and no more.
    pair = Pair(site, 1024, rnr_retry=2)
    site.rxe.ask("post", qpn=pair.qpn, requests=[{"operation": "send", "offset": 0, "length": 64}])
    found["rxe gives up"] = pair.await_rxe(1)[0]["status"]
    pair.close()
    site.close()
    site = Site(place, rnr_retry=2)
    pair = Pair(site, 1024)
    request = pair.post("send", piece, 0)
    pair.await_ours(1)
    found["ours gives up"] = request.status
    found["ours asked"] = site.rnic.counters["rnr-nak"]
    site.close()
    return found


def silent(place: Place) -> dict[str, Any]:
    """The peer's queue pair is gone: whoever asks it ends with an error, and does not hang."""
    site = Site(place, timeout=12, retry_count=2)
    pair = Pair(site, 1024, retry_count=2)
    site.rnic.destroy_qp(pair.qp, time.monotonic_ns())
    request = {"operation": "write", "offset": 0, "length": 64, "address": site.region.base, "rkey": site.region.rkey}
    site.rxe.ask("post", qpn=pair.qpn, requests=[request])
    found: dict[str, Any] = {"rxe": pair.await_rxe(1)[0]["status"]}
    pair = Pair(site, 1024)
    site.rxe.ask("destroy", qpn=pair.qpn)
    write = pair.post("write", Piece(0, HALF, 64), 0)
    pair.await_ours(1)
    found["ours"] = write.status
    site.close()
    return found


def without_header(place: Place) -> dict[str, Any]:
    """Control: opened for peers of our own, an RNIC takes what rxe sends for damaged, and rxe a run of its packets.

    It waits for a second: rxe must have answered, on a machine that is emulated beside another.
    """
    site = Site(place, foreign_peers=False, timeout=18, retry_count=0)
    pair = Pair(site, 1024)
    request = pair.post("write", Piece(0, HALF, 20_000), 0)
    pair.await_ours(1)
    found = {"status": request.status} | site.counted()
    site.close()
    return found


GROUPS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "transfer": transfer,
    "impaired": impaired,
    "lost-responses": lost_responses,
    "marked": marked,
    "unreliable": unreliable,
    "trespass": trespass,
    "not-ready": not_ready,
    "silent": silent,
    "without-header": without_header,
}

if __name__ == "__main__":
    began = time.monotonic()
    _, own, where, group, *arguments = sys.argv
    namespace.enter(os.open(f"/run/netns/{own}", os.O_RDONLY))
    result = GROUPS[group](Place(**json.loads(where)), *arguments)
    print(json.dumps(result | {"took_s": round(time.monotonic() - began, 1)}))
