"""A lab for Graphviz: every node and every link, pods and segments as clusters, tiers as ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from testbed.model import Lab, Link, Node
from testbed.report.graph.grouping import Grouping, Segment, Tier, group_lab

_RAIL_COLOURS = ("#d9480f", "#1971c2", "#2b8a3e", "#9c36b5", "#b8860b", "#0b8f9c", "#c2255c", "#4446c4")
_FILL = {Tier.SUPER_SPINE: "#efeafb", Tier.SPINE: "#e9effb", Tier.RAIL: "#ffffff", Tier.HOST: "#f6f7f9"}


def render_dot(lab: Lab) -> str:
    """`lab` in the DOT language, for `dot -Tsvg`. Interface names are head and tail labels where there is room."""
    grouping = group_lab(lab)
    labels = len(lab.links) <= 64
    lines = [
        f"graph {_quoted(lab.name)} {{",
        '  graph [rankdir=TB, splines=line, ranksep=1.2, nodesep=0.2, fontname="sans-serif", fontsize=11];',
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10, color="#8b97a6"];',
        '  edge [fontname="sans-serif", fontsize=8, color="#8b97a6"];',
        *_nodes(grouping.super_spines, grouping, "  "),
    ]
    segments = 0
    for pod in grouping.pods:
        inner = [*_nodes(pod.spines, grouping, "    ")]
        for segment in pod.segments:
            inner += _cluster(f"segment{segments}", segment.title, _segment(segment, grouping), "    ")
            segments += 1
        lines += _cluster(f"pod{pod.number}", pod.title, inner, "  ") if pod.number else inner
    lines += [_edge(link, labels) for link in lab.links]
    return "\n".join([*lines, "}", ""])


def _cluster(name: str, title: str, body: Iterable[str], indent: str) -> list[str]:
    return [
        f"{indent}subgraph cluster_{name} {{",
        f'{indent}  label={_quoted(title)}; color="{"#d5dbe3" if title else "transparent"}";',
        *body,
        f"{indent}}}",
    ]


def _segment(segment: Segment, grouping: Grouping) -> list[str]:
    return [*_nodes(segment.switches, grouping, "      "), *_nodes(segment.hosts, grouping, "      ")]


def _nodes(nodes: Iterable[Node], grouping: Grouping, indent: str) -> Iterator[str]:
    members = list(nodes)
    for node in members:
        fill = _FILL[grouping.tiers[node.name]]
        rails = grouping.rails.get(node.name, ())
        edge = f', color="{_colour(rails[0])}", penwidth=1.5' if len(rails) == 1 else ""
        yield f'{indent}{_quoted(node.name)} [fillcolor="{fill}"{edge}];'
    if len(members) > 1:
        yield f"{indent}{{ rank=same; {' '.join(_quoted(node.name) + ';' for node in members)} }}"


def _edge(link: Link, labels: bool) -> str:
    attributes = [f"tooltip={_quoted(f'{link.b} -- {link.a}, {link.rate}')}"]
    if link.rail:
        attributes.append(f'color="{_colour(link.rail)}"')
    if labels:
        attributes.append(f"taillabel={_quoted(link.b.interface)}, headlabel={_quoted(link.a.interface)}")
    # The upper end comes first: dot ranks a tail above its head.
    return f"  {_quoted(link.b.node)} -- {_quoted(link.a.node)} [{', '.join(attributes)}];"


def _colour(rail: int) -> str:
    return _RAIL_COLOURS[(rail - 1) % len(_RAIL_COLOURS)]


def _quoted(text: str) -> str:
    """A DOT string; a backslash would start an escape such as \\N."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'
