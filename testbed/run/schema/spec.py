"""A scenario file as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.base.names import check_lab_name
from testbed.base.validation.fields import Entries, Name, OneOf, Section, Text, Whole, Written
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.paths import parse_path, quote
from testbed.lab.assembly.spec import LabSpec
from testbed.record.catalogue import CATALOGUE
from testbed.run.schema.convergence import ConvergenceSpec
from testbed.run.schema.faults import FaultSpec
from testbed.run.schema.model import Scalar, Within
from testbed.run.schema.probes import ProbesField
from testbed.run.schema.transport import TransportField, TransportName
from testbed.run.schema.values import MatrixValue, MatrixValues
from testbed.run.schema.workload import WorkloadField

MAX_RUNS = 1000
MAX_RETRIES = 5
_WORD = r"^.+$"
_OF_TOPOLOGY = tuple(key for key in LabSpec.model_fields if key not in ("name", "topology"))


def _check_dotted_key(key: str) -> None:
    parse_path(key)


_DottedKey = Annotated[str, Name(_check_dotted_key, _WORD, renamed=False)]
_Value = Annotated[Scalar, MatrixValue()]


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A mapping that is read afterwards, by `model`."""

    model: type[SpecModel]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, _read_model: core_schema.ValidatorFunctionWrapHandler) -> object:
            if not isinstance(value, dict):
                raise refusal("wrong-type", f"must be a mapping of keys to values, not {quote(value)}")
            return value

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(self.model))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema)


class TopologyRefSpec(SpecModel):
    """The `topology:` section."""

    ELSEWHERE = {  # noqa: RUF012  # a ClassVar of the base
        key: f"write inline: {{name: lab, {key}: ...}}, or set: {{{key}.KEY: VALUE}} beside file"
        for key in _OF_TOPOLOGY
    }

    file: Written[Annotated[str, Text(1024)]] = Field(
        default=None, description="Names a topology file, relative to this one."
    )
    inline: Written[Annotated[dict[str, Any], _Mapping(LabSpec)]] = Field(
        default=None, description="Holds what would stand in a topology file, instead of one."
    )
    set: Section[dict[_DottedKey, _Value]] = Field(
        default={}, description="Sets dotted keys of the topology to other values, such as fabric.hosts: 4."
    )


class RepeatSpec(SpecModel):
    """The `repeat:` section."""

    runs: Annotated[int, Whole(1, MAX_RUNS)] = Field(
        default=1, description="Says how often a point runs, each time with the next seed."
    )
    seed: Annotated[int, Whole(0, 2**31 - 1)] = Field(default=1, description="Gives the seed of the first run.")
    retries: Annotated[int, Whole(0, MAX_RETRIES)] = Field(
        default=0,
        description="Says how often a point that came out invalid runs again, at a larger k where k is chosen.",
    )


_LISTS = "; `testbed metrics` lists them all"
_METRICS = {
    **dict.fromkeys(
        ("throughput", "bandwidth", "goodput"),
        "write aggregate_goodput, aggregate_share of what is ideal, or busbw of collectives" + _LISTS,
    ),
    **dict.fromkeys(("fct", "flow_completion_time"), "write tail_fct, the slowest one's, or fct_slowdown_p50" + _LISTS),
    **dict.fromkeys(("latency", "rtt"), "write rdma_latency_p50, tail_fct or fct_slowdown_p99" + _LISTS),
    **dict.fromkeys(("time", "duration", "completion_time", "job_completion_time"), "write jct" + _LISTS),
    **dict.fromkeys(("loss", "packet_loss", "lost"), "write drops, or retransmit_ratio" + _LISTS),
    **dict.fromkeys(("queue", "queue_depth", "queue_length"), "write queue_p50, queue_p99 or queue_max" + _LISTS),
}
"""Names that people have for metrics that have another name here."""


class _Oracle(OneOf):
    """The word for an oracle. How far from it a figure may be is the tolerance."""

    def check(self, value: object) -> str | int:
        if isinstance(value, int | float) or (isinstance(value, str) and value[:1].isdigit()):
            message = f"must be {self._listed()}, not {quote(value)}"
            raise refusal("unknown-value", message, f"write within: oracle, tolerance: {value}")
        return OneOf.check(self, value)


class ExpectationSpec(SpecModel):
    """An entry of `expect:`."""

    ELSEWHERE = {  # noqa: RUF012  # a ClassVar of the base
        **dict.fromkeys(("between", "range", "band"), "write min: ... and max: ..."),
        **dict.fromkeys((">", ">="), "write min: ..."),
        **dict.fromkeys(("<", "<="), "write max: ..."),
    }

    metric: Annotated[str, OneOf(tuple(CATALOGUE), noun="metric", hints=_METRICS, lists="testbed metrics")] = Field(
        description="Names the metric that is measured."
    )
    network: Written[Annotated[str, Text(64)]] = Field(
        default=None, description="Names the network of the lab whose metric it is, for metrics that are of one."
    )
    tenant: Written[Annotated[str, Text(64)]] = Field(
        default=None,
        description="Names the tenant whose metric it is: of the workload or, in a network, of the topology.",
    )
    where: Section[dict[_DottedKey, _Value]] = Field(
        default={},
        description="Chooses the points of the matrix that it is about, such as mode: spray; by default all.",
    )
    over: Section[dict[_DottedKey, _Value]] = Field(
        default={}, description="Makes the figure the ratio to the point that is equal but for these values."
    )
    min: Written[_Value] = Field(
        default=None, description="Gives the least that passes, as the median over runs: 0.9, 90%, 900ms."
    )
    max: Written[_Value] = Field(default=None, description="Gives the most that passes, as the median over runs.")
    within: Written[Annotated[str, _Oracle(tuple(Within))]] = Field(
        default=None,
        description="Names what the figure is compared with: the oracle of this very topology, workload and hash.",
    )
    tolerance: Written[_Value] = Field(
        default=None,
        description="Says how far from the oracle: 8% of what it says, 8pp of a share, or in the metric's unit.",
    )
    source: Annotated[str, Text(500, blank=False)] = Field(
        description="Says where the band comes from: a formula, a figure, an oracle."
    )


class ScenarioSpec(SpecModel):
    """A whole scenario file."""

    ELSEWHERE = {
        key: f"write topology: {{inline: {{name: lab, {key}: ...}}}}, or name a file with it" for key in _OF_TOPOLOGY
    } | {"backend": "remove it, and run it with --backend simulation"}

    name: Annotated[str, Name(check_lab_name, r"^[a-z][a-z0-9-]{0,27}$")] = Field(description="Names the scenario.")
    description: Annotated[str, Text(2000)] = Field(
        default="", description="Says what the scenario shows, for the report."
    )
    topology: TopologyRefSpec = Field(description="Describes the lab that it runs on.")
    transport: TransportField | None = Field(
        default=None, description="Says how bytes are moved: over tcp (default), uet, roce, or another kind."
    )
    transports: Section[dict[TransportName, TransportField]] = Field(
        default={},
        description="Names whole transports, of which a matrix ({transport: [NAME, NAME]}) or a tenant of the workload"
        " (transport: NAME) chooses.",
    )
    workload: WorkloadField = Field(description="Says what is sent; `testbed workloads` lists the kinds.")
    matrix: Section[dict[_DottedKey, Annotated[tuple[Scalar, ...], MatrixValues()]]] = Field(
        default={},
        description="Lists values for dotted keys of this file or of the topology; each combination is a point.",
    )
    faults: Entries[list[FaultSpec]] = Field(default=[], description="Lists what goes wrong, and when.")
    repeat: Section[RepeatSpec] = Field(
        default=RepeatSpec.model_construct(), description="Sets how many runs there are, and their seeds."
    )
    probes: ProbesField = Field(
        default="auto",
        description="Sends packets beside the traffic that tell loss and order: auto, off, or {rate: 50}.",
    )
    convergence: Section[ConvergenceSpec] = Field(
        default=ConvergenceSpec.model_construct(),
        description="States by which times a simulated lab notices failures; an emulated one has FRR, and its own.",
    )
    expect: Entries[list[ExpectationSpec]] = Field(default=[], description="Lists what must be measured for a pass.")
