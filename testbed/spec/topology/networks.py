"""The `networks:` section: networks beside the back end, as they are written, and what becomes of them.

Each has switches and links of its own; hosts are those of the rest of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from ipaddress import IPv4Network
from typing import Annotated, Any

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.errors import FabricError, Problem
from testbed.fabric import UplinkParams
from testbed.fabric.networks import (
    DEFAULT_PREFIXES,
    MAX_LEAVES,
    MAX_NETWORKS,
    MAX_SPINES,
    NETWORK_DESIGNS,
    NetworkParams,
    check_network,
    generate_network,
)
from testbed.fabric.sizing import check_sizing
from testbed.model import BACKEND, Lab
from testbed.names import known_names_hint
from testbed.spec.qos.layers import QosResolver
from testbed.spec.qos.spec import QosSpec
from testbed.spec.topology.fabric import DelayField, Mtu, Positive, RoutingSpec
from testbed.spec.topology.guards import GuardsField, guards_of
from testbed.spec.topology.tenant_spec import OverlayField
from testbed.spec.validation.fields import (
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
from testbed.spec.validation.model import SpecModel, refusal
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import Path, quote
from testbed.units import Rate

DEFAULT_MTU = 1500
DEFAULT_RATE = Rate.parse("100G")
LONGEST_PREFIX = 22
"""Of a network's addresses: three leaves and their loopbacks."""
_OVERLAPPING = {
    "the back end's rails": IPv4Network("10.0.0.0/8"),
    "the lab's loopbacks": IPv4Network("172.16.0.0/12"),
    "routed links": IPv4Network("100.64.0.0/10"),
    "'this network' (RFC 1122)": IPv4Network("0.0.0.0/8"),
    "loopback addresses (RFC 1122)": IPv4Network("127.0.0.0/8"),
    "link-local addresses (RFC 3927)": IPv4Network("169.254.0.0/16"),
    "multicast and reserved addresses (RFC 5771, RFC 1112)": IPv4Network("224.0.0.0/3"),
}


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
        if not 8 <= network.prefixlen <= LONGEST_PREFIX:
            raise refusal("bad-prefix", f"{network} is not between /8 and /{LONGEST_PREFIX}")
        return network

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+/\d+$"}


_HOMING_LATER = {
    "routed": "BGP on hosts is not built yet; a NIC's ports have a subnet each, and hosts have static routes",
    "mlag": "two leaves as one LACP partner are not built yet; a kernel without bonding needs a LAG of our own",
    "esi": "FRR refuses an ES-ID on a port that is no bond; with bonds its kernel backend doubles broadcasts and floods"
    " unicast",
}
"""Ways of joining a NIC's ports that are refused, with the reason. That of `esi` was seen with FRR 8.4 and read in the
source of 10.3: zebra ignores DPLANE_OP_BR_PORT_UPDATE."""


class NetworkNicSpec(SpecModel):
    """`nic:` of a network: the ports that a host has for it."""

    per: Written[
        Annotated[str, OneOf(("host",), later={"gpu": "a NIC for each GPU is what the back end has; say `per: host`"})]
    ] = Field(default=None, description="Says that a host has one NIC for the network.")
    ports: Written[Annotated[int, OneOf((1, 2, 4))]] = Field(
        default=None, description="Says how many ports the NIC has, each on a leaf of its own; the default is 1."
    )
    rate: Written[RateField] = Field(default=None, description="Gives the rate of a port; the default is 100G.")


class NetworkUplinkSpec(SpecModel):
    """`uplink:` of a network: the links from leaves to spines."""

    rate: Written[RateField] = Field(default=None, description="Gives the rate of a link; the default is the NIC's.")
    count: Written[Positive] = Field(
        default=None, description="Says how many parallel links there are between a leaf and a spine."
    )
    delay: Written[DelayField] = Field(
        default=None, description="Gives the one-way delay: 500ns, or {value: 500ns, by: auto}."
    )


class NetworkSpec(SpecModel):
    """An entry of `networks:`."""

    LATER = {  # noqa: RUF012  # a ClassVar of the base
        "on": "carrying a network over another's switches is not built yet",
    }

    design: Written[
        Annotated[
            str,
            OneOf(
                tuple(NETWORK_DESIGNS),
                noun="design",
                later={"hand-written": "hand-written networks beside the back end are not built yet"},
            ),
        ]
    ] = Field(default=None, description="Names the design of the network; the default is leaf-spine.")
    short: Written[NodeName] = Field(
        default=None, description="Begins the names of its switches and NICs: fe makes fe-leaf1 and fe1."
    )
    leaves: Written[Annotated[int, Whole(1, MAX_LEAVES)]] = Field(
        default=None, description="Says how many leaves there are: a multiple of a NIC's ports."
    )
    spines: Written[Annotated[int, Whole(1, MAX_SPINES)]] = Field(
        default=None, description="Says how many spines there are; the default is 2."
    )
    hosts: Entries[list[ShortText]] = Field(
        default=[], description="Says which hosts attach, by name or pattern (p1-*); the default is all."
    )
    nic: Section[NetworkNicSpec] = Field(default=NetworkNicSpec(), description="Describes a host's NIC for it.")
    uplink: Section[NetworkUplinkSpec] = Field(
        default=NetworkUplinkSpec(), description="Describes the links from leaves to spines."
    )
    prefix: Written[Annotated[IPv4Network, _Space()]] = Field(
        default=None, description="Holds all its addresses, such as 192.168.0.0/18, which is that of the first network."
    )
    routing: Section[RoutingSpec] = Field(default=RoutingSpec(), description="Describes routing: BGP and BFD.")
    switch_radix: Written[Positive] = Field(
        default=None, description="Gives the ports of a switch, which sizing is checked against."
    )
    homing: Written[Annotated[str, OneOf(("single", "subnets"), later=_HOMING_LATER)]] = Field(
        default=None,
        description="Says how a NIC's ports are joined: single is one port, subnets is a subnet with static routes for"
        " each of several, of which the next serves where a link is down; nic.ports decides the default.",
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


Networks = Section[dict[Annotated[str, Text(32)], Section[NetworkSpec]]]


def add_networks(document: Document, specs: Mapping[str, NetworkSpec], lab: Lab) -> tuple[Lab, list[Problem]]:
    """The lab with its networks beside the back end, and what is wrong with them."""
    if len(specs) > MAX_NETWORKS:
        path: Path = ("networks", list(specs)[MAX_NETWORKS])
        message = f"there are at most {MAX_NETWORKS} networks beside the back end"
        return lab, [document.problem("size", path, message, key=True)]
    problems: list[Problem] = []
    spaces: dict[str, IPv4Network] = {}
    names = {node.name for node in lab.nodes}
    ports = {(end.node, end.interface) for link in lab.links for end in (link.a, link.b)}
    for number, (name, spec) in enumerate(specs.items(), 1):
        path = ("networks", name)
        found = [
            *_name_problems(document, name, path, lab),
            *_space_problems(document, name, spec.prefix or DEFAULT_PREFIXES[number - 1], spaces),
            *_homing_problems(document, name, spec),
        ]
        params, unknown = _params(document, name, number, spec, lab)
        found += unknown
        if not unknown:
            found += [_located(document, path, error) for error in check_network(params)]
        if found:
            problems += found
            continue
        made = generate_network(params)
        taken = [node.name for node in made.nodes if node.name in names]
        wanted = {(link.a.node, link.a.interface) for link in made.links}
        taken += [f"{node}:{interface}" for node, interface in sorted(wanted & ports)]
        if taken:
            message = f"{taken[0]} is there already"
            problems.append(document.problem("name-taken", path, message, hint="short: another beginning", key=True))
            continue
        names |= {node.name for node in made.nodes}
        ports |= wanted
        lab = replace(
            lab,
            nodes=(*lab.nodes, *made.nodes),
            links=(*lab.links, *made.links),
            rail_subnets=(*lab.rail_subnets, *made.rail_subnets),
            networks=(*lab.networks, made.network),
        )
        problems += [_located(document, path, error) for error in check_sizing(lab.of_network(name))]
        if spec.qos is not None:
            resolver = QosResolver(document, spec.qos, lab.of_network(name), root=(*path, "qos"))
            network = replace(made.network, qos=resolver.resolve())
            problems += resolver.problems
            lab = replace(lab, networks=(*lab.networks[:-1], network))
    return lab, problems


def _name_problems(document: Document, name: str, path: Path, lab: Lab) -> list[Problem]:
    if name == BACKEND:
        message = f"{name} is the network that fabric: describes"
        return [document.problem("name-taken", path, message, hint="frontend, storage, ...", key=True)]
    if not name.replace("-", "").isalnum() or not name.islower() or not name[0].isalpha() or len(name) > 20:
        message = f"{quote(name)} cannot name a network: lower-case letters, digits and '-', a letter first, at most 20"
        return [document.problem("bad-name", path, message, key=True)]
    if not lab.hosts:
        return [document.problem("no-hosts", path, "there are no hosts that could attach", key=True)]
    return []


def _space_problems(
    document: Document, name: str, prefix: IPv4Network, spaces: dict[str, IPv4Network]
) -> list[Problem]:
    path: Path = ("networks", name, "prefix") if document.has(("networks", name, "prefix")) else ("networks", name)
    for owner, other in (*_OVERLAPPING.items(), *spaces.items()):
        if prefix.overlaps(other):
            message = f"{prefix} overlaps {other}, which is that of {owner}"
            hint = "a prefix in 192.168.0.0/16 that no other network has, or a public one"
            return [document.problem("overlap", path, message, hint=hint)]
    spaces[f"the network {name}"] = prefix
    return []


def _homing_problems(document: Document, name: str, spec: NetworkSpec) -> list[Problem]:
    ports = spec.nic.ports or 1
    if spec.homing is None or (spec.homing == "single") == (ports == 1):
        return []
    message = f"homing {spec.homing} is that of {'one port' if ports > 1 else 'several ports'}; a NIC has {ports}"
    hint = "homing: subnets" if ports > 1 else "nic: {ports: 2}, or homing: single"
    return [document.problem("contradiction", ("networks", name, "homing"), message, hint=hint)]


def _params(
    document: Document, name: str, number: int, spec: NetworkSpec, lab: Lab
) -> tuple[NetworkParams, list[Problem]]:
    known = [node.name for node in lab.hosts]
    problems = [
        document.problem(
            "unknown-host",
            ("networks", name, "hosts", index),
            f"no host is called {quote(pattern)}",
            hint=known_names_hint(pattern, known),
        )
        for index, pattern in enumerate(spec.hosts)
        if not any(fnmatchcase(host, pattern) for host in known)
    ]
    hosts = [host for host in known if not spec.hosts or any(fnmatchcase(host, pattern) for pattern in spec.hosts)]
    uplink = spec.uplink
    given: dict[str, Any] = {} if spec.design is None else {"design": spec.design}
    return (
        NetworkParams(
            name=name,
            number=number,
            short=spec.short,
            leaves=spec.leaves,
            spines=spec.spines,
            ports=spec.nic.ports or 1,
            rate=spec.nic.rate or DEFAULT_RATE,
            hosts=tuple(hosts),
            uplink=UplinkParams(
                rate=uplink.rate,
                count=uplink.count,
                delay=None if uplink.delay is None else uplink.delay.delay(),
            ),
            prefix=spec.prefix,
            routing=spec.routing.params(),
            switch_radix=spec.switch_radix,
            mtu=DEFAULT_MTU if spec.mtu is None else spec.mtu,
            guards=guards_of(spec.guards),
            **given,
        ),
        problems,
    )


def _located(document: Document, path: Path, error: FabricError) -> Problem:
    where = (*path, *error.field.split("."))
    return document.problem(error.code, where if document.has(where) else path, error.message, hint=error.hint)
