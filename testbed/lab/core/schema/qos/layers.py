"""The `qos:` section resolved: which profile each port of a lab has.

A port's settings are joined from the fabric's, its kind's, its tier's, its node's and its own, the later over the
earlier, key by key. A preset in one of them begins anew: what the earlier ones said is gone for that port. Of several
entries of `qos.nodes` that match a node, the later wins, and a full name over a pattern.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from testbed.base.errors import Problem
from testbed.base.keys import keys_of
from testbed.base.names import choice_hint, nearest
from testbed.base.units import ByteCount, Duration
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.core.fabric import model_base_rtt
from testbed.lab.core.fabric.queue_depths import bdp_bytes, needed_bytes, shapes_of_ports
from testbed.lab.core.model import Lab, Node, NodeKind, QosPolicy, QosProfile, TrafficClass
from testbed.lab.core.schema.qos.draft import Draft
from testbed.lab.core.schema.qos.spec import HOST_TIER, QosSettings, QosSpec

Layer = tuple[Path, QosSettings]
_OF_NODES = ("buffer", "load_balancing", "watchdog")
"""Keys that a switch has once, for all of its ports."""
_SHOWN_NAMES = 8


@dataclass(slots=True)
class QosResolver:
    """Turns a `QosSpec` into the `QosPolicy` of `lab`. `problems` has what is wrong with it."""

    document: Document
    spec: QosSpec
    lab: Lab
    root: Path = ("qos",)
    """The place of the section: another network than the back end has its own."""
    problems: list[Problem] = field(default_factory=list)
    _profiles: dict[QosProfile, int] = field(default_factory=dict)
    _drafts: list[Draft] = field(default_factory=list)
    """That each profile was built from first."""
    _of_chain: dict[tuple[Path, ...], int] = field(default_factory=dict)
    _modelled: Duration | None = None

    def resolve(self) -> QosPolicy:
        """Sound only if `problems` stays empty."""
        fabric: list[Layer] = [(self.root, self.spec)]
        self._profile(fabric)
        for kind in (NodeKind.HOST, NodeKind.SWITCH):
            self._profile([*fabric, *self._kind(kind)])
        for tier in self.spec.tiers:
            self._profile([*fabric, *self._kind(_kind_of(tier)), *self._tier(tier)])
        chains = self._node_chains()
        of_node = {name: index for name, chain in chains.items() if (index := self._profile(chain))}
        of_port = self._ports(chains)
        policy = QosPolicy(profiles=tuple(self._profiles), of_node=of_node, of_port=of_port)
        self._check_hosts()
        if not self.problems:
            self._check_thresholds(policy)
        if not self.problems:
            self._check_buffers(policy)
        self.problems = list(dict.fromkeys(self.problems))
        return policy

    # ------------------------------------------------------------------ layers

    def _kind(self, kind: NodeKind) -> list[Layer]:
        return _layer((*self.root, "kinds", kind.value), self.spec.kinds.of(kind))

    def _tier(self, tier: str) -> list[Layer]:
        settings = self.spec.tiers.get(tier)
        return [] if settings is None else _layer((*self.root, "tiers", tier), settings)

    def _node_chains(self) -> dict[str, list[Layer]]:
        """The layers of every node, the fabric's first."""
        entries = [
            (name, (*self.root, "nodes", name), settings)
            for name, settings in sorted(self.spec.nodes.items(), key=lambda entry: not _is_pattern(entry[0]))
        ]
        matched: dict[str, list[Node]] = {name: [] for name, _, _ in entries}
        chains: dict[str, list[Layer]] = {}
        bases: dict[tuple[NodeKind, str], list[Layer]] = {}
        for node in self.lab.nodes:
            tier = HOST_TIER if node.role is None else node.role.value
            base = bases.get((node.kind, tier))
            if base is None:
                base = bases[node.kind, tier] = [(self.root, self.spec), *self._kind(node.kind), *self._tier(tier)]
            mine = [entry for entry in entries if entry[0] == node.name or fnmatchcase(node.name, entry[0])]
            for name, _, _ in mine:
                matched[name].append(node)
            chains[node.name] = [*base, *(layer for _, path, settings in mine for layer in _layer(path, settings))]
        for name, path, settings in entries:
            nodes = matched[name]
            if not nodes:
                self._refuse_unknown_node(path, name)
            elif all(node.kind is NodeKind.HOST for node in nodes):
                self._check_host_keys(path, settings, f"{name!r} names hosts alone")
        return chains

    def _ports(self, chains: Mapping[str, list[Layer]]) -> dict[str, int]:
        """Profile indexes of ports that differ from their node's."""
        known: dict[str, list[str]] = defaultdict(list)
        if self.spec.ports:
            for link in self.lab.links:
                for end in (link.a, link.b):
                    known[end.node].append(end.interface)
        found: dict[str, int] = {}
        for name, settings in self.spec.ports.items():
            path = (*self.root, "ports", name)
            node, _, interface = name.partition(":")
            if node not in chains:
                self._refuse_unknown_node(path, node)
                continue
            if interface not in known[node]:
                meant = nearest(interface, known[node])
                ports = ", ".join(known[node][:_SHOWN_NAMES])
                hint = f"did you mean {node}:{meant}?" if meant else f"its ports are {ports}"
                self._refuse("unknown-port", path, f"{node!r} has no port {interface!r}", hint)
                continue
            for key in _OF_NODES:
                if key in settings.model_fields_set:
                    self._refuse(
                        "not-of-a-port",
                        (*path, key),
                        f"{key} belongs to a switch with all of its ports, not to one of them",
                        f"write it under qos.nodes: {node}: {{{key}: ...}}",
                    )
            found[name] = self._profile([*chains[node], *_layer(path, settings)])
        return {name: index for name, index in found.items() if index != self._profile(chains[name.partition(":")[0]])}

    def _profile(self, chain: list[Layer]) -> int:
        """The index of the profile that a chain of layers makes; 0 where it is unsound."""
        key = tuple(path for path, _ in chain)
        index = self._of_chain.get(key)
        if index is None:
            draft = Draft(self.document, origin=self.root)
            for position, (path, settings) in enumerate(chain):
                draft.take(position, path, settings)
            profile = draft.build()
            self.problems += draft.problems
            index = 0
            if profile is not None:
                index = self._profiles.setdefault(profile, len(self._profiles))
                if index == len(self._drafts):
                    self._drafts.append(draft)
            self._of_chain[key] = index
        return index

    # ------------------------------------------------------------------ checks

    def _check_hosts(self) -> None:
        """A NIC has no switch's keys."""
        self._check_host_keys((*self.root, "kinds", "host"), self.spec.kinds.host, "kind host has NICs alone")
        if HOST_TIER in self.spec.tiers:
            self._check_host_keys(
                (*self.root, "tiers", HOST_TIER), self.spec.tiers[HOST_TIER], "tier host has NICs alone"
            )

    def _check_host_keys(self, path: Path, settings: QosSettings, why: str) -> None:
        sections: list[tuple[Path, type, set[str]]] = [(path, QosProfile, settings.model_fields_set)]
        sections += [
            ((*path, "classes", name), TrafficClass, item.model_fields_set) for name, item in settings.classes.items()
        ]
        written = [
            (*at, key.name)
            for at, kind, said in sections
            for key in keys_of(kind).values()
            if key.of_switch and key.name in said
        ]
        for at in written:
            self._refuse(
                "not-of-a-host",
                at,
                f"{at[-1]} is a switch's, and {why}",
                "a NIC neither marks nor drops: its senders wait, and it obeys pauses",
            )

    def _check_thresholds(self, policy: QosPolicy) -> None:
        """Curves and pauses given in both bytes and BDP, and limits of queues, at the rates of the ports with them."""
        switches = {node.name for node in self.lab.nodes if node.kind is NodeKind.SWITCH}
        rates: dict[tuple[int, int], bool] = {}
        for link in self.lab.links:
            for end in (link.a, link.b):
                at = policy.index_of(end.node, end.interface), link.rate.bps
                rates[at] = rates.get(at, False) or end.node in switches
        for (index, rate_bps), of_switch in sorted(rates.items()):
            profile, draft = policy.profiles[index], self._drafts[index]
            before = len(draft.problems)
            bdp = bdp_bytes(rate_bps, self._base_rtt(profile))
            for item in profile.classes:
                ecn, pfc = item.ecn, item.pfc
                if ecn is not None and ecn.kmin.bytes_at(bdp) > ecn.kmax.bytes_at(bdp):
                    kmin, kmax = (_resolved(depth.bytes_at(bdp), str(depth)) for depth in (ecn.kmin, ecn.kmax))
                    draft.refuse_curve(item.name, kmin, kmax)
                if item.limit is not None and of_switch:
                    draft.check_depth(item.name, item.limit.bytes_at(bdp), profile.buffer.shared_bytes)
                if pfc is not None and pfc.xoff is not None and pfc.xon is not None:
                    xoff, xon = pfc.xoff.bytes_at(bdp), pfc.xon.bytes_at(bdp)
                    if xon > xoff:
                        draft.refuse_pause(item.name, _resolved(xon, str(pfc.xon)), _resolved(xoff, str(pfc.xoff)))
            self.problems += draft.problems[before:]

    def _check_buffers(self, policy: QosPolicy) -> None:
        """Check that every switch's buffer holds the least that its queues need, whatever the time scale."""
        shapes = shapes_of_ports(
            self.lab, policy, self._base_rtt, lambda rate, delay: rate.bps * 2 * delay.ns // (8 * 10**9)
        )
        by_id = {id(shape): shape for shape in shapes}
        ports: dict[str, Counter[int]] = defaultdict(Counter)
        ends = [end for link in self.lab.links for end in (link.a, link.b)]
        for end, shape in zip(ends, shapes, strict=True):
            ports[end.node][id(shape)] += 1
        worst: dict[Path, tuple[int, str]] = {}
        needs: dict[frozenset[tuple[int, int]], int] = {}
        for node in (node.name for node in self.lab.nodes if node.kind is NodeKind.SWITCH and node.name in ports):
            alike = frozenset(ports[node].items())
            if alike not in needs:
                needs[alike] = needed_bytes({by_id[key]: count for key, count in alike})
            index = policy.of_node.get(node, 0)
            if needs[alike] > policy.profiles[index].buffer.shared_bytes:
                path = self._drafts[index].where_buffer()
                worst[path] = max(worst.get(path, (0, "")), (needs[alike], node))
        for path, (need, node) in worst.items():
            index = policy.of_node.get(node, 0)
            shared = policy.profiles[index].buffer.shared_bytes
            self.problems.append(
                self.document.problem(
                    "buffer-too-small",
                    path,
                    f"the queues of {node!r} need {ByteCount(need)} at least, more than its shared buffer of"
                    f" {ByteCount(shared)}",
                    hint=f"each of its {sum(ports[node].values())} ports keeps two frames a class, and xoff and"
                    " headroom for a lossless one; enlarge buffer.shared",
                )
            )

    def _base_rtt(self, profile: QosProfile) -> Duration:
        if profile.base_rtt is not None:
            return profile.base_rtt
        if self._modelled is None:
            self._modelled = model_base_rtt(self.lab)
        return self._modelled

    def _refuse_unknown_node(self, path: Path, name: str) -> None:
        names = [node.name for node in self.lab.nodes]
        what = f"no node matches {name!r}" if _is_pattern(name) else f"there is no node {name!r}"
        known = f"nodes are {', '.join(names[:_SHOWN_NAMES])}" + (", ..." if len(names) > _SHOWN_NAMES else "")
        self._refuse("unknown-node", path, what, choice_hint(name, names, known) or known)

    def _refuse(self, code: str, path: Path, message: str, hint: str) -> None:
        self.problems.append(self.document.problem(code, path, message, hint=hint, key=True))


def _layer(path: Path, settings: QosSettings) -> list[Layer]:
    """A layer, unless nothing is written in it."""
    return [(path, settings)] if settings.model_fields_set else []


def _kind_of(tier: str) -> NodeKind:
    return NodeKind.HOST if tier == HOST_TIER else NodeKind.SWITCH


def _is_pattern(name: str) -> bool:
    return any(character in name for character in "*?[")


def _resolved(size: int, written: str) -> str:
    shown = str(ByteCount(size))
    return shown if written.endswith("B") else f"{written}, {shown}"
