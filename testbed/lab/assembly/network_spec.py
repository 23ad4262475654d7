"""The `networks:` section as it is written: networks beside the back end."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import FabricError, Problem
from testbed.base.validation.fields import (
    Checked,
    Entries,
    NodeName,
    OneOf,
    RateField,
    Section,
    ShortText,
    Text,
    Whole,
    Written,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.fabric.networks import HAND_WRITTEN, MAX_LEAVES, MAX_PODS, MAX_SPINES, NETWORK_DESIGNS
from testbed.lab.core.model import OUT_OF_BAND, LagBy, Role
from testbed.lab.core.schema import foreign
from testbed.lab.core.schema.fabric import DelayField, Mtu, Positive, RoutingSpec
from testbed.lab.core.schema.links import Labels, LinkSettings
from testbed.lab.core.schema.qos.spec import QosSpec
from testbed.lab.features.guards.schema import GuardsField
from testbed.lab.features.management.services_schema import ServicesField
from testbed.lab.features.overlay.schema.tenant_spec import OverlayField, Vni
from testbed.lab.features.targets.schema import TargetsField

LONGEST_PREFIX = 22
"""The longest prefix of a network's addresses: three leaves and their loopbacks."""
LONGEST_CARRIED_PREFIX = 30
"""The longest prefix of a network without switches: a gateway and a host."""


@dataclass(frozen=True, slots=True)
class _Space(Checked):
    """The IPv4 prefix that holds all addresses of a network."""

    def check(self, value: object) -> IPv4Network:
        try:
            if not isinstance(value, str) or "/" not in value:
                raise ValueError
            network = IPv4Network(value)
        except ValueError as error:
            raise refusal("bad-prefix", f"{quote(value)} is not an IPv4 prefix such as 192.168.0.0/18") from error
        if not 8 <= network.prefixlen <= LONGEST_CARRIED_PREFIX:
            raise refusal("bad-prefix", f"{network} is not between /8 and /{LONGEST_CARRIED_PREFIX}")
        return network

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+/\d+$"}


SWITCHED_KEYS = (
    *((key,) for key in ("design", "leaves", "spines", "switches", "links", "uplink", "routing", "switch_radix")),
    *((key,) for key in ("homing", "lag_by", "overlay", "guards", "qos", "targets")),
    ("nic", "ports"),
)
"""Keys that say something of switches, or of how hosts are joined to several: a network that is carried has none."""

ROUTED_KEYS = (
    *((key,) for key in ("on", "vni", "leaves", "spines", "switches", "links", "hosts", "uplink", "routing")),
    *((key,) for key in ("switch_radix", "homing", "lag_by", "overlay", "guards", "qos", "targets")),
    ("nic", "ports"),
)
"""Keys that say something of switches that route, or of who attaches: a network of management ports has none."""

ROUTED, MLAG = "routed", "mlag"
_HOMING_LATER = {
    "esi": "FRR refuses an ES-ID on a port that is no bond; with bonds its kernel backend doubles broadcasts and floods"
    " unicast",
}
"""Ways of joining a NIC's ports that are refused, with the reason. That of `esi` was seen with FRR 8.4, 10.3 and 10.7.1
and Linux 7.3: zebra installs a MAC behind a group of next hops as one that may age, which VXLAN refuses ("A nexthop fdb
cannot be dynamic"), and ignores DPLANE_OP_BR_PORT_UPDATE, which would filter for the designated forwarder."""


DEFAULT_MTU = 1500


def located(document: Document, path: Path, error: FabricError) -> Problem:
    """A fault that a generator found in the network at `path`, at its key where that is written."""
    where = (*path, *error.field.split("."))
    return document.problem(error.code, where if document.has(where) else path, error.message, hint=error.hint)


class NetworkNicSpec(SpecModel):
    """`nic:` of a network: the ports that a host has for it."""

    LATER = {  # noqa: RUF012  # a ClassVar of the base
        "shared": "a network that is carried has ports of its own, too",
    }

    per: Written[
        Annotated[str, OneOf(("host",), later={"gpu": "a NIC for each GPU is what the back end has; say `per: host`"})]
    ] = Field(default=None, description="Says that a host has one NIC for the network.")
    ports: Written[Annotated[int, OneOf((1, 2, 4))]] = Field(
        default=None, description="Says how many ports the NIC has, each on a leaf of its own; the default is 1."
    )
    rate: Written[RateField] = Field(
        default=None, description="Gives the rate of a port; the default is 100G, and 1G out of band."
    )


class NetworkUplinkSpec(SpecModel):
    """`uplink:` of a network: the links from leaves to spines."""

    rate: Written[RateField] = Field(default=None, description="Gives the rate of a link; the default is the NIC's.")
    count: Written[Positive] = Field(
        default=None, description="Says how many parallel links there are between a leaf and a spine."
    )
    delay: Written[DelayField] = Field(
        default=None, description="Gives the one-way delay: 500ns, or {value: 500ns, by: auto}."
    )


class NetworkSwitchSpec(SpecModel):
    """An entry of `switches:` of a hand-written network."""

    role: Written[
        Annotated[
            str,
            OneOf((Role.LEAF, Role.SPINE, Role.SUPER_SPINE), later={Role.RAIL: "rails are the back end's; say leaf"}),
        ]
    ] = Field(default=None, description="Says in which tier the switch is; hosts attach to leaves.")
    asn: Written[Annotated[int, Whole(1, 4294967294)]] = Field(
        default=None, description="Gives its AS number; by default the plan does."
    )
    pod: Written[Annotated[int, Whole(1, MAX_PODS)]] = Field(
        default=None, description="Says which pod it is in where there are super-spines: spines of a pod are one AS."
    )
    labels: Labels = Field(default={}, description="Gives labels.")


class NetworkLinkSpec(LinkSettings):
    """An entry of `links:` of a hand-written network."""

    ELSEWHERE = {  # noqa: RUF012  # a ClassVar of the base
        **foreign.LINK_KEYS,
        "prefix": "hosts have addresses of their leaf's subnet, which is in the network's prefix",
    }


class NetworkSpec(SpecModel):
    """An entry of `networks:`."""

    on: Written[Annotated[str, Text(32)]] = Field(
        default=None,
        description="Names another network, which carries this one over its switches as a tenant of its overlay.",
    )
    vni: Written[Vni] = Field(
        default=None, description="Gives the VNI of a network that another one carries; by default the plan does."
    )
    design: Written[Annotated[str, OneOf((*NETWORK_DESIGNS, HAND_WRITTEN, OUT_OF_BAND), noun="design")]] = Field(
        default=None,
        description="Names the design of the network; the default is leaf-spine; out-of-band is a port for management"
        " on every node.",
    )
    short: Written[NodeName] = Field(
        default=None, description="Begins the names of its switches and NICs: fe makes fe-leaf1 and fe1."
    )
    leaves: Written[Annotated[int, Whole(1, MAX_LEAVES)]] = Field(
        default=None, description="Says how many leaves there are: a multiple of a NIC's ports."
    )
    spines: Written[Annotated[int, Whole(1, MAX_SPINES)]] = Field(
        default=None, description="Says how many spines there are; the default is 2."
    )
    switches: Section[dict[NodeName, Section[NetworkSwitchSpec]]] = Field(
        default={}, description="Lists the switches of a hand-written network by name."
    )
    links: Entries[list[NetworkLinkSpec]] = Field(
        default=[], description="Lists the links of a hand-written network: among its switches, and to NICs of hosts."
    )
    hosts: Entries[list[ShortText]] = Field(
        default=[], description="Says which hosts attach, by name or pattern (p1-*); the default is all."
    )
    targets: TargetsField = Field(
        default={}, description="Lists storage targets by name, spread over its leaves: nodes that serve their medium."
    )
    nic: Section[NetworkNicSpec] = Field(
        default=NetworkNicSpec.model_construct(), description="Describes a host's NIC for it."
    )
    uplink: Section[NetworkUplinkSpec] = Field(
        default=NetworkUplinkSpec.model_construct(), description="Describes the links from leaves to spines."
    )
    prefix: Written[Annotated[IPv4Network, _Space()]] = Field(
        default=None, description="Holds all its addresses, such as 192.168.0.0/18, which is that of the first network."
    )
    routing: Section[RoutingSpec] = Field(
        default=RoutingSpec.model_construct(), description="Describes routing: BGP and BFD."
    )
    switch_radix: Written[Positive] = Field(
        default=None, description="Gives the ports of a switch, which sizing is checked against."
    )
    homing: Written[Annotated[str, OneOf(("single", "subnets", ROUTED, MLAG), later=_HOMING_LATER)]] = Field(
        default=None,
        description="Says how a NIC's ports are joined: single is one port, subnets is a subnet with static routes for"
        " each of several, of which the next serves where a link is down, routed is BGP on the host, with one address"
        " that is reached by all ports, mlag is a link group whose partner two leaves are together; nic.ports decides"
        " between the first two.",
    )
    lag_by: Written[Annotated[Literal["auto", "bond", "ebpf"], OneOf(tuple(LagBy))]] = Field(
        default=None,
        description="Tells what the link groups of hosts are: bonds of the kernel, or eBPF programs; auto, the default,"
        " has bonds where the kernel does.",
    )
    mtu: Written[Mtu] = Field(default=None, description="Gives the MTU of its links in bytes; the default is 1500.")
    overlay: OverlayField = Field(
        default=None, description="Names the overlay: none, evpn, or {evpn: {mtu: 1400}}; by default there is none."
    )
    guards: Written[GuardsField] = Field(
        default=None,
        description="Says how ports of switches guard against their hosts: on, off, or {storm: false}.",
    )
    qos: Section[QosSpec | None] = Field(
        default=None, description="Sets traffic classes, ECN, PFC and buffers; without it each port has one queue."
    )
    services: ServicesField = Field(
        default=None, description="Says which services a network of management ports has: [ssh, dns]; by default none."
    )


Networks = Section[dict[Annotated[str, Text(32)], Section[NetworkSpec]]]
