"""Loads of the links of scale-up domains that carried frames during a run: from the counters of their switches, and of
the GPUs' endpoints in the workers."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.features.scale_up.apply import domain_links
from testbed.lab.features.scale_up.counters.names import LINK_COUNTERS
from testbed.lab.features.scale_up.counters.reading import DomainReading, LinkReading, read_domains
from testbed.lab.features.scale_up.watch_switches import domain_switch
from testbed.protocols.scale_up.credits import spacing_ns
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.metrics import ScaleUpCarried
from testbed.record.samples import PlaneLoad, ScaleUpLoad
from testbed.run.placed.lab import LiveLab
from testbed.workload.metrics.statistics import weighted_percentile

_NS = 1e9
_WIRE = ("wire_lost_rx", "wire_lost_tx", "wire_damaged_rx", "wire_damaged_tx")
NOT_EMULATED = (
    "Transfers inside scale-up domains are real frames through a switch process, each of which stands for several"
    " transactions of 256 B. Not emulated are cut-through (a frame is stored before it is sent on), error correction"
    " (FEC) and its latency, pre-emption of a running frame by control symbols, and anything below a frame: latencies"
    " are to be read in multiples of the modelled round trip, never as nanoseconds."
)
"""Says what a run with packets inside of domains does not reproduce."""


def watch_switches(lab: LiveLab) -> Callable[[], tuple[DomainReading, ...]]:
    """Begin to count what the switches of a lab's domains do; the function returned tells what they did since."""
    if not isinstance(lab, RunningLab) or not lab.plan.scale_up_domains:
        return tuple
    for domain in lab.plan.scale_up_domains:
        with contextlib.suppress(TestbedError):  # one that does not run is told of by its reading
            domain_switch(lab.state.run_directory(lab.name), domain.name).forget_peaks()
    before = {one.domain: one for one in read_domains(lab)}
    return lambda: tuple(now.since(before[now.domain]) for now in read_domains(lab))


def scale_up_loads(
    lab: LiveLab, seen: Sequence[DomainReading], reports: Sequence[Mapping[str, Any]]
) -> list[ScaleUpLoad]:
    """Return what each domain carried that the workers of a run have used. `reports` are theirs of their endpoints."""
    readings = {one.domain: one for one in seen}
    used = {report["domain"] for report in reports}
    return [
        _load(
            domain,
            readings.get(domain.name, DomainReading(domain=domain.name, problem="nobody looked")),
            [report for report in reports if report["domain"] == domain.name],
        )
        for domain in lab.plan.scale_up_domains
        if domain.name in used
    ]


def _load(domain: DomainPlan, reading: DomainReading, reports: Sequence[Mapping[str, Any]]) -> ScaleUpLoad:
    settings = domain_links(domain)
    gpus = [gpu for report in reports for gpu in report["gpus"].values()]
    latencies: Counter[int] = Counter()
    for report in reports:
        latencies.update({int(ns): count for ns, count in report["latencies"]})
    rtt_ns, k = reports[0]["rtt_ns"], domain.links[0].k
    idle = [report["idle_rtt_ns"] for report in reports if report["idle_rtt_ns"] is not None]
    floor_ns = max(0, max(idle) - rtt_ns) if idle else None
    stalled = any(report["stalled"] for report in reports)
    return ScaleUpLoad(
        domain=domain.name,
        gpus=domain.gpus,
        planes=[] if reading.problem else list(_planes(domain, settings, reading, gpus)),
        rtt_s=rtt_ns / _NS,
        idle_rtt_s=max(idle) / _NS if idle else None,
        rtt_floor_s=None if floor_ns is None else floor_ns / _NS,
        rtt_floor_real_s=None if floor_ns is None else floor_ns / _NS / k,
        latency_p50_s=_quantile(latencies, 0.5),
        latency_p999_s=_quantile(latencies, 0.999),
        lateness_p999_s=reading.lateness_p999_ns / _NS,
        credit_loop_s=min(map(_credit_loop_ns, settings)) / _NS,
        transfers=max(report["ended"] + report["failed"] for report in reports),
        failed=max(report["failed"] for report in reports),
        request_drops=sum(link.channels[0].counters["dropped_frames"] for link in reading.links if link.channels)
        + sum(int(plane["vcs"][0]["dropped_frames"]) for gpu in gpus for plane in gpu["planes"]),
        request_frames=sum(int(plane["vcs"][0]["tx_frames"]) for gpu in gpus for plane in gpu["planes"]),
        request_line_bytes=sum(int(plane["vcs"][0]["tx_line_bytes"]) for gpu in gpus for plane in gpu["planes"]),
        payload_bytes=sum(int(gpu["payload_bytes"]) for gpu in gpus),
        pool_bytes=sum(int(report["pool_bytes"]) for report in reports),
        stalled=stalled,
        stall_s=max(report["stall_ns"] for report in reports) / _NS if stalled else 0.0,
        progress_s=max(report["progress_ns"] for report in reports) / _NS,
        problem=reading.problem,
    )


def _planes(
    domain: DomainPlan, settings: Sequence[LinkSettings], reading: DomainReading, gpus: Sequence[Mapping[str, Any]]
) -> Iterator[PlaneLoad]:
    for number, link in enumerate(settings, start=1):
        mine = [one for one in reading.links if one.link.plane == number]
        total: Counter[str] = Counter()
        for one in mine:
            total.update(one.counters)
        for gpu in gpus:
            plane = gpu["planes"][number - 1]
            total.update({item.name: item.read(plane) for item in LINK_COUNTERS})
        yield PlaneLoad(
            plane=number,
            rate_bps=domain.links[number - 1].gpu_rate.bps,
            frames=total["sent_frames"],
            bytes=total["sent_bytes"],
            replays=total["llr_tx_replay"],
            drops=total["dropped_frames"],
            wire_losses=sum(total[name] for name in _WIRE),
            pauses=total["xoff_tx"],
            leaked_credits=total["leaked_credits"],
            downs=sum(one.counters["downs"] for one in mine),
            buffer_peak_bytes=max((_deepest(one) for one in mine), default=0) * link.unit,
            buffer_bytes=max(link.capacity) * link.unit,
            xmit_wait_s=max(_waits_ns(mine, [gpu["planes"][number - 1] for gpu in gpus]), default=0) / _NS,
        )


def _waits_ns(links: Sequence[LinkReading], ends: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Return how long each channel waited, at the switch's end of each link and at those of GPUs."""
    for link in links:
        yield from (channel.counters["xmit_wait_ns"] for channel in link.channels)
    for end in ends:
        yield from (int(channel["xmit_wait_ns"]) for channel in end["vcs"])


def _deepest(link: LinkReading) -> int:
    return max((channel.deepest for channel in link.channels), default=0)


def _credit_loop_ns(link: LinkSettings) -> int:
    """Two hops, the least spacing of credit updates, and a frame."""
    spacing = spacing_ns(link.cf_spacing_bytes or 400 * link.coarse, link.rate_bps)
    return 2 * link.delay_ns + spacing + 8 * 10**9 * link.frame_bytes // link.rate_bps


def _quantile(latencies: Mapping[int, int], share: float) -> float | None:
    found = weighted_percentile(list(map(float, latencies)), list(map(float, latencies.values())), share)
    return None if found is None else found / _NS


def carried_samples(loads: Sequence[ScaleUpLoad]) -> Iterator[ScaleUpCarried]:
    """Yield what metrics of scale-up links are computed from, of all domains together; nothing without any."""
    if not loads:
        return
    planes = [plane for load in loads for plane in load.planes]
    bytes_of: Counter[int] = Counter()
    for plane in planes:
        bytes_of[plane.plane] += plane.bytes
    yield ScaleUpCarried(
        frames=sum(plane.frames for plane in planes),
        drops=sum(plane.drops for plane in planes),
        wire_losses=sum(plane.wire_losses for plane in planes),
        request_drops=sum(load.request_drops for load in loads),
        request_frames=sum(load.request_frames for load in loads),
        request_line_bytes=sum(load.request_line_bytes for load in loads),
        payload_bytes=sum(load.payload_bytes for load in loads),
        pool_bytes=sum(load.pool_bytes for load in loads),
        replays=sum(plane.replays for plane in planes),
        pauses=sum(plane.pauses for plane in planes),
        leaked_credits=sum(plane.leaked_credits for plane in planes),
        buffer_peak_bytes=max((plane.buffer_peak_bytes for plane in planes), default=0),
        buffer_peak_share=max((plane.buffer_peak_bytes / plane.buffer_bytes for plane in planes), default=0.0),
        plane_bytes=[bytes_of[number] for number in sorted(bytes_of)],
        transfers=sum(load.transfers for load in loads),
        failed=sum(load.failed for load in loads),
        latency_p50_rtts=_most(load.latency_p50_s / load.rtt_s for load in loads if load.latency_p50_s is not None),
        latency_p999_rtts=_most(load.latency_p999_s / load.rtt_s for load in loads if load.latency_p999_s is not None),
        floor_share=_most(load.rtt_floor_s / load.rtt_s for load in loads if load.rtt_floor_s is not None),
        stalled=any(load.stalled for load in loads),
        stall_s=max(load.stall_s for load in loads),
        progress_s=_most(load.progress_s for load in loads if load.progress_s is not None),
        xmit_wait_share=_most(
            plane.xmit_wait_s / load.progress_s for load in loads if load.progress_s for plane in load.planes
        ),
    )


def _most(values: Iterator[float]) -> float | None:
    return max(values, default=None)
