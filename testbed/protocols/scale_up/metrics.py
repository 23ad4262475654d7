"""Metrics of scale-up domains whose transfers are frames: what their links lost, sent again, held, and how long
transactions took. Of all domains of the lab together; times as multiples of the modelled round trip."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from testbed.base.metric import Better, MetricFamily, MetricUnit, as_measured, known

SCALE_UP = MetricFamily()

_CBFC = "Ultra Ethernet 1.0 section 5.2 (CBFC); OCP SAI, SAI-Credit_Based_Flow_Control.md"
_LLR = "Ultra Ethernet 1.0 section 5.1 (LLR); OCP SAI, SAI-Link_Layer_Retry.md"
_RTTS = "in round trips of a smallest transaction as the topology has it (fabric.scale_up.rtt)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpCarried:
    """The load of frames on the links of all scale-up domains, at both ends; counts, unless the name has a unit.

    Times of transactions are in modelled round trips. None: not known.
    """

    frames: int
    drops: int
    wire_losses: int
    request_drops: int
    request_frames: int
    request_line_bytes: int
    payload_bytes: int
    pool_bytes: int
    replays: int
    pauses: int
    leaked_credits: int
    buffer_peak_bytes: int
    buffer_peak_share: float
    plane_bytes: Sequence[float]
    """Bytes by plane."""
    transfers: int
    failed: int
    latency_p50_rtts: float | None
    latency_p999_rtts: float | None
    floor_share: float | None
    stalled: bool
    stall_s: float
    progress_s: float | None
    xmit_wait_share: float | None
    """The longest that frames of a channel waited for leave at one end of a link, as a share of `progress_s`."""


def scale_up_share(part: float, whole: float) -> float | None:
    """A part of frames or transfers; None where there were none."""
    return part / whole if whole > 0 else None


def _count(name: str, title: str, formula: str, source: str, read: Callable[[ScaleUpCarried], float]) -> None:
    _value(name, title, MetricUnit.COUNT, formula, source, read)


def _share(
    name: str, title: str, formula: str, source: str, read: Callable[[ScaleUpCarried], tuple[float, float]]
) -> None:
    SCALE_UP.metric(
        name=f"scale_up_{name}",
        title=title,
        unit=MetricUnit.SHARE,
        better=Better.LESS,
        formula=formula,
        source=source,
        takes=lambda run: read(run[ScaleUpCarried]),
    )(scale_up_share)


def _value(  # noqa: PLR0913  # what a metric has
    name: str,
    title: str,
    unit: MetricUnit,
    formula: str,
    source: str,
    read: Callable[[ScaleUpCarried], float | None],
    better: Better = Better.LESS,
    *,
    emulation: bool = False,
) -> None:
    SCALE_UP.metric(
        name=f"scale_up_{name}",
        title=title,
        unit=unit,
        better=better,
        formula=formula,
        source=source,
        emulation=emulation,
        takes=lambda run: (known(read(run[ScaleUpCarried])),),
    )(as_measured)


_count(
    "drops",
    "Scale-up frames dropped",
    "frames that full buffers of scale-up links had no room for, at switches and GPUs",
    "RFC 2544 section 26.3 for the term",
    lambda run: run.drops,
)
_share(
    "drop_share",
    "Scale-up requests dropped, share",
    "frames of channel 0 (requests) that full buffers dropped / those that GPUs sent",
    "RFC 2544 section 26.3 for the term",
    lambda run: (run.request_drops, run.request_frames),
)
_count(
    "wire_losses",
    "Scale-up frames lost on the wire",
    "frames that faults of scale-up wires lost or damaged, control frames among them",
    _LLR,
    lambda run: run.wire_losses,
)
SCALE_UP.metric(
    name="scale_up_payload_share",
    title="Payload of scale-up writes, over bytes of the line",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    formula="bytes that have arrived in memories of GPUs / bytes that frames of channel 0 (requests) took of the"
    " GPUs' links, with the headers of fabric.scale_up.headers",
    source="UALink_200 Rev 1.0 sections 5 and 6; Scale-Up Ethernet 1.0.0 (OCP) for the headers",
    takes=lambda run: (run[ScaleUpCarried].payload_bytes, run[ScaleUpCarried].request_line_bytes),
)(scale_up_share)
_count(
    "retries",
    "Scale-up frames sent again",
    "frames that link-level retry sent again, at both ends of all links (TX_REPLAY)",
    _LLR,
    lambda run: run.replays,
)
_share(
    "retry_share",
    "Scale-up frames sent again, share",
    "frames that link-level retry sent again / data frames sent",
    _LLR,
    lambda run: (run.replays, run.frames),
)
_count(
    "pauses",
    "Scale-up pauses",
    "PFC frames that asked for a pause, at both ends of all links",
    "IEEE 802.1Q clause 36",
    lambda run: run.pauses,
)
_count(
    "leaked",
    "Scale-up credits leaked",
    "credits of lost frames that CC_Updates gave back",
    _CBFC,
    lambda run: run.leaked_credits,
)
_value(
    "wait_share",
    "Longest wait for credits or pauses of scale-up links, share",
    MetricUnit.SHARE,
    "time that frames of a channel waited for credits of the other end, or for the end of its pause, at the end of a"
    " link where that was longest / time until the last progress",
    "InfiniBand Architecture Specification volume 1, PortXmitWait",
    lambda run: run.xmit_wait_share,
)
_value(
    "buffer_peak",
    "Deepest scale-up buffer",
    MetricUnit.BYTES,
    "the most that an input buffer of a switch held, of one link and channel, in credits times their unit",
    _CBFC,
    lambda run: run.buffer_peak_bytes,
)
_value(
    "buffer_share",
    "Deepest scale-up buffer, share of it",
    MetricUnit.SHARE,
    "the same over the size of the buffer",
    _CBFC,
    lambda run: run.buffer_peak_share,
)
_value(
    "pool_bytes",
    "Pooled memory granted",
    MetricUnit.BYTES,
    "what hosts were granted of regions of pooled memory, in whole granules of all ways; a view for readers takes none",
    "own: what stays stranded in hosts without a pool (fabric.scale_up.pool)",
    lambda run: run.pool_bytes,
)
_share(
    "failed_share",
    "Scale-up transfers failed",
    "transfers inside domains that ended in an error / all that ended",
    "own: what transport.scale_up_errors: count counts",
    lambda run: (run.failed, run.transfers),
)
_value(
    "latency_p50",
    "Scale-up latency P50, in RTTs",
    MetricUnit.RATIO,
    f"0.50 percentile of the times of transactions, from sent to answered, {_RTTS}",
    "RFC 2330 section 11.3 for the percentile",
    lambda run: run.latency_p50_rtts,
)
_value(
    "latency_p999",
    "Scale-up latency P99.9, in RTTs",
    MetricUnit.RATIO,
    f"0.999 percentile of the times of transactions, from sent to answered, {_RTTS}",
    "RFC 2330 section 11.3 for the percentile",
    lambda run: run.latency_p999_rtts,
)
_value(
    "progress",
    "Time until the last scale-up progress",
    MetricUnit.SECONDS,
    "from the begin of the traffic until a transaction was last answered, in lab time",
    "own: when credits that leak stop a link",
    lambda run: run.progress_s,
    Better.NEITHER,
)
_value(
    "stall",
    "Scale-up stall",
    MetricUnit.SECONDS,
    "how long nothing had moved though transfers waited when they were given up, in lab time; 0 where all ended",
    "own: transport.scale_up_timeout_ms ends it",
    lambda run: run.stall_s,
)
_value(
    "deadlocked",
    "Scale-up deadlock",
    MetricUnit.COUNT,
    "1 where transfers waited and none moved until they were given up, else 0",
    "Dally and Towles, Principles and Practices of Interconnection Networks, chapter 14",
    lambda run: float(run.stalled),
)


def scale_up_plane_share(plane_bytes: Sequence[float], *, of: Callable[[Sequence[float]], float]) -> float | None:
    """The bytes of one plane over the mean of all."""
    total = math.fsum(plane_bytes)
    return of(plane_bytes) * len(plane_bytes) / total if total > 0 else None


for _name, _title, _of in (("min", "idlest", min), ("max", "busiest", max)):
    SCALE_UP.metric(
        name=f"scale_up_plane_{_name}",
        title=f"Bytes of the {_title} scale-up plane, over the mean",
        unit=MetricUnit.RATIO,
        better=Better.NEITHER,
        formula=f"bytes of data frames by the {_title} plane / mean over the planes",
        source="own: 1 where copies are spread evenly",
        takes=lambda run: (run[ScaleUpCarried].plane_bytes,),
    )(partial(scale_up_plane_share, of=_of))


_value(
    "floor_share",
    "Scale-up latency that is the machine's",
    MetricUnit.SHARE,
    "(idle round trip measured before the run - modelled round trip) / modelled round trip",
    "own: a run is invalid above 10 %",
    lambda run: run.floor_share,
    emulation=True,
)
