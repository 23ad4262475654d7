"""A lab for Graphviz: every node and every link, pods and segments as clusters, tiers as ranks.

Of several networks each is a cluster, the back end's above the hosts, the others' below them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from testbed.lab.core.model import Lab, Link, LinkKind, Node, NodeKind
from testbed.lab.core.model.link_condition import LinkCondition
from testbed.lab.graph.grouping import Grouping, Pod, Segment, Tier, by_plane, group_lab
from testbed.lab.graph.layers import Layer, group_layers, layers_of, switches_of
from testbed.lab.graph.management import pictured
from testbed.lab.graph.numbering import Captions, caption_lines
from testbed.lab.graph.scale_up import with_domains

_RAIL_COLOURS = ("#d9480f", "#1971c2", "#2b8a3e", "#9c36b5", "#b8860b", "#0b8f9c", "#c2255c", "#4446c4")
NETWORK_COLOURS = ("#8b97a6", "#44546a", "#8a5a2b", "#5b7023", "#8c3f6d", "#0b7285")
_DASHES = {4: ", style=dashed", 5: ", style=dashed", 7: ", style=dashed", 8: ", style=dotted"}
"""The lines of rails whose colours look to the colour-blind like those of others."""
_DOWN, _CHANGED = "#c92a2a", "#e67700"
"""The colours of links that are down, and of those that are otherwise not as declared."""
FILLS = {Tier.SUPER_SPINE: "#efeafb", Tier.SPINE: "#e9effb", Tier.RAIL: "#ffffff", Tier.HOST: "#f6f7f9"}


def render_dot(
    lab: Lab, *, conditions: Mapping[str, LinkCondition] | None = None, captions: Captions | None = None
) -> str:
    """`lab` in the DOT language, for `dot -Tsvg`. Interface names are head and tail labels where there is room.

    `conditions` are those of links of a running lab by their lower ends: what is not as declared is drawn so.
    `captions` stand below the names of nodes.
    """
    conditions = conditions or {}
    lab = pictured(with_domains(lab))
    layers = layers_of(lab)
    grouping = group_layers(lab, layers) if layers else group_lab(lab)
    grouping = replace(grouping, captions=captions or {})
    labels = len(lab.links) <= 64
    lines = [
        f"graph {_quoted(lab.name)} {{",
        '  graph [rankdir=TB, splines=line, ranksep=1.2, nodesep=0.2, fontname="sans-serif", fontsize=11];',
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10, color="#8b97a6"];',
        '  edge [fontname="sans-serif", fontsize=8, color="#8b97a6"];',
    ]
    if layers:
        for layer in (one for one in layers if not one.carrier):
            inner = (
                _below(layer, grouping) if layer.number else [f"  {line}" for line in _back_end(grouping, hosts=False)]
            )
            lines += _cluster(f"network{layer.number}", layer.name, inner, "  ")
        lines += _nodes(lab.endpoints, grouping, "  ")
    else:
        lines += _back_end(grouping, hosts=True)
    numbers = {layer.name: layer.number for layer in layers}
    low = {node.name for node in lab.nodes if node.kind is NodeKind.SERVER}
    lines += [_edge(link, labels, numbers.get(link.network, 0), low, conditions.get(str(link.a))) for link in lab.links]
    return "\n".join([*lines, "}", ""])


def _back_end(grouping: Grouping, *, hosts: bool) -> list[str]:
    lines = [line for _, nodes in by_plane(grouping.super_spines) for line in _nodes(nodes, grouping, "  ")]
    segments = 0
    for pod in grouping.pods:
        inner = _spines(pod, grouping)
        for segment in pod.segments:
            inner += _cluster(f"segment{segments}", segment.title, _segment(segment, grouping, hosts=hosts), "    ")
            segments += 1
        lines += _cluster(f"pod{pod.number}", pod.title, inner, "  ") if pod.number else inner
    return lines


def _spines(pod: Pod, grouping: Grouping) -> list[str]:
    """The spines of a pod: those of each plane in a box of their own, where there are several."""
    if grouping.planes < 2:
        return [*_nodes(pod.spines, grouping, "    ")]
    lines: list[str] = []
    for letter, nodes in by_plane(pod.spines):
        inner = [*_nodes(nodes, grouping, "      ")]
        lines += _cluster(f"pod{pod.number}{letter}", f"Plane {letter}", inner, "    ") if letter else inner
    return lines


def _below(layer: Layer, grouping: Grouping) -> list[str]:
    return [line for row in switches_of(layer) for line in _nodes(row, grouping, "    ")]


def _cluster(name: str, title: str, body: Iterable[str], indent: str) -> list[str]:
    return [
        f"{indent}subgraph cluster_{name} {{",
        f'{indent}  label={_quoted(title)}; color="{"#d5dbe3" if title else "transparent"}";',
        *body,
        f"{indent}}}",
    ]


def _segment(segment: Segment, grouping: Grouping, *, hosts: bool) -> list[str]:
    below = segment.hosts if hosts else ()
    return [*_nodes(segment.switches, grouping, "      "), *_nodes(below, grouping, "      ")]


def _nodes(nodes: Iterable[Node], grouping: Grouping, indent: str) -> Iterator[str]:
    members = list(nodes)
    for node in members:
        fill = FILLS[grouping.tiers[node.name]]
        rails = grouping.rails.get(node.name, ())
        edge = f', color="{rail_colour(rails[0])}", penwidth=1.5' if len(rails) == 1 else ""
        shape = ", shape=ellipse" if node.kind is NodeKind.ROUTER else ""
        below = caption_lines(node.name, grouping.captions)
        lines = r"\n".join(_quoted(line)[1:-1] for line in (node.name, *below))
        label = f', label="{lines}"' if below else ""
        yield f'{indent}{_quoted(node.name)} [fillcolor="{fill}"{edge}{shape}{label}];'
    if len(members) > 1:
        yield f"{indent}{{ rank=same; {' '.join(_quoted(node.name) + ';' for node in members)} }}"


def _edge(link: Link, labels: bool, network: int, low: Collection[str], condition: LinkCondition | None) -> str:
    """`low` are the nodes that stand below the other end of their links though they are named first."""
    tooltip = f"{link.b} -- {link.a}, {link.rate if condition is None else condition.rate}"
    troubled = condition is not None and not condition.as_declared
    attributes = [f"tooltip={_quoted(tooltip + (f', {condition.words}' if condition and troubled else ''))}"]
    if condition is not None and troubled:
        colour = _CHANGED if condition.up else _DOWN
        attributes.append(f'color="{colour}", fontcolor="{colour}", style={"bold" if condition.up else "dashed"}')
        attributes.append(f"label={_quoted(str(condition.rate) if condition.up else 'down')}")
    elif network:
        attributes.append(f'color="{NETWORK_COLOURS[network]}"')
    elif link.rail:
        dash = _DASHES.get((link.rail - 1) % len(_RAIL_COLOURS) + 1, "")
        attributes.append(f'color="{rail_colour(link.rail)}"{dash}')
    # The end that stands above comes first: dot ranks a tail above its head.
    above = bool(network) != (link.kind is LinkKind.EXTERNAL or link.a.node in low)
    tail, head = (link.a, link.b) if above else (link.b, link.a)
    if labels:
        attributes.append(f"taillabel={_quoted(tail.interface)}, headlabel={_quoted(head.interface)}")
    return f"  {_quoted(tail.node)} -- {_quoted(head.node)} [{', '.join(attributes)}];"


def rail_colour(rail: int) -> str:
    """Return the colour of what belongs to one rail."""
    return _RAIL_COLOURS[(rail - 1) % len(_RAIL_COLOURS)]


def _quoted(text: str) -> str:
    """A DOT string; a backslash would start an escape such as \\N."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'
