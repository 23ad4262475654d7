"""The entries of `expect:`: bands of metrics, in their units, and the points of the matrix that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar, cast

from pydantic_core import PydanticCustomError

from testbed.base.errors import Problem
from testbed.base.metric import Better, MetricUnit
from testbed.base.names import choice_hint, known_names_hint
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.model import Lab, NodeKind, ScaleUpBy
from testbed.record.catalogue import BY_TENANT, CATALOGUE
from testbed.run.schema.model import Expectation, Scalar, Scenario, Within, is_point_of, same_value
from testbed.run.schema.point_names import last_word
from testbed.run.schema.spec import ExpectationSpec
from testbed.run.schema.transports import TRANSPORTS
from testbed.run.schema.values import parse_bound, parse_tolerance
from testbed.workload.registry import WITH_BATCHES, WITH_COLLECTIVES, WITH_REQUESTS, workload_kind

Matrix = Mapping[str, tuple[Scalar, ...]]
Result = TypeVar("Result")
_OF_QUEUES = ("QueueCounts", "QueueDepths", "PauseCounts", "MarkingCurves")
_OF_FAULTS = ("FaultCurve", "LostProbes", "Detection")
_OF_PROGRAMS = ("ProgramSteps", "ProgramBytes", "ProgramExit")
_OF_COLLECTIVES = ("CollectiveSpeed", "CollectiveTimes", "CheckedElements")
_OF_REQUESTS = ("RequestTimes", "RequestCounts")
_OF_PERFTEST = {"Latencies": True, "CompletedMessages": False}
"""Samples of perftest's pairs, and whether they are of its latency tests."""
_NEVER_NEGATIVE = (
    MetricUnit.COUNT,
    MetricUnit.PACKETS,
    MetricUnit.BYTES,
    MetricUnit.BITS_PER_S,
    MetricUnit.BYTES_PER_S,
)


def unknown_selections(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    """Yield the networks and tenants of expectations about a point that it does not have: tenants are the topology's in
    a network, and else the workload's."""
    inside = {
        (subnet.network, tenant.name)
        for tenant in (() if lab.overlay is None else lab.overlay.tenants)
        for subnet in tenant.subnets
        if not tenant.network
    }
    working = _tenants_of(point)
    for index, expectation in enumerate(point.expect):
        if not is_point_of(point.values, expectation.where):
            continue
        path: Path = ("expect", index)
        network, tenant = expectation.network, expectation.tenant
        if network and network not in lab.network_names:
            message = f"{lab.name} has no network {quote(network)}"
            hint = known_names_hint(network, lab.network_names)
            yield document.problem("unknown-network", (*path, "network"), message, hint=hint)
        elif network and tenant and (network, tenant) not in inside:
            names = [name for place, name in sorted(inside) if place == network]
            message = f"the network {network} of {lab.name} has no tenant {quote(tenant)}"
            hint = known_names_hint(tenant, names)
            yield document.problem("unknown-tenant", (*path, "tenant"), message, hint=hint)
        elif tenant and not network and tenant not in working:
            message = f"the workload {point.workload.kind} has no tenant {quote(tenant)}"
            hint = known_names_hint(tenant, list(working))
            yield document.problem("unknown-tenant", (*path, "tenant"), message, hint=hint)


def unmeasured_metrics(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    """Yield the metrics of expectations that no run of a point measures, with what the scenario lacks for them."""
    for index, expectation in enumerate(point.expect):
        if not is_point_of(point.values, expectation.where):
            continue
        lacks, hint = _lack(CATALOGUE[expectation.metric].needs, point, lab, expectation.tenant)
        if lacks:
            message = f"no run measures {expectation.metric}: {lacks}"
            yield document.problem("not-measured", ("expect", index, "metric"), message, hint=hint)


def _lack(samples: str, point: Scenario, lab: Lab, tenant: str) -> tuple[str, str]:
    """Say why no run of a point has such samples ("" where it may), and what would give them."""
    if samples in _OF_QUEUES:
        queues = (
            any(lab.qos_of(network) is not None for network in lab.network_names)
            or TRANSPORTS[point.transport.kind.value].over_subnet
        )
        return "" if queues else f"{lab.name} has no qos", "qos: {preset: uec} in the topology"
    if samples in _OF_FAULTS:
        lacks = "" if point.faults else "the scenario has no faults"
        return lacks, 'faults: [{at: 1s, link: "NODE:PORT", down: true}]'
    if samples == "UplinkLoads":
        switches = {node.name for node in lab.nodes if node.kind in (NodeKind.SWITCH, NodeKind.ROUTER)}
        joined = any(link.a.node in switches and link.b.node in switches for link in lab.links)
        return "" if joined else f"no switch of {lab.name} has an uplink", "fabric: {spines: 2} in the topology"
    if samples == "ScaleUpCarried":
        lacks = "" if lab.scale_up.by is ScaleUpBy.PACKETS else f"the scale-up domains of {lab.name} have no packets"
        return lacks, "fabric: {scale_up: {preset: h100, by: packets}} in the topology"
    lacks, hint = _lack_of_transport(samples, point)
    return (lacks, hint) if lacks else _lack_of_workload(samples, _kinds_of(point, tenant))


def _lack_of_transport(samples: str, point: Scenario) -> tuple[str, str]:
    """Say why no transport of a point gives such samples ("" where one may), and which would."""
    kinds = list(dict.fromkeys(one.kind.value for one in point.transports))
    named = f"the transport {kinds[0]}" if len(kinds) == 1 else f"none of the transports {', '.join(kinds)}"
    no = "no " if len(kinds) == 1 else ""
    if samples == "SubnetCarried":
        lacks = "" if any(TRANSPORTS[kind].over_subnet for kind in kinds) else f"{named} is none of InfiniBand"
        return lacks, "transport: {kind: ib}"
    if samples == "IoJobs":
        lacks = "" if any(TRANSPORTS[kind].by_fio for kind in kinds) else f"{named} has {no}jobs of fio"
        return lacks, "transport: {kind: nbd}, or nfs"
    if samples in _OF_PERFTEST:
        latency = _OF_PERFTEST[samples]
        wanted = "{kind: rdma, test: latency}" if latency else "{kind: rdma}, and workload: {duration: 5s}"
        if "rdma" not in kinds:
            return f"{named} has {no}pairs of perftest", f"transport: {wanted}"
        if latency is not any(one.measures_latency for one in point.transports):
            other = "bandwidth, and not latency" if latency else "latency, and not what was completed"
            return f"its pairs of perftest measure {other}", f"transport: {wanted}"
        lacks = "" if latency or point.by_programs else "bytes of workloads without a duration are no pairs of perftest"
        return lacks, f"transport: {wanted}"
    if samples == "LateArrivals":
        silent = all(kind == "rdma" or TRANSPORTS[kind].by_fio for kind in kinds)
        return f"{named} does not tell what came late" if silent else "", "transport: {kind: roce}, tcp or uet"
    if samples == "PacketsSent":
        silent = kinds == ["rdma"] and point.by_programs
        return "perftest does not count packets" if silent else "", "retransmits, which counts those sent again"
    return "", ""


def _lack_of_workload(samples: str, kinds: Sequence[str]) -> tuple[str, str]:
    """Say why none of the kinds of workloads gives such samples ("" where one may), and which would."""
    of_one = len(kinds) == 1
    named = f"the workload {kinds[0]}" if of_one else f"the workloads {', '.join(kinds)}"
    if samples in _OF_PROGRAMS:
        lacks = (
            "" if any(workload_kind(kind).is_program for kind in kinds) else f"{named} {'is' if of_one else 'are'} no"
        )
        return lacks and f"{lacks} program of your own", "workload: {kind: program}"
    if samples in _OF_COLLECTIVES:
        lacks = "" if WITH_COLLECTIVES.intersection(kinds) else f"transfers of {named} are parts of no collective"
        return lacks, "workload: {kind: all-reduce}"
    if samples in _OF_REQUESTS:
        lacks = "" if WITH_REQUESTS.intersection(kinds) else f"transfers of {named} are parts of no request"
        return lacks, "workload: {kind: inference-requests}"
    if samples == "BatchTimes":
        lacks = "" if WITH_BATCHES.intersection(kinds) else f"nobody computes on batches that {named} reads"
        return lacks, "workload: {kind: dataset-streaming}"
    return "", ""


def _kinds_of(point: Scenario, tenant: str) -> list[str]:
    """The kinds of what a point sends: of each tenant of its workload, or of the one that is named."""
    tenants = _tenants_of(point)
    chosen = [tenants[tenant]] if tenant in tenants else tenants.values()
    return list(dict.fromkeys(chosen)) or [point.workload.kind]


def _tenants_of(point: Scenario) -> dict[str, str]:
    """The tenants of a workload by name, those of its default among them, with the kinds of what they send."""
    if point.workload.kind != "tenants":
        return {}
    from testbed.workload.kinds.tenants import DEFAULT_TENANTS, tenant_names

    written = point.workload.parameters.get("tenants")
    entries = cast(Sequence[Mapping[str, Any]], DEFAULT_TENANTS if written is None else written)
    return dict(zip(tenant_names(entries), (entry["workload"]["kind"] for entry in entries), strict=True))


class ExpectationReader:
    """Resolves entries of `expect:`, and keeps the problems."""

    def __init__(self, document: Document, matrix: Matrix) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._matrix = matrix

    def resolve(self, path: Path, spec: ExpectationSpec) -> Expectation:
        """The expectation of the entry at `path`, as far as it is right."""
        unit = CATALOGUE[spec.metric].unit
        # a ratio of two points has no unit but its own
        unit = MetricUnit.RATIO if spec.over else unit
        minimum = self._parsed((*path, "min"), spec.min, unit, parse_bound)
        maximum = self._parsed((*path, "max"), spec.max, unit, parse_bound)
        tolerance = self._parsed((*path, "tolerance"), spec.tolerance, unit, parse_tolerance)
        self.problems.extend(self._contradictions(path, spec))
        if minimum is not None and maximum is not None and minimum > maximum:
            message = f"min {minimum:g} is above max {maximum:g}"
            self.problems.append(self._document.problem("contradiction", (*path, "min"), message))
        self.problems.extend(self._unmeetable(path, spec, minimum, maximum))
        self.problems.extend(self._unselectable(path, spec))
        for key in ("where", "over"):
            self.problems.extend(self._unmatched((*path, key), getattr(spec, key)))
        self.problems.extend(self._nowhere(path, spec))
        number, relative = tolerance or (0.0, False)
        return Expectation(
            metric=spec.metric,
            network=spec.network or "",
            tenant=spec.tenant or "",
            where=dict(spec.where),
            over=dict(spec.over),
            minimum=minimum,
            maximum=maximum,
            within=None if spec.within is None else Within(spec.within),
            tolerance=number,
            relative=relative,
            source=spec.source,
        )

    def _parsed(
        self, path: Path, value: Scalar | None, unit: MetricUnit, parse: Callable[[Scalar, MetricUnit], Result]
    ) -> Result | None:
        if value is None:
            return None
        try:
            return parse(value, unit)
        except PydanticCustomError as error:
            context = error.context or {}
            self.problems.append(
                self._document.problem(context["code"], path, context["message"], hint=context["hint"] or None)
            )
            return None

    def _unmeetable(
        self, path: Path, spec: ExpectationSpec, minimum: float | None, maximum: float | None
    ) -> Iterator[Problem]:
        """A limit that no figure meets: one beyond the metric's ideal, which makes a run invalid, or one below zero."""
        metric = CATALOGUE[spec.metric]
        if spec.over:
            return
        key, limit = ("min", minimum) if metric.better is Better.MORE else ("max", maximum)
        if metric.ideal is not None and limit is not None:
            beyond = limit > metric.ideal if metric.better is Better.MORE else limit < metric.ideal
            ideal = f"{metric.ideal:.0%}" if metric.unit is MetricUnit.SHARE else f"{metric.ideal:g}"
            if beyond and metric.better is not Better.NEITHER:
                message = f"the ideal of {spec.metric} is {ideal}, and a run with a figure beyond it is invalid"
                if metric.ideal == 0:
                    message = f"{spec.metric} is never below 0"
                yield self._document.problem("out-of-range", (*path, key), message, hint=f"{key}: {ideal} at best")
        elif maximum is not None and maximum < 0 and metric.unit in _NEVER_NEGATIVE:
            message = f"{spec.metric} is never below 0"
            yield self._document.problem("out-of-range", (*path, "max"), message, hint="max: 0 at least")

    def _contradictions(self, path: Path, spec: ExpectationSpec) -> Iterator[Problem]:
        problem = self._document.problem
        bounds = [key for key in ("min", "max") if getattr(spec, key) is not None]
        if spec.within is None:
            if not bounds:
                hint = "min: 0.9, or within: oracle with a tolerance"
                yield problem("missing-key", path, "neither min, max nor within is given", hint=hint, key=True)
            if spec.tolerance is not None:
                message = "a tolerance is that of within: oracle"
                yield problem("contradiction", (*path, "tolerance"), message, hint="write min and max", key=True)
            return
        if spec.tolerance is None:
            yield problem(
                "missing-key", (*path, "tolerance"), "within needs a tolerance", hint="tolerance: 8%", key=True
            )
        for key in bounds:
            message = f"both within and {key} are given"
            yield problem("contradiction", (*path, key), message, hint="write two entries", key=True)
        if spec.over:
            message = "an oracle says nothing of the ratio of two points"
            yield problem("contradiction", (*path, "over"), message, hint="write min and max", key=True)

    def _unselectable(self, path: Path, spec: ExpectationSpec) -> Iterator[Problem]:
        """A metric that no run measures; a network or a tenant that it has none of; a network that it lacks."""
        problem, metric = self._document.problem, spec.metric
        if CATALOGUE[metric].takes is None:
            message = f"no run measures {metric}: it is for samples of your own, from Python"
            hint = f"`testbed metrics {metric}` says what it is made from"
            yield problem("not-measured", (*path, "metric"), message, hint=hint)
        if CATALOGUE[metric].by_network:
            if spec.network is None:
                message = f"{metric} is of one network, and none is named"
                yield problem("missing-key", path, message, hint="network: frontend", key=True)
        elif spec.network is not None:
            able = ", ".join(one.name for one in CATALOGUE.values() if one.by_network)
            message = f"{metric} is of no single network"
            yield problem("contradiction", (*path, "network"), message, hint=f"of one are {able}", key=True)
        elif spec.tenant is not None and metric not in BY_TENANT:
            message = f"{metric} is of what all tenants share"
            hint = "no tenant, or a metric of transfers, collectives or requests"
            yield problem("contradiction", (*path, "tenant"), message, hint=hint, key=True)
        if spec.within is not None and (spec.network or spec.tenant):
            key = "network" if spec.network else "tenant"
            message = f"an oracle says nothing of one {key} alone"
            yield problem("contradiction", (*path, key), message, hint="write min and max", key=True)

    def _unmatched(self, path: Path, wanted: Mapping[str, Scalar]) -> Iterator[Problem]:
        """Keys and values that the matrix does not have."""
        problem = self._document.problem
        for key, value in wanted.items():
            found = self._keys(key)
            where = (*path, key)
            if not found:
                known = sorted({last_word(one) for one in self._matrix})
                otherwise = (
                    f"its keys are {', '.join(known)}" if known else f"matrix: {{SECTION.{key}: [{value}, ...]}}"
                )
                hint = choice_hint(key, [*known, *self._matrix], otherwise)
                message = f"the matrix has no key {quote(key)}" if known else "the scenario has no matrix"
                yield problem("unknown-key", where, message, hint=hint, key=True)
            elif len(found) > 1:
                message = f"{quote(key)} may be {' or '.join(found)}"
                yield problem("ambiguous-key", where, message, hint="write the whole key, in quotes", key=True)
            elif not any(same_value(value, one) for one in self._matrix[found[0]]):
                values = ", ".join(map(quote, self._matrix[found[0]]))
                message = f"no point of the matrix has {key} {quote(value)}"
                yield problem("no-such-point", where, message, hint=f"its values are {values}")

    def _nowhere(self, path: Path, spec: ExpectationSpec) -> Iterator[Problem]:
        """An `over` that no point differs from."""
        if not spec.over or any(len(self._keys(key)) != 1 for key in (*spec.over, *spec.where)):
            return
        over = {self._keys(key)[0]: value for key, value in spec.over.items()}
        where = {self._keys(key)[0]: value for key, value in spec.where.items()}
        for values in product(*self._matrix.values()):
            point = dict(zip(self._matrix, values, strict=True))
            about = all(same_value(point[key], value) for key, value in where.items())
            if about and not all(same_value(point[key], value) for key, value in over.items()):
                return
        message = "the points that it is about are those that they are compared with"
        hint = "where: names the ones, over: the others"
        yield self._document.problem("no-such-point", (*path, "over"), message, hint=hint, key=True)

    def _keys(self, word: str) -> list[str]:
        if word in self._matrix:
            return [word]
        return [key for key in self._matrix if last_word(key) == word]
