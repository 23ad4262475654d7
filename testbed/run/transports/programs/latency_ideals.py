"""What the latency of a message is on an idle fabric: sending at every port of the way, and the delays of its links.

Sizes of headers are those of InfiniBand volume 1, sections 9.2 and 9.3 (BTH, RETH, AETH, AtomicETH, AtomicAckETH),
behind Ethernet, IPv4 and UDP (annex A17). Acknowledgements beside a message are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from testbed.lab.core.plan.operations import PortPlan
from testbed.run.programs.perftest import PerftestTest
from testbed.run.transports.lab_transport import LabTransport
from testbed.run.transports.programs.perftest_flows import ATOMIC_ETH_BYTES, PerftestFlow, iterations

RETH_BYTES, AETH_BYTES, ATOMIC_ACK_ETH_BYTES = 16, 4, 8


def ideal_latency_s(transport: LabTransport, test: PerftestTest, a: PortPlan, b: PortPlan, size_bytes: int) -> float:
    """Return the ideal latency of a message, in s of lab time, as the test defines latency.

    The message has `size_bytes`, and goes between the NICs `a`, who asks, and `b`.
    """
    framing = transport.framing(a)
    plain = replace(framing, first_bytes=0)
    match test:
        case PerftestTest.READ_LAT:
            # a response of several packets has an AETH in its last one, too
            more = AETH_BYTES if framing.packets(size_bytes) > 1 else 0
            asked = transport.one_way_s(a, b, 0, replace(framing, first_bytes=RETH_BYTES))
            return asked + transport.one_way_s(b, a, size_bytes, replace(framing, first_bytes=AETH_BYTES + more))
        case PerftestTest.ATOMIC_LAT:
            # operands and the value that comes back are in headers
            asked = transport.one_way_s(a, b, 0, replace(framing, first_bytes=ATOMIC_ETH_BYTES))
            answer = replace(framing, first_bytes=AETH_BYTES + ATOMIC_ACK_ETH_BYTES)
            return asked + transport.one_way_s(b, a, 0, answer)
        case PerftestTest.SEND_LAT:
            there, back = (transport.one_way_s(*ends, size_bytes, plain) for ends in ((a, b), (b, a)))
            return (there + back) / 2
        case _:
            there, back = (transport.one_way_s(*ends, size_bytes, framing) for ends in ((a, b), (b, a)))
            return (there + back) / 2


def flow_ideal_s(transport: LabTransport, flow: PerftestFlow) -> float:
    """Return the ideal latency of a flow's messages, in s of lab time."""
    return ideal_latency_s(transport, flow.test, flow.client, flow.server, flow.message_bytes)


def all_flows_s(flows: Sequence[PerftestFlow], ideal_s: Mapping[int, float], options: Mapping[str, object]) -> float:
    """Return how long an idle fabric needs for all messages of all flows; `ideal_s` are latencies by the flows' ids."""
    each = [iterations(options) * ideal_s[flow.id] * (1 if flow.test.is_round_trip else 2) for flow in flows]
    return max(each) if options.get("together") else sum(each)
