"""`fabric.link_layer` and `fabric.infiniband`: what an InfiniBand back end is asked for, as written and as resolved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.base.errors import Problem
from testbed.base.names import known_names_hint
from testbed.base.units import Duration
from testbed.base.validation.fields import (
    Entries,
    Flag,
    Length,
    Name,
    NodeName,
    OneOf,
    OrShort,
    Quantity,
    Section,
    Whole,
    Written,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.model.infiniband import (
    DEFAULT_ROUTING,
    DEFAULT_SWEEP,
    DROPPED,
    LANE_ENGINES,
    SERVICE_LEVELS,
    CongestionSettings,
    InfinibandPartition,
    InfinibandSettings,
)
from testbed.lab.core.schema.qos.spec import NodePattern

ROOT: Path = ("fabric", "infiniband")
MAX_PARTITIONS = 31
"""An HCA of ibsim has 32 P_Keys, one of which is the default partition's."""
MAX_VLS = 8
MAX_MANAGERS = 8
"""At most 10 programs are attached to an ibsim, and what asks for tables is one, too."""


class LinkLayer(StrEnum):
    """The link layer of a back end."""

    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"


LinkLayerField = Annotated[str, OneOf(tuple(LinkLayer))]
Engine = Annotated[
    str,
    OneOf(
        ("ftree", "updn", "dnup", "minhop", "dor", "sssp", "lash", "dfsssp", "nue"),
        noun="routing engine",
        later={
            "torus-2QoS": "torus-2QoS has a file of its own that describes the torus, which no key gives",
            "file": "tables come from OpenSM, not from a file",
        },
    ),
]


class _OrOne:
    """A list, or the one word that it would have: a matrix sets words."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object) -> object:
            return [value] if isinstance(value, str) else value

        return core_schema.no_info_before_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several, several["items"]]}


def _number_below(limit: int, what: str) -> Name:
    def check(text: str) -> None:
        if not (text.isascii() and text.isdigit() and text == str(int(text)) and int(text) < limit):
            raise ValueError(f"{quote(text)} is no {what}: they are 0 to {limit - 1}")

    return Name(check, "^[0-9]{1,2}$", renamed=False)


ServiceLevelKey = Annotated[str, _number_below(SERVICE_LEVELS, "service level")]
LaneKey = Annotated[str, _number_below(MAX_VLS, "virtual lane")]
Lane = Annotated[int, Whole(0, MAX_VLS - 1)]
Weight = Annotated[int, Whole(0, 255)]


def _check_partition_name(text: str) -> None:
    letters = text.isascii() and text[:1].isalpha() and text.islower() and text.replace("-", "").isalnum()
    if not (letters and len(text) <= 31):
        raise ValueError(
            f"{quote(text)} cannot name a partition: lower-case letters, digits and '-', a letter first, at most 31"
        )
    if text in ("default", "all", "self"):
        raise ValueError(f"{quote(text)} has a meaning of its own in OpenSM's file of partitions")


PartitionName = Annotated[str, Name(_check_partition_name, "^[a-z][a-z0-9-]{0,30}$")]


class ArbitrationSpec(SpecModel):
    """`fabric.infiniband.vl_arbitration`: `{high: {1: 64}, low: {0: 8}}`, weights in 64 bytes."""

    high: Section[dict[LaneKey, Weight]] = Field(
        default={}, description="Gives the weights of lanes that go first, in 64 bytes."
    )
    low: Section[dict[LaneKey, Weight]] = Field(
        default={}, description="Gives the weights of the others; by default every lane has 1 here."
    )
    limit: Written[Annotated[int, Whole(0, 255)]] = Field(
        default=None,
        description="Says how many 4 KiB of high lanes may go while low ones wait: 0, which is the default, is a"
        " packet, and 255 has no end.",
    )


class PartitionSpec(SpecModel):
    """An entry of `fabric.infiniband.partitions`: `{nodes: [...], sl: 1}`, or just the list of nodes."""

    nodes: Annotated[list[NodePattern], Length(1, 4096)] = Field(
        description="Lists the hosts that are in it, by name or pattern such as p1-s1-*."
    )
    sl: Annotated[int, Whole(0, SERVICE_LEVELS - 1)] = Field(
        default=0, description="Gives the service level of paths inside it."
    )


class _OrNodes(OrShort):
    """A mapping, or just the list of nodes."""

    model = PartitionSpec

    def read(self, value: object) -> object:
        if value == []:
            raise refusal("no-value", "names no host", "list hosts, such as [p1-s1-*], or remove the partition")
        if not isinstance(value, list) or not all(isinstance(node, str) for node in value):
            raise refusal("wrong-type", f'must be a list of hosts such as ["p1-s1-*"], not {quote(value)}')
        return {"nodes": value}

    def short_schema(self) -> list[JsonSchemaValue]:
        return [{"type": "array", "items": {"type": "string"}, "minItems": 1}]


class ManagerSpec(SpecModel):
    """`fabric.infiniband.sm`: where subnet managers run, and how often they look."""

    nodes: Entries[list[NodeName]] = Field(
        default=[],
        description="Lists the hosts that have a subnet manager on their first HCA; the first one is to be the master."
        " By default the first host has one.",
    )
    sweep: Written[Annotated[Duration, Quantity(Duration, Duration.parse("1h"), Duration.parse("1s"))]] = Field(
        default=None, description="Gives the time between two looks at all switches; the default is 10s."
    )


class CongestionSpec(SpecModel):
    """`fabric.infiniband.congestion_control`: `{threshold: 15, increase: 1, timer: 1}`."""

    threshold: Annotated[int, Whole(0, 15)] = Field(
        default=15, description="Says from which queue on switches mark: 0 is never, 15 the lowest, by sixteenths."
    )
    increase: Annotated[int, Whole(1, 255)] = Field(
        default=1, description="Says by how much a mark raises an HCA's index into its table of delays."
    )
    timer: Annotated[int, Whole(1, 65_535)] = Field(
        default=1, description="Gives the time in which the index falls by one, in units of 1.024 us."
    )


class InfinibandSpec(SpecModel):
    """`fabric.infiniband`: what the subnet manager is told. It has a meaning with `link_layer: infiniband` alone."""

    ELSEWHERE = {  # noqa: RUF012  # a ClassVar of the base
        "pkeys": "write partitions: {red: [p1-s1-*]}; OpenSM numbers them",
        "engine": "write routing: [ftree]",
        "sharp": "SHARP's manager is NVIDIA's and closed",
    }

    routing: Entries[Annotated[list[Engine], Length(0, 9), _OrOne()]] = Field(
        default=[],
        description="Lists OpenSM's routing engines in the order in which they are tried; the default is ftree, updn."
        " Where all give up, OpenSM takes minhop.",
    )
    vls: Written[Annotated[int, OneOf((1, 2, 4, 8))]] = Field(
        default=None,
        description="Says how many virtual lanes links have for data; by default 1, or 8 with an engine that needs"
        " several.",
    )
    sl2vl: Section[dict[ServiceLevelKey, Lane]] = Field(
        default={},
        description="Gives the virtual lane of each service level, such as {0: 0, 1: 1}; by default they go round.",
    )
    vl_arbitration: Section[ArbitrationSpec] = Field(
        default=ArbitrationSpec.model_construct(), description="Describes in which order lanes send."
    )
    partitions: Section[dict[PartitionName, Annotated[PartitionSpec, _OrNodes()]]] = Field(
        default={},
        description="Lists partitions by name, each a list of hosts or {nodes: [p1-s1-*], sl: 1}; hosts in none talk"
        " with nobody, and without the key all are in one.",
    )
    sm: Section[ManagerSpec] = Field(
        default=ManagerSpec.model_construct(), description="Says which hosts have subnet managers."
    )
    voq: Flag = Field(
        default=False,
        description="Says whether an input of a switch has a queue for each output and lane (virtual output queues),"
        " in runs in virtual time; else it has one for each lane.",
    )
    adaptive_routing: Flag = Field(
        default=False,
        description="Says whether frames take the least loaded of the ports to the tier above, in runs in virtual time."
        " This is our own: vendors' adaptive routing is not public.",
    )
    congestion_control: Written[CongestionSpec] = Field(
        default=None,
        description="Says when switches mark frames and what HCAs make of it, in runs in virtual time whose transport"
        " has cc: ccti; without the key nothing is marked.",
    )


def resolve_infiniband(
    document: Document, spec: InfinibandSpec, hosts: list[str]
) -> tuple[InfinibandSettings, list[Problem]]:
    """The settings that a file asks for in a lab with these hosts, and what is wrong with them.

    With a problem, what is returned first is of no use.
    """
    routing = tuple(spec.routing) or DEFAULT_ROUTING
    several = LANE_ENGINES.intersection(routing)
    vls = spec.vls or (MAX_VLS if several else 1)
    if spec.sl2vl:
        sl2vl = tuple(spec.sl2vl.get(str(sl), DROPPED) for sl in range(SERVICE_LEVELS))
    else:
        sl2vl = tuple(sl % vls for sl in range(SERVICE_LEVELS))
    lanes = spec.vl_arbitration
    partitions, problems = _partitions(document, spec, hosts)
    problems += _lane_problems(document, spec, vls, sl2vl)
    levels = set(range(vls)) if several else {partition.sl for partition in partitions} or {0}
    problems += _weightless(document, spec, {sl2vl[sl] for sl in levels} - {DROPPED})
    problems += _wrong_managers(document, spec.sm.nodes, hosts)
    if several:
        missing = [sl for sl in range(vls) if sl2vl[sl] == DROPPED]
        if missing:
            message = f"{min(several)} puts paths on the service levels 0 to {vls - 1}, and sl2vl has no lane for"
            hint = f"add {missing[0]}: {missing[0]}, or leave sl2vl out"
            problems.append(document.problem("sl-without-vl", (*ROOT, "sl2vl"), f"{message} {missing[0]}", hint=hint))
    settings = InfinibandSettings(
        routing=routing,
        vls=vls,
        sl2vl=sl2vl,
        vl_high=_weights(lanes.high),
        vl_low=_weights(lanes.low) if lanes.low else tuple((vl, 1) for vl in range(vls)),
        vl_high_limit=lanes.limit or 0,
        partitions=partitions,
        sm_hosts=tuple(dict.fromkeys(spec.sm.nodes)) or tuple(hosts[:1]),
        sweep=spec.sm.sweep or DEFAULT_SWEEP,
        voq=spec.voq,
        adaptive_routing=spec.adaptive_routing,
        congestion_control=_congestion(spec.congestion_control),
    )
    return settings, problems


def _congestion(spec: CongestionSpec | None) -> CongestionSettings | None:
    if spec is None:
        return None
    return CongestionSettings(threshold=spec.threshold, increase=spec.increase, timer=spec.timer)


def _weights(table: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((int(lane), weight) for lane, weight in table.items()))


def _partitions(
    document: Document, spec: InfinibandSpec, hosts: list[str]
) -> tuple[tuple[InfinibandPartition, ...], list[Problem]]:
    problems = []
    found = []
    for name, partition in spec.partitions.items():
        path = (*ROOT, "partitions", name)
        written = isinstance(document.get(path), list)
        for index, pattern in enumerate(partition.nodes):
            if not any(fnmatchcase(host, pattern) for host in hosts):
                place = (*path, index) if written else (*path, "nodes", index)
                hint = known_names_hint(pattern, hosts)
                message = f"no host is called {quote(pattern)}"
                problems.append(document.problem("unknown-host", place, message, hint=hint))
        members = tuple(host for host in hosts if any(fnmatchcase(host, pattern) for pattern in partition.nodes))
        found.append(InfinibandPartition(name=name, sl=partition.sl, hosts=members))
    if len(found) > MAX_PARTITIONS:
        message = f"{len(found)} partitions are more than an HCA has P_Keys for: {MAX_PARTITIONS} and the default one"
        problems.append(document.problem("partitions", (*ROOT, "partitions"), message))
    return tuple(found), problems


def _lane_problems(document: Document, spec: InfinibandSpec, vls: int, sl2vl: tuple[int, ...]) -> list[Problem]:
    """Lanes that links do not have, and service levels that have no lane."""
    problems = []

    def refuse(path: Path, lane: int) -> None:
        message = f"links have {vls} virtual lane{'s' * (vls > 1)}, 0 to {vls - 1}: there is no VL {lane}"
        enough = next((count for count in (2, 4, 8) if count > lane), MAX_VLS)
        problems.append(document.problem("no-such-vl", path, message, hint=f"vls: {enough}"))

    for key, lane in spec.sl2vl.items():
        if lane >= vls:
            refuse((*ROOT, "sl2vl", key), lane)
    for table in ("high", "low"):
        for key in getattr(spec.vl_arbitration, table):
            if int(key) >= vls:
                refuse((*ROOT, "vl_arbitration", table, key), int(key))
    for name, partition in spec.partitions.items():
        if sl2vl[partition.sl] == DROPPED:
            message = f"the partition {name} has the service level {partition.sl}, and sl2vl has no lane for it"
            path = (*ROOT, "partitions", name, "sl")
            hint = f"add {partition.sl}: 0 to sl2vl, or choose another sl"
            problems.append(document.problem("sl-without-vl", path, message, hint=hint))
    return problems


def _weightless(document: Document, spec: InfinibandSpec, used: set[int]) -> Iterator[Problem]:
    """Lanes that paths take, and whose turn never comes: no table of VL arbitration has a weight for them."""
    tables = spec.vl_arbitration
    if not tables.low:
        return  # by default all lanes have one there
    weighted = {int(lane) for table in (tables.high, tables.low) for lane, weight in table.items() if weight}
    for lane in sorted(used - weighted):
        message = f"paths go by VL {lane}, which has no weight in either table: it would never send"
        hint = f"low: {{{lane}: 8}} among its others, or leave low out"
        yield document.problem("vl-without-weight", (*ROOT, "vl_arbitration"), message, hint=hint, key=True)


def _wrong_managers(document: Document, names: list[str], hosts: list[str]) -> Iterator[Problem]:
    if len(set(names)) > MAX_MANAGERS:
        message = f"a subnet has room for {MAX_MANAGERS} managers, and not {len(set(names))}"
        yield document.problem("out-of-range", (*ROOT, "sm", "nodes"), message, hint="name two or three hosts")
    for index, name in enumerate(names):
        if name not in hosts:
            message = f"no host is called {quote(name)}, so that no subnet manager can be there"
            hint = known_names_hint(name, hosts)
            yield document.problem("unknown-host", (*ROOT, "sm", "nodes", index), message, hint=hint)
