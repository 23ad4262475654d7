"""A lab as a Mermaid flowchart, as GitHub and many wikis show it.

Mermaid refuses more than 500 edges. A lab with more than `MAX_EDGES` is condensed, first its hosts to
their groups, then its switches to one box for each row of a segment or pod; a comment says so.

Of several networks each is a subgraph, the back end's above the hosts, the others' below them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from testbed.base.units import Rate
from testbed.lab.core.model import BACKEND, Lab, Node, NodeKind
from testbed.lab.core.model.link_condition import LinkCondition
from testbed.lab.graph.grouping import (
    Bundle,
    Grouping,
    Pod,
    Tier,
    bundle_links,
    by_plane,
    counted,
    group_lab,
    short_name,
)
from testbed.lab.graph.layers import Layer, group_layers, layers_of, switches_of
from testbed.lab.graph.management import pictured
from testbed.lab.graph.numbering import Captions, caption_lines
from testbed.lab.graph.scale_up import SCALE_UP, with_domains

MAX_EDGES = 400

_CLASSES = {Tier.SUPER_SPINE: "core", Tier.SPINE: "spine", Tier.RAIL: "leaf", Tier.HOST: "host"}


def render_mermaid(
    lab: Lab, *, conditions: Mapping[str, LinkCondition] | None = None, captions: Captions | None = None
) -> str:
    """`lab` as a Mermaid flowchart. `conditions` are those of links of a running lab by their lower ends; `captions`
    stand below the names of nodes."""
    lab = pictured(with_domains(lab))
    layers = layers_of(lab)
    grouping = group_layers(lab, layers) if layers else group_lab(lab)
    chart = _Chart(lab, replace(grouping, captions=captions or {}), layers, conditions or {})
    bundles = chart.bundles()
    if len(bundles) > MAX_EDGES:
        chart.condense_hosts()
        bundles = chart.bundles()
    if len(bundles) > MAX_EDGES:
        chart.condense_switches()
        bundles = chart.bundles()
    return chart.text(bundles)


class _Chart:
    """`aliases` maps a node's name to that of the box that stands for it; `boxes` has those boxes' labels."""

    def __init__(
        self, lab: Lab, grouping: Grouping, layers: Sequence[Layer], conditions: Mapping[str, LinkCondition]
    ) -> None:
        self.conditions = conditions
        self.lab = lab
        self.layers = layers
        self.grouping = grouping
        self.aliases: dict[str, str] = {}
        self.boxes: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.condensed: list[str] = []

    def bundles(self) -> tuple[Bundle, ...]:
        """The edges. Rails are told apart only where hosts are shown each: a box's links are one edge."""
        bundles = bundle_links(self.lab.links, self.grouping.tiers, self.aliases)
        if not self.condensed:
            return bundles
        merged: dict[tuple[str, str], list[Bundle]] = {}
        for bundle in bundles:
            merged.setdefault((bundle.upper, bundle.lower), []).append(bundle)
        return tuple(
            Bundle(upper=upper, lower=lower, rail=0, links=tuple(link for bundle in together for link in bundle.links))
            for (upper, lower), together in merged.items()
        )

    def condense_hosts(self) -> None:
        for group in self.grouping.groups:
            if len(group.hosts) > 1:
                self._condense(group.hosts, "host")
        self.condensed.append("hosts")

    def condense_switches(self) -> None:
        for _, nodes in by_plane(self.grouping.super_spines):
            self._condense(nodes, "super-spine")
        for pod in self.grouping.pods:
            for _, spines in by_plane(pod.spines):
                self._condense(spines, "spine")
            for segment in pod.segments:
                parts = by_plane(segment.switches) if self.grouping.planes > 1 else [("", segment.switches)]
                for _, switches in parts:
                    self._condense(switches, "rail switch")
        for layer in self.layers:
            if layer.number and not layer.carrier:
                leaves = "plane" if layer.name == SCALE_UP else "leaf switch"
                for row, what in zip(switches_of(layer), (leaves, "spine"), strict=True):
                    self._condense(row, what)
        self.condensed.append("switches")

    def _condense(self, members: tuple[Node, ...], what: str) -> None:
        """One box for all of `members` but routers outside, which are few."""
        nodes = [node for node in members if node.kind is not NodeKind.ROUTER]
        if not nodes:
            return
        box = f"#{nodes[0].name}"
        self.boxes[box] = f"{counted(len(nodes), what)}<br>{_escaped(nodes[0].name)} … {_escaped(nodes[-1].name)}"
        self.aliases.update((node.name, box) for node in nodes)

    def text(self, bundles: Iterable[Bundle]) -> str:
        lines = ["flowchart TB"]
        if self.condensed:
            lines.append(f"  %% {' and '.join(self.condensed)} are shown as groups: {len(self.lab.links)} links in all")
        if self.layers:
            for layer in (one for one in self.layers if not one.carrier):
                if layer.number:
                    inner = [line for row in switches_of(layer) for line in self._nodes(row, "    ")]
                else:
                    inner = [f"  {line}" for line in self._back_end(hosts=False)]
                lines += [f'  subgraph net{layer.number}["{_escaped(layer.name)}"]', *inner, "  end"]
            lines += self._nodes(self.lab.endpoints, "  ")
        else:
            lines += self._back_end(hosts=True)
        lines += [self._edge(bundle) for bundle in bundles]
        lines += [
            "  classDef core fill:#efeafb,stroke:#b3a1e3,color:#1b2430",
            "  classDef spine fill:#e9effb,stroke:#9db4e6,color:#1b2430",
            "  classDef leaf fill:#ffffff,stroke:#b9c3cf,color:#1b2430",
            "  classDef host fill:#f6f7f9,stroke:#b9c3cf,color:#1b2430",
        ]
        return "\n".join([*lines, ""])

    def _back_end(self, *, hosts: bool) -> list[str]:
        lines = self._nodes(self.grouping.super_spines, "  ")
        segments = 0
        for pod in self.grouping.pods:
            inner = self._spines(pod)
            for segment in pod.segments:
                below = segment.hosts if hosts else ()
                body = [*self._nodes(segment.switches, "      "), *self._nodes(below, "      ")]
                segments += 1
                titled = bool(segment.title) and bool(body)
                inner += [f"    subgraph s{segments}[{segment.title}]", *body, "    end"] if titled else body
            lines += [f"  subgraph p{pod.number}[{pod.title}]", *inner, "  end"] if pod.title else inner
        return lines

    def _spines(self, pod: Pod) -> list[str]:
        """The spines of a pod: those of each plane in a box of their own, where there are several."""
        lines: list[str] = []
        for letter, nodes in by_plane(pod.spines):
            inner = self._nodes(nodes, "      " if letter else "    ")
            boxed = [f"    subgraph p{pod.number}{letter}[Plane {letter}]", *inner, "    end"]
            lines += boxed if letter and inner else inner
        return lines

    def _nodes(self, nodes: Iterable[Node], indent: str) -> list[str]:
        lines = []
        for node in nodes:
            name = self.aliases.get(node.name, node.name)
            if name in self.ids:
                continue
            # Names are never used as ids: "end" and others are words of Mermaid.
            self.ids[name] = f"n{len(self.ids)}"
            # A host that stands in no segment's box needs its whole name.
            short = node.name if self.layers and self.grouping.tiers[node.name] is Tier.HOST else short_name(node)
            below = map(_escaped, caption_lines(node.name, self.grouping.captions))
            label = self.boxes.get(name) or "<br>".join((_escaped(short), *below))
            shape = f'(["{label}"])' if node.kind is NodeKind.ROUTER else f'["{label}"]'
            lines.append(f"{indent}{self.ids[name]}{shape}:::{_CLASSES[self.grouping.tiers[node.name]]}")
        return lines

    def _edge(self, bundle: Bundle) -> str:
        ends = f"{self.ids[bundle.upper]}", f"{self.ids[bundle.lower]}"
        if self.layers and bundle.links[0].network != BACKEND:
            ends = ends[1], ends[0]  # what is named first stands above
        count, now = len(bundle.links), [self.conditions.get(str(link.a)) for link in bundle.links]
        down = sum(one is not None and not one.up for one in now)
        rate = Rate(
            sum((link.rate if one is None else one.rate).bps for link, one in zip(bundle.links, now, strict=True))
        )
        words = [f"{count} links"] if count > 1 else []
        words += [f"{down} down" if count > 1 else "down"] if down else []
        changed = any(one is not None and one.changes for one in now)
        words += [str(rate)] if down < count and (count > 1 or changed) else []
        line = "-.-" if down == count else "---"
        return f"  {ends[0]} {line}" + (f'|"{", ".join(words)}"|' if words else "") + f" {ends[1]}"


def _escaped(text: str) -> str:
    """Text inside a quoted Mermaid label, with its entity codes (`#quot;`) for what would end or mark it up."""
    codes = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\n": " "}
    return "".join(codes.get(character, character) for character in text)
