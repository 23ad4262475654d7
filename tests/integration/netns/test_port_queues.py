"""Queues of switch ports on a real lab: trimming, WRED and ECN, the shared buffer."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from switch_ports import (
    BULK,
    CONTROL,
    DSCP,
    FRAME,
    PAYLOAD,
    RDMA,
    PortLab,
    htb_bytes,
    port_lab,
    received,
    send,
    send_until,
)
from waiting import until

from testbed.base.datapath.abi import CURVE_BINS_TO_KMAX
from testbed.lab.core.plan.qos.shaping import SHAPER_WINDOW_S
from testbed.protocols.uet.packets.codes import DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timed]

SHARED_BYTES = 400_000
TRIMMED_FRAME = 64 + 14
TRIM_LIMIT = 30_000
ECT1, ECT0, CE = 1, 2, 3

# Trimming on the way h0 - s1 - s2 - s3 - h1, where s1 is the narrow place. The rest is at s3: g0 sends to `keep` and
# `drop` (WRED), to `behind` (marks at dequeue), and to b1 and b2 (shared buffer).
TOPOLOGY = """
name: {name}
scale: {time: 1}
fabric: {mtu: 1500, routing: {bfd: off}}
qos:
  classes:
    rdma: {dscp: [26], weight: 60, ecn: false}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40, limit: 30kB}
  watchdog: false
  nodes:
    s1: {trimming: true}
    s2: {trimming: true}
    s3: {buffer: {shared: 400kB, alpha: 1.0}}
  ports:
    "s3:eth2": {classes: {rdma: {limit: 100kB, ecn: {kmin: 5kB, kmax: 15kB, pmax: 1.0, non_ect: keep}}}}
    "s3:eth3":
      marks_account: false
      classes: {rdma: {limit: 100kB, ecn: {kmin: 5kB, kmax: 15kB, pmax: 1.0, non_ect: drop}}}
    "s3:eth6": {classes: {rdma: {limit: 200kB, ecn: {kmin: 15kB, kmax: 15kB, mark_at: dequeue}}}}
    "s1:eth1": {classes: {rdma: {limit: 30kB}}}
    "s3:eth1": {trimming: true, classes: {rdma: {limit: 30kB}}}
topology:
  nodes:
    s1: {kind: switch, role: rail}
    s2: {kind: switch, role: spine}
    s3: {kind: switch, role: rail}
    h0: {kind: host}
    h1: {kind: host}
    g0: {kind: host}
    keep: {kind: host}
    drop: {kind: host}
    behind: {kind: host}
    b1: {kind: host}
    b2: {kind: host}
  links:
    - {endpoints: ["h0:eth1", "s1:eth100"], rate: 50M}
    - {endpoints: ["s1:eth1", "s2:eth1"], rate: 10M}
    - {endpoints: ["s2:eth2", "s3:eth100"], rate: 10M}
    - {endpoints: ["s3:eth1", "h1:eth1"], rate: 10M}
    - {endpoints: ["g0:eth1", "s3:eth101"], rate: 200M}
    - {endpoints: ["s3:eth2", "keep:eth1"], rate: 10M}
    - {endpoints: ["s3:eth3", "drop:eth1"], rate: 10M}
    - {endpoints: ["s3:eth4", "b1:eth1"], rate: 10M}
    - {endpoints: ["s3:eth5", "b2:eth1"], rate: 10M}
    - {endpoints: ["s3:eth6", "behind:eth1"], rate: 10M}
"""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[PortLab]:
    with port_lab(shared_sandbox, TOPOLOGY) as lab:
        yield lab
        lab.reconciles()


AHEAD_TRIES, LATENESS_S = 5, 0.2e-3


def test_an_idle_port_is_no_more_ahead_of_its_rate_than_the_shapers_window(lab: PortLab) -> None:
    """Of 10 Mbit/s, where a frame takes 1.2 ms: frames of two classes come one by one, whatever was saved up.

    A frame may arrive late, and if it is the first one, the others seem early: the best of a few tries counts.
    """
    frame_s = FRAME * 8 / 10e6
    aheads: list[float] = []
    with lab.sink("b1"), lab.sender("g0", "b1", RDMA) as rdma, lab.sender("g0", "b1", BULK) as bulk:
        for _ in range(AHEAD_TRIES):
            with lab.tap("b1", "eth1") as tap:
                for _ in range(4):
                    send(rdma, 1)
                    send(bulk, 1)
                lab.still()
                arrived = sorted(packet.ns for packet in tap.udp())
            assert len(arrived) == 8
            aheads.append(max(n * frame_s - (ns - arrived[0]) / 1e9 for n, ns in enumerate(arrived)))
    assert min(aheads[1:]) <= SHAPER_WINDOW_S + LATENESS_S, "the first frame of a class may have gone for nothing"


@pytest.mark.parametrize("priority", [RDMA, BULK])
def test_an_overloaded_queue_trims_what_it_would_drop(lab: PortLab, priority: int) -> None:
    queue, high = lab.queue("s1", "eth1", priority), lab.queue("s1", "eth1", CONTROL)
    next_hop = {p: lab.queue("s2", "eth2", p) for p in (priority, CONTROL)}
    before = {name: int(queue[name]) for name in queue.dtype.names if name != "depth"}
    before_next = {p: int(item["forwarded_packets"]) for p, item in next_hop.items()}
    high_before = high.copy()
    htb_before = htb_bytes(lab, "s1", "eth1")
    lab.reset_maxima()
    with lab.sink("h1"), lab.tap("h1", "eth1") as tap, lab.sender("h0", "h1", priority) as item:
        sent = send_until(item, lambda: queue["trimmed_packets"] - before["trimmed_packets"] >= 300, "300 trimmed")
        lab.still()
        packets = tap.udp()
    trimmed = [packet for packet in packets if packet.dscp == DSCP_TRIMMED]
    whole = [packet for packet in packets if packet.dscp == DSCP[priority]]

    assert len(packets) == sent, "trimming loses no packet"
    assert TRIM_LIMIT - FRAME < queue["max_bytes"] <= TRIM_LIMIT, "it begins where the next packet would not fit"
    assert len(trimmed) >= 300
    assert len(whole) == sent - len(trimmed)
    assert {(packet.length, packet.udp_length, len(packet.frame)) for packet in trimmed} == {
        (64, PAYLOAD + 8, TRIMMED_FRAME)
    }
    assert {packet.length for packet in whole} == {PAYLOAD + 28}
    assert all(packet.checksum_is_valid for packet in packets)
    for name in ("tail", "buffer", "wred", "headroom"):
        assert queue[f"{name}_packets"] == before[f"{name}_packets"], name
    assert queue["trimmed_packets"] - before["trimmed_packets"] == len(trimmed)
    assert queue["trimmed_bytes"] - before["trimmed_bytes"] == len(trimmed) * (FRAME - TRIMMED_FRAME)
    assert queue["in_packets"] - before["in_packets"] == len(whole)
    # the high class, here and at the next hop
    assert next_hop[priority]["forwarded_packets"] - before_next[priority] == len(whole)
    assert next_hop[CONTROL]["forwarded_packets"] - before_next[CONTROL] == len(trimmed)
    assert int(high["forwarded_packets"] - high_before["forwarded_packets"]) == len(trimmed)
    # HTB charges each class what it sends: a trimmed packet 78 bytes, not the 1,514 that it had
    htb = {key: value - htb_before[key] for key, value in htb_bytes(lab, "s1", "eth1").items()}
    assert htb[f"1:{0x10 + priority:x}"] == len(whole) * FRAME
    assert len(trimmed) * TRIMMED_FRAME <= htb[f"1:{0x10 + CONTROL:x}"] < len(trimmed) * TRIMMED_FRAME + 20_000


def test_what_the_last_switch_trims_says_so(lab: PortLab) -> None:
    """The DSCP of trimmed packets at a port towards a NIC is another one (UE Specification 1.0, section 4.1)."""
    queue = lab.queue("s3", "eth1", RDMA)
    before = int(queue["trimmed_packets"])
    with lab.sink("h1"), lab.tap("h1", "eth1") as tap, lab.sender("g0", "h1", RDMA) as item:
        sent = send_until(item, lambda: queue["trimmed_packets"] - before >= 20, "20 trimmed")
        lab.still()
        packets = tap.udp()
    assert len(packets) == sent
    trimmed = [packet for packet in packets if packet.length == 64]
    assert len(trimmed) == queue["trimmed_packets"] - before
    assert {packet.dscp for packet in trimmed} == {DSCP_TRIMMED_LASTHOP}
    assert {packet.dscp for packet in packets} == {DSCP_TRIMMED_LASTHOP, DSCP[RDMA]}


def test_what_is_too_short_to_trim_is_dropped(lab: PortLab) -> None:
    queue = lab.queue("s1", "eth1", BULK)
    trimmed, tail = int(queue["trimmed_packets"]), int(queue["tail_packets"])
    with lab.sink("h1"), lab.sender("h0", "h1", BULK) as item:
        send_until(item, lambda: queue["tail_packets"] - tail >= 100, "100 dropped", payload=36)
        lab.still()
    assert queue["trimmed_packets"] == trimmed


@pytest.mark.parametrize("ecn", [ECT0, ECT1])
@pytest.mark.parametrize("receiver", ["keep", "drop"])
def test_a_deep_queue_marks_what_is_ecn_capable(lab: PortLab, receiver: str, ecn: int) -> None:
    port = ("s3", {"keep": "eth2", "drop": "eth3"}[receiver])
    queue, account, curve = lab.queue(*port, RDMA), lab.account(receiver, "eth1", RDMA), lab.curve(*port, RDMA)
    before, came, drawn = queue.copy(), int(account["ce_packets"]), curve.copy()
    with lab.sink(receiver), lab.tap(receiver, "eth1") as tap, lab.sender("g0", receiver, RDMA, ecn=ecn) as item:
        sent = send_until(item, lambda: queue["ce_packets"] - before["ce_packets"] >= 200, "200 marked")
        lab.still()
        packets = tap.udp()
    marked = [packet for packet in packets if packet.ecn == CE]
    assert len(marked) == queue["ce_packets"] - before["ce_packets"] == account["ce_packets"] - came
    assert {packet.ecn for packet in packets} == {ecn, CE}, "the first packets find a short queue"
    assert [packet.ecn for packet in packets[:3]] == [ecn] * 3, "below Kmin nothing is marked"
    assert {packet.dscp for packet in packets} == {DSCP[RDMA]}
    assert all(packet.checksum_is_valid for packet in packets)
    assert queue["wred_packets"] == before["wred_packets"]
    dropped = int(queue["tail_packets"] - before["tail_packets"])
    assert len(packets) == sent - dropped
    assert queue["ect_packets"] - before["ect_packets"] == len(packets)
    met, hit = (curve[name] - drawn[name] for name in ("packets", "marked"))
    if receiver == "drop":
        assert not met.any(), "marks_account: false"
        return
    assert (met.sum(), hit.sum()) == (len(packets), len(marked))
    flat = CURVE_BINS_TO_KMAX * 5 // 15  # bins that lie below Kmin
    assert met[:flat].sum() and not hit[:flat].any()
    assert met[CURVE_BINS_TO_KMAX:].sum()
    assert (hit[CURVE_BINS_TO_KMAX:] == met[CURVE_BINS_TO_KMAX:]).all()


def test_a_mark_at_dequeue_tells_of_what_is_behind(lab: PortLab) -> None:
    """The last packets of a burst found the longest queue, and leave the shortest behind them."""
    queue, account = lab.queue("s3", "eth6", RDMA), lab.account("behind", "eth1", RDMA)
    curve = lab.curve("s3", "eth6", RDMA)
    before, came, drawn = queue.copy(), int(account["ce_packets"]), curve.copy()
    burst, behind = 60, 15_000 // FRAME
    with lab.sink("behind") as sink, lab.sender("g0", "behind", RDMA, ecn=ECT0) as item:
        sink.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        send(item, burst)
        lab.still()
        found = []

        def arrived() -> bool:
            """What has left the port may still be on its way to the socket."""
            with contextlib.suppress(BlockingIOError):
                while True:
                    _, ancillary, _, _ = sink.recvmsg(2048, socket.CMSG_SPACE(1))
                    found.append(ancillary[0][2][0] & CE)
            return len(found) >= burst

        until(arrived, "all of the burst")
    assert len(found) == burst
    marked = found.count(CE)
    assert found[-behind - 1 :] == [ECT0] * (behind + 1) and found[-behind - 2] == CE
    assert marked >= burst // 2, "the NIC is 20 times as fast as the port"
    assert queue["ce_packets"] - before["ce_packets"] == marked == account["ce_packets"] - came
    met, hit = (curve[name] - drawn[name] for name in ("packets", "marked"))
    step = CURVE_BINS_TO_KMAX
    assert (met.sum(), hit.sum()) == (burst, marked)
    assert (hit[step + 1 :] == met[step + 1 :]).all() and not hit[:step].any()


def test_what_is_not_ecn_capable_is_kept_or_dropped_as_configured(lab: PortLab) -> None:
    for receiver, interface in (("keep", "eth2"), ("drop", "eth3")):
        queue = lab.queue("s3", interface, RDMA)
        before = queue.copy()
        with lab.sink(receiver), lab.tap(receiver, "eth1") as tap, lab.sender("g0", receiver, RDMA) as item:
            cause = "tail_packets" if receiver == "keep" else "wred_packets"
            sent = send_until(item, lambda: queue[cause] - before[cause] >= 50, cause)  # noqa: B023
            lab.still()
            packets = tap.udp()
        tail, wred = (int(queue[name] - before[name]) for name in ("tail_packets", "wred_packets"))
        assert len(packets) == sent - tail - wred
        assert {packet.ecn for packet in packets} == {0}
        assert queue["ce_packets"] == before["ce_packets"]
        assert queue["ect_packets"] == before["ect_packets"]
        if receiver == "keep":
            assert wred == 0
        else:
            assert tail == 0, "dropped from Kmax on, long before the limit"


def test_what_is_marked_already_is_not_marked_again(lab: PortLab) -> None:
    queue = lab.queue("s3", "eth2", RDMA)
    before = queue.copy()
    with lab.sink("keep"), lab.tap("keep", "eth1") as tap, lab.sender("g0", "keep", RDMA, ecn=CE) as item:
        send(item, 100)
        lab.still()
        packets = tap.udp()
    assert {packet.ecn for packet in packets} == {CE}
    assert queue["ce_packets"] == before["ce_packets"], "marked here: none"


def test_one_hot_queue_takes_its_share_of_the_buffer(lab: PortLab) -> None:
    """Alpha / (1 + alpha) of the buffer: half of it (Choudhury and Hahne, 1998)."""
    queue, buffer = lab.queue("s3", "eth4", RDMA), _buffer(lab)
    before = int(queue["buffer_packets"])
    with lab.sink("b1") as sink, lab.sender("g0", "b1", RDMA) as item:
        lab.still()
        lab.reset_maxima()
        sent = send_until(item, lambda: queue["buffer_packets"] - before >= 100, "the dynamic threshold")
        lab.still()
        assert len(received(sink)) == sent - (queue["buffer_packets"] - before)
    assert SHARED_BYTES / 2 - 2 * FRAME <= queue["max_bytes"] <= SHARED_BYTES / 2
    assert buffer["max_bytes"] <= SHARED_BYTES / 2 + 2 * FRAME


def test_two_hot_queues_share_the_buffer(lab: PortLab) -> None:
    """Each gets alpha / (1 + 2 alpha): a third."""
    queues = [lab.queue("s3", interface, RDMA) for interface in ("eth4", "eth5")]
    before = [int(queue["buffer_packets"]) for queue in queues]
    third = SHARED_BYTES / 3
    with lab.sink("b1"), lab.sink("b2"), lab.sender("g0", "b1", RDMA) as one, lab.sender("g0", "b2", RDMA) as two:
        lab.still()

        def both_full() -> bool:
            return all(abs(int(queue["bytes"]) - third) < 4 * FRAME for queue in queues)

        def alternate() -> bool:
            send(one, 10)
            send(two, 10)
            return both_full()

        until(alternate, "two queues of a third of the buffer each")
        lab.still()
    assert all(queue["buffer_packets"] > number for queue, number in zip(queues, before, strict=True))


def test_a_queue_has_its_reserve_though_the_buffer_is_taken(lab: PortLab) -> None:
    """Two frames of each queue are admitted always."""
    queue, buffer = lab.queue("s3", "eth4", RDMA), _buffer(lab)
    before = int(queue["buffer_packets"])
    with lab.sink("b1") as sink, lab.sender("g0", "b1", RDMA) as item:
        lab.still()
        lab.reset_maxima()
        buffer["size_bytes"] = 1  # nothing is free
        try:
            sent = send_until(item, lambda: queue["buffer_packets"] - before >= 50, "50 dropped")
            lab.still()
        finally:
            buffer["size_bytes"] = SHARED_BYTES
        assert len(received(sink)) == sent - (queue["buffer_packets"] - before)
    assert queue["max_bytes"] == 2 * FRAME


def _buffer(lab: PortLab) -> Any:
    number = int(lab.maps.ports[lab.number("s3", "eth4")]["buffer"])
    assert lab.maps.buffers[number]["size_bytes"] == SHARED_BYTES
    return lab.maps.buffers[number]
