"""Pictures of a lab of several networks: each is a layer, hosts are drawn once, nothing stands or runs over another."""

import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import Page

from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.fabric.networks import NetworkParams, generate_network
from testbed.lab.core.model import Lab, NodeKind
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.lab.graph import mermaid, render_dot, render_html, render_mermaid
from testbed.lab.graph.layers import group_layers, lay_out_layers, layers_of
from testbed.lab.graph.layout import Layout, LinkLine, Rect
from testbed.lab.graph.management import pictured

TOPOLOGIES = Path(__file__).parents[4] / "topologies"
NASTY = "<script>alert(1)</script>\"'&`]]>\\"


def several(
    *,
    hosts: int = 4,
    segments: int = 2,
    pods: int = 1,
    ports: int = 2,
    leaves: int | None = None,
    spines: int | None = None,
) -> Lab:
    """A back end, a front end on leaves and spines, and a management network of one switch."""
    params = FabricParams(design="rail-optimized", pods=pods, segments=segments, hosts=hosts, gpus=4, spines=2)
    lab = generate_fabric(params, name="several")
    names = tuple(host.name for host in lab.hosts)
    for number, design in enumerate(("leaf-spine", "single-switch"), 1):
        added = generate_network(
            NetworkParams(
                name=("frontend", "management")[number - 1],
                number=number,
                design=design,
                ports=ports if number == 1 else 1,
                hosts=names[:250],
                leaves=leaves if number == 1 else None,
                spines=spines if number == 1 else None,
            )
        )
        lab = replace(
            lab,
            nodes=(*lab.nodes, *added.nodes),
            links=(*lab.links, *added.links),
            rail_subnets=(*lab.rail_subnets, *added.rail_subnets),
            networks=(*lab.networks, added.network),
        )
    return lab


def laid_out(lab: Lab) -> Layout:
    layers = layers_of(lab)
    return lay_out_layers(lab, group_layers(lab, layers), layers)


def shipped(name: str) -> Lab:
    """A topology without its scale-up domains, whose layer `test_graph_scale_up` is about."""
    lab = load_topology(TOPOLOGIES / f"{name}.yml")
    return replace(lab, scale_up=replace(lab.scale_up, stated=False))


OUTSIDE = """
name: outside
fabric: {design: rail-optimized, segments: 1, hosts: 4, gpus: 1, spines: 1, overlay: evpn}
networks:
  frontend: {leaves: 2, spines: 1, nic: {ports: 1}, overlay: evpn}
  office: {design: single-switch, nic: {ports: 1}, overlay: evpn}
tenants:
  red:
    external: {leaf: fe-leaf1, asn: 64999, prefixes: [198.51.100.0/24], rate: 10G}
    subnets: {web: {prefix: 10.201.0.0/24, nics: ["p1-s1-h4:fe1"]}}
  blue:
    external: {leaf: p1-s1-rail1, asn: 64998, prefixes: [203.0.113.0/24], rate: 10G}
    subnets: {web: {prefix: 10.202.0.0/24, nics: ["p1-s1-h3:rail1"]}}
"""
"""A router outside on a leaf of the back end, and one on a leaf of the front end."""

LABS = {
    "datacentre": pictured(shipped("datacentre")),
    "six-by-four": shipped("six-by-four"),
    "converged": shipped("converged"),
    "small": several(hosts=1, segments=1),
    "trays": several(hosts=32),
    "pods": several(pods=2, hosts=8, ports=4),
    "outside": load_topology_text(OUTSIDE, file="outside.yml"),
}
ALL = pytest.mark.parametrize("lab", LABS.values(), ids=LABS)


def data(lab: Lab) -> dict[str, list[list[object]]]:
    return json.loads(Page(render_html(lab)).scripts[0])  # type: ignore[no-any-return]


@ALL
def test_every_node_is_drawn_once_and_in_the_group_of_its_network(lab: Lab) -> None:
    numbers = {name: number for number, name in enumerate(lab.network_names)}
    expected = [
        (number, "" if node.kind is NodeKind.HOST else f"net{numbers[node.network]}")
        for number, node in enumerate(lab.nodes)
    ]
    drawn = [(number, re.search(r"\bnet\d\b", around)) for number, around in Page(render_html(lab)).nodes]
    assert sorted((number, network[0] if network else "") for number, network in drawn) == expected


@ALL
def test_every_link_has_a_line_of_its_network(lab: Lab) -> None:
    layout = laid_out(lab)
    drawn = Counter(link.network for line in layout.lines for link in line.bundle.links)
    below = [line for _, line in layout.drops] + [line for band in layout.bands for line in band.lines]
    drawn += Counter(link.network for line in below for link in line.bundle.links)
    assert drawn == Counter(link.network for link in lab.links)
    names = lab.network_names
    assert Counter(names[int(str(link[7]))] for link in data(lab)["links"]) == drawn


@ALL
def test_nothing_stands_over_another(lab: Lab) -> None:
    layout = laid_out(lab)
    boxes = [box.rect for box in (*layout.nodes, *(box for band in layout.bands for box in band.nodes))]
    boxes += [tray.rect for tray in layout.trays]
    for one, other in itertools.combinations(boxes, 2):
        assert not overlap(one, other)
    for one, other in itertools.combinations([band.rect for band in layout.bands], 2):
        assert not overlap(one, other)
    for band in layout.bands:
        assert all(within(box.rect, band.rect) for box in band.nodes)
        assert band.rect.x + band.rect.width <= layout.width and band.rect.bottom <= layout.height


@ALL
def test_no_line_to_a_network_below_runs_through_a_box(lab: Lab) -> None:
    layout = laid_out(lab)
    boxes = {box.node.name: box.rect for box in (*layout.nodes, *(box for band in layout.bands for box in band.nodes))}
    boxes |= {tray.name: tray.rect for tray in layout.trays}
    for _, line in layout.drops:
        assert boxes[line.bundle.lower].bottom == line.y1 and boxes[line.bundle.upper].y == line.y2
        if line.under:  # it passes behind the boxes of a shelf
            continue
        others = [rect for name, rect in boxes.items() if name not in (line.bundle.upper, line.bundle.lower)]
        for x, y in points(line):
            assert not any(rect.x < x < rect.x + rect.width and rect.y < y < rect.bottom for rect in others)


def overlap(one: Rect, other: Rect) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    return not beside and not (one.bottom <= other.y or other.bottom <= one.y)


def within(one: Rect, other: Rect) -> bool:
    across = other.x <= one.x and one.x + one.width <= other.x + other.width
    return across and other.y <= one.y and one.bottom <= other.bottom


def points(line: LinkLine) -> list[tuple[float, float]]:
    """Of the curve that is drawn, a cubic Bezier curve that leaves and arrives upright."""
    middle, found = (line.y1 + line.y2) / 2, []
    for step in range(41):
        t = step / 40
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
        xs, ys = (line.x1, line.x1, line.x2, line.x2), (line.y1, middle, middle, line.y2)
        found.append((sum(map(float.__mul__, weights, xs)), sum(map(float.__mul__, weights, ys))))
    return found


def test_a_ribbon_stands_for_too_many_lines() -> None:
    """1,984 lines would make the page large and tell nothing."""
    lab = several(hosts=32, segments=4, leaves=62, spines=32)
    (band, other) = laid_out(lab).bands
    assert band.lines == () and band.ribbon is not None and band.ribbon.links == 62 * 32 and other.ribbon is None
    assert band.ribbon.upper.bottom < band.ribbon.lower.y
    text = render_html(lab)
    assert len(text.encode()) < 500_000 and "<title>1,984 links</title>" in text


def test_ends_of_lines_at_one_box_are_apart() -> None:
    ends: dict[tuple[str, str], list[float]] = {}
    for name in ("datacentre", "converged"):
        for _, line in laid_out(LABS[name]).drops:
            ends.setdefault((f"below {name}", line.bundle.lower), []).append(line.x1)
            ends.setdefault((f"above {name}", line.bundle.upper), []).append(line.x2)
    assert len(ends) == 8 + 2 + 4 + 2 + 1 + 4 + 2
    for found in ends.values():
        assert all(right - left > 5 for left, right in itertools.pairwise(sorted(found)))


def test_a_network_that_another_one_carries_has_lines_in_its_layer_and_no_box() -> None:
    """Its lines are hidden with its own layer, and with that of the switches that they lead to."""
    lab = LABS["converged"]
    layout = laid_out(lab)
    assert [band.title for band in layout.bands] == ["frontend"]
    text = render_html(lab)
    assert len(re.findall(r'<g class="net1"><path class="k drop net2" [^>]*data-net="1"', text)) == 4
    assert len(re.findall(r'<path class="k drop net1" [^>]*data-net="1"', text)) == 4
    figures = dict(re.findall(r'<section class="(net\d)[ \w]*">(.*?)</section>', text, re.DOTALL))
    assert "carried by frontend · 4 hosts, 4 NIC ports, 4 links" in figures["net2"]
    assert "<table>" not in figures["net2"] and "<td>leaf</td>" in figures["net1"]
    assert "12 NIC ports" in figures["net1"], "with those of what it carries"


def test_a_network_that_another_one_carries_is_drawn_alone_with_the_switches_that_it_is_on() -> None:
    lab = LABS["converged"].of_network("storage")
    text = render_html(lab)
    assert "network storage · leaf-spine" in text and "Leaf switches" in text
    nodes = {str(node[0]) for node in data(lab)["nodes"]}
    assert nodes == {*(f"p1-s1-h{number}" for number in range(1, 5)), *(node.name for node in lab.switches)}


def test_links_of_two_networks_between_the_same_nodes_are_two_in_other_kinds_of_pictures() -> None:
    lab = LABS["converged"]
    assert len([line for line in render_mermaid(lab).splitlines() if "---" in line]) == len(lab.links)
    assert render_dot(lab).count("subgraph cluster_network") == 2, "the back end and the front end"


def test_a_large_lab_with_a_carried_network_is_condensed_as_others_are() -> None:
    lab = load_topology_text(
        "name: large\nfabric: {design: rail-optimized, segments: 8, hosts: 16, gpus: 8, spines: 8}\n"
        "networks:\n  frontend: {leaves: 16, spines: 16, overlay: evpn}\n  storage: {on: frontend}\n",
        file="large.yml",
    )
    text = render_mermaid(lab)
    assert "hosts and switches are shown as groups" in text and "16 leaf switches" in text
    assert 'storage"' in render_html(lab)


def test_hosts_of_a_segment_stand_in_one_row_or_in_a_tray() -> None:
    """A second row of cards would stand in the way of the first row's lines downwards."""
    assert not laid_out(several(hosts=12, segments=1)).trays
    assert len(laid_out(several(hosts=13, segments=1)).trays) == 1


def test_each_network_has_a_box_to_leave_it_out_and_figures_of_its_own() -> None:
    text = render_html(shipped("datacentre"))
    boxes = re.findall(
        r'<input type="checkbox" id="layer(\d)" value="\1" checked autocomplete="off"><i></i>(\w+)', text
    )
    assert boxes == [("0", "backend"), ("1", "frontend"), ("2", "storage"), ("3", "management")]
    sections = re.findall(r'<section class="(net\d)[ \w]*">(.*?)</section>', text, re.DOTALL)
    assert [name for name, _ in sections] == ["net0", "net1", "net2", "net3"]
    assert "8 hosts, 32 GPUs, 64 links" in sections[0][1]
    assert "8 hosts, 16 NIC ports, 24 links" in sections[1][1] and "all-to-all traffic 400 Gbit/s" in sections[1][1]
    assert "8 hosts, 2 storage targets, 10 NIC ports, 14 links" in sections[2][1]
    header = re.findall(r"<li><b>([\d,]+)</b> (\w+)</li>", text)
    assert header == [("32", "GPUs"), ("8", "hosts"), ("20", "switches"), ("133", "links")]


def test_a_storage_target_is_left_out_with_the_network_that_it_is_of() -> None:
    text = """name: x
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 2, spines: 1, targets: {flash: {}}}
networks: {storage: {design: single-switch, targets: {tape: {}}}}
"""
    lab = load_topology_text(text, file="x.yml")
    page = render_html(lab)
    network_of = {node.name: node.network for node in lab.targets}
    assert network_of == {"flash": "backend", "tape": "storage"}
    for number, name in (("0", "flash"), ("1", "tape")):
        position = next(place for place, node in enumerate(lab.nodes) if node.name == name)
        assert re.search(rf'<g class="net{number}"><g [^>]*data-n="{position}"', page), name
    assert "2 hosts, 1 storage target, 4 GPUs" in page


def test_rails_are_those_of_the_back_end() -> None:
    """A port of a front end's NIC has a number, too, which is that of no rail."""
    lab = LABS["datacentre"]
    found = data(lab)
    assert {link[4] for link in found["links"] if link[7]} == {0}
    assert {link[4] for link in found["links"] if not link[7]} == {0, 1, 2, 3, 4}
    assert re.findall(r'data-rail="(\d)"', render_html(lab)) == ["1", "2", "3", "4"]


def test_a_lab_of_one_network_has_no_layers() -> None:
    lab = shipped("demo")
    text = render_html(lab)
    assert layers_of(lab) == ()
    body = text[text.index("<body>") : text.index("<script>\n")]
    assert not re.search(r"\bnet\d|class=\"(layer|low|band)|data-hosts", body)
    assert {len(link) for link in data(lab)["links"]} == {7} and {len(node) for node in data(lab)["nodes"]} == {8}


def test_a_network_alone_stands_on_its_own_leaves() -> None:
    """Places of hosts are those of the back end, and would part them from their leaves."""
    text = render_html(LABS["datacentre"].of_network("frontend"))
    assert "Pod 1</text>" not in text and "Leaf switches</text>" in text and "Rails</span>" not in text
    assert "<b>16</b> NIC ports" in text and "network frontend · leaf-spine" in text
    assert "fe-leaf1, leaf switch, 6 ports" in text
    assert render_html(LABS["datacentre"].of_network("backend")).count("Pod 1</text>") == 1


def test_names_of_networks_are_escaped() -> None:
    lab = several()
    network = replace(lab.networks[0], name=NASTY)
    nodes = tuple(replace(node, network=NASTY) if node.network == "frontend" else node for node in lab.nodes)
    links = tuple(replace(link, network=NASTY) if link.network == "frontend" else link for link in lab.links)
    lab = replace(lab, nodes=nodes, links=links, networks=(network, *lab.networks[1:]))
    Page(render_html(lab))
    assert "<script>alert" not in render_html(lab)
    assert 'subgraph net1["#lt;script#gt;' in render_mermaid(lab)
    assert 'label="<script>alert(1)</script>\\"' in render_dot(lab)


@ALL
def test_dot_has_a_cluster_for_each_network_and_hosts_in_none(lab: Lab) -> None:
    text = render_dot(lab)
    assert text.count("{") == text.count("}")
    assert text.count(" -- ") - text.count('tooltip="') == len(lab.links)
    owners: dict[str, str] = {}
    owner, depth = "", 0
    for line in text.splitlines()[1:]:
        if opened := re.match(r"  subgraph cluster_network(\d) ", line):
            owner, depth = lab.network_names[int(opened[1])], 0
        if node := re.match(r' +"([\w-]+)" \[fillcolor', line):
            assert node[1] not in owners
            owners[node[1]] = owner
        depth += line.count("{") - line.count("}")
        if depth == 0:
            owner = ""
    assert owners == {node.name: "" if node in lab.endpoints else node.network for node in lab.nodes}


def test_dot_puts_other_networks_below_the_hosts() -> None:
    """dot ranks the tail of an edge above its head."""
    text = render_dot(LABS["datacentre"])
    assert '"p1-s1-rail1" -- "p1-s1-h1"' in text and '"p1-s1-h1" -- "fe-leaf1"' in text
    assert '"fe-leaf1" -- "fe-spine1"' in text
    assert '"p1-s1-h1" -- "mgmt-sw1"' in text and '"mgmt-sw1" -- "mgmt1"' in text


def test_an_out_of_band_network_has_lines_to_hosts_beside_others_and_to_all_nodes_alone() -> None:
    whole = shipped("datacentre")
    beside, alone = render_html(whole), render_html(whole.of_network("management"))
    assert ">a port on every node<" in beside and "out-of-band · 30 nodes, 31 links" in beside
    assert 'aria-label="mgmt1, management server, 1 port"' in beside
    assert beside.count('aria-label="mgmt-sw1, management switch, 11 ports"') == 1
    assert 'aria-label="mgmt-sw1, management switch, 31 ports"' in alone
    assert [one for one in (">Server</text>", ">Switch</text>", ">Nodes</text>") if one not in alone] == []
    assert render_dot(whole.of_network("management")).count(" -- ") == 2 * 31


def test_mermaid_has_a_subgraph_for_each_network_and_hosts_in_none() -> None:
    text = render_mermaid(LABS["datacentre"])
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("  subgraph")] == [
        '  subgraph net0["backend"]',
        '  subgraph net1["frontend"]',
        '  subgraph net2["storage"]',
        '  subgraph net3["management"]',
    ]
    assert sum(line.strip() == "end" for line in lines) == sum(line.strip().startswith("subgraph") for line in lines)
    ids = dict(re.findall(r'^ +(n\d+)\["([\w-]+)"\]', text, re.MULTILINE))
    assert len(ids) == len(LABS["datacentre"].nodes)
    assert '  n22["p1-s1-h1"]:::host' in lines, "a host that is in no segment's box has its whole name"
    edges = re.findall(r"^  (n\d+) ---(?:\|.*?\|)? (n\d+)$", text, re.MULTILINE)
    named = {(ids[upper], ids[lower]) for upper, lower in edges}
    assert ("p1-s1-h1", "fe-leaf1") in named and ("fe-leaf1", "fe-spine1") in named
    assert ("spine1", "rail1") in named and ("rail1", "p1-s1-h1") in named


def test_mermaid_condenses_every_network_of_a_large_lab() -> None:
    text = render_mermaid(several(hosts=48, segments=4))
    assert "%% hosts are shown as groups" in text
    assert len(re.findall(r"^  n\d+ ---", text, re.MULTILINE)) <= 400
    for name in ("net0", "net1", "net2"):
        assert text.count(f"subgraph {name}[") == 1


def test_the_server_and_routers_outside_stand_in_rows_of_their_own() -> None:
    """They are no spines, and do not stand in the row that is called so."""
    lab = LABS["datacentre"]
    layout = laid_out(lab)
    rows = {row.title: row.y for row in layout.low_rows}
    places = {box.node.name: box.rect for band in layout.bands for box in band.nodes}
    assert list(rows) == ["Leaf switches", "Spines", "Server"]
    assert places["fe-spine1"].bottom < places["mgmt1"].y
    for title, node in (("Leaf switches", "fe-leaf1"), ("Spines", "st-spine1"), ("Server", "mgmt1")):
        assert places[node].y < rows[title] < places[node].bottom + 5, title
    outside = laid_out(LABS["outside"])
    assert [row.title for row in outside.low_rows] == ["Leaf switches", "Spines", "Outside"]


def test_one_of_a_kind_is_told_as_one() -> None:
    text = "name: x\nfabric: {design: rail-optimized, segments: 1, hosts: 1, gpus: 1, spines: 1}\n"
    page = render_html(load_topology_text(text, file="x.yml"))
    header = re.findall(r"<li><b>([\d,]+)</b> ([\w ]+)</li>", page)
    assert header == [("1", "GPU"), ("1", "host"), ("2", "switches"), ("2", "links")]
    network = "networks: {frontend: {design: single-switch, nic: {ports: 1}}}\n"
    page = render_html(load_topology_text(text + network, file="x.yml"))
    assert "1 host, 1 GPU, 2 links" in page and "1 host, 1 NIC port, 1 link<" in page
    assert not re.search(r"\b1 (hosts|links|ports|GPUs|NIC ports|switches|spines|leaves)\b", page)
    assert not re.search(
        r"\b1 (hosts|spines|switches)\b", render_mermaid(several(hosts=48, segments=4, spines=1, leaves=2))
    )


def test_a_router_outside_is_no_host() -> None:
    lab = LABS["outside"]
    names = {node[0]: node for node in data(lab)["nodes"]}
    assert [names[f"{tenant}-external"][8] for tenant in ("red", "blue")] == [1, 0], "each is of its leaf's network"
    page = render_html(lab)
    assert re.search(r'class="n t0 out"[^>]*aria-label="red-external, external router, 1 port"', page)
    assert "2 leaves, 1 spine, 1 router outside" in page
    assert "<b>4</b> hosts" in page
    rows = {row.title: row.detail for row in laid_out(lab).rows}
    assert rows["Outside"] == "1" and rows["Hosts"] == "4" and "Super-spines" not in rows
    dot = render_dot(lab)
    assert '"blue-external" -- "p1-s1-rail1"' in dot and '"fe-leaf1" -- "red-external"' in dot
    assert len(re.findall(r'-external" \[[^]]*shape=ellipse', dot)) == 2
    assert '(["red-external"])' in render_mermaid(lab)


def test_a_router_outside_stands_alone_where_switches_are_condensed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mermaid, "MAX_EDGES", 1)
    text = render_mermaid(LABS["outside"])
    assert "hosts and switches are shown as groups" in text
    assert text.count('-external"])') == 2
    assert "1 spine<br>" in text and "super-spines" not in text
