"""One path for each flow, chosen from the graph before the flows begin, so that no link has more than its share.

Ethereal (Addanki et al., "Ethereal: Divide and Conquer Network Load Balancing in Large-Scale Distributed Training",
2024) shows that whole flows on well-chosen single paths load a leaf-spine fabric as evenly as ideal spraying does.

Where all flows go over one tier of spines with links alike, the choice is a colouring of edges: flows are edges between
the leaf that they leave and the one that they enter, spines are colours, and no leaf may have a colour twice. König's
theorem ("Über Graphen und ihre Anwendung", 1916) says that as many colours as a leaf has flows are enough, and its
proof finds them. A leaf with more flows than spines counts as several. Elsewhere, flows are placed one after another,
the largest first, where they make the fullest link least full, and moved as long as that helps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.workload.oracles.fabric_graph import FabricGraph
from testbed.workload.oracles.prediction import Flow

Path = tuple[int, ...]
"""The links of a path, by their numbers in the graph."""
MOST_ROUNDS = 32
"""So often at most flows are moved where paths are not colours."""


def plan_single_paths(graph: FabricGraph, flows: Sequence[Flow]) -> list[Path]:
    """Return the path of each flow. Raises `NoPath`, and `ValueError` where a pair has too many paths to list."""
    known: dict[tuple[str, str], list[Path]] = {}
    candidates = []
    for flow in flows:
        ends = flow.source, flow.destination
        if ends not in known:
            known[ends] = list(dict.fromkeys(graph.paths(*ends)))
        candidates.append(known[ends])
    coloured = _coloured(graph, flows, candidates)
    return _spread(graph, flows, candidates) if coloured is None else coloured


# --- leaves and spines ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Edge:
    """A flow between leaves; `path_of` has its path by colour."""

    number: int
    leaves: tuple[str, str]
    path_of: Mapping[tuple[str, int], Path]


def _coloured(graph: FabricGraph, flows: Sequence[Flow], candidates: Sequence[Sequence[Path]]) -> list[Path] | None:
    """The path of each flow by a colouring; None where the fabric is not one of leaves and spines with links alike."""
    edges: list[_Edge] = []
    chosen = [paths[0] for paths in candidates]
    for number, paths in enumerate(candidates):
        if len(paths) < 2:
            continue
        edge = _edge(graph, number, paths)
        if edge is None or (edges and edge.path_of.keys() != edges[0].path_of.keys()):
            return None
        edges.append(edge)
    if not edges:
        return chosen
    used = {link for edge in edges for path in edge.path_of.values() for link in path[1:-1]}
    sizes = {flows[edge.number].size_bytes for edge in edges}
    if len({graph.links[link].capacity_bps for link in used}) > 1 or len(sizes) > 1:
        return None
    for edge, colour in zip(edges, _colours(edges, list(edges[0].path_of)), strict=True):
        chosen[edge.number] = edge.path_of[colour]
    return chosen


def _edge(graph: FabricGraph, number: int, paths: Sequence[Path]) -> _Edge | None:
    """A flow whose paths are all of four links, over one spine each; the n-th link up goes with the n-th link down.

    They begin and end with the same link: a NIC with several ports is on several leaves.
    """
    if any(len(path) != 4 or path[::3] != paths[0][::3] for path in paths):
        return None
    links = graph.links
    ups: defaultdict[str, dict[int, None]] = defaultdict(dict)
    downs: defaultdict[str, dict[int, None]] = defaultdict(dict)
    for path in paths:
        spine = links[path[1]].destination
        ups[spine][path[1]] = downs[spine][path[2]] = None
    found: dict[tuple[str, int], Path] = {}
    for spine in sorted(ups):
        if len(ups[spine]) != len(downs[spine]):
            return None
        for place, pair in enumerate(zip(sorted(ups[spine]), sorted(downs[spine]), strict=True)):
            found[spine, place] = (paths[0][0], *pair, paths[0][3])
    return _Edge(number, (links[paths[0][1]].source, links[paths[0][2]].destination), found)


def _colours(edges: Sequence[_Edge], colours: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """A colour for each edge, no vertex twice the same: a vertex is as many edges of a leaf as there are colours."""
    count = len(colours)
    met: defaultdict[tuple[int, str], int] = defaultdict(int)
    ends: list[tuple[tuple[int, str, int], ...]] = []
    for edge in edges:
        both = []
        for side, leaf in enumerate(edge.leaves):
            both.append((side, leaf, met[side, leaf] // count))
            met[side, leaf] += 1
        ends.append(tuple(both))
    at: defaultdict[tuple[int, str, int], dict[int, int]] = defaultdict(dict)
    """Vertex -> colour -> edge."""
    chosen = [0] * len(edges)
    for number, (near, far) in enumerate(ends):
        free = [next(colour for colour in range(count) if colour not in at[vertex]) for vertex in (near, far)]
        if free[0] != free[1] and free[0] in at[far]:
            _swap(far, (free[0], free[1]), ends, at, chosen)
        chosen[number] = free[0]
        at[near][free[0]] = at[far][free[0]] = number
    return [colours[colour] for colour in chosen]


def _swap(
    vertex: tuple[int, str, int],
    pair: tuple[int, int],
    ends: Sequence[tuple[tuple[int, str, int], ...]],
    at: Mapping[tuple[int, str, int], dict[int, int]],
    chosen: list[int],
) -> None:
    """Swap two colours along the chain of edges that begins at a vertex with the first of them, so that it is free."""
    chain: list[int] = []
    place, want = vertex, 0
    while (edge := at[place].get(pair[want])) is not None:
        chain.append(edge)
        place = next(end for end in ends[edge] if end != place)
        want = 1 - want
    for edge in chain:
        for end in ends[edge]:
            if at[end].get(chosen[edge]) == edge:
                del at[end][chosen[edge]]
    for edge in chain:
        chosen[edge] = pair[1] if chosen[edge] == pair[0] else pair[0]
        for end in ends[edge]:
            at[end][chosen[edge]] = edge


# --- any other fabric -------------------------------------------------------------------------------------


def _spread(graph: FabricGraph, flows: Sequence[Flow], candidates: Sequence[Sequence[Path]]) -> list[Path]:
    """Place flows, the largest first, and move them until no move makes what the fullest links carry less uneven."""
    sizes = [float(flow.size_bytes or 1) for flow in flows]
    capacity = graph.capacities
    load: defaultdict[int, float] = defaultdict(float)

    def cost(path: Path, size: float) -> tuple[float, float]:
        """Return how full the fullest link of a path would be, and how full all are together."""
        shares = [(load[link] + size) / capacity[link] for link in path]
        return max(shares), sum(share * share for share in shares)

    def put(path: Path, size: float) -> None:
        for link in path:
            load[link] += size

    chosen: list[Path] = [()] * len(flows)
    for number in sorted(range(len(flows)), key=lambda number: -sizes[number]):
        chosen[number] = min(candidates[number], key=lambda path, size=sizes[number]: cost(path, size))  # type: ignore[misc]
        put(chosen[number], sizes[number])
    for _ in range(MOST_ROUNDS):
        moved = False
        for number, paths in enumerate(candidates):
            if len(paths) < 2:
                continue
            size = sizes[number]
            put(chosen[number], -size)
            best = min(paths, key=lambda path, size=size: cost(path, size))  # type: ignore[misc]
            if cost(best, size) < cost(chosen[number], size):
                chosen[number], moved = best, True
            put(chosen[number], size)
        if not moved:
            break
    return chosen
