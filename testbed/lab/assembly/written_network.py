"""A network beside the back end whose switches and links are written out: `design: hand-written`.

It becomes what a generated network is, so that all the rest of the testbed knows no difference: a leaf is a bridge with
the n-th subnet of the network's prefix, n being its place among the leaves of the file; hosts have addresses in it in
the order of their links; links between switches are routed by BGP.

What generated networks call the ports of a NIC, 1, 2, ..., are here numbers of leaves: leaves that have a host in
common have different ones, and each has the least that is free in the order of the file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from testbed.base.errors import Problem
from testbed.base.names import known_names_hint
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.assembly.network_spec import NetworkLinkSpec, NetworkSpec, NetworkSwitchSpec
from testbed.lab.core.fabric.networks import (
    MAX_LEAVES,
    MAX_SPINES,
    SUBNET_LENGTH,
    GeneratedNetwork,
    NetworkParams,
    describe_network,
)
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Place, Protocol, RailSubnet, Role
from testbed.lab.core.schema.links import UsedPorts, find_wrong_ends

GENERATED_KEYS = (("short",), ("leaves",), ("spines",), ("hosts",), ("nic", "ports"), ("uplink", "count"))
"""Keys that say how many switches, links and hosts a generated network has, and what they are called."""
WRITTEN_KEYS = (("switches",), ("links",))
_MOST = {Role.LEAF: MAX_LEAVES, Role.SPINE: MAX_SPINES, Role.SUPER_SPINE: MAX_SPINES}


@dataclass(slots=True)
class WrittenNetwork:
    """Turns a hand-written entry of `networks:` into switches and links. `problems` has what is wrong with it.

    `params` are those of its keys that generated networks have, too; `lab` is what the network is added to.
    """

    document: Document
    spec: NetworkSpec
    params: NetworkParams
    lab: Lab
    problems: list[Problem] = field(default_factory=list)
    _nodes: dict[str, Node] = field(default_factory=dict)
    """The hosts of the lab and the switches of this network."""
    _ports: UsedPorts = field(init=False)

    def __post_init__(self) -> None:
        self._ports = UsedPorts(self.document)

    def resolve(self) -> GeneratedNetwork:
        """Return the network, which is sound only if `problems` stays empty."""
        for link in self.lab.links:
            self._ports.add(link, f"the link {link.a} to {link.b} of the network {link.network}")
        self._nodes = {host.name: host for host in self.lab.hosts}
        switches = list(self._switches())
        self._nodes |= {node.name: node for node in switches}
        resolved = (self._link(index, spec) for index, spec in enumerate(self.spec.links))
        links = [link for link in resolved if link is not None]
        self._check_linked()
        self._check_leaves(links)
        self._check_as_numbers(links)
        ports = _port_numbers(links)
        hosts: Counter[str] = Counter()
        for index, link in enumerate(links):
            if link.kind is LinkKind.ACCESS:
                leaf = link.b.node
                hosts[leaf] += 1
                links[index] = replace(link, rail=ports[leaf], host_number=hosts[leaf])
        leaves = [node for node in switches if node.role is Role.LEAF]
        return GeneratedNetwork(
            network=describe_network(self.params, sum(link.kind is LinkKind.FABRIC for link in links)),
            nodes=tuple(switches),
            links=tuple(links),
            rail_subnets=tuple(
                RailSubnet(
                    switch=leaf.name,
                    rail=ports.get(leaf.name, 1),
                    slot=0,
                    prefix_length=SUBNET_LENGTH,
                    aggregate_length=SUBNET_LENGTH,
                )
                for leaf in leaves
            ),
        )

    # ------------------------------------------------------------------ switches

    def _switches(self) -> Iterator[Node]:
        if not self.spec.switches:
            hint = "switches: {NAME: {role: leaf}}, and links: to hosts"
            self._refuse("missing-key", ("switches",), "a hand-written network lists its switches", hint, key=True)
        places: Counter[Role] = Counter()
        there = {node.name: node for node in self.lab.nodes}
        for name, spec in self.spec.switches.items():
            path: Path = ("switches", name)
            if name in there:
                node = there[name]
                of = "a host of the lab" if node.kind is NodeKind.HOST else f"a switch of the network {node.network}"
                self._refuse("name-taken", path, f"{name} is {of} already", "choose another name", key=True)
                continue
            if spec.role is None:
                hint = "role: leaf, spine or super-spine; hosts attach to leaves"
                self._refuse("missing-key", (*path, "role"), f"the switch {name!r} has no role", hint, key=True)
                continue
            role = Role(spec.role)
            places[role] += 1
            if places[role] == _MOST[role] + 1:
                self._refuse("size", path, f"there are at most {_MOST[role]} {role} switches in a network", key=True)
            yield Node(
                name=name,
                kind=NodeKind.SWITCH,
                role=role,
                place=Place(index=places[role], pod=spec.pod or 0),
                asn=spec.asn,
                labels=self._labels(path, spec),
                network=self.params.name,
            )

    def _labels(self, path: Path, spec: NetworkSwitchSpec) -> Mapping[str, str]:
        """Its labels; `pod: 2` is the label `pod`."""
        if "pod" in spec.labels:
            hint = "write the key pod with a number, and name the label otherwise"
            self._refuse("bad-label", (*path, "labels", "pod"), "the label pod says which pod a switch is in", hint)
        return dict(spec.labels) if spec.pod is None else {**spec.labels, "pod": str(spec.pod)}

    # ------------------------------------------------------------------ links

    def _link(self, index: int, spec: NetworkLinkSpec) -> Link | None:
        path: Path = ("links", index)
        ends = [end for position, end in enumerate(spec.endpoints) if self._take(path, position, end)]
        if len(ends) < 2:
            return None
        a, b = ends
        first, second = self._nodes[a.node], self._nodes[b.node]
        wrong = find_wrong_ends(self.document, ("networks", self.params.name, *path), first, second)
        if wrong is not None:
            self.problems.append(wrong)
            return None
        if _height(first) > _height(second):
            a, b, first, second = b, a, second, first
        if first.role is None and second.role is not Role.LEAF:
            what = "is a host, too" if second.role is None else f"is a {second.role} switch"
            message = f"{a.node!r} is a host and {b.node!r} {what}: a host attaches to a leaf, whose subnet it is in"
            self._refuse("not-to-a-leaf", (*path, "endpoints"), message, "name a switch whose role is leaf at one end")
            return None
        if spec.loss and self.spec.qos is None:
            message = "loss on the wire needs the eBPF data path, which the network's qos: brings"
            hint = f"add `qos: {{preset: uec}}` to networks.{self.params.name}"
            self._refuse("loss-without-qos", (*path, "loss"), message, hint)
        uplink = self.params.uplink
        between = first.role is not None
        return Link(
            a=a,
            b=b,
            kind=LinkKind.FABRIC if between else LinkKind.ACCESS,
            rate=spec.rate or (uplink.rate if between else None) or self.params.rate,
            mtu_bytes=spec.mtu or self.params.mtu,
            delay=spec.delay.delay() if spec.delay is not None else uplink.delay if between else None,
            loss=spec.loss or 0.0,
            network=self.params.name,
            labels=dict(spec.labels),
        )

    def _take(self, path: Path, position: int, end: End) -> bool:
        """Tell whether `end` is a port of a host or of a switch of this network, and free; it is used from now on."""
        where: Path = (*path, "endpoints", position)
        if end.node not in self._nodes:
            if end.node not in self.spec.switches:  # a switch that is written but wrong has its own problem
                self._refuse_node(where, end.node)
            return False
        wrong = self._ports.take(end, ("networks", self.params.name, *where))
        if wrong is not None:
            self.problems.append(wrong)
        return wrong is None

    def _refuse_node(self, where: Path, name: str) -> None:
        other = next((node for node in self.lab.switches if node.name == name), None)
        if other is not None:
            message = f"{name} is a switch of the network {other.network}: networks have hosts in common, and no links"
            hint = f"name a host, or one of {', '.join(self.spec.switches) or 'its own switches'}"
            self._refuse("other-network", where, message, hint)
            return
        known = [*self.spec.switches, *(host.name for host in self.lab.hosts)]
        hint = known_names_hint(name, known) or f"define it under networks.{self.params.name}.switches"
        self._refuse("unknown-node", where, f"there is no host {name!r}, and no such switch in this network", hint)

    # ------------------------------------------------------------------ the whole

    def _check_linked(self) -> None:
        named = {end.node for spec in self.spec.links for end in spec.endpoints}
        for name in self.spec.switches:
            if name not in named and name in self._nodes:
                hint = f'add a link to it, such as ["{name}:eth1", ...], or remove the switch'
                self._refuse("no-links", ("switches", name), f"no link names the switch {name!r}", hint, key=True)
        if self.spec.switches and not self.problems and not named & {host.name for host in self.lab.hosts}:
            hint = 'add links to hosts, such as ["HOST:st1", "LEAF:eth1"]'
            self._refuse("no-hosts", ("links",), "no host attaches to it", hint, key=True)

    def _check_leaves(self, links: list[Link]) -> None:
        """Refuse more leaves, or hosts on a leaf, than there are addresses for, and a host that is on a leaf twice."""
        leaves = [node.name for node in self._nodes.values() if node.role is Role.LEAF]
        prefix = self.params.addresses
        subnets = (1 << (SUBNET_LENGTH - prefix.prefixlen)) - 1  # the first is that of loopbacks
        if len(leaves) > subnets:
            message = f"{prefix} has room for {subnets} leaves, and there are {len(leaves)}"
            place: Path = ("prefix",) if self.spec.prefix is not None else ("switches", leaves[subnets])
            self._refuse("address-space", place, message, "a shorter prefix, such as 10.200.0.0/16", key=True)
        room = (1 << (32 - SUBNET_LENGTH)) - 3
        ports: Counter[str] = Counter(link.b.node for link in links if link.kind is LinkKind.ACCESS)
        for leaf, number in ports.items():
            if number > room:
                message = f"{leaf} has {number} hosts, and its subnet (a /{SUBNET_LENGTH}) room for {room}"
                self._refuse("address-space", ("switches", leaf), message, "more leaves", key=True)
        seen: dict[tuple[str, str], End] = {}
        for index, spec in enumerate(self.spec.links):
            by_name = {end.node: end for end in spec.endpoints}
            for leaf in by_name.keys() & set(leaves):
                for host, end in by_name.items():
                    if self._nodes.get(host, self._nodes[leaf]).kind is not NodeKind.HOST:
                        continue
                    other = seen.setdefault((host, leaf), end)
                    if other != end:
                        message = f"{host} is on {leaf} already, by {other}: a NIC's ports are on a leaf each"
                        self._refuse("same-leaf", ("links", index, "endpoints"), message, "name another leaf")

    def _check_as_numbers(self, links: list[Link]) -> None:
        """AS numbers that are written: one for all with iBGP, different ones at the ends of a link with eBGP."""
        written = {name: spec.asn for name, spec in self.spec.switches.items() if spec.asn is not None}
        if self.params.routing.protocol is Protocol.IBGP:
            for name, asn in written.items():
                if asn != (first := next(iter(written.values()))):
                    message = f"with iBGP a network has one AS, but {name} is to be in {asn} and another in {first}"
                    hint = "routing: {protocol: ebgp}, or one asn for all"
                    self._refuse("asn", ("switches", name, "asn"), message, hint)
            return
        for link in links:
            upper = written.get(link.b.node)
            if upper is not None and upper == written.get(link.a.node):
                message = f"{link.a} to {link.b} joins two switches of AS {upper}: no eBGP session is possible"
                self._refuse("same-asn", ("switches", link.b.node, "asn"), message, "give each an asn of its own")

    def _refuse(self, code: str, path: Path, message: str, hint: str | None = None, *, key: bool = False) -> None:
        where = ("networks", self.params.name, *path)
        self.problems.append(self.document.problem(code, where, message, hint=hint, key=key))


def _height(node: Node) -> int:
    """The tier of a switch, and 0 for a host."""
    return 0 if node.role is None else node.role.tier


def _port_numbers(links: list[Link]) -> dict[str, int]:
    """The number of each leaf that has hosts: different from those of leaves that have a host in common with it."""
    leaves: dict[str, set[str]] = defaultdict(set)
    hosts: dict[str, set[str]] = defaultdict(set)
    for link in links:
        if link.kind is LinkKind.ACCESS:
            leaves[link.a.node].add(link.b.node)
            hosts[link.b.node].add(link.a.node)
    numbers: dict[str, int] = {}
    for leaf, attached in hosts.items():
        taken = {numbers.get(other) for host in attached for other in leaves[host]}
        numbers[leaf] = next(number for number in range(1, len(hosts) + 1) if number not in taken)
    return numbers
