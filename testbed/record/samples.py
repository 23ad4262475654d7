"""The measurements of one run, in columns: transfers, channels, collectives, events, curves.

Times are seconds from the moment at which the run's workload began; sizes are bytes; rates are in lab time. Columns of
one table have equal lengths. A value that could not be measured is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""An integer that every tool can read and every report can print."""
BINS = 40
"""Bins of a histogram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEnd:
    node: str
    """The host."""
    interface: str
    """The interface on it."""
    address: str
    """The IP address."""

    def __str__(self) -> str:
        return f"{self.node}:{self.interface}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """The workload's transfers over the fabric, in the order of their steps. Those inside a scale-up domain are left
    out, but where there are no others and they were frames."""

    number: list[Count] = field(default_factory=list)
    """The number of the step in the workload."""
    source: list[Count] = field(default_factory=list)
    """Rank."""
    destination: list[Count] = field(default_factory=list)
    """Rank."""
    size_bytes: list[Count] = field(default_factory=list)
    """Its size."""
    channel: list[Count] = field(default_factory=list)
    """Index in `RunResult.channels`."""
    start_s: list[Number | None] = field(default_factory=list)
    """When all that it waits for had ended at its source; None: it never began."""
    end_s: list[Number | None] = field(default_factory=list)
    """When its last byte had arrived; None: it has not ended."""
    ideal_s: list[Number] = field(default_factory=list)
    """The time it would take alone on an idle fabric: serialisation, headers and the base round trip's half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequests:
    """The requests that began, in the order of their begins. Times without `service` in their name are measured.

    Each answer's tokens arrive one by one; `itl` has the times between them as a histogram of all.
    """

    number: list[Count] = field(default_factory=list)
    """The number of the request in the workload."""
    client: list[Count] = field(default_factory=list)
    """Rank."""
    server: list[Count] = field(default_factory=list)
    """Rank."""
    prompt_tokens: list[Count] = field(default_factory=list)
    """Tokens of the question."""
    output_tokens: list[Count] = field(default_factory=list)
    """Tokens of the answer."""
    start_s: list[Number] = field(default_factory=list)
    """When it was due; latencies count from here."""
    lateness_s: list[Number] = field(default_factory=list)
    """The time by which its client began later."""
    first_s: list[Number | None] = field(default_factory=list)
    """When its first token had arrived; None: it has not."""
    end_s: list[Number | None] = field(default_factory=list)
    """When its whole answer had arrived; None: it has not."""
    service_first_s: list[Number] = field(default_factory=list)
    """The time that the server was to compute before the first token."""
    service_token_s: list[Number] = field(default_factory=list)
    """The time that it was to compute between two tokens."""
    failure: list[str] = field(default_factory=list)
    """Why it failed; "": it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStepTable:
    """The steps that a program told of, in the order in which they were done."""

    number: list[Count] = field(default_factory=list)
    """The number of the step, as the program counts."""
    at_s: list[Number] = field(default_factory=list)
    """When it was said to be done."""
    seconds: list[Number | None] = field(default_factory=list)
    """The time that it took; None: nobody knows."""
    warm_up: list[bool] = field(default_factory=list)
    """It is left out of the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRank:
    """A rank of a program, and how it ended."""

    rank: Count
    """Its number."""
    host: str
    """The host that it ran on."""
    interface: str
    """Its NIC there."""
    status: Count
    """Its exit code; -n where signal n ended it."""
    reason: str
    """Why it ended, where that was not of its own will."""
    seconds: Number
    """From its start to its end."""
    last_lines: list[str] = field(default_factory=list)
    """The last of what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRecord:
    """A run of a program of the user's own."""

    command: list[str]
    """Its words."""
    exit_code: Count
    """0, or that of the first rank that failed; 128 + n where signal n ended it."""
    failure: str
    """Who failed first, in a sentence; "" where nobody did."""
    ranks: list[ProgramRank]
    """Every rank, in order."""
    speaker: Count = 0
    """The rank of which more last lines are kept than of others: that which failed first, else rank 0."""
    steps: ProgramStepTable = field(default_factory=ProgramStepTable)
    """The steps that it told of."""
    sent_bytes: Count = 0
    """Bytes that the NICs of its ranks sent, headers included, without probes."""
    stated_bytes: Count | None = None
    """The payload that a step is stated to send over the fabric, of all ranks together."""
    ideal_step_s: Number | None = None
    """The least time of a step of the stated bytes, its padding included."""
    padding_s: Number | None = None
    """The time that a step waits instead of computing."""
    represented: Number | None = None
    """So many bytes of the real step is each of its bytes."""
    congestion_control: str = ""
    """That of TCP in its hosts; "" where they differ, or nobody looked."""
    sent_again: Count | None = None
    """TCP's segments, or the packets of what carries its sockets, that were sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSamples:
    """A channel over time; the columns that its transport cannot tell are empty."""

    at_s: list[Number] = field(default_factory=list)
    """Seconds from the begin of the run's workload."""
    acked_bytes: list[Count] = field(default_factory=list)
    """So far."""
    cwnd_bytes: list[Count] = field(default_factory=list)
    """The bytes that may be under way: the window, or what the rate sends in a base round trip."""
    rtt_us: list[Number] = field(default_factory=list)
    """The latest round trip that the transport measured; 0: none."""
    retransmits: list[Count] = field(default_factory=list)
    """So far."""
    rate_bps: list[Number | None] = field(default_factory=list)
    """The rate that its congestion control lets it send at; of several queue pairs together."""
    control: dict[str, list[Number | None]] = field(default_factory=dict)
    """The state of its congestion control, by name: DCQCN has `alpha` and `target_bps`. A name says its unit; of
    several queue pairs it is their mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLatency:
    """The latencies of a pair's messages, sent one at a time."""

    test: str
    """The program that measured."""
    size_bytes: Count
    """The size of a message."""
    round_trip: bool
    """Each sample is a whole round trip (the peer's adapter answered); otherwise half of one (its program did)."""
    samples_us: list[Number] = field(default_factory=list)
    """In the order of the messages."""
    ideal_us: Number | None = None
    """On an idle fabric: sending at every port of the way, and the links' delays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A connection (TCP), a pair of endpoints (UET) or a queue pair (RDMA) between two ranks, with all it carried."""

    source_rank: Count | None
    """None: an older version did not write it down."""
    destination_rank: Count | None
    """The rank that it leads to."""
    source: FlowEnd
    """The NIC that it begins at."""
    destination: FlowEnd
    """The NIC that it leads to."""
    rail: Count
    """The rail of its NICs."""
    source_port: Count | None
    """None where it varies from packet to packet."""
    destination_port: Count | None
    """None where it varies."""
    sent_bytes: Count
    """Payload that was handed to the transport."""
    received_bytes: Count
    """Payload that arrived."""
    seconds: Number
    """From the begin of its first transfer to the end of its last."""
    busy_s: Number
    """The part of that with at least one transfer under way."""
    ideal_bps: Number
    """The goodput that it would have alone."""
    goodput_bps: Number
    """`received_bytes` over `busy_s`."""
    retransmits: Count
    """Packets or segments sent again."""
    packets: Count | None
    """Sent in all, those included."""
    min_rtt_us: Number | None = None
    """The shortest round trip that was measured."""
    samples: ChannelSamples = field(default_factory=ChannelSamples)
    """The channel over time."""
    counters: dict[str, Count] = field(default_factory=dict)
    """The transport's own, by its names (time-outs, trimmed, out of order, ...)."""
    latency: MessageLatency | None = None
    """Its ends themselves were measured; its rates then say nothing."""
    inside: bool = False
    """It went over scale-up links as frames, and its ends are GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveResult:
    """One collective operation, in nccl-tests' terms."""

    kind: str
    """Such as `all-reduce`."""
    algorithm: str
    """Such as `ring`."""
    ranks: Count
    """The number of ranks that took part."""
    size_bytes: Count
    """S of nccl-tests."""
    elements: Count
    """Count of nccl-tests: elements of `datatype` of S."""
    datatype: str
    """The type of the elements, as nccl-tests calls it."""
    redop: str
    """`sum`, or `none` for those that only move data."""
    root: Count | None
    """The rank that data comes from or goes to; None where all are alike."""
    start_s: Number
    """From the begin of the run's workload."""
    seconds: Number
    """Its duration."""
    algbw_bps: Number
    """Size over time."""
    busbw_bps: Number
    """The bus bandwidth of nccl-tests."""
    ideal_busbw_bps: Number | None
    """The bus bandwidth on an idle fabric; None where it is not known."""
    wrong: Count | None
    """Elements that differ in any bit from what they should be; None: not checked."""
    label: str = ""
    """Its name in the workload."""
    line_bps: Number | None = None
    """The bound of its bus bandwidth: the line rate of its slowest NIC, or of a GPU's scale-up links where they carried
    all of it; more where a part stayed inside domains or a switch added up, and the busiest of all NICs and
    links allows more. None (older records): the line is that of a rank's NIC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that was done to the lab, or seen in it, while traffic ran."""

    at_s: Number
    """From the begin of the run's workload."""
    kind: str
    """`link-down`, `link-set`, `link-reset`, `node-kill`, `pfc-storm`, ... or `detected`, `converged`, ..."""
    target: str
    """`node:interface`, a node, or a flow."""
    detail: str = ""
    """In words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A curve: `values` at `at_s`, in `unit` (as `base.metric.MetricUnit` names it)."""

    name: str
    """`goodput`, `queue:NODE:INTERFACE:CLASS`, `utilisation:NODE:INTERFACE`, `cpu`, ..."""
    title: str
    """Its name for people."""
    unit: str
    """The unit of the values."""
    at_s: list[Number]
    """Seconds from the begin of the run's workload."""
    values: list[Number | None]
    """None where nothing was sampled."""
    least: list[Number] = field(default_factory=list)
    """If each value is the mean of an interval's samples, the smallest of them; `most` is the largest. Queues of
    older records have neither: their values are the largest."""
    most: list[Number] = field(default_factory=list)
    """The largest sample of each interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A histogram: `counts[i]` of `edges[i]` to `edges[i + 1]`."""

    name: str
    """The word of the quantity that was counted."""
    title: str
    """Its name for people."""
    unit: str
    """The unit of the edges."""
    edges: list[Number]
    """Ascending, one more than counts."""
    counts: list[Count]
    """Samples in each bin."""

    @classmethod
    def of(cls, name: str, title: str, unit: str, samples: Iterable[float]) -> Distribution | None:
        """Count samples in bins of equal width; None where there are none, or all are the same."""
        ordered = sorted(samples)
        if not ordered or ordered[0] >= ordered[-1]:
            return None
        width = (ordered[-1] - ordered[0]) / BINS
        counts = [0] * BINS
        for value in ordered:
            counts[min(BINS - 1, int((value - ordered[0]) / width))] += 1
        edges = [ordered[0] + place * width for place in range(BINS + 1)]
        return cls(name=name, title=title, unit=unit, edges=edges, counts=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkingCurve:
    """The fate of packets that allowed a mark in all switch queues of a class, by the depth that decided.

    `marked[i]` of `packets[i]` met a depth from `edges_bytes[i]` to the next edge; the last bin has no upper end.
    """

    class_name: str
    """The traffic class."""
    marker: str
    """The name of what marked: "eBPF", or the kernel's "RED"."""
    queues: Count
    """The number of queues that it is over."""
    kmin_bytes: Count
    """The depth at which marking begins."""
    kmax_bytes: Count
    """The depth from which on every packet is marked."""
    pmax: Number
    """The share that is marked just below Kmax."""
    edges_bytes: list[Number]
    """Depths, ascending."""
    packets: list[Count]
    """Packets that allowed a mark."""
    marked: list[Count]
    """The number of them that were marked."""
    ideal: list[Number | None]
    """The share that the curve says; None where a bin is too near a step to be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLoad:
    """The load of a port while traffic ran; `tier` as the oracles name it (`uplink`, `downlink`, `spine-uplink`,
    ...)."""

    node: str
    """The host or switch."""
    interface: str
    """The interface on it."""
    peer: str
    """The port at the other end, as "node:interface"."""
    tier: str
    """Its place in the fabric; "" for none that has a name."""
    rate_bps: Count
    """Its rate in the lab."""
    tx_bytes: Count
    """Bytes of frames that it sent."""
    tx_dropped: Count
    """Frames that it lost."""
    utilisation: Number
    """Its load, as a share of its rate over the whole time."""
    ce_packets: Count = 0
    """Packets that it marked."""
    paused_us: Count = 0
    """The time for which its peer kept it from sending, over all priorities."""
    queue_max_bytes: Count = 0
    """The deepest that one of its queues was."""
    network: str = ""
    """The network of its link; "" in records of versions that did not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLoad:
    """The load of one tenant of the topology in a network: what it sent and got while traffic ran.

    It is counted at the links to its NICs and to its router outside, whose ports are the tenant's alone. Queues between
    switches are per class, and what waits or is lost there is in `NetworkLoad` alone. Bytes are those of frames without
    the headers of VXLAN, control traffic included.
    """

    name: str
    """"" for all NICs that are in no tenant."""
    ports: Count
    """Both ends of those links."""
    entered_bytes: Count
    """Sent by its NICs."""
    entered_frames: Count
    """The number of frames of these bytes."""
    delivered_bytes: Count
    """Sent by switches to its NICs."""
    delivered_frames: Count
    """The number of frames of these bytes."""
    utilisation: Number
    """The bytes that its ports sent over what all of them can send, at the links' rates."""
    busiest_port: str
    """The one with the highest utilisation, as "node:interface"; "" where none sent anything."""
    busiest_utilisation: Number
    """The utilisation of that port."""
    queue_max_bytes: Count | None
    """The deepest that a queue of its ports was; None where they have no QoS."""
    queue_port: str
    """The port that it was at, as "node:interface"."""
    queue_class: str
    """The class of that queue."""
    drops: dict[str, Count]
    """Packets lost at its ports, by cause as in `NetworkLoad`."""
    guarded: dict[str, Count] | None
    """Packets that guards stopped at its ports, and policies and borders at its VRFs, by which of them did; None as in
    `NetworkLoad`."""
    payload_bytes: Count
    """Bytes that the workload's receivers in it got, as its channels counted them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLoad:
    """The load of one network of the lab while traffic ran, whether or not the workload was in it. A simulation has
    those with ranks alone.

    Bytes are those of frames, control traffic included. Utilisations are shares of the lab's rates over the run; peaks
    are those of the busiest window of `run.measuring.observation.PORT_INTERVAL_NS`, and None where ports are not
    sampled, since they have no QoS. What queues of the data path alone can tell is None there, too.
    """

    name: str
    """The network's name."""
    carrier: str = ""
    """The network over whose switches it goes, and whose links between switches count there alone; "": its own."""
    ports: Count
    """The ports of hosts and switches: each sends into one direction of a link."""
    sent_bytes: Count
    """By all ports: a frame counts at every hop."""
    entered_bytes: Count
    """Sent by the ports of hosts, targets, servers and managed nodes."""
    delivered_bytes: Count
    """Sent by switches to such ports."""
    utilisation: Number
    """The bytes that all ports sent over what they can send."""
    peak_utilisation: Number | None
    """The utilisation of all ports in the busiest window."""
    busiest_port: str
    """The one with the highest utilisation, as "node:interface"; "" where none sent anything."""
    busiest_utilisation: Number
    """The utilisation of that port."""
    busiest_peak_utilisation: Number | None
    """The utilisation of that port in its busiest window."""
    queue_max_bytes: Count | None
    """The deepest that a queue of a port was."""
    queue_port: str
    """The port that it was at, as "node:interface"."""
    queue_class: str
    """The class of that queue."""
    drops: dict[str, Count]
    """Packets by what lost them: causes of `testbed.lab.core.model.telemetry.DropCause`, `queue` for a port without
    QoS, and `device` for what the kernel's interface did not send. What guards and policies stop is in `guarded`."""
    ce_packets: Count | None
    """Packets that its ports marked."""
    pause_frames: Count | None
    """X-OFF frames that its ports sent."""
    paused_s: Number | None
    """Over all ports and priorities."""
    payload_bytes: dict[str, Count] = field(default_factory=dict)
    """Bytes that the workload's receivers got, by the tenant of the topology ("": none), as channels count them:
    requests over HTTP have none."""
    guarded: dict[str, Count] | None = None
    """Packets that guards, policies between tenants, borders and managed nodes stopped, by which of them did; None
    where nobody looked."""
    tenants: list[TenantLoad] = field(default_factory=list)
    """The tenants of the topology that have NICs in it, in order, and last what is in none; without tenants nothing. A
    carried network is a tenant of its carrier, and this line says all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneLoad:
    """The traffic of all links of one plane of a scale-up domain, counted at both of their ends."""

    plane: Count
    """From 1."""
    rate_bps: Count
    """The rate of a GPU's links to it together, each way, in lab time."""
    frames: Count
    """Data frames, answers included: each counts where a GPU sends it and where the switch does."""
    bytes: Count
    """The bytes of these frames."""
    replays: Count
    """Frames sent again by link-level retry."""
    drops: Count
    """Frames that a full buffer had no room for."""
    wire_losses: Count
    """Frames that faults of the wire lost or damaged, control frames among them."""
    pauses: Count
    """PFC frames that asked for a pause."""
    leaked_credits: Count
    """Credits of lost frames that were given back."""
    downs: Count
    """The number of times that one of these links went down, as the switch saw it."""
    buffer_peak_bytes: Count
    """The deepest that an input buffer of the switch was, of one link and channel."""
    buffer_bytes: Count
    """The size of one of those buffers."""
    xmit_wait_s: Number = 0.0
    """The longest that frames of one channel waited for credits or for the end of a pause, at one end of a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpLoad:
    """The load of one scale-up domain by frames while traffic ran. Times are in lab time, unless they say so.

    Never read a nanosecond of the real system out of them: what is emulated is multiples of `rtt_s`.
    """

    domain: str
    """The domain's name."""
    gpus: Count
    """Number of GPUs in it."""
    planes: list[PlaneLoad]
    """Empty for a domain whose switch could not be asked."""
    rtt_s: Number
    """The round trip of a smallest transaction, as it is modelled."""
    idle_rtt_s: Number | None
    """As it was measured before the run, through the same endpoints; None where one GPU alone took part."""
    rtt_floor_s: Number | None
    """The part of it that is this machine's."""
    rtt_floor_real_s: Number | None
    """`rtt_floor_s` over k: latencies of the real system would be too long by it."""
    latency_p50_s: Number | None
    """The median of transactions, from sent to answered; None where there were none."""
    latency_p999_s: Number | None
    """The 99.9th percentile of transactions."""
    lateness_p999_s: Number
    """The lateness with which the switch began to send frames."""
    credit_loop_s: Number
    """From a credit's use to its return: two hops, the spacing of updates and a frame."""
    transfers: Count
    """The number of transfers that it carried."""
    failed: Count
    """The number of transfers that failed."""
    request_drops: Count
    """Requests that full buffers dropped."""
    request_frames: Count
    """Frames of channel 0, that of requests, which full buffers dropped, and that GPUs sent."""
    request_line_bytes: Count = 0
    """Bytes that the latter took of the GPUs' links, with the headers that the topology names."""
    payload_bytes: Count = 0
    """Bytes that have arrived in memories of GPUs by writes and reads."""
    pool_bytes: Count = 0
    """Bytes of pooled memory that were granted, in whole granules of all ways."""
    stalled: bool = False
    """Transfers waited, and nothing moved until they were given up."""
    stall_s: Number = 0.0
    """The time for which nothing had moved when they were given up."""
    progress_s: Number | None = None
    """When something last moved, from the begin of the traffic."""
    problem: str = ""
    """Why the switch could not be asked."""
