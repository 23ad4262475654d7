"""Samples of one run: plain numbers that metrics are computed from.

`testbed.base.metric.RunSamples` holds at most one value of each kind of sample below, and of those of protocols, which
stand beside their metrics. A run that did not measure a kind (no probes were sent, the lab has no queues to look into)
lacks it, and with it the metrics that need it. `run.measuring.measures` fills it; a metric takes what it needs:
`run[FlowTimes].fct_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTimes:
    """The transfers that ended: how long each took, and how long it takes alone on an empty fabric, both in s."""

    fct_s: Sequence[float]
    standalone_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """The times at which transfers and the computing beside them began and ended, in s.

    Only of a run whose transfers all ended: one that was cut short says nothing about how long it takes.
    """

    start_s: Sequence[float]
    end_s: Sequence[float]

    @property
    def seconds(self) -> float:
        """Return the time from the first beginning to the last end."""
        return max(self.end_s) - min(self.start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBound:
    """The roofline of the job: the least time that its compute and communication can take, in s."""

    roofline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternBound:
    """The least time of a pattern whose transfers begin at once and wait for nothing, in s."""

    ideal_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRates:
    """The goodput of each channel while all of them have data to send, and its ideal, in bit/s."""

    goodput_bps: Sequence[float]
    ideal_bps: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimRates:
    """The goodput of each channel whose two NICs no other one uses, while it has data to send, and its ideal, in bit/s.
    Only of a run in which other channels share a receiver."""

    goodput_bps: Sequence[float]
    ideal_bps: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retransmissions:
    """The packets (TCP: segments) that each channel sent again."""

    packets: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketsSent:
    """The packets of all channels together: those sent for the first time, and those sent again."""

    new: float
    again: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedMessages:
    """The messages (or atomics) of each channel that were completed, and the seconds that took."""

    completed: Sequence[float]
    time_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class IoJobs:
    """fio's reports of each job: I/Os, bytes, bytes/s while it ran, and percentiles of completion latency in s.
    Transfers between one host and one target are one job."""

    ios: Sequence[float]
    io_bytes: Sequence[float]
    bytes_per_s: Sequence[float]
    p50_s: Sequence[float]
    p99_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSteps:
    """The times of the steps of a program, in s, without those of its warm-up."""

    step_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramIdeal:
    """The least time in s of a step of a program whose bytes are stated."""

    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramBytes:
    """The bytes that the NICs of a program's ranks sent, headers included."""

    sent_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExit:
    """The exit code of a program: 0, or that of the first rank that failed."""

    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateArrivals:
    """The packets that came after one with a higher number, and all packets."""

    late: int
    packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The latency of every message of all pairs, and its ideal (0 where that is not known), in s."""

    latency_s: Sequence[float]
    ideal_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """The requests for inference that were answered, and what their servers were to compute. All times are in s.

    An answer of n tokens has n - 1 times between tokens (`itl_s`); one of a single token has no TPOT. The columns of
    `service_itl_s` and `itl_s` go together, as do all those with an entry for each request.
    """

    ttft_s: Sequence[float]
    """From when a request was due to the arrival of its first token."""
    service_ttft_s: Sequence[float]
    tpot_s: Sequence[float]
    service_tpot_s: Sequence[float]
    itl_s: Sequence[float]
    service_itl_s: Sequence[float]
    e2el_s: Sequence[float]
    service_e2el_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """The requests that were answered, those that kept their limits of TTFT and TPOT, those that failed, and the tokens
    of all answers."""

    answered: int
    within_limits: int
    failed: int
    output_tokens: int
    elapsed_s: float
    """From the first request's due time to the last token of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """When each host's accelerators began and ended their batches, in s: a row for each host, in order. Only of a run
    whose steps all ended."""

    start_s: Sequence[Sequence[float]]
    end_s: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimes:
    """The times of the operations of the largest size, in s."""

    seconds: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSpeed:
    """The operations of the largest size, where all are of one kind and number of ranks.

    `mean_s` is the mean of their times, not of their rates, as nccl-tests has it; several at once (one for each rail)
    have the same time. `size_bytes` is S as nccl-tests counts it for the kind.
    """

    kind: str
    ranks: int
    size_bytes: int
    mean_s: float
    line_bps: float
    """The rate that their bus bandwidth is a share of, as `CollectiveResult` has it; of several the harmonic mean,
    since times add up."""

    @property
    def of_one(self) -> tuple[str, int, int, float]:
        """Return what bandwidths are computed from: the kind, ranks, size in bytes and time in s of an operation."""
        return self.kind, self.ranks, self.size_bytes, self.mean_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedElements:
    """The wrong elements of each operation whose result was checked."""

    wrong: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricBytes:
    """The payload bytes that entered the fabric."""

    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NicPeers:
    """To how many other NICs each NIC that sends has channels."""

    peers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkLoads:
    """The bytes sent and the utilisation (0..1) of every uplink, by its switch; those of spines apart, in bytes."""

    bytes_by_switch: Mapping[str, Sequence[float]]
    utilisation: Sequence[float]
    bytes_by_spine: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def load_bytes(self) -> list[float]:
        """The bytes sent by each uplink."""
        return [load for loads in self.bytes_by_switch.values() for load in loads]

    @property
    def active_switches(self) -> list[Sequence[float]]:
        """The bytes sent by the uplinks of each switch that sent any."""
        return [loads for loads in self.bytes_by_switch.values() if sum(loads)]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """The counters of the queues of the switches: packets, and the depth of the deepest queue in bytes."""

    ect_packets: float
    marked_packets: float
    dropped_packets: float
    trimmed_packets: float
    deepest_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepths:
    """Samples of the depth of the deepest queue of a switch, in bytes."""

    depth_bytes: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedPackets:
    """By bins of queue depth: the packets that allowed a mark, those marked, and the share that the curve asks for
    (None where it cannot be said)."""

    packets: Sequence[int]
    marked: Sequence[int]
    ideal: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkingCurves:
    """The marks of each class that had packets which allowed one."""

    classes: Sequence[MarkedPackets]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseCounts:
    """The pause frames that were sent, and how long queues were paused: all together, and the one paused longest."""

    frames: float
    paused_s: float
    longest_s: float
    elapsed_s: float
    """The time for which the queues were watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCarried:
    """The load of one network of the lab, or of one tenant in it: bytes, packets, and shares of line rate. None:
    nobody watched it."""

    entered_bytes: float
    delivered_bytes: float
    utilisation: float
    busiest_utilisation: float
    dropped_packets: float
    guarded_packets: float | None
    queue_max_bytes: float | None
    peak_utilisation: float | None = None
    ce_packets: float | None = None
    pause_frames: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCurve:
    """The goodput of all channels together around the first fault: ends of windows in s, rates in bit/s."""

    event_s: float
    undone_s: float
    """When the fault was undone; infinity where it was not."""
    time_s: Sequence[float]
    rate_bps: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostProbes:
    """The probes that each stream lost after the first fault, and the packets per second of a stream."""

    lost: Sequence[float]
    rate_pps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The times at which the first fault was done and was noticed, in s."""

    event_s: float
    detected_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShares:
    """The shares (0..1) of the machine's CPU time that were not idle, and that a hypervisor gave to others."""

    busy: float
    steal: float
