"""The packet-level twin of a point: the same design and messages, small enough for packets, run with three seeds.

A point of at most 512 NICs is its own twin, unless its lab is only outlined. A larger one of a design is made smaller:
fewer pods and segments, then fewer hosts with as many fewer spines, so that the tiers keep their oversubscription as
far as whole switches allow. Collectives keep the size of their messages, and so does a training step, with fewer stages
and micro-batches. Where that is still too much for packets, messages are cut, to no less than eight bandwidth-delay
products: the longer a message, the less its beginning and its end count, which is all that flows leave out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from testbed.base.errors import PlanError, ScenarioError, SpecError, TestbedError, WorkloadError
from testbed.base.units import ByteCount
from testbed.lab.core.model import Lab
from testbed.record.record import PacketTwin
from testbed.run.flows.bands import metric_bands
from testbed.run.flows.point import FlowPoint
from testbed.run.flows.support import MOST_PLANNED_LINKS
from testbed.run.flows.twin_shape import TwinShape
from testbed.run.placed.traffic import RunTraffic, bdp_bytes
from testbed.run.schema.model import Parameter, Scalar, TopologyRef
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.simulated.support import check_supported
from testbed.run.sweep.point_runs import RunOutcome
from testbed.run.sweep.points import Point, Sweep, topology_key
from testbed.workload.collectives.operation import CollectiveKind
from testbed.workload.parameters import Values
from testbed.workload.registry import workload_kind
from testbed.workload.steps import Collective, Combine, Compute, FoldedRing, Step, Transfer, Workload

MOST_NICS = 512
SEEDS = 3
MOST_HOPS = 4_000_000
"""The packets on lines, in one run, up to which nothing is cut: half a minute on one CPU."""
SMALLER_HOPS = 1_500_000
"""The packets on lines of a smaller point, which has as few NICs: ten seconds on one CPU."""
HOPS_A_PACKET = 6
"""Lines on the way of a packet, with those of what acknowledges it."""
LEAST_BDPS = 8
"""Messages are cut to no less."""
LEAST_RANKS = 16
TRAINING_STAGES, TRAINING_REPLICAS, TRAINING_BATCHES = 2, 4, 2
_PER_RANK = frozenset(
    kind.value.replace("_", "-")
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER)
)
"""Kinds whose messages are a rank's part of their size."""
_ANY_SIZE = frozenset({"permutation", "tornado", "incast", "outcast", "background", "mice", "send-recv", "all-to-all"})
"""Kinds that are the same with fewer ranks."""


class TwinRuns(SimulatedPoint):
    """The runs of a twin with packets, which carry traffic alone."""

    data_limit_bytes = 0
    folds_large: ClassVar[bool] = False
    """The transfers of a ring are counted, and cut."""

    def __init__(self, point: Point, model: Lab, *, most_hops: int = MOST_HOPS) -> None:
        super().__init__(point, model)
        self.cut_to = _cap(self.traffic[0], bdp_bytes(self.lab, self.traffic[0].placement), self._payload(), most_hops)
        self.traffic = [cut_traffic(one, self.cut_to) for one in self.traffic]

    def run(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        """Do the run of this number. One that fails says nothing of its point, and stops no other point's."""
        try:
            outcome = super().run(index, on_progress)
        except TestbedError as error:
            return self.lost(index, error.message)
        return outcome if outcome.failure is None else self.lost(index, outcome.failure.message)

    def _payload(self) -> int:
        return self.ideals.framing.payload_bytes


class TwinFlows(FlowPoint):
    """The runs of a twin as flows, of the very traffic that goes by packets."""

    def __init__(self, point: Point, model: Lab, *, folds: bool, cut_to: int) -> None:
        super().__init__(point, model, folds=folds)
        self.traffic = [cut_traffic(one, cut_to) for one in self.traffic]


@dataclass(slots=True, kw_only=True)
class Twin:
    """A twin that can be run, or the reason why there is none."""

    words: str
    packets: TwinRuns | None = None
    flows: TwinFlows | None = None
    failure: str = ""

    def told(self, runs: Sequence[RunOutcome]) -> PacketTwin:
        """Return what the runs with packets, by their seeds, say beside those as flows."""
        if self.packets is None or self.flows is None:
            return PacketTwin(words=self.words, nics=0, seeds=[], failure=self.failure)
        seeds = list(self.packets.scenario.repeat.seeds)
        nics = len(self.packets.traffic[0].placement.nics)
        failure = self.failure or _failure(runs, len(seeds))
        if failure:
            return PacketTwin(words=self.words, nics=nics, seeds=seeds, failure=failure)
        flows = [self.flows.run(index + 1, lambda _: False) for index in range(len(seeds))]
        failure = _failure(flows, len(seeds), "flows")
        if failure:
            return PacketTwin(words=self.words, nics=nics, seeds=seeds, failure=failure)
        ours, theirs = ([run.result for run in some if run.result is not None] for some in (flows, runs))
        return PacketTwin(words=self.words, nics=nics, seeds=seeds, bands=metric_bands(ours, theirs))


def _failure(runs: Sequence[RunOutcome], wanted: int, what: str = "packets") -> str:
    """Return why runs of a twin say nothing; "" where they do."""
    for run in runs:
        if run.failure is not None:
            return f"its {what} failed: {run.failure.message}"
        if run.result is None or not run.result.is_valid:
            bad = [check.message for check in run.result.checks if not check.ok] if run.result is not None else []
            return f"its {what} are not to be trusted: {'; '.join(bad) or 'a run did not end'}"
    return "" if len(runs) == wanted else f"its {what} were not run to the end"


def make_twin(sweep: Sweep, point: FlowPoint) -> Twin:
    """Return the twin of a point. Where there can be none, it says why."""
    words, twin, lab = "the point itself", point.point, sweep.lab_of(point.point)
    whole = len(point.traffic[0].placement.nics) <= MOST_NICS and len(lab.links) <= MOST_PLANNED_LINKS
    try:
        if not whole:
            words, twin, lab = _smaller(sweep, point)
        scenario, most_hops = twin.scenario, MOST_HOPS if whole else SMALLER_HOPS
        twin = replace(twin, scenario=replace(scenario, repeat=replace(scenario.repeat, runs=SEEDS)))
        check_supported(_alone(sweep, twin, lab))
        packets = TwinRuns(twin, lab, most_hops=most_hops)
        flows = TwinFlows(twin, lab, folds=point.folds, cut_to=packets.cut_to)
    except (ScenarioError, PlanError, SpecError, WorkloadError) as error:
        return Twin(words=words, failure=f"there is none: {error_text(error)}")
    if packets.cut_to:
        words += f", messages cut to {ByteCount(packets.cut_to)}"
    return Twin(words=words, packets=packets, flows=flows)


def error_text(error: TestbedError | SpecError) -> str:
    """Return the first line of what an error says."""
    return str(error).splitlines()[0].replace("--backend simulation", "packets")


def _alone(sweep: Sweep, point: Point, lab: Lab) -> Sweep:
    return replace(sweep, points=(point,), labs={topology_key(point.topology): lab})


# --- cut down to what packets can do ---------------------------------------------------------------------


def _cap(traffic: RunTraffic, bdp: int, payload: int, most_hops: int) -> int:
    """Return what messages are to be cut to; 0 where they need not be."""
    sizes = sorted((step.size_bytes for step in traffic.workload.transfers if not step.scale_up), reverse=True)
    if not sizes or _hops(sizes, payload) <= most_hops:
        return 0
    least, most = min(LEAST_BDPS * bdp, sizes[0]), sizes[0]
    while most - least > max(payload, least // 100):
        middle = (least + most) // 2
        if _hops([min(size, middle) for size in sizes], payload) > most_hops:
            most = middle
        else:
            least = middle
    return least


def _hops(sizes: Sequence[int], payload: int) -> int:
    return HOPS_A_PACKET * sum(-(-size // payload) for size in sizes)


def cut_traffic(traffic: RunTraffic, cut_to: int) -> RunTraffic:
    """Return the traffic with no message above this size (0: as it is), and computing shorter by as much."""
    if not cut_to:
        return traffic
    workload = traffic.workload
    largest = max(step.size_bytes for step in workload.steps if not isinstance(step, Compute))
    share = min(1.0, cut_to / largest)
    steps = tuple(_cut(step, cut_to, share) for step in workload.steps)
    collectives = tuple(_as_moved(one, workload.steps, steps) for one in workload.collectives)
    return replace(traffic, workload=replace(workload, steps=steps, collectives=collectives))


def _as_moved(collective: Collective, before: Sequence[Step], after: Sequence[Step]) -> Collective:
    """Return a collective of as many elements as its transfers still have: bus bandwidth goes by its size."""
    whole, left = _moved_bytes(collective, before), _moved_bytes(collective, after)
    if whole == left or not collective.elements:
        return collective
    elements = max(1, round(collective.elements * left / whole))
    size = max(1, round(collective.size_bytes * elements / collective.elements))
    return replace(collective, elements=elements, size_bytes=size)


def _moved_bytes(collective: Collective, steps: Sequence[Step]) -> int:
    moves = (steps[number] for number in collective.steps)
    return sum(step.size_bytes for step in moves if not isinstance(step, Compute))


def _cut(step: Step, cut_to: int, share: float) -> Step:
    match step:
        case Compute():
            return replace(step, duration_ns=round(step.duration_ns * share)) if step.duration_ns else step
        case FoldedRing():
            return replace(step, size_bytes=min(step.size_bytes, cut_to))
        case Transfer():
            return replace(step, size_bytes=min(step.size_bytes, cut_to), combine=Combine.NONE)


# --- a smaller one of the same design --------------------------------------------------------------------


def _smaller(sweep: Sweep, point: FlowPoint) -> tuple[str, Point, Lab]:
    """Return a smaller point, its lab, and in which way it differs. Raises `ScenarioError` where there is none."""
    scenario, model = point.scenario, point.whole.model
    if not model.design:
        raise ScenarioError(
            f"{model.name} has more than {MOST_NICS} NICs or {MOST_PLANNED_LINKS:,} links, and no design that could be"
            " smaller"
        )
    if scenario.workload.ranks.hosts or scenario.faults:
        raise ScenarioError(f"hosts and links that are named are not there in a design of {MOST_NICS} NICs")
    ranks = len(point.traffic[0].placement.nics)
    size = min(_ranks_wanted(point), ranks)
    shape = TwinShape.of(model)
    small = shape.within(max(size, shape.least), MOST_NICS)
    settings: dict[str, Scalar] = {**scenario.topology.set, **small.settings(shape)}
    topology: TopologyRef = replace(scenario.topology, set=MappingProxyType(settings))
    lab = sweep.reader.load_topology(topology)
    count = scenario.workload.ranks.count
    wanted = min(size, small.nics)
    workload = replace(
        scenario.workload,
        parameters=_parameters(point, ranks, wanted),
        ranks=replace(scenario.workload.ranks, count=wanted if count is not None or wanted < small.nics else None),
    )
    twin = replace(point.point, scenario=replace(scenario, topology=topology, workload=workload))
    said = small.words(shape)
    return f"{wanted} NICs of the same design" + (f" ({said})" if said else ""), twin, lab


def _values(point: FlowPoint) -> Values:
    workload = point.scenario.workload
    known = {one.name: one for one in workload_kind(workload.kind).parameters}
    bdp = bdp_bytes(point.lab, point.traffic[0].placement)
    return Values(parameters=known, written=workload.parameters, bdp_bytes=bdp)


def _ranks_wanted(point: FlowPoint) -> int:
    """Return how many ranks a smaller point has: as many as packets can be moved for without other messages, as far as
    these are not cut anyway. Transfers of a ring and of an all-to-all grow with the square of their ranks."""
    kind, values, traffic = point.scenario.workload.kind, _values(point), point.traffic[0]
    if kind == "training-step":
        return values.whole("tensor") * min(values.whole("pipeline"), TRAINING_STAGES) * TRAINING_REPLICAS
    payload, longest, ranks = point.ideals.framing.payload_bytes, LEAST_BDPS * values.bdp_bytes, MOST_NICS
    here = len(traffic.placement.nics)

    def hops(ranks: int) -> float:
        if kind in _PER_RANK:
            block = -(-values.bytes("bytes", unit=4) // here)
            return 2 * ranks * (ranks - 1) * _hops([min(block, longest)], payload)
        sizes = [min(step.size_bytes, longest) for step in traffic.workload.transfers if not step.scale_up]
        return _hops(sizes, payload) * (ranks / here) ** (2 if kind == "all-to-all" else 1)

    while ranks > LEAST_RANKS and hops(ranks) > SMALLER_HOPS:
        ranks //= 2
    return ranks


def _parameters(point: FlowPoint, ranks: int, wanted: int) -> Mapping[str, Parameter]:
    """Return the parameters of the workload on fewer ranks, whose messages are as large."""
    kind, written = point.scenario.workload.kind, dict(point.scenario.workload.parameters)
    values = _values(point)
    if kind == "training-step":
        written |= {
            "pipeline": min(values.whole("pipeline"), TRAINING_STAGES),
            "micro_batches": min(values.whole("micro_batches"), TRAINING_BATCHES),
            "steps": 1,
        }
        written.pop("data", None)
        return MappingProxyType(written)
    if kind in _PER_RANK:
        size = max(1, values.bytes("bytes", unit=4) * wanted // ranks // 4) * 4
        return MappingProxyType(written | {"bytes": ByteCount(size)})
    if kind in _ANY_SIZE:
        return MappingProxyType(written)
    raise ScenarioError(f"nobody knows how {kind} of {ranks} ranks is made smaller")


def smallest_message(workload: Workload) -> int:
    """Return the size of the smallest message over the fabric, in bytes; 0 without one."""
    sizes = [step.size_bytes for step in workload.steps if isinstance(step, Transfer) and not step.scale_up]
    rings = [step for step in workload.steps if isinstance(step, FoldedRing)]
    sizes += [step.size_bytes for step in rings if len(step.inside) < len(step.ranks)]
    return min(sizes, default=0)
