"""A topology file as it is written: all of it (`LabSpec`), its fabric, and its part in containerlab's shape."""

from __future__ import annotations

import re
from dataclasses import fields
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
from testbed.lab.assembly.network_spec import Networks
from testbed.lab.core.fabric import DESIGNS, FabricParams, NicParams, RailParams
from testbed.lab.core.model import NodeKind, Role
from testbed.lab.core.schema import foreign
from testbed.lab.core.schema.endpoints import Prefix
from testbed.lab.core.schema.fabric import (
    DEFAULT_MTU,
    Count,
    HostsField,
    Mtu,
    NicSpec,
    Positive,
    RadixField,
    RailsSpec,
    RdmaKind,
    RoutingSpec,
    UplinkSpec,
    radix_of,
)
from testbed.lab.core.schema.links import Labels, LinkSettings
from testbed.lab.core.schema.qos.spec import QosSpec
from testbed.lab.core.schema.startup import RoleSpec, StartupSettings
from testbed.lab.features.containers.schema import ContainerSettings
from testbed.lab.features.guards.schema import GuardsField
from testbed.lab.features.infiniband.schema import InfinibandSpec, LinkLayerField
from testbed.lab.features.machines.schema import MachineSpec
from testbed.lab.features.overlay.schema.tenant_spec import OverlayField, TenantName, TenantSpec
from testbed.lab.features.scale_up.schema import ScaleUpSpec
from testbed.lab.features.targets.schema import BackendTargetsField

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _check_env_name(name: str) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise ValueError(
            f"{quote(name)} cannot name an environment variable: letters, digits and '_', not a digit first"
        )


EnvName = Annotated[str, Name(_check_env_name, f"^{_ENV_NAME.pattern}$")]
RoleName = Annotated[str, OneOf(tuple(Role), noun="role", hints=foreign.ROLES)]
Kind = Annotated[str, OneOf((NodeKind.HOST, NodeKind.SWITCH), noun="node kind", hints=foreign.KINDS)]


class NodeSettings(StartupSettings, ContainerSettings):
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

    host: Section[NodeSettings] = Field(
        default=NodeSettings.model_construct(), description="Gives the settings of every host."
    )
    switch: Section[NodeSettings] = Field(
        default=NodeSettings.model_construct(), description="Gives the settings of every switch."
    )


class LinkSpec(LinkSettings):
    """An entry of `topology.links`."""

    ELSEWHERE = foreign.LINK_KEYS

    prefix: Written[Annotated[IPv4Network, Prefix()]] = Field(
        default=None,
        description="Gives the subnet of a link with a host, such as 192.0.2.0/31; by default the plan does.",
    )


class TopologySpec(SpecModel):
    """The `topology:` section."""

    defaults: Section[DefaultsSpec] = Field(
        default=DefaultsSpec.model_construct(), description="Gives the settings of every node."
    )
    kinds: Section[KindsSpec] = Field(
        default=KindsSpec.model_construct(), description="Gives settings by kind: host, switch."
    )
    roles: Section[dict[RoleName, Section[RoleSpec]]] = Field(
        default={}, description="Gives settings of switches by role: rail, leaf, spine, super-spine."
    )
    groups: Section[dict[NodeName, Section[GroupSpec]]] = Field(default={}, description="Gives settings by group.")
    nodes: Section[dict[NodeName, Section[NodeSpec]]] = Field(default={}, description="Lists the nodes by name.")
    links: Entries[list[LinkSpec]] = Field(default=[], description="Lists the links, each between two nodes.")


class FabricSpec(SpecModel):
    """The `fabric:` section. Without `design` it sets `routing`, `mtu` and `switch_radix` of a hand-written lab."""

    ELSEWHERE = {  # noqa: RUF012  # a ClassVar of the base
        "qos": "the section qos stands beside fabric, not in it",
        "startup-config": "write topology: {roles: {rail: {startup-config: rail.conf}}}, or give a kind or a node one",
        **dict.fromkeys(("nvlink", "nvswitch", "scaleup"), "write scale_up: {preset: h100}"),
        "oversubscription": "choose spines, uplink: {rate: 400G} and uplink: {count: 1}; validate prints what it is",
        **dict.fromkeys(("gpus_per_host", "gpus_per_node", "gpus_per_server", "nics"), "write gpus: 8: each has a NIC"),
        **dict.fromkeys(("servers", "nodes", "hosts_per_segment", "hosts_per_leaf"), "write hosts: 4, of a segment"),
        **dict.fromkeys(("rate", "speed", "bandwidth", "nic_rate"), "write nic: {rate: 400G}, uplink: {rate: 400G}"),
        **dict.fromkeys(("leaves", "leafs"), "write segments: 4: each has rail switches, which are its leaves"),
        **{key: f"{key} belongs to a class: qos: {{classes: {{rdma: {{{key}: ...}}}}}}" for key in ("ecn", "pfc")},
        **{
            key: f"write it in the section qos: {{{key}: ...}}"
            for key in ("buffer", "load_balancing", "trimming", "watchdog")
        },
    }

    design: Written[Annotated[str, OneOf(tuple(DESIGNS), noun="design", hints=foreign.DESIGNS)]] = Field(
        default=None, description="Names the design of the fabric that is generated."
    )
    pods: Written[Count] = Field(default=None, description="Says how many pods there are.")
    segments: Written[Count] = Field(default=None, description="Says how many segments (scalable units) a pod has.")
    hosts: Written[HostsField] = Field(
        default=None, description="Says how many hosts a segment has: one number, or a list with one for each segment."
    )
    gpus: Written[Count] = Field(default=None, description="Says how many GPUs a host has.")
    nic: Section[NicSpec] = Field(default=NicSpec.model_construct(), description="Describes the NICs of a host.")
    planes: Written[Positive] = Field(
        default=None,
        description="Says how many fabrics without a common switch there are: of the ports of a NIC, or of rails.",
    )
    rails: Section[RailsSpec] = Field(
        default=RailsSpec.model_construct(), description="Says how rails lie on rail switches."
    )
    spines: Written[Count] = Field(default=None, description="Says how many spines a pod has, in each plane.")
    super_spines: Written[Count] = Field(
        default=None, description="Says how many super-spines join the pods, in each plane."
    )
    super_spine_groups: Written[Positive] = Field(
        default=None, description="Says in how many equal groups the super-spines stand."
    )
    uplink: Section[UplinkSpec] = Field(
        default=UplinkSpec.model_construct(), description="Describes the links from rail switches to spines."
    )
    core_uplink: Section[UplinkSpec] = Field(
        default=UplinkSpec.model_construct(),
        description="Describes the links from spines to super-spines, which are as uplink where nothing else is said.",
    )
    switch_radix: Written[RadixField] = Field(
        default=None,
        description="Gives the ports of a switch, which sizing is checked against: 64, or {rail: 128, spine: 64}.",
    )
    routing: Section[RoutingSpec] = Field(
        default=RoutingSpec.model_construct(), description="Describes routing: BGP and BFD."
    )
    overlay: OverlayField = Field(
        default=None, description="Names the overlay: none, evpn, or {evpn: {mtu: 4400}}; by default there is none."
    )
    mtu: Written[Mtu] = Field(default=None, description="Gives the MTU of every link in bytes; the default is 4500.")
    guards: Written[GuardsField] = Field(
        default=None,
        description="Says how ports of switches guard against their hosts: on, off, or {storm: false}.",
    )
    scale_up: Written[ScaleUpSpec] = Field(
        default=None,
        description="Describes what joins the GPUs of a host or a segment beside the fabric, such as NVLink; by"
        " default transfers inside a host take the rate of an H100's.",
    )
    link_layer: Written[LinkLayerField] = Field(
        default=None, description="Names the link layer of the back end: ethernet, which is the default, or infiniband."
    )
    infiniband: Written[InfinibandSpec] = Field(
        default=None, description="Says what the subnet manager of an InfiniBand back end is told."
    )
    targets: BackendTargetsField = Field(
        default={},
        description="Lists storage targets by name, which stand on rails as hosts do: nodes that serve their medium.",
    )

    def params(self, design: str) -> FabricParams:
        """Return what the generator is given."""
        given = {item.name: getattr(self, item.name) for item in fields(FabricParams) if item.name != "design"}
        decided = {
            "nic": NicParams(**dict(self.nic)),
            "rails": RailParams(**dict(self.rails)),
            "uplink": self.uplink.params(),
            "core_uplink": self.core_uplink.params(),
            "routing": self.routing.routing(),
            "mtu": DEFAULT_MTU if self.mtu is None else self.mtu,
            "switch_radix": radix_of(self.switch_radix),
        }
        return FabricParams(design=design, **given | decided)


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
    scale: Section[ScaleSpec] = Field(default=ScaleSpec.model_construct(), description="Sets the time scale.")
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
    machines: Section[dict[NodeName, Section[MachineSpec]]] = Field(
        default={}, description="Lists the machines that the lab is spread over by name; experimental."
    )
