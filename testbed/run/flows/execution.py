"""One run as flows: its channels and paths as they would be with packets, and what is known of it at the end."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.flows.engine import Move, StepTimes, run_steps
from testbed.run.flows.paths import NOWHERE, FlowPaths, Route
from testbed.run.flows.slowed_links import slowed_links
from testbed.run.measuring.measured import Measured, TimeLimitReached
from testbed.run.measuring.observation import Observation
from testbed.run.measuring.reports import Ideals, put_together
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.placed.traffic import RunTraffic
from testbed.run.scale_up.domains import scale_up_domains
from testbed.run.schema.model import Fault
from testbed.run.simulated.execution import without_collector
from testbed.run.transports.lab_transport import LabTransport, PathChoice
from testbed.workload.oracles.roofline import ring_round_s
from testbed.workload.oracles.serialisation import serialisation_s
from testbed.workload.steps import Compute, FoldedRing, Step, Transfer

MERGED = 1e-3
"""Events that lie within this share of the median transfer's time alone are taken together."""
_FIRST_OF_THEM = 20_000
"""The median is that of so many transfers, evenly spread, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRun:
    """A run as it was computed, with how much work that was."""

    measured: Measured
    events: int
    looked_at: int


def execute_flows(  # what a run goes by
    lab: LiveLab,
    transport: LabTransport,
    choice: PathChoice,
    traffic: RunTraffic,
    *,
    limit_s: float,
    on_progress: Callable[[float], bool],
    faults: tuple[Fault, ...] = (),
) -> FlowRun:
    """Run the traffic of one run. `on_progress` gets the share of steps that have ended, and returns whether to stop.

    Raises `ScenarioError` for a workload that does not fit the ranks, or has no path.
    """
    with without_collector():
        return _Execution(lab, transport, choice, traffic, faults).run(limit_s, on_progress)


class _Execution:
    """The tables of one run."""

    def __init__(
        self,
        lab: LiveLab,
        transport: LabTransport,
        choice: PathChoice,
        traffic: RunTraffic,
        faults: tuple[Fault, ...],
    ) -> None:
        nics = traffic.placement.nics
        self._lab = lab
        self._placement = PlacedWorkload(
            workload=traffic.workload,
            ranks=nics,
            channels=transport.plan_channels(traffic.workload, nics, seed=traffic.seed),
            k=lab.plan.k,
            seed=traffic.seed,
            domains=scale_up_domains(lab.model, lab.plan.k),
        )
        self._transport = transport
        self._ideals = _remembered(transport.ideals())
        self._slowed, self._events = slowed_links(faults, lab.plan)
        self._paths = FlowPaths(lab, transport, choice, self._placement, self._slowed)
        self._rings: dict[Hashable, Move] = {}
        self._moves: dict[tuple[int, int], Move] = {}
        """The moves of transfers over the fabric, by channel and size."""
        self._carried: defaultdict[int, float] = defaultdict(float)
        """The bytes on the wire of each channel."""

    def run(self, limit_s: float, on_progress: Callable[[float], bool]) -> FlowRun:
        workload = self._placement.workload
        times = run_steps(
            workload.steps,
            self._paths.capacity,
            self._move,
            k=self._placement.k,
            limit_s=limit_s,
            merge_s=self._merge_s(),
            on_progress=on_progress,
        )
        observation = Observation(cpu=None)
        measured = Measured(events=self._events, observation=observation, interrupted=times.stopped)
        put_together(self._placement, {"flows": self._report(times)}, (), self._ideals, measured)
        ended = times.ended_s[np.isfinite(times.ended_s)]
        observation.elapsed_s = float(ended.max(initial=0.0))
        observation.sent = self._sent()
        if times.steps_left and not times.stopped:
            measured.failure = TimeLimitReached(limit_s, {"the workload": times.steps_left})
        return FlowRun(measured=measured, events=times.events, looked_at=times.looked_at)

    def _merge_s(self) -> float:
        """The time within which events are taken together."""
        transfers = [step for step in self._placement.workload.steps if isinstance(step, Transfer | FoldedRing)]
        some = transfers[:: max(1, len(transfers) // _FIRST_OF_THEM)]
        alone = [bits / self._rate_bps(step) for step in some if (bits := self._bits(step))]
        return MERGED * statistics.median(alone) if alone else 0.0

    def _rate_bps(self, step: Transfer | FoldedRing) -> float:
        ranks = self._placement.ranks
        if isinstance(step, FoldedRing):
            inside = len(step.inside) == len(step.ranks)
            return self._inside_bps if inside else min(float(ranks[rank].nic_bps) for rank in step.ranks)
        if step.number not in self._placement.channels.of_step:
            return self._inside_bps
        return float(min(ranks[step.source].nic_bps, ranks[step.destination].nic_bps))

    @property
    def _inside_bps(self) -> float:
        return float(self._placement.domains.links.rate_bps) or math.inf

    def _bits(self, step: Transfer | FoldedRing) -> float:
        """The bits that a transfer has on the wire, or a rank of a ring in all its rounds."""
        size_bytes, rounds = step.size_bytes, step.rounds if isinstance(step, FoldedRing) else 1
        if isinstance(step, Transfer) and step.number not in self._placement.channels.of_step:
            return 8.0 * size_bytes
        if isinstance(step, FoldedRing) and len(step.inside) == len(step.ranks):
            return 8.0 * size_bytes * rounds
        source = step.ranks[0] if isinstance(step, FoldedRing) else step.source
        return 8.0 * rounds * self._ideals.framing(self._placement.ranks[source]).wire_bytes(size_bytes)

    # --- what steps move ----------------------------------------------------------------------------------

    def _move(self, step: Step) -> Move:
        match step:
            case Transfer():
                channel = self._placement.channels.of_step.get(step.number)
                return self._inside(step) if channel is None else self._over_fabric(step, channel)
            case FoldedRing():
                return self._ring(step)
            case Compute():
                raise AssertionError("computing moves nothing")

    def _over_fabric(self, step: Transfer, channel: int) -> Move:
        key = channel, step.size_bytes
        found = self._moves.get(key)
        if found is None:
            found = self._moves[key] = Move(
                route=self._paths.over_fabric(channel),
                bits=self._bits(step),
                way_s=self._way_s(step.source, step.destination, step.size_bytes),
            )
        self._carried[channel] += found.bits / 8
        return found

    def _way_s(self, source: int, destination: int, size_bytes: int) -> float:
        """The time of a transfer alone behind its bits, which pass the slowest port of the way in the ideal's time."""
        a, b = self._placement.ranks[source], self._placement.ranks[destination]
        wire_bytes = self._ideals.framing(a).wire_bytes(size_bytes)
        alone_s = self._ideals.one_way_s(a, b, size_bytes)
        return max(0.0, alone_s - serialisation_s(wire_bytes, min(self._transport.path(a, b).rates_bps)))

    def _inside(self, step: Transfer) -> Move:
        """A transfer over scale-up links. An operation in the switch has the switch's rate, up and then down."""
        domains = self._placement.domains
        way_s = domains.latency_s
        out, into = self._paths.inside(step.source, step.destination)
        bits = 8.0 * step.size_bytes
        if not domains.links.rate_bps:
            return Move(route=NOWHERE, bits=0.0, way_s=way_s)
        part = step.in_switch
        if part is None:
            return Move(route=_links((out, 1.0), (into, 1.0)), bits=bits, way_s=way_s)
        slower = domains.links.rate_bps / (domains.links.in_switch_bps or domains.links.rate_bps)
        once_s = bits * slower / domains.links.rate_bps
        one = slower / part.members
        route = _links((out, one), (into, slower)) if part.multicast else _links((out, slower), (into, one))
        return Move(route=route, bits=bits, way_s=way_s + once_s)

    def _ring(self, step: FoldedRing) -> Move:
        """All rounds of a ring: all its links carry as much, so that the slowest holds back all."""
        between = self._placement.channels.between
        fabric = [ends for ends in step.edges if ends[0] not in step.inside]
        for ends in fabric:
            self._carried[between[ends]] += self._bits(step) / 8
        key = step.ranks, step.inside, step.size_bytes, step.rounds, step.chunks
        found = self._rings.get(key)
        if found is None:
            found = self._rings[key] = self._ring_of(step, fabric)
        return found

    def _ring_of(self, step: FoldedRing, fabric: list[tuple[int, int]]) -> Move:
        placement, domains = self._placement, self._placement.domains
        block_bits = self._bits(step) / step.rounds
        used: defaultdict[int, float] = defaultdict(float)
        busy_s, ways_s = [], []
        for source, destination in fabric:
            route = self._paths.over_fabric(placement.channels.between[source, destination])
            for link, weight in zip(route.links.tolist(), route.weights.tolist(), strict=True):
                used[link] += weight
            a, b = placement.ranks[source], placement.ranks[destination]
            busy_s.append(block_bits / min(a.rate_bps, b.rate_bps))
            ways_s.append(self._way_s(source, destination, step.size_bytes))
        for source, destination in step.edges:
            if source in step.inside:
                if domains.links.rate_bps:
                    for link in self._paths.inside(source, destination):
                        used[link] += 8.0 * step.size_bytes / block_bits
                busy_s.append(8.0 * step.size_bytes / self._inside_bps)
                ways_s.append(domains.latency_s)
        return Move(
            route=_links(*used.items()),
            bits=block_bits * step.rounds if used else 0.0,
            way_s=max(ways_s),
            alone_s=step.rounds * ring_round_s(busy_s, ways_s, step.chunks),
        )

    # --- what is known ------------------------------------------------------------------------------------

    def _report(self, times: StepTimes) -> dict[str, Any]:
        """The report of workers on the steps, without what only packets know."""
        started, ended = np.flatnonzero(np.isfinite(times.started_s)), np.flatnonzero(np.isfinite(times.ended_s))
        return {
            "started": (started.tolist(), np.rint(1e9 * times.started_s[started]).astype(np.int64).tolist()),
            "arrived": (ended.tolist(), np.rint(1e9 * times.ended_s[ended]).astype(np.int64).tolist()),
            "wrong": [],
            "channels": [],
            "samples": {},
            "counters": {},
            "latest_timer_ns": 0,
            "steps_left": times.steps_left,
        }

    def _sent(self) -> Mapping[tuple[str, str], PortCounters]:
        """The bytes that each port has sent, as far as the run has come."""
        loads = self._paths.link_bytes(self._carried).tolist()
        found: dict[tuple[str, str], PortCounters] = {}
        for link, size in zip(self._paths.graph.links, loads, strict=True):
            node, _, interface = link.name.partition(":")
            found[node, interface] = PortCounters(tx_bytes=round(size))
        return found


def _links(*used: tuple[int, float]) -> Route:
    return Route(
        np.array([link for link, _ in used], dtype=np.int64), np.array([weight for _, weight in used], dtype=np.float64)
    )


def _remembered(ideals: Ideals) -> Ideals:
    """Return the same ideals, each computed once."""
    framings: dict[int, Any] = {}

    def framing(nic: PortPlan) -> Any:
        found = framings.get(nic.mtu_bytes)
        if found is None:
            found = framings[nic.mtu_bytes] = ideals.framing(nic)
        return found

    ways: dict[tuple[str, str, int], float] = {}

    def one_way_s(a: PortPlan, b: PortPlan, size_bytes: int) -> float:
        key = (a.wire, b.wire, size_bytes)
        found = ways.get(key)
        if found is None:
            found = ways[key] = ideals.one_way_s(a, b, size_bytes)
        return found

    return Ideals(framing=framing, goodput_bps=ideals.goodput_bps, one_way_s=one_way_s)
