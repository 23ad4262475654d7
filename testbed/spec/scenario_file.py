"""A scenario file as it is written, and as the `Scenario` it means: `load_scenario`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.errors import Problem, SpecError
from testbed.model.metrics import METRICS
from testbed.model.scenario import (
    Expectation,
    Repeat,
    Scalar,
    Scenario,
    Scope,
    TopologyRef,
    Transport,
    TransportKind,
    Workload,
    WorkloadKind,
)
from testbed.names import check_lab_name
from testbed.spec.document import Document
from testbed.spec.fields import Checked, Name, OneOf, Quantity, Section, Text, Whole, Written
from testbed.spec.paths import parse_path, quote
from testbed.spec.strict_yaml import read_document
from testbed.spec.validation import SpecModel, in_file_order, refusal, validate_model
from testbed.units import ByteCount, Duration

MAX_RUN = Duration.parse("1h")
MAX_SIZE = ByteCount.parse("1000GB")
MAX_RUNS = 1000

_CC_NAME = re.compile(r"[a-z][a-z0-9_-]{0,14}")
_NOT_BUILT = "is not built yet; this version runs a permutation over TCP"
_TRANSPORTS_LATER = {kind: f"transport {kind} {_NOT_BUILT}" for kind in ("uet", "rdma")}
_WORKLOADS_LATER = {
    kind: f"workload {kind} {_NOT_BUILT}"
    for kind in (
        "point-to-point", "incast", "outcast", "tornado", "all-to-all", "all-reduce", "reduce-scatter", "all-gather",
        "broadcast", "reduce", "gather", "scatter", "pipeline", "training-step", "moe", "inference", "checkpoint",
        "mice", "mixed", "trace",
    )
}  # fmt: skip


def load_scenario(path: FilePath, overrides: Mapping[str, object] | None = None) -> Scenario:
    """Read and check a scenario file. Nothing is run and no topology is read.

    `overrides` maps dotted keys of the file (`workload.duration`) to values, as `parse_assignment` makes them.
    A relative `topology.file` is looked up beside the scenario file. Raises `SpecError` with every problem.
    """
    overrides = overrides or {}
    document = read_document(path).with_overrides(overrides)
    spec = validate_model(ScenarioSpec, document)
    problems = _problems(spec, document)
    if problems:
        raise SpecError(in_file_order(problems))
    return Scenario(
        name=spec.name,
        topology=TopologyRef(file=str(path.parent / spec.topology.file), set=MappingProxyType(dict(spec.topology.set))),
        transport=Transport(kind=TransportKind(spec.transport.kind), cc=spec.transport.cc),
        workload=Workload(
            kind=WorkloadKind(spec.workload.kind),
            scope=Scope(spec.workload.scope),
            duration=spec.workload.duration,
            size=spec.workload.bytes,
        ),
        repeat=Repeat(runs=spec.repeat.runs, seed=spec.repeat.seed),
        expect=tuple(
            Expectation(metric=item.metric, minimum=item.min, maximum=item.max, source=item.source)
            for item in spec.expect
        ),
        overrides=tuple(f"{key}={value}" for key, value in overrides.items()),
        source=str(path),
    )


@dataclass(frozen=True, slots=True)
class _WholeSeconds(Checked):
    """A duration of whole seconds: what iperf3 can run for."""

    def check(self, value: object) -> Duration:
        duration = Quantity(Duration, MAX_RUN).check(value)
        assert isinstance(duration, Duration)
        if duration.ns % 10**9:
            raise refusal(
                "out-of-range", f"the duration must be whole seconds, not {duration}", "iperf3 counts in seconds"
            )
        return duration

    def json_schema(self) -> JsonSchemaValue:
        return Quantity(Duration, MAX_RUN).json_schema()


@dataclass(frozen=True, slots=True)
class _Size(Checked):
    """A number of bytes: an integer, or text with a unit."""

    def check(self, value: object) -> ByteCount:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise refusal("wrong-type", f"must be a size such as 16MB, not {quote(value)}")
        try:
            size = ByteCount.parse(str(value))
        except ValueError as error:
            raise refusal("bad-quantity", str(error)) from error
        if not size or size > MAX_SIZE:
            raise refusal("out-of-range", f"the size must be more than zero and at most {MAX_SIZE}, not {size}")
        return size

    def json_schema(self) -> JsonSchemaValue:
        units = "|".join(unit for unit in ByteCount.SUFFIXES if unit)
        text = {"type": "string", "pattern": rf"^\s*\d+(\.\d+)?\s*({units})?\s*$", "examples": ["16MB"]}
        return {"anyOf": [{"type": "integer", "minimum": 1}, text]}


@dataclass(frozen=True, slots=True)
class _Number(Checked):
    """A finite number, or a percentage as text: "90%" is 0.9."""

    def check(self, value: object) -> float:
        if isinstance(value, str) and (match := re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%\s*", value)):
            return float(match[1]) / 100
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise refusal("wrong-type", f"must be a number or a percentage, not {quote(value)}")
        return float(value)

    def json_schema(self) -> JsonSchemaValue:
        return {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*%\s*$"}]}


@dataclass(frozen=True, slots=True)
class _Override(Checked):
    """What a key of the topology is set to: one value, no list and no mapping."""

    def check(self, value: object) -> Scalar:
        if not isinstance(value, str | int | float | bool):
            raise refusal("wrong-type", f"must be a single value, not {quote(value)}")
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": ["string", "number", "boolean"]}


def _check_dotted_key(key: str) -> None:
    parse_path(key)


def _check_cc(name: str) -> None:
    if not _CC_NAME.fullmatch(name):
        raise ValueError(f"{quote(name)} cannot name a congestion control: such as cubic, dctcp, bbr")


class TopologyRefSpec(SpecModel):
    """The `topology:` section."""

    file: Annotated[str, Text(1024)] = Field(description="topology file, relative to this one")
    set: Section[dict[Annotated[str, Name(_check_dotted_key, r"^.+$")], Annotated[Scalar, _Override()]]] = Field(
        default_factory=dict, description="dotted keys of the topology file with other values, such as fabric.hosts: 4"
    )


class TransportSpec(SpecModel):
    """The `transport:` section."""

    LATER = {"paths": "path selection is not built yet; TCP takes the path its ECMP hash picks"}  # noqa: RUF012

    kind: Annotated[str, OneOf(tuple(TransportKind), later=_TRANSPORTS_LATER, noun="transport")] = Field(
        default="tcp", description="tcp"
    )
    cc: Written[Annotated[str, Name(_check_cc, f"^{_CC_NAME.pattern}$")]] = Field(
        default=None, description="congestion control by its kernel name; default: the machine's"
    )


class WorkloadSpec(SpecModel):
    """The `workload:` section."""

    kind: Annotated[str, OneOf(tuple(WorkloadKind), later=_WORKLOADS_LATER, noun="workload")] = Field(
        description="permutation: every NIC sends to one other of its rail"
    )
    scope: Annotated[str, OneOf(tuple(Scope))] = Field(
        default="inter-segment", description="which pairs: inter-segment, or any other host"
    )
    duration: Written[Annotated[Duration, _WholeSeconds()]] = Field(
        default=None, description="how long every flow is measured, in whole seconds of lab time"
    )
    bytes: Written[Annotated[ByteCount, _Size()]] = Field(
        default=None, description="instead of a duration: payload of each flow"
    )


class RepeatSpec(SpecModel):
    """The `repeat:` section."""

    runs: Annotated[int, Whole(1, MAX_RUNS)] = Field(default=1, description="how often, each time with the next seed")
    seed: Annotated[int, Whole(0, 2**31 - 1)] = Field(default=1, description="seed of the first run")


class ExpectationSpec(SpecModel):
    """An entry of `expect:`."""

    LATER = dict.fromkeys(
        ("where", "within", "tolerance"),
        "expectations against an oracle and per matrix point are not built yet; write min and max",
    )

    metric: Annotated[str, OneOf(tuple(METRICS), noun="metric")] = Field(description="what is measured")
    min: Written[Annotated[float, _Number()]] = Field(default=None, description="least, as the median over runs")
    max: Written[Annotated[float, _Number()]] = Field(default=None, description="most, as the median over runs")
    source: Annotated[str, Text(500)] = Field(description="where the band comes from: a formula, a figure")


class ScenarioSpec(SpecModel):
    """A whole scenario file."""

    LATER = {  # noqa: RUF012  # a ClassVar of the base
        "faults": "faults on a timeline are not built yet",
        "matrix": "parameter sweeps are not built yet; use topology.set, or --set on the command line",
    }

    name: Annotated[str, Name(check_lab_name, r"^[a-z][a-z0-9-]{0,23}$")] = Field(description="name of the scenario")
    topology: TopologyRefSpec = Field(description="the lab it runs on")
    transport: Section[TransportSpec] = Field(default_factory=TransportSpec, description="how bytes are moved")
    workload: WorkloadSpec = Field(description="what is sent")
    repeat: Section[RepeatSpec] = Field(default_factory=RepeatSpec, description="runs and seeds")
    expect: list[ExpectationSpec] = Field(default_factory=list, description="what must be measured for a pass")


def _problems(spec: ScenarioSpec, document: Document) -> list[Problem]:
    """What only several keys together tell."""
    found = []
    if spec.workload.duration is None and spec.workload.bytes is None:
        found.append(
            document.problem(
                "missing-key", ("workload",), "neither duration nor bytes is given", hint="duration: 5s", key=True
            )
        )
    if spec.workload.duration is not None and spec.workload.bytes is not None:
        found.append(
            document.problem(
                "contradiction", ("workload", "bytes"), "both duration and bytes are given", hint="keep one", key=True
            )
        )
    for index, item in enumerate(spec.expect):
        where = ("expect", index)
        if item.min is None and item.max is None:
            found.append(
                document.problem("missing-key", where, "neither min nor max is given", hint="min: 0.9", key=True)
            )
        elif item.min is not None and item.max is not None and item.min > item.max:
            found.append(
                document.problem("contradiction", (*where, "min"), f"min {item.min:g} is above max {item.max:g}")
            )
    return found
