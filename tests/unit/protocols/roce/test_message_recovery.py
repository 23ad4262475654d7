"""Go-back-0: a message of which a packet is missing is sent again from its first packet on."""

from collections.abc import Callable

import pytest
from rnic_pair import FIRST, SECOND, RnicPair, opcode_of

from testbed.protocols.datagram import Outgoing
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.packets.headers import decode_bth
from testbed.protocols.roce.packets.opcodes import Opcode

MTU = 256
PACKETS = 16
MILLISECOND = 1_000_000


def pair(recovery: str) -> RnicPair:
    return RnicPair(RoceConfig(link_rate_bps=100_000_000_000, mtu=MTU, recovery=recovery, cc="none", ack_packets=4))


def once(psn: int) -> Callable[[str, Outgoing], bool]:
    """What loses the packet of a PSN the first time that it is sent."""
    seen: list[int] = []

    def drop(source: str, datagram: Outgoing) -> bool:
        if source != FIRST or decode_bth(datagram.header).psn != psn or seen:
            return False
        seen.append(psn)
        return True

    return drop


def every(count: int) -> Callable[[str, Outgoing], bool]:
    """What loses one in so many packets of the requester."""
    sent = [0]

    def drop(source: str, _: Outgoing) -> bool:
        sent[0] += source == FIRST
        return source == FIRST and sent[0] % count == 0

    return drop


@pytest.mark.parametrize(("recovery", "again"), [("go-back-n", PACKETS - 10), ("go-back-0", PACKETS)])
def test_a_lost_packet_has_what_is_behind_it_sent_again_or_all_of_its_message(recovery: str, again: int) -> None:
    wire = pair(recovery)
    here, _ = wire.connect()
    before, message = bytes(range(256)), bytes(reversed(range(256))) * PACKETS
    memory = bytearray(len(before) + len(message))
    remote = wire.register(memory)
    wire.finish(here.write(before, remote, 0))
    wire.drop = once(1 + 10)
    request = here.write(message, type(remote)(remote.virtual_address + len(before), remote.rkey), wire.now)
    wire.finish(request)
    assert request.ok and memory == before + message
    assert here.retransmitted == again


def test_within_a_message_nothing_is_acknowledged() -> None:
    wire = pair("go-back-0")
    here, _ = wire.connect()
    wire.finish(here.write(bytes(PACKETS * MTU), wire.register(PACKETS * MTU), 0))
    psns = [
        decode_bth(datagram.header).psn
        for source, datagram in wire.sent
        if source == SECOND and opcode_of(datagram) is Opcode.RC_ACKNOWLEDGE
    ]
    assert psns[-1] == PACKETS - 1 and set(psns[:-1]) <= {0xFFFFFF}


@pytest.mark.parametrize(("recovery", "ends"), [("go-back-n", True), ("go-back-0", False)])
def test_a_message_longer_than_what_passes_without_loss_never_ends(recovery: str, ends: bool) -> None:
    """Guo et al., SIGCOMM 2016, section 4.1: with one packet in 256 lost, a 4 MB message made no progress for ever."""
    wire = pair(recovery)
    here, _ = wire.connect()
    wire.drop = every(8)
    request = here.write(bytes(PACKETS * MTU), wire.register(PACKETS * MTU), 0)
    wire.pass_time(2 * MILLISECOND)
    assert (request.status is not None and request.ok) is ends
    assert here.sent > PACKETS


def test_a_message_that_passes_between_two_losses_ends() -> None:
    wire = pair("go-back-0")
    here, _ = wire.connect()
    wire.drop = every(8)
    request = here.write(bytes(7 * MTU), wire.register(7 * MTU), 0)
    wire.finish(request)
    assert request.ok


def test_a_receive_is_there_for_the_message_when_it_comes_again() -> None:
    wire = pair("go-back-0")
    here, there = wire.connect()
    room = bytearray(PACKETS * MTU)
    received = there.receive(room, 0)
    wire.drop = once(10)
    message = bytes(range(256)) * PACKETS
    request = here.send(message, 0)
    wire.finish(request)
    assert request.ok and received.status is not None and room == message


def test_a_message_that_finds_no_receive_at_its_end_comes_again_whole() -> None:
    """Its last packet alone would acknowledge the others, of which the responder may have to forget all."""
    wire = pair("go-back-0")
    here, there = wire.connect()
    memory, message = bytearray(PACKETS * MTU), bytes(range(256)) * PACKETS
    request = here.write(message, wire.register(memory), 0, immediate=7)
    wire.pass_time(MILLISECOND // 10)
    assert request.status is None, "there is no receive for the immediate data"
    received = there.receive(bytearray(1), wire.now)
    wire.drop = once(12)
    wire.finish(request)
    assert request.ok and received.ok and memory == message
    assert here.retransmitted > PACKETS


@pytest.mark.parametrize(
    ("settings", "why"), [({"ooo": True}, "ooo"), ({"cc": "swift"}, "swift"), ({"cc": "dctcp"}, "dctcp")]
)
def test_what_needs_acknowledgements_within_a_message_is_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        RoceConfig(recovery="go-back-0", **settings)  # type: ignore[arg-type]
