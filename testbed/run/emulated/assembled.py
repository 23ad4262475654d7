"""From what the traffic of one run left behind to the run, and to the point, as records keep them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from testbed.record.record import PointResult, PredictedMetric, RunResult
from testbed.record.samples import InferenceRequests, Transfers
from testbed.run.emulated.measured import Measured
from testbed.run.emulated.measures import RunData, compute_metrics
from testbed.run.emulated.network_loads import network_loads
from testbed.run.emulated.scale_up_loads import scale_up_loads
from testbed.run.emulated.selected_metrics import network_metrics, tenant_metrics
from testbed.run.ideals.point_ideals import PointIdeals, summarise
from testbed.run.ideals.predictions import Carried, predict_point
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import RunTraffic
from testbed.run.probes.findings import probe_findings
from testbed.run.sweep.as_run import lab_summary, transport_as_run, workload_as_run
from testbed.run.transports.registry import transport_on
from testbed.workload.steps import Transfer, fabric_bytes

if TYPE_CHECKING:
    from testbed.run.sweep.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """Which run of a point it is, and when it began, as records write it."""

    index: int
    started: str


def assemble_run(
    identity: RunIdentity,
    traffic: RunTraffic,
    measured: Measured,
    lab: LiveLab,
    whole: LiveLab,
    ideals: PointIdeals,
) -> RunResult:
    """Compute the metrics of a run, and put it together, for the trust checks to judge.

    `whole` is the lab with the networks that were watched.
    """
    observation, requests = measured.observation, measured.requests
    ports = observation.loads(lab, ideals.tiers)
    moved = traffic_as_moved(traffic, measured.transfers)
    domains = scale_up_loads(whole, observation.scale_up, measured.scale_up)
    probed = probe_findings(measured.probes, measured.events, observation.elapsed_s)
    run = RunData(
        measured=measured,
        ports=ports,
        nic_bps=ideals.nic_bps,
        pattern_ideal_s=None if moved is None else ideals.pattern_ideal_s(moved),
        roofline_s=None if moved is None else ideals.roofline_s(moved),
        fabric_bytes=fabric_bytes((moved or traffic).workload),
        scale_up=domains,
    )
    networks = network_loads(whole, observation, measured.channels)
    metrics = compute_metrics(run) | tenant_metrics(measured, traffic, ideals) | network_metrics(networks)
    return RunResult(
        index=identity.index,
        seed=traffic.seed,
        started=identity.started,
        elapsed_s=observation.elapsed_s,
        metrics=metrics,
        checks=[],
        complete=measured.complete,
        transfers=measured.transfers,
        channels=list(measured.channels),
        collectives=list(measured.collectives),
        ports=ports,
        networks=networks,
        scale_up=domains,
        events=measured.events,
        series=[*([] if requests is None else requests.series()), *observation.series(), *probed.series],
        distributions=[*probed.distributions, *([] if requests is None else requests.distributions())],
        marking=observation.marking,
        counters=measured.counters | probed.counters,
        requests=InferenceRequests() if requests is None else requests.table,
    )


def traffic_as_moved(traffic: RunTraffic, transfers: Transfers) -> RunTraffic | None:
    """Return the traffic of a run with the bytes that jobs of fio moved, which their time may limit.

    None where that is not known: of several parts with such jobs, and of a run that was cut short.
    """
    timed = [step.number for step in traffic.workload.transfers if step.job is not None and step.job.runtime_ns]
    if not timed:
        return traffic
    if traffic.parts or None in transfers.end_s:
        return None
    sizes = dict(zip(transfers.number, transfers.size_bytes, strict=True))
    steps = [
        replace(step, size_bytes=sizes.get(step.number, step.size_bytes)) if isinstance(step, Transfer) else step
        for step in traffic.workload.steps
    ]
    return replace(traffic, workload=replace(traffic.workload, steps=tuple(steps)))


def assemble_point(
    point: Point, lab: LiveLab, traffic: Sequence[RunTraffic], runs: Sequence[RunResult], ideals: PointIdeals
) -> PointResult:
    """Summarise the runs of a point, those that there are, beside what oracles say of them."""
    return PointResult(
        name=point.name,
        values=dict(point.values),
        lab=lab_summary(lab),
        transport=_transport_as_run(point, lab),
        workload=workload_as_run(point.scenario),
        runs=list(runs),
        metrics=summarise(runs, ideals),
        predictions=_predict(point, lab, traffic, runs, ideals),
        notes=sorted({note for one in traffic for note in one.workload.notes}),
    )


def _transport_as_run(point: Point, lab: LiveLab) -> dict[str, Any]:
    """Return the transport with what the lab decided of it; of several, their kinds."""
    if point.scenario.tenant_transports:
        return transport_as_run(point.scenario)
    return transport_on(lab, point.scenario.transport).as_run()


def _predict(
    point: Point, lab: LiveLab, traffic: Sequence[RunTraffic], runs: Sequence[RunResult], ideals: PointIdeals
) -> list[PredictedMetric]:
    done = [
        Carried(
            workload=one.workload,
            placement=one.placement,
            seed=one.seed,
            channels=[channel for channel in run.channels if not channel.inside],
            channel_of={
                number: run.channels[index]
                for number, index in zip(run.transfers.number, run.transfers.channel, strict=True)
                if not run.channels[index].inside
            },
        )
        for one, run in zip(traffic, runs, strict=False)
    ]
    return predict_point(point.scenario, lab, done, framing=ideals.framing, base_rtt_s=ideals.base_rtt_s / 2)
