"""A topology file as it is written: the whole (`LabSpec`) and its hand-written part in containerlab's shape."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from typing import Annotated

from pydantic import Field

from testbed.base.validation.fields import (
    CommandField,
    Entries,
    LabName,
    Name,
    NodeName,
    OneOf,
    Section,
    ShortText,
    TimeScale,
    Whole,
    Written,
)
from testbed.base.validation.model import SpecModel
from testbed.base.yaml.paths import quote
from testbed.lab.core.model import NodeKind, Role
from testbed.lab.core.schema import foreign
from testbed.lab.core.schema.endpoints import Prefix
from testbed.lab.core.schema.fabric import FabricSpec, RdmaKind
from testbed.lab.core.schema.links import Labels, LinkSettings
from testbed.lab.core.schema.network_spec import Networks
from testbed.lab.core.schema.qos.spec import QosSpec
from testbed.lab.features.containers.schema import ContainerSettings
from testbed.lab.features.overlay.schema.tenant_spec import TenantName, TenantSpec

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _check_env_name(name: str) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise ValueError(
            f"{quote(name)} cannot name an environment variable: letters, digits and '_', not a digit first"
        )


EnvName = Annotated[str, Name(_check_env_name, f"^{_ENV_NAME.pattern}$")]
Kind = Annotated[str, OneOf((NodeKind.HOST, NodeKind.SWITCH), noun="node kind", hints=foreign.KINDS)]


class NodeSettings(ContainerSettings):
    """The keys that a node may have, and a group, a kind or the defaults for it."""

    ELSEWHERE = foreign.NODE_KEYS

    role: Written[Annotated[str, OneOf(tuple(Role), hints=foreign.ROLES)]] = Field(
        default=None, description="Says in which tier a switch is."
    )
    asn: Written[Annotated[int, Whole(1, 4294967294)]] = Field(
        default=None, description="Gives the AS number of a switch; by default the plan does."
    )
    pod: Written[Annotated[int, Whole(1, 1023)]] = Field(
        default=None, description="Says which pod a switch belongs to; the default is 1."
    )
    rdma: Written[RdmaKind] = Field(
        default=None, description="Gives each NIC of a host a soft RoCEv2 device (rxe, from Linux 7.1 on)."
    )
    labels: Labels = Field(default={}, description="Gives labels, which are inherited key by key.")
    env: Section[dict[EnvName, ShortText]] = Field(
        default={}, description="Sets the environment of commands, which is inherited key by key."
    )
    exec: Entries[list[CommandField]] = Field(
        default=[], description="Lists commands that run once routing has converged; those inherited run first."
    )


class DefaultsSpec(NodeSettings):
    """`topology.defaults`: what every node has unless its kind, its group or itself says otherwise."""

    kind: Written[Kind] = Field(default=None, description="Says whether it is a host or a switch.")
    group: Written[ShortText] = Field(default=None, description="Names one of topology.groups that it belongs to.")


class GroupSpec(NodeSettings):
    """An entry of `topology.groups`."""

    kind: Written[Kind] = Field(default=None, description="Says whether it is a host or a switch.")


class NodeSpec(DefaultsSpec):
    """An entry of `topology.nodes`."""


class KindsSpec(SpecModel):
    """`topology.kinds`: what nodes of a kind have unless their group or themselves say otherwise."""

    ELSEWHERE = foreign.KIND_SECTIONS

    host: Section[NodeSettings] = Field(default=NodeSettings(), description="Gives the settings of every host.")
    switch: Section[NodeSettings] = Field(default=NodeSettings(), description="Gives the settings of every switch.")


class LinkSpec(LinkSettings):
    """An entry of `topology.links`."""

    ELSEWHERE = foreign.LINK_KEYS

    prefix: Written[Annotated[IPv4Network, Prefix()]] = Field(
        default=None,
        description="Gives the subnet of a link with a host, such as 192.0.2.0/31; by default the plan does.",
    )


class TopologySpec(SpecModel):
    """The `topology:` section."""

    defaults: Section[DefaultsSpec] = Field(default=DefaultsSpec(), description="Gives the settings of every node.")
    kinds: Section[KindsSpec] = Field(default=KindsSpec(), description="Gives settings by kind: host, switch.")
    groups: Section[dict[NodeName, Section[GroupSpec]]] = Field(default={}, description="Gives settings by group.")
    nodes: Section[dict[NodeName, Section[NodeSpec]]] = Field(default={}, description="Lists the nodes by name.")
    links: Entries[list[LinkSpec]] = Field(default=[], description="Lists the links, each between two nodes.")


class ScaleSpec(SpecModel):
    """The `scale:` section."""

    ELSEWHERE = {"k": "write time: 100"}  # noqa: RUF012  # a ClassVar of the base

    time: TimeScale = Field(
        default=None, description="Says how many times slower than the real fabric the lab runs: a number, or auto."
    )


class LabSpec(SpecModel):
    """A whole topology file."""

    ELSEWHERE = foreign.FILE_KEYS

    name: LabName = Field(description="Names the lab with lower-case letters, digits and '-'.")
    scale: Section[ScaleSpec] = Field(default=ScaleSpec(), description="Sets the time scale.")
    fabric: Section[FabricSpec] | None = Field(default=None, description="Describes a fabric to generate.")
    networks: Networks = Field(
        default={}, description="Describes networks beside the fabric by name, such as frontend or storage."
    )
    topology: Section[TopologySpec] | None = Field(default=None, description="Lists hand-written nodes and links.")
    tenants: Section[dict[TenantName, Section[TenantSpec]]] = Field(
        default={}, description="Lists the tenants of the overlay by name."
    )
    qos: Section[QosSpec | None] = Field(
        default=None,
        description="Sets traffic classes, ECN, PFC, buffers and load balancing; without it ports are plain.",
    )
