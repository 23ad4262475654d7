"""Pictures of a lab: complete, small enough, safe against every name, the same each time."""

import itertools
import json
import re
from dataclasses import replace

import pytest
from recorded import Page

from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Role
from testbed.lab.core.model.link_condition import LinkCondition
from testbed.lab.graph import render_dot, render_html, render_mermaid
from testbed.lab.graph.back_end import lay_out
from testbed.lab.graph.grouping import group_lab
from testbed.lab.graph.layout import STAGE_HEIGHT, STAGE_WIDTH

NASTY = "<script>alert(1)</script>\"'&`]]>\\"


def fabric(**values: int) -> Lab:
    return generate_fabric(FabricParams(design="rail-optimized", **values), name="pod")


@pytest.fixture(scope="module")
def large() -> Lab:
    return fabric(pods=2, segments=1, hosts=64, gpus=8, spines=8, super_spines=8)


def written(*, name: str = "leaf1", label: str = "") -> Lab:
    """Two leaves, a spine and a host, by hand."""
    nodes = (
        Node(name=name, kind=NodeKind.SWITCH, role=Role.RAIL),
        Node(name="leaf2", kind=NodeKind.SWITCH),
        Node(name="spine1", kind=NodeKind.SWITCH, role=Role.SPINE),
        Node(name="h1", kind=NodeKind.HOST, labels={"rack": label}),
    )

    def link(a: str, b: str, number: int, kind: LinkKind) -> Link:
        return Link(
            a=End(node=a, interface=f"eth{number}"),
            b=End(node=b, interface=f"eth{number}"),
            kind=kind,
            rate=Rate.parse("100G"),
            mtu_bytes=1500,
        )

    links = (
        link(name, "spine1", 1, LinkKind.FABRIC),
        link("leaf2", "spine1", 2, LinkKind.FABRIC),
        link("h1", name, 3, LinkKind.ROUTED),
        link("h1", "leaf2", 4, LinkKind.ROUTED),
        link("h1", "leaf2", 5, LinkKind.ROUTED),
    )
    return Lab(name="written", nodes=nodes, links=links)


def test_html_is_well_formed_and_draws_every_node_once(large: Lab) -> None:
    assert sorted(number for number, _ in Page(render_html(large)).nodes) == list(range(len(large.nodes)))


def test_html_of_1024_gpus_is_small_and_bundles_host_links(large: Lab) -> None:
    text = render_html(large)
    assert len(text.encode()) < 300_000
    page = Page(text)
    kinds = [classes.split()[1] for classes in page.values("class") if classes.startswith("k ")]
    assert kinds.count("strand") == 2 * 8
    assert kinds.count("mesh") == 2 * 8 * 8 + 2 * 8 * 8


def test_html_data_has_every_link(large: Lab) -> None:
    data = json.loads(Page(render_html(large)).scripts[0])
    interfaces = data["interfaces"]
    names = [node[0] for node in data["nodes"]]
    drawn = {(names[a], interfaces[ai], names[b], interfaces[bi]) for a, ai, b, bi, *_ in data["links"]}
    assert drawn == {(link.a.node, link.a.interface, link.b.node, link.b.interface) for link in large.links}


def test_html_asks_for_nothing_from_the_network(large: Lab) -> None:
    for tag, attrs in Page(render_html(large)).tags:
        assert tag not in {"link", "img", "iframe"}
        assert "src" not in attrs and "href" not in attrs
    assert "@import" not in render_html(large) and "fetch(" not in render_html(large)


def test_html_escapes_every_name() -> None:
    lab = written(name=NASTY, label=NASTY)
    lab = Lab(name=NASTY, nodes=lab.nodes, links=lab.links, source=NASTY)
    page = Page(render_html(lab, status={NASTY: NASTY}))
    assert len(page.scripts) == 2
    assert json.loads(page.scripts[0])["nodes"][0][0] == NASTY


def test_html_shows_states() -> None:
    text = render_html(written(), status={"leaf1": "running", "spine1": "degraded", "h1": "missing"})
    assert sorted(re.findall(r'<circle class="st (\w+)"', text)) == ["bad", "ok", "warn"]
    assert "leaf1, rail switch, 2 ports, running" in text
    assert '<circle class="st' not in render_html(written())


def test_cards_of_a_row_do_not_overlap(large: Lab) -> None:
    for lab in (large, written(), fabric(pods=1, segments=4, hosts=32, gpus=8, spines=16)):
        rows: dict[float, list[tuple[float, float]]] = {}
        for x, y, width in re.findall(
            r'transform="translate\(([\d.]+) ([\d.]+)\)"><rect class="c" width="([\d.]+)" height="42"', render_html(lab)
        ):
            rows.setdefault(float(y), []).append((float(x), float(x) + float(width)))
        assert rows
        for spans in rows.values():
            spans.sort()
            assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))


def test_hand_written_host_stands_with_its_switches() -> None:
    grouping = group_lab(written())
    (segment,) = grouping.segments
    assert [node.name for node in segment.switches] == ["leaf1", "leaf2"]
    assert [node.name for node in segment.hosts] == ["h1"]
    assert [node.name for node in grouping.pods[0].spines] == ["spine1"]


def test_hand_written_probe_joins_the_generated_segment_it_is_linked_to() -> None:
    base = fabric(pods=1, segments=2, hosts=2, gpus=2, spines=2)
    probe = Link(
        a=End(node="probe1", interface="eth1"),
        b=End(node="p1-s2-rail1", interface="extra1"),
        kind=LinkKind.ROUTED,
        rate=Rate.parse("100G"),
        mtu_bytes=4500,
    )
    lab = Lab(name="x", nodes=(*base.nodes, Node(name="probe1", kind=NodeKind.HOST)), links=(*base.links, probe))
    second = next(segment for segment in group_lab(lab).segments if segment.number == 2)
    assert "probe1" in [node.name for node in second.hosts]


def test_dot_has_every_node_and_link(large: Lab) -> None:
    text = render_dot(large)
    assert text.count(" -- ") - text.count('tooltip="') == len(large.links)
    assert len(re.findall(r"^ +\"[\w-]+\" \[fillcolor", text, re.MULTILINE)) == len(large.nodes)
    assert text.count("{") == text.count("}")


def test_dot_quotes_names() -> None:
    text = render_dot(written(name='a"b\\'))
    assert '"a\\"b\\\\" [fillcolor' in text


def test_mermaid_shows_a_small_lab_whole() -> None:
    text = render_mermaid(written())
    assert text.startswith("flowchart TB\n")
    assert len(re.findall(r"^  n\d+ ---", text, re.MULTILINE)) == 4
    assert '---|"2 links, 200 Gbit/s"|' in text


def test_mermaid_condenses_hosts_of_a_large_lab_and_says_so(large: Lab) -> None:
    text = render_mermaid(large)
    edges = re.findall(r"^  n\d+ ---", text, re.MULTILINE)
    assert len(edges) == 128 + 128 + 16
    assert "%% hosts are shown as groups: 1280 links in all" in text
    assert '---|"64 links, 25.6 Tbit/s"|' in text


def test_mermaid_stays_below_its_edge_limit_for_a_very_large_lab() -> None:
    lab = fabric(pods=1, segments=8, hosts=32, gpus=8, spines=16)
    assert len(re.findall(r"^  n\d+ ---", render_mermaid(lab), re.MULTILINE)) <= 500
    assert "hosts and switches are shown as groups" in render_mermaid(lab)


def test_mermaid_cannot_be_broken_by_a_name() -> None:
    text = render_mermaid(written(name='end"]<b>`'))
    assert '["end#quot;]#lt;b#gt;#96;"]' in text


def test_pictures_are_the_same_each_time(large: Lab) -> None:
    for render in (render_dot, render_mermaid, render_html):
        assert render(large) == render(large)


def test_every_design_and_an_empty_lab_can_be_drawn() -> None:
    from testbed.lab.core.fabric import DESIGNS

    for design in DESIGNS:
        lab = generate_fabric(FabricParams(design=design), name="x")
        assert sorted(number for number, _ in Page(render_html(lab)).nodes) == list(range(len(lab.nodes)))
    Page(render_html(Lab(name="empty", nodes=(), links=())))


def condition(*, up: bool = True, rate: str = "100G", changes: tuple[str, ...] = ()) -> LinkCondition:
    now, declared = Rate.parse(rate), Rate.parse("100G")
    return LinkCondition(
        up=up,
        rate=now,
        lab_rate=now.scaled(1000),
        declared_rate=declared,
        declared_lab_rate=declared.scaled(1000),
        changes=changes,
    )


def test_links_that_are_not_as_declared_are_drawn_so() -> None:
    """What is down, what sends slower, and what is as it should be, in each kind of picture."""
    lab = written()
    first, second = lab.links[:2]
    slow = condition(rate="25G", changes=("leaf2:eth2 -> spine1:eth2: rate in the lab 25 Mbit/s",))
    conditions = {str(first.a): condition(up=False), str(second.a): slow}
    page = render_html(lab, conditions=conditions)
    assert len(re.findall(r'<path class="k [^"]* down"', page)) == 1
    assert len(re.findall(r'<path class="k [^"]* changed"', page)) == 1
    assert f"<td>{first.a} – {first.b}</td><td>down</td>" in page
    assert "rate in the lab 25 Mbit/s</td>" in page
    data = json.loads(Page(page).scripts[0])
    assert data["properties"][data["links"][0][5]].startswith("down|")
    assert data["properties"][data["links"][1][5]].startswith("not as declared|25 Gbit/s (declared 100 Gbit/s)|")
    assert data["links"][1][6] == 25_000
    dot = render_dot(lab, conditions=conditions).splitlines()
    assert sum("style=dashed" in line and 'label="down"' in line for line in dot) == 1
    assert sum('label="25 Gbit/s"' in line for line in dot) == 1
    chart = render_mermaid(lab, conditions=conditions)
    assert chart.count('-.-|"down"|') == 1 and chart.count('---|"25 Gbit/s"|') == 1
    for text in (render_html(lab, conditions=dict.fromkeys(conditions, condition())), render_html(lab)):
        assert "not as declared</span>" not in text and not re.search(r'<path class="k [^"]* (down|changed)"', text)


def test_a_bundle_with_a_link_that_is_down_says_how_many() -> None:
    lab = written()
    first = lab.links[0]
    second = replace(first, a=replace(first.a, interface="eth9"), b=replace(first.b, interface="eth9"))
    lab = replace(lab, links=(*lab.links, second))
    down = {str(second.a): condition(up=False)}
    assert '---|"2 links, 1 down, 200 Gbit/s"|' in render_mermaid(lab, conditions=down)
    assert len(re.findall(r'<path class="k [^"]* changed"', render_html(lab, conditions=down))) == 1


def test_the_page_tells_rail_traffic_from_all_to_all() -> None:
    page = render_html(fabric(segments=1, hosts=8, gpus=4, spines=4))
    assert "Between hosts: rail traffic 6.4 Tbit/s, 100 % of what NICs can send;" in page
    assert "all-to-all traffic 4.267 Tbit/s, 66.7 % of what NICs can send." in page
    apart = render_html(generate_fabric(FabricParams(design="rail-only"), name="rails"))
    assert "all-to-all traffic rails apart; 1.00:1 if hosts relay." in apart


@pytest.mark.parametrize("values", [{"pods": 8, "segments": 2}, {"pods": 1, "segments": 8}, {"pods": 4, "segments": 8}])
def test_what_would_be_too_wide_is_folded_and_nothing_overlaps(values: dict[str, int]) -> None:
    """Each shelf is below the one before, lines to lower shelves are behind boxes, and all is within the picture."""
    super_spines = {"super_spines": 4} if values["pods"] > 1 else {}
    lab = fabric(hosts=8, gpus=4, spines=4, **values, **super_spines)
    layout = lay_out(lab, group_lab(lab))
    assert layout.shelves > 1
    assert min(STAGE_WIDTH / layout.width, STAGE_HEIGHT / layout.height) > 0.5
    pods = [frame.rect for frame in layout.frames if frame.segment < 0]
    segments = [frame.rect for frame in layout.frames if frame.segment >= 0]
    boxes = [box.rect for box in layout.nodes] + [tray.rect for tray in layout.trays]
    for some in (pods, segments, boxes):
        for one, other in itertools.combinations(some, 2):
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert apart or one.bottom <= other.y or other.bottom <= one.y
    assert all(rect.x >= 0 and rect.x + rect.width <= layout.width and rect.bottom <= layout.height for rect in boxes)
    shelf_of = {box.node.name: box.shelf for box in layout.nodes} | {tray.name: tray.shelf for tray in layout.trays}
    for line in layout.lines:
        assert line.shelves == (shelf_of[line.bundle.upper], shelf_of[line.bundle.lower])
        assert line.under == (line.shelves[0] != line.shelves[1])
    page = render_html(lab)
    assert page.count('class="k mesh') == len([line for line in layout.lines if line.kind == "mesh"])
    assert page.index(' under"') < page.index('class="frame seg"') < page.index('class="k strand')


def test_a_picture_that_fits_is_not_folded() -> None:
    lab = fabric(pods=1, segments=2, hosts=4, gpus=2, spines=4)
    layout = lay_out(lab, group_lab(lab))
    assert layout.shelves == 1 and not any(line.under for line in layout.lines)
    assert layout.width / layout.height == pytest.approx(STAGE_WIDTH / STAGE_HEIGHT, rel=0.25), "it fills its window"


def test_lines_of_rails_that_look_alike_are_dashed_in_dot() -> None:
    text = render_dot(fabric(pods=1, segments=1, hosts=1, gpus=8, spines=1))
    styles = {}
    for line in text.splitlines():
        if found := re.match(r'  "p1-s1-rail(\d)" -- "p1-s1-h1" \[(.*)\]', line):
            style = re.search(r"style=(\w+)", found[2])
            styles[int(found[1])] = style[1] if style else "solid"
    assert len(styles) == 8
    for alike in ((1, 5), (2, 4, 8), (3, 7)):
        assert len({styles[rail] for rail in alike}) == len(alike)


@pytest.fixture(scope="module")
def planes() -> Lab:
    return generate_fabric(FabricParams(design="dual-plane"), name="planes")


def test_planes_have_boxes_of_their_own_and_no_line_between_them(planes: Lab) -> None:
    dot, chart = render_dot(planes), render_mermaid(planes)
    assert dot.count('label="Plane a"') == dot.count('label="Plane b"') == 1
    assert chart.count("[Plane a]") == chart.count("[Plane b]") == 1
    between = [line for line in dot.splitlines() if " -- " in line and "spine" in line]
    assert len(between) == 64
    for line in between:
        first, second = re.findall(r'"([^"]+)" -- "([^"]+)"', line)[0]
        assert first[-1] == second[-1], line


def test_planes_stand_side_by_side_with_a_band_each(planes: Lab) -> None:
    """The rail switches of a segment are in the order of planes, below the spines of theirs."""
    grouping = group_lab(planes)
    letters = [node.name[-1] for node in grouping.segments[0].switches]
    assert letters == ["a"] * 8 + ["b"] * 8
    large = generate_fabric(FabricParams(design="dual-plane", spines=60, hosts=16), name="planes")
    layout = lay_out(large, group_lab(large))
    assert len(layout.ribbons) == 4, "from each of two segments to each of two planes"
    assert {row.detail for row in layout.rows if row.title == "Spines"} == {"120, 2 planes"}
