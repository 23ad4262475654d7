"""From what the traffic of one run left behind to the run, and to the point, as records keep them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.base.keys import said_in
from testbed.base.units import ByteCount
from testbed.lab.core.model import LinkKind, Routing
from testbed.record.record import LabSummary, PointResult, PredictedMetric, RunResult
from testbed.record.samples import InferenceRequests, Transfers
from testbed.run.ideals.point_ideals import PointIdeals, summarise
from testbed.run.ideals.predictions import Carried, predict_point
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.measures import RunData, compute_metrics, network_metrics, tenant_metrics
from testbed.run.measuring.network_loads import network_loads
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import RunTraffic
from testbed.run.probes.findings import probe_findings
from testbed.run.scale_up.loads import scale_up_loads
from testbed.run.schema.written import transport_as_run, workload_as_run
from testbed.run.transports.registry import transport_on
from testbed.workload.steps import Transfer, fabric_bytes

if TYPE_CHECKING:
    from testbed.run.sweep.points import Point


def assemble_run(  # noqa: PLR0913  # what a run is made of
    index: int,
    started: str,
    traffic: RunTraffic,
    measured: Measured,
    lab: LiveLab,
    whole: LiveLab,
    ideals: PointIdeals,
    known: Collection[type] | None = None,
) -> RunResult:
    """Compute the metrics of a run, and put it together, for the trust checks to judge.

    `index` is its number in the point, from 1, and `started` when it began, as records write it. `whole` is the lab
    with the networks that were watched. `known` are the kinds of samples that the backend measures; None: all.
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
        subnet=observation.subnet,
        known=known,
    )
    networks = network_loads(whole, observation, measured.channels)
    metrics = compute_metrics(run) | tenant_metrics(measured, traffic, ideals, known) | network_metrics(networks)
    return RunResult(
        index=index,
        seed=traffic.seed,
        started=started,
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
        subnet=observation.subnet,
        events=sorted([*measured.events, *(measured.touches or ())], key=lambda event: event.at_s),
        series=[*([] if requests is None else requests.series()), *observation.series(), *probed.series],
        distributions=[*probed.distributions, *([] if requests is None else requests.distributions())],
        marking=observation.marking,
        counters=measured.counters | probed.counters,
        requests=InferenceRequests() if requests is None else requests.table,
        program=measured.program,
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


def lab_summary(lab: LiveLab) -> LabSummary:
    model, plan = lab.model, lab.plan
    ports = {(port.node, port.name): port for port in plan.ports}
    nics = [nic for host in plan.hosts for nic in host.nics]
    fabric = [link for link in model.links if link.kind is LinkKind.FABRIC]
    uplink = ports[fabric[0].a.node, fabric[0].a.interface] if fabric else None
    return LabSummary(
        name=lab.name,
        design=model.design,
        k=plan.k,
        k_auto=model.scale.time is None,
        hosts=len(model.hosts),
        nics=len(nics),
        switches=dict(Counter(node.role.value if node.role is not None else "other" for node in model.switches)),
        links=len(model.links),
        nic_bps=nics[0].nic_bps if nics else 0,
        nic_real_bps=nics[0].line_rate_bps * nics[0].nic_ports if nics else 0,
        uplink_bps=uplink.rate_bps if uplink else None,
        uplink_real_bps=uplink.line_rate_bps if uplink else None,
        mtu_bytes=nics[0].mtu_bytes if nics else 0,
        routing=_routing(lab),
        load_balancing=_load_balancing(lab),
        oversubscription=_oversubscription(lab),
        qos=_qos(lab),
    )


def _load_balancing(lab: LiveLab) -> str:
    qos = lab.model.qos
    return "kernel" if qos is None else qos.profiles[0].load_balancing.mode.value


def _oversubscription(lab: LiveLab) -> float | None:
    """Return what hosts may send to an access switch over what its uplinks carry, of the worst."""
    hosts = {node.name for node in lab.model.hosts}
    down, up = Counter[str](), Counter[str]()
    for link in lab.model.links:
        for switch, peer in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            if peer in hosts:
                down[switch] += link.rate.bps
            elif link.kind is LinkKind.FABRIC and switch not in hosts:
                up[switch] += link.rate.bps
    return max((down[switch] / up[switch] for switch in down if up[switch]), default=None)


def _qos(lab: LiveLab) -> dict[str, Any]:
    """Return the QoS of the back end's switches as a file would say it, with what is so by default."""
    if lab.model.qos is None:
        return {}
    profile = lab.model.qos.profiles[0]
    return {
        "preset": profile.preset,
        "buffer": {"shared": str(ByteCount(profile.buffer.shared_bytes)), "alpha": profile.buffer.alpha},
        "trimming": profile.trimming,
        "watchdog": str(profile.watchdog.detect) if profile.watchdog is not None else False,
        "classes": {item.name: {name: _plain(value) for name, value in said_in(item)} for item in profile.classes},
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, bool | int | float):
        return value
    return list(value) if isinstance(value, tuple) else str(value)


def _routing(lab: LiveLab) -> str:
    if (infiniband := lab.model.infiniband) is None:
        return _routing_of_switches(lab.model.routing)
    adaptive = ", adaptive" if infiniband.settings.adaptive_routing else ""
    words = f"OpenSM, {' or else '.join(infiniband.settings.routing)}{adaptive}"
    beside = [network.routing for network in lab.model.networks if not network.is_out_of_band][:1]
    return "; beside it ".join([words, *map(_routing_of_switches, beside)])


def _routing_of_switches(routing: Routing) -> str:
    bfd = f"BFD {routing.bfd.interval} x {routing.bfd.multiplier}" if routing.bfd is not None else "no BFD"
    numbered = "unnumbered" if routing.unnumbered else "numbered"
    words = [f"{routing.protocol.value} {numbered}", f"ECMP up to {routing.ecmp}", bfd]
    words += ["a password"] if routing.password else []
    words += ["TTL security"] if routing.ttl_security else []
    return ", ".join(words)


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
