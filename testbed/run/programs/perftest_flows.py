"""Flows over perftest: pairs of RDMA devices, ports fixed so that ECMP hashes them the same each time.

The ideal latency of a message is sending at every port of the way, and the delays of its links.
Sizes of headers are those of InfiniBand volume 1, sections 9.2 and 9.3 (BTH, RETH, AETH, AtomicETH, AtomicAckETH),
behind Ethernet, IPv4 and UDP (annex A17). Acknowledgements beside a message are not counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.record.samples import Channel, ChannelSamples, MessageLatency
from testbed.run.placed.placement import RankPlacement, flow_end
from testbed.run.programs.perftest import Bandwidth, PerftestTest
from testbed.run.programs.timed_flows import TimedFlow
from testbed.run.schema.transport_rules import ATOMIC_BYTES
from testbed.run.transports.lab_transport import LabTransport
from testbed.workload.draws import draw_below
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.steps import Workload

TESTS = {
    "bandwidth": {
        "write": PerftestTest.WRITE_BW,
        "read": PerftestTest.READ_BW,
        "send": PerftestTest.SEND_BW,
        "fetch-and-add": PerftestTest.ATOMIC_BW,
        "compare-and-swap": PerftestTest.ATOMIC_BW,
    },
    "latency": {
        "write": PerftestTest.WRITE_LAT,
        "read": PerftestTest.READ_LAT,
        "send": PerftestTest.SEND_LAT,
        "fetch-and-add": PerftestTest.ATOMIC_LAT,
        "compare-and-swap": PerftestTest.ATOMIC_LAT,
    },
}
"""perftest's program for a scenario's `test` and `verb`."""
ATOMIC_TYPES = {"fetch-and-add": "FETCH_AND_ADD", "compare-and-swap": "CMP_AND_SWAP"}
"""perftest's words for the verbs of atomics."""
ATOMIC_ETH_BYTES = 28
"""Header of an atomic request, operands included (InfiniBand volume 1, section 9.3)."""
MESSAGE_BYTES = 65536
"""perftest's own default for bandwidth."""
ITERATIONS = 1000
"""perftest's own default for latency."""
MOST_BYTES = 8 << 20
"""The most bytes of a message (perftest's MAX_SIZE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestFlow(TimedFlow):
    """One flow over perftest; its data goes the same way whichever end asks for it.

    `flow_labels` are those of its queue pairs; `port` is where its server listens; `message_bytes` are of each message.
    """

    test: PerftestTest
    flow_labels: tuple[int, ...]
    port: int
    message_bytes: int

    @property
    def client(self) -> PortPlan:
        """The end that asks: for a read, the one that gets the data."""
        return self.destination if self.test.is_read else self.source

    @property
    def server(self) -> PortPlan:
        return self.source if self.test.is_read else self.destination


def iterations(options: Mapping[str, object]) -> int:
    """Return how many messages each pair sends, where latency is measured."""
    return whole_option(options, "iterations", ITERATIONS)


_Default = TypeVar("_Default", int, None)


def whole_option(options: Mapping[str, object], name: str, default: _Default) -> int | _Default:
    """Return an option of the scenario's transport that is a whole number."""
    value = options.get(name)
    return default if value is None else int(str(value))


def plan_perftest_flows(
    workload: Workload, placement: RankPlacement, *, seed: int, options: Mapping[str, object] | None = None
) -> tuple[PerftestFlow, ...]:
    """Return a flow for every transfer over the fabric. `options` are those of the scenario's transport.

    Where latency is measured, a transfer's size is that of a message; where bandwidth is, it has none. Raises
    `ScenarioError` for a size that the test cannot have.
    """
    options = options or {}
    kind, verb = str(options.get("test", "bandwidth")), str(options.get("verb", "write"))
    test = TESTS[kind][verb]
    queue_pairs = whole_option(options, "qps", 1)
    rng = random.Random(f"perftest {seed}")
    servers: dict[str, int] = {}
    taken: set[tuple[str, str, int]] = set()
    flows: list[PerftestFlow] = []
    for step, source, destination in placement.over_fabric(workload):
        size = step.size_bytes if test.is_latency else whole_option(options, "message_bytes", MESSAGE_BYTES)
        if test.is_atomic:
            _check_atomic(test, verb, size)
            size = ATOMIC_BYTES
        elif not 0 < size <= MOST_BYTES:
            raise ScenarioError(
                f"{test} sends messages of 1 to {MOST_BYTES} bytes, not of {size}", hint="workload: {bytes: 64}"
            )
        server = source.node if test.is_read else destination.node
        servers[server] = servers.get(server, -1) + 1
        flows.append(
            PerftestFlow(
                id=len(flows) + 1,
                source_rank=step.source,
                destination_rank=step.destination,
                source=source,
                destination=destination,
                test=test,
                flow_labels=tuple(_draw_label(rng, source, destination, taken) for _ in range(queue_pairs)),
                port=PORT + servers[server],
                message_bytes=size,
            )
        )
    return tuple(flows)


def _check_atomic(test: PerftestTest, verb: str, size: int) -> None:
    if test.is_latency and size != ATOMIC_BYTES:
        raise ScenarioError(
            f"{verb} is of {ATOMIC_BYTES} bytes, not of {size}", hint=f"workload: {{bytes: {ATOMIC_BYTES}}}"
        )


def _draw_label(rng: random.Random, source: PortPlan, to: PortPlan, taken: set[tuple[str, str, int]]) -> int:
    """One that no other queue pair between these addresses has. 0 would leave the port to the numbers of the pair."""
    most = SOURCE_PORTS[1] - SOURCE_PORTS[0]
    for _ in range(most):
        label = 1 + draw_below(rng, most - 1)
        key = (str(source.address), str(to.address), label)
        if key not in taken:
            taken.add(key)
            return label
    raise ScenarioError(f"{source.node}:{source.name} needs more than {most} queue pairs to {to.node}:{to.name}")


def goodput_share(flow: PerftestFlow, framing: Framing) -> float:
    """Return payload over all bytes of the link that carries it, of full packets or of an atomic's operands' packet."""
    if flow.test.is_atomic:
        return ATOMIC_BYTES / (framing.overhead_bytes + ATOMIC_ETH_BYTES)
    return framing.efficiency


def channel_of(
    flow: PerftestFlow,
    measured: Bandwidth,
    *,
    framing: Framing,
    samples: ChannelSamples | None,
    duration_s: float,
    counters: Mapping[str, int],
) -> Channel:
    """Return what a client reported as the record keeps it.

    `counters` are those of the requester's device, if only it knows.
    perftest counts messages whose end it saw within the measured time.
    """
    payload = measured.size_bytes * measured.iterations
    channel = _channel(
        flow,
        measured.size_bytes,
        measured.iterations,
        seconds=payload * 8 / measured.average_bps if measured.average_bps > 0 else duration_s,
        framing=framing,
        counters=counters,
    )
    return replace(channel, goodput_bps=measured.average_bps, samples=samples or ChannelSamples())


def latency_channel_of(
    flow: PerftestFlow, samples_us: Sequence[float], *, ideal_s: float, framing: Framing, counters: Mapping[str, int]
) -> Channel:
    """Return the same for a flow whose messages were sent one at a time."""
    seconds = math.fsum(samples_us) * (1 if flow.test.is_round_trip else 2) / 1e6
    channel = _channel(flow, flow.message_bytes, len(samples_us), seconds=seconds, framing=framing, counters=counters)
    latency = MessageLatency(
        test=flow.test.value,
        size_bytes=flow.message_bytes,
        round_trip=flow.test.is_round_trip,
        samples_us=list(samples_us),
        ideal_us=ideal_s * 1e6,
    )
    return replace(channel, latency=latency)


def _channel(
    flow: PerftestFlow, size_bytes: int, messages: int, *, seconds: float, framing: Framing, counters: Mapping[str, int]
) -> Channel:
    one_port, payload = len(flow.flow_labels) == 1, size_bytes * messages
    return Channel(
        source_rank=flow.source_rank,
        destination_rank=flow.destination_rank,
        source=flow_end(flow.source),
        destination=flow_end(flow.destination),
        rail=flow.source.rail,
        source_port=udp_source_port(flow.flow_labels[0]) if one_port else None,
        destination_port=ROCE_PORT,
        sent_bytes=payload,
        received_bytes=payload,
        seconds=seconds,
        busy_s=seconds,
        ideal_bps=min(flow.source.rate_bps, flow.destination.rate_bps) * goodput_share(flow, framing),
        goodput_bps=payload * 8 / seconds if seconds > 0 else 0.0,
        retransmits=counters.get("completer_retry_err", 0),
        packets=None,
        counters={"message_bytes": size_bytes, "messages": messages, **counters},
    )


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


PORT = 18515
"""perftest's own TCP port for what the two ends tell each other first."""
QP_TIMEOUT = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestJob:
    """One perftest run between two NICs with RDMA devices, in the words of its command line.

    `iterations` counts messages of each queue pair; `traffic_class` is the IPv4 type of service of every packet
    (DSCP << 2 | ECN, RFC 2474 and RFC 3168); a queue pair waits 4.096 us * 2^`qp_timeout` for an acknowledgement
    (InfiniBand 9.7.6.1.3; the default is 1.07 s: labs are slow). Latency tests have one queue pair, atomics 8 bytes.

    With `duration_s` messages are sent for so long instead, after `margin_s` and before another that are not measured.
    `flow_labels` decide the packets' UDP source ports, one for each queue pair (`udp_source_port`). `path_mtu` and
    `tx_depth` (messages under way) are perftest's and the port's where they are None. `atomic_type` is FETCH_AND_ADD or
    CMP_AND_SWAP.
    """

    test: PerftestTest
    size_bytes: int = 65536
    iterations: int = 1000
    queue_pairs: int = 1
    traffic_class: int = 0
    qp_timeout: int = QP_TIMEOUT
    port: int = PORT
    duration_s: int | None = None
    margin_s: int = 1
    flow_labels: tuple[int, ...] = ()
    path_mtu: int | None = None
    tx_depth: int | None = None
    atomic_type: str | None = None

    def __post_init__(self) -> None:
        if self.test.is_latency and self.queue_pairs != 1:
            raise ValueError(f"{self.test} has one queue pair, not {self.queue_pairs}")
        if not 0 <= self.traffic_class <= 255:
            raise ValueError(f"a traffic class is 0 to 255, not {self.traffic_class}")
        if min(self.size_bytes, self.iterations, self.queue_pairs) < 1:
            raise ValueError("sizes, iterations and queue pairs are at least 1")

    def arguments(self, device: str, gid_index: int) -> list[str]:
        """The command line that both ends share."""
        argv = [self.test.value, "-F", "-d", device, "-x", str(gid_index)]
        if self.duration_s is None:
            argv += ["-n", str(self.iterations)]
        else:
            argv += ["-D", str(self.duration_s + 2 * self.margin_s), "-f", str(self.margin_s)]
        argv += ["-p", str(self.port), "-u", str(self.qp_timeout)]
        if not self.test.is_atomic:
            argv += ["-s", str(self.size_bytes)]
        elif self.atomic_type is not None:
            argv += ["-A", self.atomic_type]
        if not self.test.is_latency:
            argv += ["-q", str(self.queue_pairs), "--report_gbits"]
        if self.path_mtu is not None:
            argv += ["-m", str(self.path_mtu)]
        if self.tx_depth is not None and not self.test.is_latency:
            argv += ["-t", str(self.tx_depth)]
        if self.flow_labels:
            argv.append("--flow_label=" + ",".join(map(str, self.flow_labels)))
        return [*argv, f"--tclass={self.traffic_class}"] if self.traffic_class else argv


ROCE_PORT = 4791
"""UDP destination port of RoCEv2 (IANA)."""
SOURCE_PORTS = (0xC000, 0x10000)
"""The UDP ports that flow labels become (include/rdma/ib_verbs.h, IB_ROCE_UDP_ENCAP_VALID_PORT_MIN)."""


def udp_source_port(flow_label: int) -> int:
    """Return the port of packets of a queue pair with this flow label, which is not 0 (ib_verbs.h,
    rdma_flow_label_to_udp_sport)."""
    low, high = flow_label & 0x03FFF, flow_label & 0xFC000
    return SOURCE_PORTS[0] | (low ^ high >> 14)
