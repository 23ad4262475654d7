"""Ideals that a point's metrics are compared with: serialisation, the roofline, the tiers of its links."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from testbed.base.metric import Metric
from testbed.lab.core.model.overlay import VXLAN_BYTES
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import SMALLEST_FRAME_BYTES, WirePaths
from testbed.record.catalogue import CATALOGUE, definition_of, selected_words
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import RunTraffic
from testbed.run.scale_up.domains import ScaleUpDomains, scale_up_domains
from testbed.run.scale_up.pool import region_rates
from testbed.run.schema.model import Scenario, Transport
from testbed.run.transports.lab_transport import LabTransport, PathChoice
from testbed.run.transports.registry import path_choice, transport_on
from testbed.workload.metrics import RunSummary, summarise_metrics
from testbed.workload.metrics.latency import LATENCY
from testbed.workload.oracles.fabric_graph import UPLINKS, DirectedLink
from testbed.workload.oracles.roofline import workload_roofline_s
from testbed.workload.oracles.serialisation import UNFRAMED, Framing, pattern_ideal_s
from testbed.workload.steps import fabric_pairs, requests_last_ns

if TYPE_CHECKING:
    from testbed.record.record import MetricSummary, RunResult

_FRAME_BYTES = 78
_WayClass = tuple[str, str, str, int, int, int, int]
_SPRAYED = (PathChoice.OBLIVIOUS, PathChoice.ADAPTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointIdeals:
    """Lab rates and lab times."""

    framing: Framing
    """With the bytes of VXLAN where they slow every flow of the traffic down (`LabTransport.is_slowed_by_vxlan`)."""
    dscp: int
    nic_bps: float
    """The rate of the slowest NIC that sends, among those in collectives where there are any."""
    base_rtt_s: float
    """The longest between two ranks that talk, modelled."""
    way_s: Callable[[PortPlan, PortPlan], float]
    """The least time from NIC to NIC of what is sent, behind its own serialisation there."""
    k: float
    tiers: Mapping[str, str]
    """The tier of each port's link, by "node:interface"."""
    domains: ScaleUpDomains
    """The links of the scale-up domains."""
    endpoint_bps: Callable[[PortPlan], float]
    """The most that the end of a transfer at a NIC sends or receives."""
    metrics: Mapping[str, float]
    """The ideal of each metric that has one for this very traffic, over the runs."""
    parts: Mapping[int, Sequence[tuple[RunTraffic, PointIdeals]]] = field(default_factory=dict)
    """By the seed of a run, the parts of its traffic that different transports carry, with what each is compared with.
    None where one carries all; else `framing` and `dscp` are those of the first."""

    @classmethod
    def of(cls, scenario: Scenario, lab: LiveLab, traffic: Sequence[RunTraffic]) -> PointIdeals:
        if traffic[0].parts:
            return cls._of_parts(scenario, lab, traffic)
        first = traffic[0]
        nic = _slowest_sender(first)
        graph = fabric_graph(lab.model, lab.plan)
        transport = transport_on(lab, scenario.transport)
        return cls(
            framing=_framing(transport, nic, traffic),
            dscp=transport.dscp,
            nic_bps=slowest_bps(first),
            base_rtt_s=_base_rtt_s(lab, traffic) + 2 * transport.pipeline_ns / 1e9,
            way_s=_Ways(transport).way_s,
            k=lab.plan.k,
            tiers={link.name: link.tier for link in graph.links},
            domains=scale_up_domains(lab.model, lab.plan.k),
            endpoint_bps=transport.endpoint_bps,
            metrics=_metric_ideals(
                first,
                graph_uplinks(graph.links),
                sprayed=path_choice(scenario.transport, lab) in _SPRAYED,
                flows=_flows_of(scenario.transport),
            )
            | _latency_ideals(transport, first),
        )

    @classmethod
    def _of_parts(cls, scenario: Scenario, lab: LiveLab, traffic: Sequence[RunTraffic]) -> PointIdeals:
        """Each part is compared with its own, in the networks that it is in."""
        parts: dict[int, list[tuple[RunTraffic, PointIdeals]]] = {}
        sprayed: set[tuple[bool, int]] = set()
        for one in traffic:
            for part in one.parts:
                alone = replace(one, workload=part.workload, parts=())
                carried = replace(scenario, transport=part.transport, tenant_transports=())
                chosen = path_choice(part.transport, part.view(lab)) in _SPRAYED
                sprayed.add((chosen, _flows_of(part.transport)))
                parts.setdefault(one.seed, []).append((alone, cls.of(carried, part.view(lab), [alone])))
        every = [ideals for some in parts.values() for _, ideals in some]
        collective = [ideals for some in parts.values() for part, ideals in some if part.workload.collectives]
        first, graph = every[0], fabric_graph(lab.model, lab.plan)
        return cls(
            framing=first.framing,
            dscp=first.dscp,
            nic_bps=min(one.nic_bps for one in collective or every),
            base_rtt_s=max(one.base_rtt_s for one in every),
            way_s=first.way_s,
            k=lab.plan.k,
            tiers={link.name: link.tier for link in graph.links},
            domains=first.domains,
            endpoint_bps=first.endpoint_bps,
            # Where some are sprayed and some are not, how evenly uplinks are loaded has no ideal.
            metrics={}
            if len(sprayed) > 1
            else _metric_ideals(
                traffic[0],
                graph_uplinks(graph.links),
                sprayed=any(chosen for chosen, _ in sprayed),
                flows=max(flows for _, flows in sprayed),
            ),
            parts=parts,
        )

    def dscp_at(self, nic: PortPlan, traffic: RunTraffic) -> int:
        """Return what packets are marked with that a NIC sends in this traffic."""
        for part, (_, ideals) in zip(traffic.parts, self.parts.get(traffic.seed, ()), strict=True):
            if any(traffic.placement.nics[rank] == nic for rank in part.ranks):
                return ideals.dscp
        return self.dscp

    def pattern_ideal_s(self, traffic: RunTraffic) -> float | None:
        """Return the time until the last byte has arrived, half a base RTT after it was sent, if all begins at once and
        the fabric between the NICs is no limit. What stays inside a scale-up domain goes over its links meanwhile."""
        if self.parts:
            each = [ideals.pattern_ideal_s(part) for part, ideals in self.parts[traffic.seed]]
            known = [one for one in each if one is not None]
            return max(known) if known and len(known) == len(each) else None
        if not traffic.workload.is_pattern or not traffic.workload.steps:
            return None
        ends: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}
        for step in traffic.workload.transfers:
            ends[step.scale_up].append((step.source, step.destination, step.size_bytes))
        over_fabric_s = pattern_ideal_s(
            ends[False],
            {rank: self.endpoint_bps(nic) for rank, nic in enumerate(traffic.placement.nics)},
            base_rtt_s=self._way_s(traffic),
            framing=self.framing,
        )
        nics = traffic.placement.nics
        links = dict.fromkeys(range(len(nics)), self.domains.links.rate_bps)
        inside_s = pattern_ideal_s(
            ends[True], {**links, **region_rates(nics)}, base_rtt_s=self.domains.latency_s, framing=UNFRAMED
        )
        return max(over_fabric_s, inside_s)

    def _way_s(self, traffic: RunTraffic) -> Callable[[int, int], float]:
        """The least time on the way between two ranks."""
        nics = traffic.placement.nics
        return lambda a, b: self.way_s(nics[a], nics[b])

    def roofline_s(self, traffic: RunTraffic) -> float | None:
        """Return what the slowest rank needs at least for what it sends, receives and computes; None for nothing."""
        if self.parts:
            each = [ideals.roofline_s(part) for part, ideals in self.parts[traffic.seed]]
            return max((one for one in each if one is not None), default=None)
        bound = workload_roofline_s(
            traffic.workload,
            rate_bps=lambda rank: self.endpoint_bps(traffic.placement.nics[rank]),
            scale_up_bps=self.domains.links.rate_bps,
            in_switch_bps=self.domains.links.in_switch_bps,
            scale_up_latency_s=self.domains.latency_s,
            latency_s=self._way_s(traffic),
            wire_bytes=self.framing.wire_bytes,
            memory_bps=region_rates(traffic.placement.nics),
            scale=self.k,
        )
        return bound or None


class _Ways:
    """The least time on the way of a transport's packets, remembered for all NICs of two switches."""

    def __init__(self, transport: LabTransport) -> None:
        self._transport = transport
        self._known_s: dict[_WayClass, float] = {}

    def way_s(self, a: PortPlan, b: PortPlan) -> float:
        """Return the time (s) of the smallest frame through all ports but one, which is the sender's own, and of what
        delays it: the kernel by the way that is shortest, and endpoints. Ranks of one host are not a wire apart."""
        if a.node == b.node:
            return 0.0
        key = _way_class(a, b)
        if key not in self._known_s:
            path = self._transport.path(a, b)
            delayed_ns = min(path.kernel_ns, path.least_ns) + self._transport.held_ns(path)
            own_ns = 8 * SMALLEST_FRAME_BYTES * 1_000_000_000 // max(path.rates_bps)
            self._known_s[key] = (path.serialisation_ns(SMALLEST_FRAME_BYTES) - own_ns + delayed_ns) / 1e9
        return self._known_s[key]


def _way_class(a: PortPlan, b: PortPlan) -> _WayClass:
    """Return a key that ways between NICs share which take the same time."""
    return _leaf(a), _leaf(b), a.tenant, a.rate_bps, b.rate_bps, a.delay_ns, b.delay_ns


def _framing(transport: LabTransport, nic: PortPlan, traffic: Sequence[RunTraffic]) -> Framing:
    """The framing of a NIC's messages; with what only some of the flows are slowed down by, it would be no bound."""
    plain = transport.framing(nic)
    if not nic.tenant:
        return plain
    ends = ((one.placement.nics[a], one.placement.nics[b]) for one in traffic for a, b in fabric_pairs(one.workload))
    pairs = [(a, b) for a, b in ends if a.node != b.node]
    wrapped = bool(pairs) and all(transport.is_slowed_by_vxlan(a, b) for a, b in pairs)
    return plain.wrapped(VXLAN_BYTES) if wrapped else plain


def slowest_bps(traffic: RunTraffic) -> float:
    """Return the rate of the slowest NIC that sends, in collectives where there are any: what bus bandwidth is a share
    of. Tenants beside may be in a slower network."""
    ranks = {rank for collective in traffic.workload.collectives for rank in collective.ranks}
    mine = {(nic.node, nic.name) for nic in (traffic.placement.nics[rank] for rank in ranks)}
    ends = [nic for _, *nics in traffic.placement.over_fabric(traffic.workload) for nic in nics]
    known = [nic.nic_bps for nic in ends if (nic.node, nic.name) in mine]
    return float(min(known, default=_slowest_sender(traffic).nic_bps))


def _slowest_sender(traffic: RunTraffic) -> PortPlan:
    """The slowest of the NICs that steps go over; of all where there are only requests."""
    nics = [nic for _, *ends in traffic.placement.over_fabric(traffic.workload) for nic in ends]
    return min(nics or traffic.placement.nics, key=lambda one: one.nic_bps)


def graph_uplinks(links: Sequence[DirectedLink]) -> dict[str, int]:
    """Return how many uplinks each rail switch has."""
    return dict(Counter(link.name.partition(":")[0] for link in links if link.tier == UPLINKS))


def summarise(runs: Sequence[RunResult], ideals: PointIdeals) -> list[MetricSummary]:
    """Every metric over all runs, in the order in which they are printed."""
    found = summarise_metrics([run.metrics for run in runs])
    whole = [(name, metric, ideals.metrics.get(name)) for name, metric in CATALOGUE.items() if name in found]
    selected = [
        (name, metric, metric.ideal)
        for name in found
        if selected_words(name) and (metric := definition_of(name)) is not None
    ]
    return [_summary(name, metric, found[name], ideal) for name, metric, ideal in [*whole, *selected]]


def _summary(name: str, definition: Metric, summary: RunSummary, ideal: float | None) -> MetricSummary:
    from testbed.record.record import MetricSummary  # a large module, and who foresees a point needs none of it

    selected = selected_words(name)
    return MetricSummary(
        name=name,
        title=f"{definition.title}, {selected}" if selected else definition.title,
        unit=definition.unit.value,
        definition=f"{definition.formula} ({definition.source})",
        headline=definition.headline and not selected,
        ideal=ideal,
        values=list(summary.values),
        median=summary.median,
        minimum=summary.minimum,
        maximum=summary.maximum,
        cv=summary.cv,
    )


def _base_rtt_s(lab: LiveLab, traffic: Sequence[RunTraffic]) -> float:
    paths = WirePaths.of(lab.plan)
    seen: dict[_WayClass, float] = {}
    longest = 0.0
    for one in traffic:
        for source, destination in fabric_pairs(one.workload):
            a, b = one.placement.nics[source], one.placement.nics[destination]
            if a.node == b.node:
                continue
            key = _way_class(a, b)
            if key not in seen:
                path = paths.path(a.wire, b.wire)
                seen[key] = path.base_rtt_ns(_FRAME_BYTES) / 1e9
            longest = max(longest, seen[key])
    return longest


def _leaf(nic: PortPlan) -> str:
    return nic.peer.partition(":")[0]


def _flows_of(transport: Transport) -> int:
    """Return over how many flows, which switches tell apart, a transport stripes each transfer."""
    return int(transport.options.get("qps", 1))


def _metric_ideals(traffic: RunTraffic, uplinks: Mapping[str, int], *, sprayed: bool, flows: int) -> dict[str, float]:
    """For the uplink metrics the ideal places whole flows as evenly as possible, of which a transfer has `flows`: n on
    m uplinks are n // m on each and one more on n % m of them. Flows that are `sprayed` are on all of them alike."""
    ideals = {metric.name: metric.ideal for metric in CATALOGUE.values() if metric.ideal is not None}
    workload, placement = traffic.workload, traffic.placement
    if not workload.is_pattern:
        return ideals
    leaving: defaultdict[str, int] = defaultdict(int)
    for step, *_ in placement.over_fabric(workload):
        a, b = placement.leaf(step.source), placement.leaf(step.destination)
        if a != b:
            leaving[a] += flows
    placed = {
        switch: [float(leaving[switch])] * count if sprayed else _even(leaving[switch], count)
        for switch, count in uplinks.items()
        if count > 0
    }
    everywhere = [load for loads in placed.values() for load in loads]
    for name, value in (
        ("mmr_uplinks", CATALOGUE["mmr_uplinks"].compute(everywhere)),
        ("jain_links", CATALOGUE["jain_links"].compute(everywhere)),
        ("mmr_worst_switch", CATALOGUE["mmr_worst_switch"].compute(placed)),
    ):
        if value is not None:
            ideals[name] = value
    return ideals


def _latency_ideals(transport: LabTransport, traffic: RunTraffic) -> dict[str, float]:
    """Return the ideals of the metrics of latency; each pair has as many messages as every other."""
    if not transport.transport.measures_latency:
        return {}
    ideal_s = list(transport.message_ideals_s(traffic))
    percentiles = {metric.name: metric.compute(ideal_s) for metric in LATENCY if metric.ideal is None}
    return {name: value for name, value in percentiles.items() if value is not None}


def _even(flows: int, uplinks: int) -> list[float]:
    base, more = divmod(flows, uplinks)
    return [float(base + (index < more)) for index in range(uplinks)]


def ideal_s(scenario: Scenario, lab: LiveLab, traffic: RunTraffic) -> float | None:
    """An ideal fabric's time for this traffic, or the last start where that is later, in lab time."""
    if not traffic.workload.steps and not traffic.workload.requests:
        return None
    ideals = PointIdeals.of(scenario, lab, [traffic])
    found = [ideals.pattern_ideal_s(traffic), ideals.roofline_s(traffic)]
    last_start_ns = max((one.start_ns for one in traffic.workload.transfers), default=0)
    answered_ns = requests_last_ns(traffic.workload)
    return max([one for one in found if one is not None] + [max(last_start_ns, answered_ns) * lab.plan.k / 1e9]) or None
