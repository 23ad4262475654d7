"""Metrics of single tenants of a workload, and of single networks of its lab with the topology's tenants in them.

A tenant of the workload has those that its own transfers, channels, collectives and requests say something about.
Queues, links and the machine are everybody's, and so are ranks that two tenants have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from testbed.record.samples import Channel, NetworkLoad, TenantLoad, Transfers
from testbed.run.ideals.point_ideals import PointIdeals, slowest_bps
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.measures import DISTURBING, RunData, compute_metrics
from testbed.run.measuring.observation import Observation
from testbed.run.placed.traffic import RunTraffic
from testbed.workload.metrics import BY_TENANT, RunSamples, Selection, measure_metrics
from testbed.workload.metrics.run_samples import NetworkCarried
from testbed.workload.steps import fabric_bytes
from testbed.workload.tenants import from_its_start, part_of_ranks

Figures = dict[str, float | None]
"""Metrics by name, as `workload.metrics.selection` makes them."""


def network_metrics(networks: Sequence[NetworkLoad]) -> Figures:
    """Return the metrics of every network, and of every tenant of the topology in it."""
    found: Figures = {}
    for network in networks:
        carried = replace(
            _carried(network),
            peak_utilisation=network.peak_utilisation,
            ce_packets=network.ce_packets,
            pause_frames=network.pause_frames,
        )
        found |= _named(measure_metrics(RunSamples(carried)), Selection(network=network.name))
        for tenant in network.tenants:
            if tenant.name:
                selection = Selection(network=network.name, tenant=tenant.name)
                found |= _named(measure_metrics(RunSamples(_carried(tenant))), selection)
    return found


def _carried(load: NetworkLoad | TenantLoad) -> NetworkCarried:
    return NetworkCarried(
        entered_bytes=load.entered_bytes,
        delivered_bytes=load.delivered_bytes,
        utilisation=load.utilisation,
        busiest_utilisation=load.busiest_utilisation,
        dropped_packets=sum(load.drops.values()),
        guarded_packets=None if load.guarded is None else sum(load.guarded.values()),
        queue_max_bytes=load.queue_max_bytes,
    )


def tenant_metrics(measured: Measured, traffic: RunTraffic, ideals: PointIdeals) -> Figures:
    """Return the metrics of every tenant of the workload that shares no rank with another."""
    found: Figures = {}
    starts_ns = dict(zip(traffic.workload.tenant_names, traffic.workload.tenant_starts_ns, strict=True))
    for name, ranks in traffic.workload.tenants_apart.items():
        workload = from_its_start(part_of_ranks(traffic.workload, ranks).workload, starts_ns[name])
        alone = replace(traffic, workload=workload, parts=())
        own, rest = _ideals_of(ranks, traffic, ideals), measured.tenants.get(name, Measured())
        transfers, channels = _moved_by(ranks, measured.transfers, measured.channels)
        data = RunData(
            measured=replace(
                rest,
                transfers=transfers,
                channels=channels,
                collectives=[item for item in measured.collectives if f"/{name}/" in f"/{item.label}"],
                events=[event for event in measured.events if event.kind in DISTURBING],
                observation=Observation(cpu=None),
                window_s=measured.window_s,
            ),
            nic_bps=slowest_bps(alone),
            pattern_ideal_s=own.pattern_ideal_s(alone),
            roofline_s=own.roofline_s(alone),
            fabric_bytes=fabric_bytes(alone.workload),
        )
        figures = {metric: value for metric, value in compute_metrics(data).items() if metric in BY_TENANT}
        found |= _named(figures, Selection(tenant=name))
    return found


def _named(figures: Figures, selection: Selection) -> Figures:
    return {selection.name(metric): value for metric, value in figures.items()}


def _ideals_of(ranks: frozenset[int], traffic: RunTraffic, ideals: PointIdeals) -> PointIdeals:
    """Those of the transport that carries what these ranks send."""
    for part, (_, own) in zip(traffic.parts, ideals.parts.get(traffic.seed, ()), strict=True):
        if ranks <= part.ranks:
            return own
    return ideals


def _moved_by(
    ranks: frozenset[int], transfers: Transfers, channels: Sequence[Channel]
) -> tuple[Transfers, list[Channel]]:
    """The transfers between these ranks, and their channels."""
    kept = [index for index, channel in enumerate(channels) if channel.source_rank in ranks]
    place = {index: position for position, index in enumerate(kept)}
    rows = [row for row, source in enumerate(transfers.source) if source in ranks]
    mine = Transfers(
        number=[transfers.number[row] for row in rows],
        source=[transfers.source[row] for row in rows],
        destination=[transfers.destination[row] for row in rows],
        size_bytes=[transfers.size_bytes[row] for row in rows],
        channel=[place[transfers.channel[row]] for row in rows],
        start_s=[transfers.start_s[row] for row in rows],
        end_s=[transfers.end_s[row] for row in rows],
        ideal_s=[transfers.ideal_s[row] for row in rows],
    )
    return mine, [channels[index] for index in kept]
