"""Who has what of the links of a domain, in virtual time: victims of an incast, slow planes, and planes that fail.

B is a link's rate, N the senders of the incast. Oracles are those of the reference: a victim that shares the incast's
queue has B / N, credits or not; with a queue of its own it has what the incast leaves of its sender's link.
"""

from __future__ import annotations

import dataclasses
import functools
import random

import pytest
from virtual_domain import Closing, VirtualDomain, share_of

from testbed.protocols.scale_up.domain.endpoint import Kind, Spray
from testbed.protocols.scale_up.domain.errors import Outcome
from testbed.protocols.scale_up.domain.link import FlowControl, LinkErrors, LinkSettings
from testbed.protocols.scale_up.retry import RetryConfig

RATE_BPS = 1_000_000_000
SIZE = 1 << 20
SENDERS = 4
WINDOW = 8
LATE_NS = 10_000_000_000
LINK = LinkSettings(
    rate_bps=RATE_BPS, delay_ns=5_000, coarse=16, heartbeat_ns=500_000, idle_heartbeat_ns=5_000_000, silence_ns=0
)


def test_a_switch_that_comes_late_says_by_how_much(closing: Closing) -> None:
    """Of what it is late a link catches up 2 ms, and all of it counts: a run is judged by that."""
    domain = closing(VirtualDomain(LINK, 3))
    for sender in (1, 2):
        domain.begin(sender, Kind.WRITE, 0, bytes(SIZE))
    domain.run(5_000_000)
    assert domain.core.times()["lateness"]["max_ns"] < 100_000
    domain.now += 20_000_000
    domain.run(30_000_000)
    assert 19_000_000 < domain.core.times()["lateness"]["max_ns"] < 21_000_000


@pytest.mark.parametrize("flow_control", list(FlowControl))
@pytest.mark.parametrize("voq", [False, True])
@pytest.mark.parametrize("most_ns", [0, 300_000])
def test_frames_are_late_by_no_more_than_the_switch_is(
    closing: Closing, flow_control: FlowControl, voq: bool, most_ns: int
) -> None:
    """Whatever they wait for besides, behind each other and for leave, is no lateness."""
    random_source = random.Random(7)
    link = dataclasses.replace(
        LINK, delay_ns=50_000, flow_control=flow_control, capacity=(100, 100), xoff=(40, 40), xon=(20, 20)
    )
    gpus = 5
    late_ns = functools.partial(random_source.randint, 0, most_ns)
    domain = closing(VirtualDomain(link, gpus, voq=voq, late_ns=late_ns))
    domain.run(5_000_000)
    domain.core.forget_peaks()
    handles = []
    for _ in range(60):
        gpu, peer = random_source.sample(range(gpus), 2)
        kind = random_source.choice((Kind.READ, Kind.WRITE))
        handles.append(domain.begin(gpu, kind, peer, bytes(random_source.randint(1, 1 << 15))))
        domain.run(domain.now + random_source.randint(1, 1_000_000))
    domain.run(LATE_NS, *(handles if flow_control is not FlowControl.NONE else ()))
    lateness = domain.core.times()["lateness"]
    assert lateness["count"] > 200
    assert lateness["max_ns"] <= most_ns + 1_000
    assert lateness["p50_ns"] < most_ns or not most_ns


@pytest.mark.parametrize("flow_control", [FlowControl.CREDITS, FlowControl.PFC])
@pytest.mark.parametrize(("queue", "share"), [("fifo", 1 / SENDERS), ("vc", 1 - 1 / SENDERS), ("voq", 1 - 1 / SENDERS)])
def test_a_victim_behind_an_incast(closing: Closing, flow_control: FlowControl, queue: str, share: float) -> None:
    """S1b: GPUs 2 to 5 write to GPU 0; GPU 2 writes to GPU 1 as well, which nobody else does."""
    capacity = 3 * WINDOW * 5
    link = dataclasses.replace(
        LINK,
        flow_control=flow_control,
        capacity=(capacity,) * 3,
        xoff=(2 * WINDOW * 5,) * 3 if flow_control is FlowControl.PFC else (),
        xon=(WINDOW * 5,) * 3 if flow_control is FlowControl.PFC else (),
    )
    domain = closing(VirtualDomain(link, SENDERS + 2, voq=queue == "voq", peer_window=WINDOW if queue == "voq" else 0))
    data = bytes(SIZE)
    for sender in range(2, SENDERS + 2):
        for _ in range(4):
            domain.begin(sender, Kind.WRITE, 0, data)
    domain.run(5_000_000)
    victim = domain.begin(2, Kind.WRITE, 1, data, vc=2 if queue == "vc" else 0)
    domain.run(LATE_NS, victim)
    assert share_of(link, SIZE, domain.took_ns(victim)) == pytest.approx(share, abs=0.05)
    for port in domain.core.counters():
        assert not any(vc["dropped_frames"] for vc in port["vcs"])


@pytest.mark.parametrize(("spray", "left"), [(Spray.EQUAL, 0.5), (Spray.WEIGHTED, 3.5 / 4)])
def test_one_slow_plane_of_four(closing: Closing, spray: Spray, left: float) -> None:
    """S9: P x the share of the slowest, or (P - 0.5) / P."""
    domain = closing(VirtualDomain(LINK, 2, planes=4, spray=spray))
    domain.run(2_000_000)
    domain.set_errors(0, 2, LinkErrors(rate_bps=RATE_BPS // 2))
    domain.run(4_000_000)
    copy = domain.begin(0, Kind.WRITE, 1, bytes(4 * SIZE))
    domain.run(LATE_NS, copy)
    assert share_of(LINK, 4 * SIZE, domain.took_ns(copy), planes=4) == pytest.approx(left, abs=0.02)


RETRY = RetryConfig(
    outstanding_frames_max=64, replay_timer_ns=1_000_000, replay_count_max=3, pcs_lost_timeout_ns=2_000_000
)


@pytest.mark.parametrize("lasts_ns", [1_000_000, 10**12])
def test_a_plane_fails(closing: Closing, lasts_ns: int) -> None:
    """S8: (P - 1) / P is left, and memory is whole. A failure that LLR waits for costs nothing but its time."""
    link = dataclasses.replace(LINK, retry=RETRY)
    domain = closing(VirtualDomain(link, 2, planes=4))
    data = random.Random(3).randbytes(4 * SIZE)
    domain.run(2_000_000)
    copy = domain.begin(0, Kind.WRITE, 1, data)
    domain.run(domain.now + 2_000_000)
    domain.set_errors(0, 1, LinkErrors(down=True))
    domain.run(domain.now + lasts_ns, *([copy] if lasts_ns > LATE_NS else []))
    if lasts_ns > LATE_NS:
        assert domain.native.endpoint_plane_is_down(domain.endpoints[0], 1)
        again = domain.begin(0, Kind.WRITE, 1, data)
        domain.run(LATE_NS, again)
        assert share_of(link, 4 * SIZE, domain.took_ns(again), planes=4) == pytest.approx(3 / 4, abs=0.03)
        assert domain.counters(0)["moved"] > 0
    else:
        assert not domain.native.endpoint_plane_is_down(domain.endpoints[0], 1)
    domain.set_errors(0, 1, LinkErrors())
    domain.run(LATE_NS, copy)
    assert domain.ended[copy].outcome == Outcome.OK
    assert domain.memory[1].raw == data
    if lasts_ns < LATE_NS:
        assert domain.counters(0)["moved"] == 0
    domain.run(domain.now + 20_000_000)
    after = domain.begin(0, Kind.WRITE, 1, data)
    domain.run(LATE_NS, after)
    assert share_of(link, 4 * SIZE, domain.took_ns(after), planes=4) > 0.95


def test_what_may_have_been_carried_out_is_not_done_twice(closing: Closing) -> None:
    """Atomics on their way when their plane goes down fail; those that come later take another plane."""
    domain = closing(VirtualDomain(dataclasses.replace(LINK, retry=RETRY), 2, planes=2))
    domain.run(2_000_000)
    adds = [domain.begin(0, Kind.ADD, 1, bytes(8)) for _ in range(200)]
    domain.run(domain.now + 25_000)
    plane = next(port["plane"] for port in domain.core.counters() if port["gpu"] == 0 and port["vcs"][0]["rx_frames"])
    domain.set_errors(0, plane, LinkErrors(down=True))
    domain.run(LATE_NS, *adds)
    outcomes = [domain.ended[item].outcome for item in adds]
    assert {*outcomes} == {Outcome.OK, Outcome.LINK_DOWN}
    done = int.from_bytes(domain.memory[1].raw[:8], "little")
    assert outcomes.count(Outcome.OK) <= done <= len(adds)


def test_a_request_whose_target_is_gone_comes_back(closing: Closing) -> None:
    """The target has lost one plane: its requests go on by the other at once. It has lost both: an error."""
    domain = closing(VirtualDomain(LINK, 3, planes=2))
    data = random.Random(5).randbytes(SIZE)
    domain.run(2_000_000)
    domain.set_errors(1, 0, LinkErrors(down=True))
    copy = domain.begin(0, Kind.WRITE, 1, data)
    domain.run(LATE_NS, copy)
    assert domain.ended[copy].outcome == Outcome.OK and domain.memory[1].raw[:SIZE] == data
    assert domain.counters(0)["unreachable"] > 0
    domain.set_errors(1, 1, LinkErrors(down=True))
    copies = [domain.begin(0, Kind.WRITE, 1, data), domain.begin(0, Kind.WRITE, 2, data)]
    domain.run(LATE_NS, *copies)
    assert [domain.ended[item].outcome for item in copies] == [Outcome.LINK_DOWN, Outcome.OK]


def test_a_flush_gives_its_credits_back(closing: Closing) -> None:
    """A wire that is silent for longer than LLR replays: frames are given up, and no credit with them."""
    domain = closing(VirtualDomain(dataclasses.replace(LINK, retry=RETRY), 2, timeout_ns=20_000_000))
    domain.run(2_000_000)
    copy = domain.begin(0, Kind.WRITE, 1, bytes(SIZE))
    domain.run(domain.now + 1_000_000)
    domain.set_errors(0, 0, LinkErrors(silent=True))
    domain.run(domain.now + 10_000_000)
    domain.set_errors(0, 0, LinkErrors())
    domain.run(LATE_NS, copy)
    assert domain.ended[copy].outcome == Outcome.TIMEOUT
    again = domain.begin(0, Kind.WRITE, 1, bytes(SIZE))
    domain.run(LATE_NS, again)
    assert share_of(domain.link, SIZE, domain.took_ns(again)) > 0.9
    domain.run(domain.now + 20_000_000)
    (port, _) = domain.core.counters()
    for vc, theirs in enumerate(port["vcs"]):
        ours = domain.native.endpoint_vc_counters(domain.endpoints[0], 0, vc).contents
        assert ours.s_cc == ours.s_cf == theirs["r_cc"] == theirs["r_cf"]
        assert theirs["s_cc"] == theirs["s_cf"] == ours.r_cc == ours.r_cf
    sender = domain.native.endpoint_retry_sender(domain.endpoints[0], 0).contents
    assert sender.tx_flushed > 0


@pytest.mark.parametrize("cc_period_ns", [0, 2_000_000])
def test_credits_leak_with_lost_frames_until_updates_bring_them_back(closing: Closing, cc_period_ns: int) -> None:
    """S2c: without LLR and CC_Updates all stops after limit / (p x credits of a frame) frames; with CC_Updates what is
    missing is what was lost in one period, and the link goes on."""
    limit, share = 500, 0.1
    link = dataclasses.replace(LINK, capacity=(limit, limit), cc_period_ns=cc_period_ns)
    domain = closing(VirtualDomain(link, 2, timeout_ns=5_000_000))
    domain.run(2_000_000)
    domain.set_errors(0, 0, LinkErrors(loss=share, seed=8))
    sent: list[int] = []
    for _ in range(60):
        copies = [domain.begin(0, Kind.WRITE, 1, bytes(4096), 4096 * place) for place in range(32)]
        domain.run(domain.now + 10_000_000, *copies)
        sent.append(domain.native.endpoint_vc_counters(domain.endpoints[0], 0, 0).contents.tx_frames)
        domain.native.endpoint_cancel(domain.endpoints[0], domain.now)
        domain.run(domain.now + 1_000)
    if cc_period_ns:
        assert sent[-1] == 60 * 32
        leaked = domain.core.counters()[0]["leaked_credits"]
        assert leaked == pytest.approx(60 * 32 * share * 5, rel=0.25)
        return
    assert sent[-1] == sent[-10], "it has stopped"
    assert sent[-1] - domain.core.counters()[0]["vcs"][0]["rx_frames"] == limit // 5, (
        "each has taken five credits along"
    )
    assert sent[-1] == pytest.approx(limit / (share * 5), rel=0.25)


@pytest.mark.parametrize("flow_control", list(FlowControl))
@pytest.mark.parametrize("retry", [None, RETRY])
@pytest.mark.parametrize("peer_window", [0, 3])
@pytest.mark.parametrize(
    "errors",
    [
        LinkErrors(down=True),
        LinkErrors(silent=True),
        LinkErrors(loss=0.3, burst=5),
        LinkErrors(corrupt=0.5),
        LinkErrors(rate_bps=10_000),
    ],
)
def test_everything_ends_and_a_link_that_is_right_again_carries_all(
    closing: Closing,
    flow_control: FlowControl,
    retry: RetryConfig | None,
    peer_window: int,
    errors: LinkErrors,
) -> None:
    """Whatever a link goes through, nothing hangs, no timer runs wild, and afterwards it is as it was."""
    link = dataclasses.replace(
        LINK, flow_control=flow_control, retry=retry, cc_period_ns=2_000_000, xoff=(60, 60), xon=(30, 30)
    )
    domain = closing(
        VirtualDomain(link, 3, planes=2, voq=bool(peer_window), peer_window=peer_window, timeout_ns=10_000_000)
    )
    domain.run(2_000_000)
    operations = [
        domain.begin(0, Kind.WRITE, 1, bytes(200_000)),
        domain.begin(0, Kind.READ, 2, bytes(100_000)),
        domain.begin(1, Kind.MESSAGE, 0, bytes(100)),
        domain.begin(2, Kind.ADD, 0, bytes(8)),
    ]
    domain.run(domain.now + 300_000)
    domain.set_errors(0, 1, errors)
    domain.run(domain.now + 40_000_000, *operations)
    domain.set_errors(0, 1, LinkErrors())
    domain.run(domain.now + 500_000_000, *operations)
    assert set(operations) <= set(domain.ended)
    data = random.Random(1).randbytes(200_000)
    again = domain.begin(0, Kind.WRITE, 1, data)
    domain.run(domain.now + 500_000_000, again)
    assert domain.ended[again].outcome == Outcome.OK
    assert domain.memory[1].raw[: len(data)] == data
