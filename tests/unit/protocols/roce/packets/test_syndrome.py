"""The syndromes of acknowledgements."""

from testbed.protocols.roce.packets.packet import describe_syndrome
from testbed.protocols.roce.packets.syndrome import RNR_TIMERS_NS, NakCode, ack, nak, rnr_nak


def test_the_timer_codes_are_those_of_the_table() -> None:
    """Table 49: 0 is the longest; from 1 on they grow, by a third or by a half in turn from 0.04 ms on."""
    milliseconds = [timer / 1e6 for timer in RNR_TIMERS_NS]
    assert len(milliseconds) == 32
    assert milliseconds[0] == 655.36
    assert milliseconds[1:9] == [0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16]
    assert milliseconds[12] == 0.64
    assert milliseconds[31] == 491.52
    assert all(later == 2 * timer for timer, later in zip(milliseconds[4:], milliseconds[6:], strict=False))


def test_a_syndrome_says_what_it_is() -> None:
    assert (ack(), rnr_nak(12), nak(NakCode.REMOTE_ACCESS_ERROR)) == (0x1F, 0x2C, 0x62)
    assert describe_syndrome(0x1F) == "ACK"
    assert describe_syndrome(0x2C) == "RNR NAK, 0.64 ms"
    assert describe_syndrome(0x60) == "NAK, PSN sequence error"
    assert describe_syndrome(0x7F) == "reserved syndrome 0x7f"
    assert describe_syndrome(0x40) == "reserved syndrome 0x40"
