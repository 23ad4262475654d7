"""How long a frame waited for its receiver's leave, in virtual time: `xmit_wait_ns` of each channel of a link's end.

A limit of C bytes and a loop of R fill the share C / (B R) of a link, and its sender waits for the rest of the time.
"""

from __future__ import annotations

import dataclasses

import pytest
from virtual_domain import Closing, VirtualDomain

from testbed.protocols.scale_up.domain.endpoint import Kind
from testbed.protocols.scale_up.domain.link import FlowControl, LinkErrors, LinkSettings

RATE_BPS = 1_000_000_000
LINK = LinkSettings(
    rate_bps=RATE_BPS, delay_ns=200_000, coarse=16, heartbeat_ns=500_000, idle_heartbeat_ns=5_000_000, silence_ns=0
)
FRAME_CREDITS = 5
FRAME_NS = LINK.frame_bytes * 8_000_000_000 // RATE_BPS
SPACING_NS = 6_400 * 8
SIZE = 1 << 22
LATE_NS = 60_000_000_000


def waits_ns(domain: VirtualDomain, gpu: int) -> list[int]:
    """Of a GPU's first link, by channel."""
    native = domain.native
    return [
        int(native.endpoint_vc_counters(domain.endpoints[gpu], 0, vc).contents.xmit_wait_ns)
        for vc in range(domain.link.vcs)
    ]


def switch_waits_ns(domain: VirtualDomain, gpu: int) -> list[int]:
    return [vc["xmit_wait_ns"] for vc in domain.core.counters()[gpu]["vcs"]]


@pytest.mark.parametrize("flow_control", [FlowControl.CREDITS, FlowControl.PFC])
def test_nothing_waits_without_contention(closing: Closing, flow_control: FlowControl) -> None:
    domain = closing(VirtualDomain(dataclasses.replace(LINK, flow_control=flow_control, capacity=(256, 256)), 2))
    domain.run(LATE_NS, domain.begin(0, Kind.WRITE, 1, bytes(SIZE)))
    assert (
        waits_ns(domain, 0) == waits_ns(domain, 1) == switch_waits_ns(domain, 0) == switch_waits_ns(domain, 1) == [0, 0]
    )


@pytest.mark.parametrize("frames", [2, 5, 9])
def test_a_limit_below_the_loop_waits_for_what_it_does_not_fill(closing: Closing, frames: int) -> None:
    domain = closing(VirtualDomain(dataclasses.replace(LINK, capacity=(frames * FRAME_CREDITS, 256)), 2))
    write = domain.begin(0, Kind.WRITE, 1, bytes(SIZE))
    domain.run(LATE_NS, write)
    took, (waited, answers) = domain.took_ns(write), waits_ns(domain, 0)
    loop_ns = 2 * LINK.delay_ns + FRAME_NS
    least, most = (1 - frames * FRAME_NS / loop for loop in (loop_ns, loop_ns + SPACING_NS))
    assert least - 0.02 <= waited / took <= most + 0.02, (waited / took, least, most)
    assert answers == 0, "the other channel has credits"
    # Whatever the link did not send of that time, it waited for: there is nothing in between.
    sent_ns, last_ns = SIZE // 4096 * FRAME_NS, 4 * LINK.delay_ns + 2 * FRAME_NS
    assert waited + sent_ns + last_ns == pytest.approx(took, rel=0.02)


@pytest.mark.parametrize("flow_control", [FlowControl.CREDITS, FlowControl.PFC])
def test_senders_of_an_incast_wait_for_what_the_others_have(closing: Closing, flow_control: FlowControl) -> None:
    """Each has 1/N of the link; pauses and credits are alike in that."""
    senders = 4
    link = dataclasses.replace(
        LINK, delay_ns=5_000, flow_control=flow_control, capacity=(100, 100), xoff=(40, 40), xon=(20, 20)
    )
    domain = closing(VirtualDomain(link, senders + 1))
    writes = [domain.begin(gpu, Kind.WRITE, 0, bytes(SIZE)) for gpu in range(1, senders + 1)]
    domain.run(LATE_NS, *writes)
    for gpu, write in enumerate(writes, start=1):
        assert waits_ns(domain, gpu)[0] / domain.took_ns(write) == pytest.approx(1 - 1 / senders, abs=0.03)
    assert switch_waits_ns(domain, 0)[0] == 0, "the receiver takes all of it"


def test_a_wait_counts_while_it_lasts_and_ends_with_the_link(closing: Closing) -> None:
    """Lost frames take all credits along: the wait grows by each heartbeat. The link goes down: there is no wait."""
    domain = closing(VirtualDomain(dataclasses.replace(LINK, capacity=(2 * FRAME_CREDITS, 256)), 2))
    domain.run(5_000_000)
    domain.set_errors(1, 0, LinkErrors(loss=1.0))
    domain.set_errors(0, 0, LinkErrors(loss=1.0))
    begun = domain.now
    domain.begin(0, Kind.WRITE, 1, bytes(1 << 18))
    span = 400_000_000
    domain.run(begun + span)
    waited = waits_ns(domain, 0)[0]
    assert waited == pytest.approx(span, rel=0.03)
    domain.set_errors(0, 0, LinkErrors(down=True))
    domain.run(domain.now + 20_000_000)
    ended = waits_ns(domain, 0)[0]
    domain.run(domain.now + span)
    assert waits_ns(domain, 0)[0] == ended < waited + 25_000_000
