"""The `qos:` section as it is written: a profile for the whole fabric, and parts of it for kinds, tiers, nodes, ports.

The keys of a profile and of a class are declared where these are (`testbed.lab.core.model.qos`,
`testbed.base.datapath.traffic_class`). Here are the types of values that no other section has (depths of queues, DSCPs
by number or name, sizes), and the sections. Only shape, type and unit of each value are checked; how the parts join,
and what must hold of the whole, is in `testbed.lab.core.schema.qos.layers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.base.datapath.abi import FIVE_TUPLE
from testbed.base.names import nearest
from testbed.base.units import BDPS, BYTES, ByteCount, Measure, parse_bdp
from testbed.base.validation.fields import Checked, Entries, Name, OneOf, Section, Written, read_quantity
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.validation.sections import Types, declared_by, whole, written
from testbed.base.yaml.paths import quote
from testbed.lab.core.fabric import QOS_PRESETS
from testbed.lab.core.model import Depth, DepthUnit, HashEngine, HashField, NodeKind, QosProfile, Role, TrafficClass
from testbed.lab.core.schema.qos.depth_hints import depth_hint

HOST_TIER = "host"
TIERS = (HOST_TIER, *(role.value for role in Role))
MAX_BYTES = 4_000_000_000
"""Counters of the data path have 32 bits."""
MAX_BDP = 10_000.0

DSCP_NAMES = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{drop}": 8 * n + 2 * drop for n in range(1, 5) for drop in range(1, 4)},
    "be": 0,
    "ef": 46,
    "le": 1,
}
"""RFC 2474 section 4.2.2 (cs), RFC 2597 (af), RFC 3246 (ef), RFC 8622 (le); be is the default, 0."""


_UNITS = f"{BYTES.usual}, bdp"
_DEPTH = BYTES.called("queue depth", "150KB or 0.2bdp", _UNITS)
_AUTO_DEPTH = BYTES.called("queue depth", "150KB, 0.2bdp or auto", _UNITS)


def _bytes(value: object, measure: Measure) -> int:
    count = read_quantity(value, ByteCount, measure).bytes
    if count > MAX_BYTES:
        raise refusal("out-of-range", f"the {measure.noun} must be at most {ByteCount(MAX_BYTES)}, not {quote(value)}")
    return count


@dataclass(frozen=True, slots=True)
class DepthOf(Checked):
    """A queue depth: "150KB" or "0.2bdp". `auto`: the word is a value too, None."""

    auto: bool = False

    def check(self, value: object) -> Depth | None:
        if self.auto and value == "auto":
            return None
        if isinstance(value, str) and (bdps := parse_bdp(value)) is not None:
            if not 0 <= bdps <= MAX_BDP:
                raise refusal("out-of-range", f"the queue depth must be at most {MAX_BDP:g}bdp, not {quote(value)}")
            return Depth(bdps, DepthUnit.BDP)
        measure = _AUTO_DEPTH if self.auto else _DEPTH
        if (hint := depth_hint(value)) is not None:
            raise refusal("bad-quantity", f"{quote(value)} is not a queue depth such as {measure.example}", hint)
        return Depth(float(_bytes(value, measure)))

    def json_schema(self) -> JsonSchemaValue:
        texts = [{"type": "string", "pattern": one} for one in (BYTES.pattern(), BDPS.pattern(bare=False))]
        return {"anyOf": [*texts, *([{"const": "auto"}] if self.auto else [])], "examples": ["150KB", "0.2bdp"]}


@dataclass(frozen=True, slots=True)
class SizeInBytes(Checked):
    """An amount of memory: "16MB"."""

    example: str = "16MB"

    def check(self, value: object) -> int:
        size = _bytes(value, BYTES)
        if not size:
            raise refusal("out-of-range", "the size must be more than zero")
        return size

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": BYTES.pattern(), "examples": [self.example]}


@dataclass(frozen=True, slots=True)
class _Dscp(Checked):
    """A differentiated services code point (RFC 2474): 0..63, or its name."""

    def check(self, value: object) -> int:
        if isinstance(value, str):
            code_point = DSCP_NAMES.get(value.lower())
            if code_point is None:
                meant = nearest(value.lower(), DSCP_NAMES)
                known = "known are cs0 to cs7, af11 to af43, ef, be and le; or write a number from 0 to 63"
                hint = f"did you mean {meant}?" if meant else known
                if value.isascii() and value.isdigit():
                    hint = f"write {value} without quotes"
                raise refusal("unknown-dscp", f"there is no DSCP {quote(value)}", hint)
            return code_point
        if isinstance(value, bool) or not isinstance(value, int):
            raise refusal("wrong-type", f"must be a DSCP such as 26 or ef, not {quote(value)}")
        if not 0 <= value <= 63:
            hint = "a DSCP has six bits (RFC 2474); the TOS byte is 4 times it"
            raise refusal("unknown-dscp", f"a DSCP is from 0 to 63, not {quote(value)}", hint)
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 63}, {"enum": sorted(DSCP_NAMES)}]}


DscpField = Annotated[int, _Dscp()]
_DSCP_RANGE = re.compile(r"\s*([0-9]|[1-5][0-9]|6[0-3])\s*-\s*([0-9]|[1-5][0-9]|6[0-3])\s*")


@dataclass(frozen=True, slots=True)
class _Dscps:
    """A list of DSCPs, a single one, or a range such as 24-31, as configurations of switches have it."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def listed(value: object) -> object:
            if isinstance(value, dict):
                return value
            entries = value if isinstance(value, list) else [value]
            return [code_point for entry in entries for code_point in _code_points(entry)]

        return core_schema.no_info_before_validator_function(listed, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        one = {"anyOf": [_Dscp().json_schema(), {"type": "string", "pattern": f"^{_DSCP_RANGE.pattern}$"}]}
        return {"anyOf": [one, {"type": "array", "items": one}], "examples": ["24-31"]}


def _code_points(entry: object) -> list[object]:
    """The code points of a range, from the lower to the higher; what is none is left as it is."""
    match = _DSCP_RANGE.fullmatch(entry) if isinstance(entry, str) else None
    if match is None or int(match[1]) > int(match[2]):
        return [entry]
    return list(range(int(match[1]), int(match[2]) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashing:
    """The value of the key `hash`: who hashes, and which fields of a packet."""

    by: HashEngine = HashEngine.EBPF
    fields: tuple[HashField, ...] = FIVE_TUPLE


@dataclass(frozen=True, slots=True)
class HashOf(Checked):
    """Who hashes (`ebpf`, `kernel`), or a mapping that says who and which fields of a packet.

    Fields may be one text with commas, as a single value of a matrix has to be.
    """

    def check(self, value: object) -> Hashing:
        if not isinstance(value, dict):
            return Hashing(by=HashEngine(str(_HASH_ENGINE.check(value))))
        unknown = next((name for name in value if name not in ("by", "fields")), None)
        if unknown is not None:
            raise refusal("unknown-key", f"has no key {quote(unknown)}", "its keys are by and fields", key=str(unknown))
        by = HashEngine(str(_HASH_ENGINE.check(value.get("by", HashEngine.EBPF.value))))
        said = value.get("fields", list(Hashing().fields))
        said = [word.strip() for word in said.split(",")] if isinstance(said, str) else said
        if not isinstance(said, list) or not said:
            message = f"must be a list such as [source, destination], not {quote(said)}"
            raise refusal("wrong-type", message, key="fields")
        named = {HashField(str(_HASH_FIELD.check(one))) for one in said}
        if by is HashEngine.KERNEL and HashField.ROCE_QP in named:
            hint = "remove by: kernel, or roce_qp"
            raise refusal("kernel-hash", "the kernel's hash knows no queue pairs", hint, key="fields")
        return Hashing(by=by, fields=tuple(field for field in HashField if field in named))

    def json_schema(self) -> JsonSchemaValue:
        what = {"description": "Lists the fields of a packet that are hashed.", "items": _HASH_FIELD.json_schema()}
        who = {"description": "Says who hashes.", **_HASH_ENGINE.json_schema()}
        keys = {"by": who, "fields": {"type": ["array", "string"], "minItems": 1, **what}}
        mapping = {"type": "object", "properties": keys, "additionalProperties": False}
        return {"anyOf": [_HASH_ENGINE.json_schema(), mapping]}


_HASH_ENGINE = OneOf(tuple(HashEngine))
_HASH_FIELD = OneOf(tuple(HashField), noun="hash field")
DscpList = Entries[Annotated[list[DscpField], _Dscps()]]
AutoDepth = Annotated[Depth | None, DepthOf(auto=True)]
TYPES: Types = {
    Depth: lambda key: AutoDepth if key.word else written(Annotated[Depth, DepthOf()]),
    tuple[int, ...]: lambda key: DscpList,
    HashEngine: lambda key: written(Annotated[Hashing, HashOf()]),
    int: lambda key: written(Annotated[int, SizeInBytes() if key.measure is BYTES else whole(key)]),
}
"""The readers of keys of those types."""


@dataclass(frozen=True, slots=True)
class _Tier(Checked):
    """A key of `qos.tiers`."""

    def check(self, value: object) -> str:
        if value not in TIERS:
            meant = nearest(value, TIERS) if isinstance(value, str) else None
            hint = f"did you mean {meant}?" if meant else f"tiers are {', '.join(TIERS)}"
            raise refusal("unknown-tier", f"there is no tier {quote(value)}", hint)
        return str(value)

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": f"^({'|'.join(TIERS)})$"}


def _name(pattern: str, message: str) -> Name:
    """Return what reads a name of this pattern; `message` follows it where it is none."""

    def check(name: str) -> None:
        if not re.fullmatch(pattern, name):
            raise ValueError(f"{quote(name)} {message}")

    return Name(check, f"^{pattern}$")


ClassName = Annotated[
    str,
    _name("[a-z][a-z0-9_-]{0,15}", "cannot name a class: lower-case letters, digits, '_' and '-', at most 16"),
]
NodePattern = Annotated[
    str,
    _name(r"[a-z0-9*?\[\]!-]{1,64}", "is no node name and no pattern of node names such as p1-spine*"),
]
PortName = Annotated[
    str,
    _name("[a-z][a-z0-9-]{0,47}:[a-z][a-z0-9_.-]{0,14}", "is not node:interface, such as p1-s1-rail1:uplink1"),
]


@declared_by(TrafficClass, TYPES)
class ClassSpec(SpecModel):
    """An entry of `qos.classes`. Keys that are left out come from less specific layers, or from the preset."""


@declared_by(QosProfile, TYPES)
class QosSettings(SpecModel):
    """The settings that a fabric, a kind, a tier, a node or a port may have. Keys that are left out are inherited."""

    preset: Written[Annotated[str, OneOf(tuple(QOS_PRESETS), noun="QoS preset")]] = Field(
        default=None, description="Begins with the settings of a vendor, a paper or the UEC."
    )
    classes: Section[dict[ClassName, Section[ClassSpec]]] = Field(
        default={}, description="Describes traffic classes by name; those of the preset are changed key by key."
    )


class QosKindsSpec(SpecModel):
    """`qos.kinds`."""

    host: Section[QosSettings] = Field(
        default=QosSettings.model_construct(), description="Gives the settings of every NIC."
    )
    switch: Section[QosSettings] = Field(
        default=QosSettings.model_construct(), description="Gives the settings of every switch."
    )

    def of(self, kind: NodeKind) -> QosSettings:
        return self.host if kind is NodeKind.HOST else self.switch


class QosSpec(QosSettings):
    """The `qos:` section. A port takes what is said last in: fabric, kind, tier, node, port."""

    kinds: Section[QosKindsSpec] = Field(
        default=QosKindsSpec.model_construct(), description="Gives settings by kind: host, switch."
    )
    tiers: Section[dict[Annotated[str, _Tier()], Section[QosSettings]]] = Field(
        default={}, description="Gives settings by tier: host, rail, spine, super-spine."
    )
    nodes: Section[dict[NodePattern, Section[QosSettings]]] = Field(
        default={},
        description="Gives settings by node name or pattern such as p1-spine*; later ones and full names win.",
    )
    ports: Section[dict[PortName, Section[QosSettings]]] = Field(
        default={}, description='Gives settings of a port, such as "p1-s1-rail1:uplink1".'
    )
