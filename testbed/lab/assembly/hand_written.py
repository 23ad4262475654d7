"""The `topology:` section resolved: nodes and links as written, added to what the fabric generated.

Settings of a node come from itself, its group, its kind and the defaults, in this order; labels and
environment are joined key by key, commands run from the outermost to the innermost. Nodes of the fabric take from here
how they are realised (runtime, image, ..., environment): from the defaults, their kind, and an entry under their name.
The own configuration of a node that routes comes from its role, too, which stands behind its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from typing import Any

from testbed.base.errors import Problem
from testbed.base.names import choice_hint
from testbed.base.units import Rate
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, format_path
from testbed.lab.assembly.spec import DefaultsSpec, GroupSpec, LinkSpec, NodeSettings, NodeSpec, TopologySpec
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Rdma, Role, StartupConfig
from testbed.lab.core.model.containers import CONTAINER_KEYS, Container
from testbed.lab.core.schema.endpoints import SPECIAL_PREFIXES
from testbed.lab.core.schema.fabric import DEFAULT_MTU
from testbed.lab.core.schema.foreign import ENDS
from testbed.lab.core.schema.links import UsedPorts, find_wrong_ends
from testbed.lab.core.schema.startup import KEY as STARTUP_KEY
from testbed.lab.core.schema.startup import StartupLayer, StartupReader
from testbed.lab.features.containers.schema import resolve_container

DEFAULT_RATE = Rate.parse("400G")

RESERVED = {
    "the lab's rails": IPv4Network("10.0.0.0/8"),
    "the lab's loopbacks": IPv4Network("172.16.0.0/12"),
    "the lab's automatic routed links": IPv4Network("100.64.0.0/10"),
    **SPECIAL_PREFIXES,
}
"""Prefixes that no written link may have, by whom they are kept for."""
_REALISATION = frozenset({"runtime", *CONTAINER_KEYS, "env", "rdma", STARTUP_KEY})
"""The keys of a node that the fabric generates: how it is realised, not what it is."""


@dataclass(slots=True)
class HandWritten:
    """Turns a `TopologySpec` into nodes and links. `problems` has what is wrong with it.

    `generated` is the fabric it is added to (no nodes where there is none).
    """

    document: Document
    spec: TopologySpec
    generated: Lab
    mtu_bytes: int = DEFAULT_MTU
    has_networks: bool = False
    """There are networks beside the back end. A host may be in one of them alone, which is looked at when they are
    there (`find_unlinked_hosts`)."""
    problems: list[Problem] = field(default_factory=list)
    _nodes: dict[str, Node] = field(default_factory=dict)
    _ports: UsedPorts = field(init=False)
    _prefixes: list[tuple[IPv4Network, Path]] = field(default_factory=list)
    _refused_rdma: set[Path] = field(default_factory=set)
    """Settings that many nodes inherit are refused once."""
    _startups: StartupReader = field(init=False)

    def __post_init__(self) -> None:
        self._ports = UsedPorts(self.document)
        self._startups = StartupReader(self.document, self.problems)

    def resolve(self) -> tuple[tuple[Node, ...], tuple[Link, ...]]:
        """The nodes and links of the section alone. They are sound only if `problems` stays empty."""
        self._nodes = {node.name: node for node in self.generated.nodes}
        for existing in self.generated.links:
            self._ports.add(existing, f"the fabric's link {existing.a} to {existing.b}")
        new = {name: spec for name, spec in self.spec.nodes.items() if not self._is_of_fabric(name, spec)}
        written = [node for name, spec in new.items() if (node := self._node(name, spec)) is not None]
        for node in written:
            self._nodes.setdefault(node.name, node)
        links = [link for i, spec in enumerate(self.spec.links) if (link := self._link(i, spec)) is not None]
        self._check_linked()
        self._check_prefixes()
        return tuple(written), tuple(links)

    def realise_generated(self) -> tuple[Node, ...]:
        """The fabric's nodes, with what the section says of how they are realised."""
        defaults: list[tuple[Path, NodeSettings]] = [(("topology", "defaults"), self.spec.defaults)]
        kinds: dict[NodeKind, tuple[Path, NodeSettings]] = {
            NodeKind.HOST: (("topology", "kinds", "host"), self.spec.kinds.host),
            NodeKind.SWITCH: (("topology", "kinds", "switch"), self.spec.kinds.switch),
        }
        nodes = []
        for node in self.generated.nodes:
            spec = self.spec.nodes.get(node.name)
            own = spec if spec is not None and self._is_of_fabric(node.name, spec) else NodeSpec()
            if node.kind is NodeKind.STORAGE:
                self._refuse_settings_of_target(node.name, own)
                nodes.append(node)
                continue
            settings = [*defaults, kinds[node.kind], (("topology", "nodes", node.name), own)]
            container = resolve_container(node.name, node.kind, settings, self._refuse)
            env = _joined(layer.env for _, layer in settings)
            rdma = self._rdma(node.name, node.kind, settings, container) or node.rdma
            if node.rdma is not None and container is not None:
                self._refuse_rdma_of_container(node.name, ("fabric", "nic"))
            startup = self._startup(node.name, node.role, settings)
            is_told = container or env or rdma or startup
            realised = replace(node, container=container, env=env, rdma=rdma, startup=startup) if is_told else node
            nodes.append(realised)
        return tuple(nodes)

    def _refuse_settings_of_target(self, name: str, own: NodeSpec) -> None:
        for key in sorted(own.model_fields_set):
            self._refuse(
                "contradiction",
                ("topology", "nodes", name, key),
                f"{name!r} is a storage target, which is a network namespace whatever its hosts are",
                "remove the entry",
                key=True,
            )

    # ------------------------------------------------------------------ nodes

    def _is_of_fabric(self, name: str, spec: NodeSpec) -> bool:
        """Tell whether an entry says how a node of the fabric is realised, and nothing else."""
        said = spec.model_fields_set
        return bool(said) and said <= _REALISATION and self._is_generated(name)

    def _is_generated(self, name: str) -> bool:
        return any(node.name == name for node in self.generated.nodes)

    def _node(self, name: str, spec: NodeSpec) -> Node | None:
        path: Path = ("topology", "nodes", name)
        if name in self._nodes:
            self._refuse(
                "name-taken",
                path,
                f"the fabric generates a node {name!r} already",
                "choose another name; of the fabric's nodes only runtime, image and the like can be said",
                key=True,
            )
            return None
        layers = self._layers(path, spec)
        if layers is None:
            return None
        kind, settings = layers
        role = _innermost(settings, "role")
        asn = _innermost(settings, "asn")
        container = resolve_container(name, kind, settings, self._refuse)
        rdma = self._rdma(name, kind, settings, container)
        if kind is NodeKind.HOST:
            for key, noun, found in (("role", "a role", role), ("asn", "an AS number", asn)):
                if found is not None:
                    self._refuse(
                        f"{key}-of-host",
                        (*found[1], key),
                        f"the host {name!r} gets {noun}, which only switches have",
                        "say it in topology.kinds.switch, in a group of switches or at the switches",
                        key=True,
                    )
        elif role is None:
            self._refuse(
                "missing-key",
                (*path, "role"),
                f"the switch {name!r} has no role, so it cannot join the fabric's plan",
                "role: rail, spine or super-spine",
                key=True,
            )
            return None
        return Node(
            name=name,
            kind=kind,
            role=None if kind is NodeKind.HOST or role is None else Role(role[0]),
            asn=None if kind is NodeKind.HOST or asn is None else asn[0],
            labels=self._labels(path, settings),
            env=_joined(layer.env for _, layer in settings),
            exec=tuple(command for _, layer in settings for command in layer.exec),
            rdma=rdma,
            container=container,
            startup=self._startup(name, None if role is None else Role(role[0]), settings),
        )

    def _startup(
        self, name: str, role: Role | None, settings: Sequence[tuple[Path, NodeSettings]]
    ) -> StartupConfig | None:
        """Return the own configuration of a node, whether or not it routes."""
        layers: list[tuple[Path, StartupLayer]] = list(settings)
        if role is not None and role.value in self.spec.roles:
            behind_kind = next(number for number, (path, _) in enumerate(layers) if path[:2] == ("topology", "kinds"))
            layers.insert(behind_kind + 1, (("topology", "roles", role.value), self.spec.roles[role.value]))
        return self._startups.resolve(name, role.value if role is not None else "host", layers)

    def _rdma(
        self, name: str, kind: NodeKind, settings: list[tuple[Path, NodeSettings]], container: Container | None
    ) -> Rdma | None:
        """Return what RDMA these settings give a node."""
        found = _innermost(settings, "rdma")
        if found is None:
            return None
        value, path = found
        if path in self._refused_rdma:
            return None
        if kind is NodeKind.SWITCH:
            self._refused_rdma.add(path)
            self._refuse(
                "rdma-of-switch",
                (*path, "rdma"),
                f"the switch {name!r} gets rdma, which only hosts have",
                "say it in topology.kinds.host, in a group of hosts or at the hosts",
                key=True,
            )
        elif container is not None:
            self._refuse_rdma_of_container(name, path)
        return Rdma(value)

    def _refuse_rdma_of_container(self, name: str, path: Path) -> None:
        if path in self._refused_rdma:
            return
        self._refused_rdma.add(path)
        self._refuse(
            "rdma-of-container",
            (*path, "rdma"),
            f"the container {name!r} gets rdma; containers are not given the machine's RDMA devices",
            "let it be a network namespace: runtime: netns",
            key=True,
        )

    def _layers(self, path: Path, spec: NodeSpec) -> tuple[NodeKind, list[tuple[Path, NodeSettings]]] | None:
        """A node's kind, and the settings it takes with their paths, outermost first."""
        defaults: DefaultsSpec = self.spec.defaults
        defaults_path: Path = ("topology", "defaults")
        group: GroupSpec | None = None
        named, group_path = (spec.group, path) if spec.group is not None else (defaults.group, defaults_path)
        if named is not None:
            group = self.spec.groups.get(named)
            if group is None:
                defined = f"define it under topology.groups, or write labels: {{group: {named}}}"
                hint = choice_hint(named, self.spec.groups, defined)
                self._refuse("unknown-group", (*group_path, "group"), f"there is no group {named!r}", hint)
                return None
        kind = spec.kind or (group.kind if group else None) or defaults.kind
        if kind is None:
            hint = "kind: host or switch, at the node, in its group or in topology.defaults"
            self._refuse("missing-key", (*path, "kind"), f"the node {path[-1]!r} has no kind", hint, key=True)
            return None
        by_kind = self.spec.kinds.host if kind == NodeKind.HOST else self.spec.kinds.switch
        layers: list[tuple[Path, NodeSettings]] = [
            (defaults_path, defaults),
            (("topology", "kinds", str(kind)), by_kind),
        ]
        if group is not None and named is not None:
            layers.append((("topology", "groups", named), group))
        return NodeKind(kind), [*layers, (path, spec)]

    def _labels(self, path: Path, settings: list[tuple[Path, NodeSettings]]) -> Mapping[str, str]:
        """Labels joined; `pod: 2` is the label `pod`."""
        labels = _joined(layer.labels for _, layer in settings)
        pod = _innermost(settings, "pod")
        if pod is None:
            if "pod" in labels and not re.fullmatch("[1-9][0-9]{0,2}", labels["pod"]):
                self._refuse(
                    "bad-label",
                    (*path, "labels", "pod"),
                    f"the label pod is {labels['pod']!r}; it says which pod a switch belongs to, a number from 1",
                    "write the key pod with a number, and name the label otherwise",
                )
            return labels
        if labels.get("pod", str(pod[0])) != str(pod[0]):
            self._refuse(
                "contradiction",
                (*pod[1], "pod"),
                f"{path[-1]!r} is in pod {pod[0]} by the key pod and in {labels['pod']} by the label pod",
                "keep the key pod alone",
            )
        return {**labels, "pod": str(pod[0])}

    # ------------------------------------------------------------------ links

    def _link(self, index: int, spec: LinkSpec) -> Link | None:
        path: Path = ("topology", "links", index)
        ends = [end for position, end in enumerate(spec.endpoints) if self._take_port(path, position, end)]
        if len(ends) < 2:
            return None
        a, b = ends
        first, second = self._nodes[a.node], self._nodes[b.node]
        tiered = self.document.get("fabric.link_layer") != "infiniband"
        wrong = find_wrong_ends(self.document, path, first, second, tiered=tiered)
        if wrong is not None:
            self.problems.append(wrong)
            return None
        kind = LinkKind.ROUTED
        if first.role is not None and second.role is not None:
            kind = LinkKind.FABRIC
            if spec.prefix is not None:
                message = "a link between two switches is unnumbered and has no prefix"
                self._refuse("prefix-of-fabric-link", (*path, "prefix"), message, "remove the key prefix", key=True)
            if first.role.tier > second.role.tier:
                a, b = b, a
        if spec.prefix is not None:
            self._prefixes.append((spec.prefix, (*path, "prefix")))
        return Link(
            a=a,
            b=b,
            kind=kind,
            rate=spec.rate or self._default_rate(kind),
            mtu_bytes=spec.mtu or self.mtu_bytes,
            delay=None if spec.delay is None else spec.delay.delay(),
            loss=spec.loss or 0.0,
            prefix=spec.prefix,
            labels=dict(spec.labels),
        )

    def _take_port(self, path: Path, position: int, end: End) -> bool:
        """Tell whether `end` is a port of a known node that nothing else uses; it is used from now on."""
        where: Path = (*path, "endpoints", position)
        if end.node not in self._nodes:
            if end.node not in self.spec.nodes:  # a node that is written but wrong has its own problem
                hint = ENDS.get(end.node) or choice_hint(end.node, self._nodes, "define it under topology.nodes")
                self._refuse("unknown-node", where, f"there is no node {end.node!r}", hint)
            return False
        wrong = self._ports.take(end, where)
        if wrong is not None:
            self.problems.append(wrong)
        return wrong is None

    def _default_rate(self, kind: LinkKind) -> Rate:
        """That of the generated fabric's links of this kind (of its NICs for a host), else 400G."""
        rates: dict[LinkKind, Rate] = {}
        for link in self.generated.links:
            rates.setdefault(link.kind, link.rate)
        nic = rates.get(LinkKind.ACCESS, DEFAULT_RATE)
        return rates.get(LinkKind.FABRIC, nic) if kind is LinkKind.FABRIC else nic

    # ------------------------------------------------------------------ the whole

    def _check_linked(self) -> None:
        named = {end.node for spec in self.spec.links for end in spec.endpoints}
        for name in self.spec.nodes:
            if name in named or self._is_generated(name):
                continue
            node = self._nodes.get(name)
            if self.has_networks and node is not None and node.kind is NodeKind.HOST:
                continue
            self._refuse(
                "no-links",
                ("topology", "nodes", name),
                f"no link names the node {name!r}, so nothing can reach it",
                f'add a link under topology.links, such as ["{name}:eth1", ...], or remove the node',
                key=True,
            )

    def _check_prefixes(self) -> None:
        free: list[tuple[IPv4Network, Path]] = []
        for prefix, path in self._prefixes:
            owner = next((owner for owner, network in RESERVED.items() if prefix.overlaps(network)), None)
            if owner is None:
                free.append((prefix, path))
            else:
                self._refuse(
                    "overlap",
                    path,
                    f"{prefix} overlaps {RESERVED[owner]}, which is kept for {owner}",
                    "use another, such as 192.0.2.0/31, or remove the key to have one chosen",
                )
        # Prefixes nest or are apart: sorted by address, one that overlaps any overlaps the last that stands alone.
        free.sort(key=lambda entry: (entry[0].network_address, entry[0].prefixlen))
        alone: tuple[IPv4Network, Path] | None = None
        for prefix, path in free:
            if alone is None or not prefix.overlaps(alone[0]):
                alone = (prefix, path)
                continue
            later, earlier = sorted((path, alone[1]), key=_link_index, reverse=True)
            self._refuse(
                "overlap",
                later,
                f"{self.document.get(later)} overlaps {self.document.get(earlier)} of {format_path(earlier[:-1])}",
                "use another prefix, or remove the key to have one chosen",
            )

    def _refuse(self, code: str, path: Path, message: str, hint: str | None, *, key: bool = False) -> None:
        self.problems.append(self.document.problem(code, path, message, hint=hint, key=key))


def find_unlinked_hosts(document: Document, spec: TopologySpec, lab: Lab) -> list[Problem]:
    """The hosts of the section that are neither in the back end nor in a network of `lab`, which is whole."""
    linked = {end.node for link in lab.links for end in (link.a, link.b)}
    networks = ", ".join(network.name for network in lab.networks)
    return [
        document.problem(
            "no-links",
            ("topology", "nodes", name),
            f"the host {name!r} is in no network: no link names it",
            hint=f'add a link under topology.links, such as ["{name}:eth1", ...], or let it attach to {networks}',
            key=True,
        )
        for name in spec.nodes
        if name not in linked
    ]


def _innermost(settings: list[tuple[Path, NodeSettings]], key: str) -> tuple[Any, Path] | None:
    for path, layer in reversed(settings):
        value = getattr(layer, key)
        if value is not None:
            return value, path
    return None


def _link_index(path: Path) -> int:
    """Return i of the path `topology.links[i].prefix`."""
    index = path[2]
    assert isinstance(index, int)
    return index


def _joined(layers: Iterator[Mapping[str, str]]) -> dict[str, str]:
    return {key: value for layer in layers for key, value in layer.items()}
