"""The catalogue of metrics: every one by name, in the order in which they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from testbed.workload.metrics import collectives, flows, links, reordering, timeline
from testbed.workload.metrics.definition import Better, MetricDefinition, MetricUnit

_NCCL = "nccl-tests doc/PERFORMANCE.md"
_DRAFT = "draft-calabria-bmwg-ai-fabric-training-bench-04 (individual Internet-Draft, 2026-08-12)"
_HPCC = "HPCC (SIGCOMM 2019), analysis/fct_analysis.py"
_JAIN = "Jain, Chiu, Hawe 1984 (DEC-TR-301)"
_HTSIM = "uet-htsim, validate.py"
_MMR = "Gangidi et al., SIGCOMM 2024; " + _DRAFT
_RFC2330 = "RFC 2330 section 11.3 for the percentile"
_FAILURE = "RFC 6412, RFC 6413"

_PERCENTILE = "percentile: the smallest sample that the stated share of all samples do not exceed"


def cpu_share(part_s: float, all_s: float) -> float | None:
    """CPU time of a kind over all CPU time."""
    return part_s / all_s if all_s > 0 else None


_COLLECTIVES = (
    MetricDefinition(
        name="algbw",
        title="Algorithm bandwidth",
        unit=MetricUnit.BYTES_PER_S,
        formula="S / t, S as nccl-tests counts it for the kind; 10^9 byte/s print as 1 GB/s",
        source=_NCCL,
        better=Better.MORE,
        compute=collectives.algbw,
    ),
    MetricDefinition(
        name="busbw",
        title="Bus bandwidth",
        unit=MetricUnit.BYTES_PER_S,
        formula="algbw * factor; all_reduce 2(n-1)/n; reduce_scatter, all_gather, all_to_all, gather, scatter (n-1)/n;"
        " broadcast, reduce, send_recv, hypercube 1; the same for ring and tree",
        source=_NCCL + "; src/gather.cu, scatter.cu, hypercube.cu",
        better=Better.MORE,
        compute=collectives.busbw,
    ),
    MetricDefinition(
        name="busbw_share",
        title="Bus bandwidth, share of line rate",
        unit=MetricUnit.SHARE,
        formula="8 * busbw / line rate of a rank's NIC",
        source=_DRAFT,
        better=Better.MORE,
        compute=collectives.busbw_share,
    ),
    MetricDefinition(
        name="jct",
        title="Job completion time",
        unit=MetricUnit.SECONDS,
        formula="max over ranks of the iteration's end - min of its start",
        source=_DRAFT,
        better=Better.LESS,
        compute=collectives.jct,
    ),
    MetricDefinition(
        name="jct_ratio",
        title="JCT over roofline",
        unit=MetricUnit.RATIO,
        formula="JCT / roofline; roofline of a step = C + 8 * S * factor / B",
        source=_DRAFT,
        better=Better.LESS,
        compute=collectives.jct_ratio,
    ),
    MetricDefinition(
        name="step_p99",
        title="Step time P99",
        unit=MetricUnit.SECONDS,
        formula=f"0.99 {_PERCENTILE}, over the iterations of one run",
        source=_DRAFT + "; " + _RFC2330,
        better=Better.LESS,
        compute=collectives.step_p99,
    ),
    MetricDefinition(
        name="overlap_fraction",
        title="Communication overlapped",
        unit=MetricUnit.SHARE,
        formula="1 - (JCT - compute time) / communication time alone",
        source=_DRAFT,
        better=Better.MORE,
        compute=collectives.overlap_fraction,
    ),
    MetricDefinition(
        name="interference",
        title="Interference",
        unit=MetricUnit.RATIO,
        formula="JCT beside other jobs / JCT alone",
        source=_DRAFT,
        better=Better.LESS,
        compute=collectives.interference,
    ),
    MetricDefinition(
        name="failure_overhead",
        title="JCT overhead of a failure",
        unit=MetricUnit.SECONDS,
        formula="JCT of the iteration with the fault - median of the others; zero impact if it is at most their P99",
        source=_DRAFT,
        better=Better.LESS,
        compute=collectives.failure_overhead,
    ),
    MetricDefinition(
        name="s_fabric",
        title="Bytes over the fabric",
        unit=MetricUnit.BYTES,
        formula="sum of payload bytes of transfers between hosts; scale-up transfers are not counted",
        source=_DRAFT,
        better=Better.NEITHER,
        compute=collectives.s_fabric,
    ),
)

_FLOWS = (
    MetricDefinition(
        name="aggregate_share",
        title="Aggregate share of ideal",
        unit=MetricUnit.SHARE,
        formula="sum of flows' goodputs / sum of their ideals; a flow's ideal is the slower of its two NICs' rates"
        " times the payload efficiency and does not know of shared uplinks",
        source="Handley et al., NDP, SIGCOMM 2017, figure 14",
        better=Better.MORE,
        compute=flows.aggregate_share,
    ),
    MetricDefinition(
        name="slowest_share",
        title="Slowest flow, share of ideal",
        unit=MetricUnit.SHARE,
        formula="min over flows of goodput / ideal",
        source="Handley et al., NDP, SIGCOMM 2017, figure 14",
        better=Better.MORE,
        compute=flows.slowest_share,
    ),
    MetricDefinition(
        name="goodput_share",
        title="Goodput share",
        unit=MetricUnit.SHARE,
        formula="8 * application bytes / (t * bottleneck payload rate); payload rate = line rate * payload / (payload +"
        " headers)",
        source="RFC 2647 section 3.17 for goodput; " + _DRAFT,
        better=Better.MORE,
        compute=flows.goodput_share,
    ),
    MetricDefinition(
        name="aggregate_goodput",
        title="Aggregate goodput",
        unit=MetricUnit.BITS_PER_S,
        formula="sum over flows of payload bits received / the receiver's own measured time",
        source="RFC 2647 section 3.17 for goodput",
        better=Better.MORE,
        compute=flows.aggregate_goodput,
    ),
    MetricDefinition(
        name="jain_flows",
        title="Jain's index over flows",
        unit=MetricUnit.RATIO,
        formula="(sum x)^2 / (n * sum x^2), x: goodput while all flows have data to send; 1 all equal, 1/n one has all",
        source=_JAIN,
        better=Better.MORE,
        compute=flows.jain_flows,
    ),
    MetricDefinition(
        name="fct_slowdown_p50",
        title="FCT slowdown P50",
        unit=MetricUnit.RATIO,
        formula="0.50 percentile of max(1, FCT / alone); alone = base RTT + 8 * bytes with headers / rate",
        source=_HPCC + "; " + _RFC2330,
        better=Better.LESS,
        compute=partial(flows.fct_slowdown, share=0.50),
    ),
    MetricDefinition(
        name="fct_slowdown_p95",
        title="FCT slowdown P95",
        unit=MetricUnit.RATIO,
        formula="0.95 percentile of max(1, FCT / alone)",
        source=_HPCC + "; " + _RFC2330,
        better=Better.LESS,
        compute=partial(flows.fct_slowdown, share=0.95),
    ),
    MetricDefinition(
        name="fct_slowdown_p99",
        title="FCT slowdown P99",
        unit=MetricUnit.RATIO,
        formula="0.99 percentile of max(1, FCT / alone); by size: bands of 5 % of the flows, sorted by size",
        source=_HPCC + "; " + _RFC2330,
        better=Better.LESS,
        compute=partial(flows.fct_slowdown, share=0.99),
    ),
    MetricDefinition(
        name="tail_fct",
        title="Tail FCT",
        unit=MetricUnit.SECONDS,
        formula="max over flows of the completion time",
        source=_HTSIM,
        better=Better.LESS,
        compute=flows.tail_fct,
    ),
    MetricDefinition(
        name="tail_fct_ratio",
        title="Tail FCT over ideal",
        unit=MetricUnit.RATIO,
        formula="max FCT / ideal; ideal = most bytes (with headers) that any one NIC sends or receives * 8 / its rate"
        " + base RTT: N * S * 8 / B + base RTT for an incast",
        source=_HTSIM,
        better=Better.LESS,
        compute=flows.tail_fct_ratio,
    ),
    MetricDefinition(
        name="fct_spread",
        title="FCT max / min",
        unit=MetricUnit.RATIO,
        formula="max FCT / min FCT",
        source=_HTSIM,
        better=Better.LESS,
        compute=flows.fct_spread,
    ),
    MetricDefinition(
        name="retransmits",
        title="Retransmitted packets",
        unit=MetricUnit.COUNT,
        formula="packets (TCP: segments) sent again by all flows in the measured time",
        source=_HTSIM + " (Rtx)",
        better=Better.LESS,
        compute=flows.retransmits,
    ),
    MetricDefinition(
        name="retransmit_ratio",
        title="Retransmission ratio",
        unit=MetricUnit.SHARE,
        formula="packets sent again / packets sent for the first time",
        source=_HTSIM + " (Rtx / New)",
        better=Better.LESS,
        compute=flows.retransmit_ratio,
    ),
    MetricDefinition(
        name="spurious_retransmit_share",
        title="Spurious retransmissions",
        unit=MetricUnit.SHARE,
        formula="packets sent again whose original arrived / packets sent again",
        source="RFC 3522 section 1 for the term",
        better=Better.LESS,
        compute=flows.spurious_retransmit_share,
    ),
    MetricDefinition(
        name="victim_ratio",
        title="Victim ratio",
        unit=MetricUnit.RATIO,
        formula="goodput of a flow that is not part of the incast: with the incast / without",
        source="Zhu et al., DCQCN, SIGCOMM 2015, figure 4; NDP, SIGCOMM 2017",
        better=Better.MORE,
        compute=flows.victim_ratio,
    ),
)

_LINKS = (
    MetricDefinition(
        name="mmr_uplinks",
        title="Uplink max / mean",
        unit=MetricUnit.RATIO,
        formula="MMR: bytes sent by the busiest uplink of a tier / mean of all of them; whole flows cannot do better"
        " than ceil(n/m) / (n/m)",
        source=_MMR,
        better=Better.LESS,
        compute=links.mmr_uplinks,
    ),
    MetricDefinition(
        name="mmr_worst_switch",
        title="Uplink max / mean, worst switch",
        unit=MetricUnit.RATIO,
        formula="the largest MMR among the uplinks of a single switch",
        source=_MMR,
        better=Better.LESS,
        compute=links.mmr_worst_switch,
    ),
    MetricDefinition(
        name="jain_links",
        title="Jain's index over uplinks",
        unit=MetricUnit.RATIO,
        formula="(sum x)^2 / (n * sum x^2), x: bytes sent by each uplink of a tier",
        source=_JAIN + "; " + _DRAFT,
        better=Better.MORE,
        compute=links.jain_links,
    ),
    MetricDefinition(
        name="link_utilisation",
        title="Link utilisation",
        unit=MetricUnit.SHARE,
        formula="8 * bytes sent / (t * line rate)",
        source=_DRAFT,
        better=Better.NEITHER,
        compute=links.link_utilisation,
    ),
    MetricDefinition(
        name="link_imbalance",
        title="Link utilisation imbalance",
        unit=MetricUnit.RATIO,
        formula="(max - min) / mean of the utilisations of a tier's links",
        source="Alizadeh et al., CONGA, SIGCOMM 2014, figure 12",
        better=Better.LESS,
        compute=links.link_imbalance,
    ),
    MetricDefinition(
        name="link_deviation",
        title="Link utilisation deviation",
        unit=MetricUnit.RATIO,
        formula="standard deviation (of the population) / mean of the utilisations of a tier's links",
        source=_DRAFT,
        better=Better.LESS,
        compute=links.link_deviation,
    ),
    MetricDefinition(
        name="ecn_mark_ratio",
        title="ECN marking ratio",
        unit=MetricUnit.SHARE,
        formula="CE-marked packets / ECN-capable packets, of a queue or end to end",
        source="RFC 3168; " + _DRAFT,
        better=Better.LESS,
        compute=links.ecn_mark_ratio,
    ),
    MetricDefinition(
        name="pause_frames",
        title="Pause events",
        unit=MetricUnit.COUNT,
        formula="pause frames with non-zero quanta; X-ON frames are not counted",
        source="IEEE 802.1Q clause 36; " + _DRAFT,
        better=Better.LESS,
        compute=links.pause_frames,
    ),
    MetricDefinition(
        name="pause_time",
        title="Pause time",
        unit=MetricUnit.SECONDS,
        formula="sum of (resume - pause) of a port and priority; what overlaps counts once",
        source="IEEE 802.1Q clause 36; " + _DRAFT,
        better=Better.LESS,
        compute=links.pause_time,
    ),
    MetricDefinition(
        name="pause_fraction",
        title="Pause fraction",
        unit=MetricUnit.SHARE,
        formula="pause time / time elapsed",
        source="HPCC, SIGCOMM 2019; " + _DRAFT,
        better=Better.LESS,
        compute=links.pause_fraction,
    ),
    MetricDefinition(
        name="queue_p50",
        title="Queue depth P50",
        unit=MetricUnit.BYTES,
        formula=f"0.50 {_PERCENTILE}, over samples of a port's queue (weighted by time where weights are given)",
        source=_RFC2330,
        better=Better.LESS,
        compute=partial(links.queue_depth, share=0.50),
    ),
    MetricDefinition(
        name="queue_p99",
        title="Queue depth P99",
        unit=MetricUnit.BYTES,
        formula=f"0.99 {_PERCENTILE}",
        source=_RFC2330,
        better=Better.LESS,
        compute=partial(links.queue_depth, share=0.99),
    ),
    MetricDefinition(
        name="queue_max",
        title="Queue depth maximum",
        unit=MetricUnit.BYTES,
        formula="the deepest sample",
        source=_DRAFT,
        better=Better.LESS,
        compute=links.queue_max,
    ),
    MetricDefinition(
        name="effective_paths",
        title="Effective paths",
        unit=MetricUnit.COUNT,
        formula="exp(H), H = -sum p ln p over the share p of bytes of each path",
        source="Hill 1973, Ecology 54(2), order 1",
        better=Better.MORE,
        compute=links.effective_paths,
    ),
    MetricDefinition(
        name="paths_used",
        title="Paths used",
        unit=MetricUnit.SHARE,
        formula="paths that carried anything / paths available",
        source=_DRAFT,
        better=Better.MORE,
        compute=links.paths_used,
    ),
)

_ORDER = (
    MetricDefinition(
        name="reordered_ratio",
        title="Out-of-order degree",
        unit=MetricUnit.SHARE,
        formula="packets whose number is below the highest seen / packets received, duplicates left out",
        source="RFC 4737 section 4.1",
        better=Better.LESS,
        compute=reordering.reordered_ratio,
    ),
    MetricDefinition(
        name="reordering_extent",
        title="Reordering extent",
        unit=MetricUnit.PACKETS,
        formula="max over late packets i of i - j, j the earliest arrival with a higher number",
        source="RFC 4737 section 4.2",
        better=Better.LESS,
        compute=reordering.reordering_extent,
    ),
    MetricDefinition(
        name="reordering_distance",
        title="Reordering distance",
        unit=MetricUnit.PACKETS,
        formula="max over packets of highest number seen - its number",
        source="REPS, EuroSys 2026, for the out-of-order distance",
        better=Better.LESS,
        compute=reordering.reordering_distance,
    ),
    MetricDefinition(
        name="reorder_buffer",
        title="Reorder buffer",
        unit=MetricUnit.BYTES,
        formula="most bytes held at once to deliver in order; numbers that never arrive are not waited for",
        source="RFC 5236 (reorder buffer-occupancy)",
        better=Better.LESS,
        compute=reordering.reorder_buffer,
    ),
)

_TIMES = (
    MetricDefinition(
        name="convergence_time",
        title="Convergence time",
        unit=MetricUnit.SECONDS,
        formula="from the event to the end of the first of 3 windows in a row with every flow within 10 % of its fair"
        " share",
        source=_DRAFT,
        better=Better.LESS,
        compute=timeline.convergence_time,
    ),
    MetricDefinition(
        name="blackhole_time_rate",
        title="Blackhole time from rate",
        unit=MetricUnit.SECONDS,
        formula="time after the event in windows with less than 90 % of the median rate before it",
        source=_FAILURE + " (rate-derived)",
        better=Better.LESS,
        compute=timeline.blackhole_time_rate,
    ),
    MetricDefinition(
        name="blackhole_time_loss",
        title="Blackhole time from loss",
        unit=MetricUnit.SECONDS,
        formula="packets lost / packets offered per second",
        source=_FAILURE + " (loss-derived)",
        better=Better.LESS,
        compute=timeline.blackhole_time_loss,
    ),
    MetricDefinition(
        name="recovery_time",
        title="Recovery time",
        unit=MetricUnit.SECONDS,
        formula="from the event to the end of the first of 3 windows in a row with 90 % of the median rate before it;"
        " 0 where it never fell below",
        source=_FAILURE,
        better=Better.LESS,
        compute=timeline.recovery_time,
    ),
    MetricDefinition(
        name="dip_depth",
        title="Dip",
        unit=MetricUnit.SHARE,
        formula="1 - lowest rate after the event / median rate before it",
        source=_FAILURE,
        better=Better.LESS,
        compute=timeline.dip_depth,
    ),
    MetricDefinition(
        name="redistribution_time",
        title="Redistribution time",
        unit=MetricUnit.SECONDS,
        formula="from the event to the end of the first of 3 windows in a row with MMR <= 1.1 * its ideal after the"
        " failure",
        source=_DRAFT,
        better=Better.LESS,
        compute=timeline.redistribution_time,
    ),
)

_EMULATION = (
    MetricDefinition(
        name="cpu_busy",
        title="Machine CPU busy",
        unit=MetricUnit.SHARE,
        formula="CPU time that was not idle / all CPU time while traffic ran, stolen time included",
        source="proc(5), /proc/stat",
        better=Better.LESS,
        compute=cpu_share,
        emulation=True,
    ),
    MetricDefinition(
        name="cpu_steal",
        title="Machine CPU stolen",
        unit=MetricUnit.SHARE,
        formula="CPU time that a hypervisor gave to others / all CPU time while traffic ran",
        source="proc(5), /proc/stat",
        better=Better.LESS,
        compute=cpu_share,
        emulation=True,
    ),
)

CATALOGUE: Mapping[str, MetricDefinition] = MappingProxyType(
    {metric.name: metric for metric in (*_COLLECTIVES, *_FLOWS, *_LINKS, *_ORDER, *_TIMES, *_EMULATION)}
)
"""Every metric by name."""
