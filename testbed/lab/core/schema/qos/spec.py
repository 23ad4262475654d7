"""The `qos:` section as it is written: a profile for the whole fabric, and parts of it for kinds, tiers, nodes, ports.

The keys of a profile and of a class are declared where these are (`testbed.lab.core.model.qos`,
`testbed.base.datapath.traffic_class`). Only shape, type and unit of each value are checked here; how the parts join,
and what must hold of the whole, is in `testbed.lab.core.schema.qos.layers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.names import nearest
from testbed.base.validation.fields import Checked, Name, OneOf, Section, Written
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.validation.sections import declared_by
from testbed.base.yaml.paths import quote
from testbed.lab.core.fabric import QOS_PRESETS
from testbed.lab.core.model import NodeKind, QosProfile, Role, TrafficClass
from testbed.lab.core.schema.qos.fields import TYPES

HOST_TIER = "host"
TIERS = (HOST_TIER, *(role.value for role in Role))
_CLASS_NAME = re.compile(r"[a-z][a-z0-9_-]{0,15}")
_NODE_PATTERN = re.compile(r"[a-z0-9*?\[\]!-]{1,64}")
_PORT_NAME = re.compile(r"[a-z][a-z0-9-]{0,47}:[a-z][a-z0-9_.-]{0,14}")


def _check_class_name(name: str) -> None:
    if not _CLASS_NAME.fullmatch(name):
        raise ValueError(f"{quote(name)} cannot name a class: lower-case letters, digits, '_' and '-', at most 16")


def _check_node_pattern(name: str) -> None:
    if not _NODE_PATTERN.fullmatch(name):
        raise ValueError(f"{quote(name)} is no node name and no pattern of node names such as p1-spine*")


def _check_port_name(name: str) -> None:
    if not _PORT_NAME.fullmatch(name):
        raise ValueError(f"{quote(name)} is not node:interface, such as p1-s1-rail1:uplink1")


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


ClassName = Annotated[str, Name(_check_class_name, f"^{_CLASS_NAME.pattern}$")]
NodePattern = Annotated[str, Name(_check_node_pattern, f"^{_NODE_PATTERN.pattern}$")]
PortName = Annotated[str, Name(_check_port_name, f"^{_PORT_NAME.pattern}$")]


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

    host: Section[QosSettings] = Field(default=QosSettings(), description="Gives the settings of every NIC.")
    switch: Section[QosSettings] = Field(default=QosSettings(), description="Gives the settings of every switch.")

    def of(self, kind: NodeKind) -> QosSettings:
        return self.host if kind is NodeKind.HOST else self.switch


class QosSpec(QosSettings):
    """The `qos:` section. A port takes what is said last in: fabric, kind, tier, node, port."""

    kinds: Section[QosKindsSpec] = Field(default=QosKindsSpec(), description="Gives settings by kind: host, switch.")
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
