"""The drawing of a fabric under load: every link once, in its row and its colour, from the ports of a record alone."""

import itertools
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from recorded import load, with_runs

from testbed.record.record import RunResult
from testbed.record.report import render_report
from testbed.record.report.chart.fabric import load_class
from testbed.record.report.scenario.plots import Plot
from testbed.record.report.scenario.plots.fabric import plot_fabric
from testbed.record.samples import PortLoad, RunEvent

SVG = "{http://www.w3.org/2000/svg}"


def ports(
    one: str, other: str, tiers: tuple[str, str], *, up: float = 0.5, down: float = 0.1, **more: object
) -> list[PortLoad]:
    """Both ports of a link; `up` is what the first sends, of its rate."""
    common = {"rate_bps": 100_000_000, "tx_dropped": 0, "network": "backend", **more}
    return [
        PortLoad(
            node=here.partition(":")[0],
            interface=here.partition(":")[2],
            peer=there,
            tier=tier,
            tx_bytes=round(share * 1e6),
            utilisation=share,
            **common,  # type: ignore[arg-type]
        )
        for here, there, tier, share in ((one, other, tiers[0], up), (other, one, tiers[1], down))
    ]


def clos(*, segments: int = 2, hosts: int = 2, rails: int = 2, spines: int = 2) -> list[PortLoad]:
    found = []
    for segment, rail in itertools.product(range(1, segments + 1), range(1, rails + 1)):
        leaf = f"p1-s{segment}-rail{rail}"
        for host in range(1, hosts + 1):
            found += ports(f"p1-s{segment}-h{host}:rail{rail}", f"{leaf}:down{host}", ("access", "delivery"))
        for spine in range(1, spines + 1):
            place = f"p1-spine{spine}:down{(segment - 1) * rails + rail}"
            found += ports(f"{leaf}:uplink{spine}", place, ("uplink", "downlink"), up=0.1 * spine + 0.3 * rail)
    return found


def drawn(found: list[PortLoad], **more: object) -> Plot:
    run = load("permutation").points[0].runs[0]
    (plot,) = plot_fabric(replace(run, ports=found, **{"events": [], **more}))  # type: ignore[arg-type]
    return plot


def cards(plot: Plot) -> dict[str, tuple[float, float]]:
    """The middles and the upper edges of cards, by what the pointer shows of them."""
    found = {}
    for group in ElementTree.fromstring(plot.drawing.svg).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        if title is not None and rect is not None and rect.get("class") in ("switch", "host"):
            x, y, width = (float(rect.get(name) or 0) for name in ("x", "y", "width"))
            found[(title.text or "").partition("; ")[0]] = x + width / 2, y
    return found


def wires(plot: Plot) -> list[tuple[str, str]]:
    """The class and the remark of each wire."""
    return re.findall(r'<path d="[^"]*" class="wire (load\d)"><title>(.*?)</title>', plot.drawing.svg, re.DOTALL)


def test_every_node_and_every_link_is_drawn_once_in_its_row() -> None:
    plot = drawn(clos())
    found = cards(plot)
    rows = [{name for name, (_, y) in found.items() if y == at} for at in sorted({y for _, y in found.values()})]
    assert rows == [
        {"p1-spine1", "p1-spine2"},
        {f"p1-s{segment}-rail{rail}" for segment in (1, 2) for rail in (1, 2)},
        {f"p1-s{segment}-h{host}" for segment in (1, 2) for host in (1, 2)},
    ]
    assert len(wires(plot)) == 2 * 2 * 2 + 2 * 2 * 2


def test_a_wire_has_the_colour_of_its_busier_direction() -> None:
    by_remark = {remark.partition(" to ")[0]: cls for cls, remark in wires(drawn(clos()))}
    assert by_remark["p1-s1-rail1:uplink1"] == load_class(0.4) == "load3"
    assert by_remark["p1-s1-rail2:uplink2"] == load_class(0.8) == "load5"
    assert by_remark["p1-s1-h1:rail1"] == "load3"
    busier = ports("a:1", "b:1", ("uplink", "downlink"), up=0.1, down=0.9)
    busier += ports("a:2", "b:2", ("uplink", "downlink"), up=0.3, down=0.2) + clos()
    (cls,) = [cls for cls, remark in wires(drawn(busier)) if "b:1 to a:1: 90.0%" in remark]
    assert cls == "load5", "of links side by side the busiest counts"


@pytest.mark.parametrize(
    ("share", "cls"), [(0.0, "load0"), (0.0099, "load0"), (0.01, "load1"), (0.79, "load4"), (1.2, "load5")]
)
def test_classes_of_loads(share: float, cls: str) -> None:
    assert load_class(share) == cls


def test_the_legend_has_the_classes_that_there_are_and_what_was_lost() -> None:
    lossy = ports("p1-s1-rail1:uplink9", "p1-spine1:down9", ("uplink", "downlink"), tx_dropped=7)
    plot = drawn(clos() + lossy)
    assert ("loss", "dropped packets") in plot.drawing.legend and ("load0", "below 1 %") not in plot.drawing.legend
    assert plot.drawing.svg.count('class="loss"') == 1
    assert "7 packets dropped" in plot.drawing.svg


def test_segments_have_boxes_and_short_names() -> None:
    svg = drawn(clos()).drawing.svg
    assert svg.count('class="part"') == 2
    assert ">p1-s1<" in svg and ">rail1<" in svg and ">h2<" in svg
    assert ">p1-spine1<" in svg, "a spine is in no segment"


def test_other_networks_stand_below_the_hosts() -> None:
    front = []
    for host, leaf in itertools.product(range(1, 3), range(1, 3)):
        ends = f"p1-s1-h{host}:fe{leaf}", f"fe-leaf{leaf}:down{host}"
        front += ports(*ends, ("access", "delivery"), network="frontend")
    front += ports("fe-leaf1:uplink1", "fe-spine1:down1", ("uplink", "downlink"), network="frontend")
    plot = drawn(clos() + front)
    found = cards(plot)
    hosts_y = found["p1-s1-h1"][1]
    assert found["p1-s1-rail1"][1] < hosts_y < found["fe-leaf1"][1] < found["fe-spine1"][1]
    assert ">frontend<" in plot.drawing.svg


def test_many_hosts_are_one_card_for_those_on_the_same_switches() -> None:
    plot = drawn(clos(hosts=40))
    assert plot.drawing.svg.count(">40 hosts<") == 2
    assert len(cards(plot)) == 2 + 4 + 2
    assert "80 hosts" in plot.caption
    assert len(wires(plot)) == 8 + 4


def test_what_happened_is_marked_with_its_number() -> None:
    events = [
        RunEvent(at_s=0.1, kind="link-down", target="p1-s1-rail1:uplink1"),
        RunEvent(at_s=0.2, kind="detected", target="some flow"),
        RunEvent(at_s=0.3, kind="node-kill", target="p1-spine2"),
    ]
    plot = drawn(clos(), events=events)
    assert re.findall(r'class="bubble-name"[^>]*>(\d+)<', plot.drawing.svg) == ["1", "3"]
    assert "Numbers are the events below" in plot.caption


def test_switches_without_a_role_stand_above_what_they_are_linked_to() -> None:
    below, above = ("access", "delivery"), ("fabric", "fabric")
    found = ports("h1:eth1", "leaf:eth1", below) + ports("h2:eth1", "leaf:eth2", below)
    found += ports("leaf:eth3", "core:eth1", above) + ports("core:eth2", "top:eth1", above)
    places = cards(drawn(found))
    assert places["top"][1] < places["core"][1] < places["leaf"][1] < places["h1"][1]


def test_cards_of_a_row_do_not_overlap() -> None:
    for found in (clos(), clos(hosts=40), clos(segments=8, hosts=4, rails=8, spines=16)):
        root = ElementTree.fromstring(drawn(found).drawing.svg)
        rows: dict[float, list[tuple[float, float]]] = {}
        for rect in root.iter(f"{SVG}rect"):
            if rect.get("class") in ("switch", "host"):
                x, y, width = (float(rect.get(name) or 0) for name in ("x", "y", "width"))
                rows.setdefault(y, []).append((x, x + width))
        for spans in rows.values():
            spans.sort()
            assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))


def test_a_record_without_links_or_traffic_has_no_drawing() -> None:
    run = load("permutation").points[0].runs[0]
    idle = [replace(port, tx_bytes=0, utilisation=0.0) for port in clos()]
    assert plot_fabric(replace(run, ports=[])) == plot_fabric(replace(run, ports=idle)) == []


def test_the_report_has_it_once_for_a_point() -> None:
    def with_fabric(run: RunResult) -> RunResult:
        return replace(run, ports=clos())

    page = render_report(with_runs(load("permutation"), with_fabric))
    assert page.count("<h3>The fabric under load</h3>") == 1
    assert '<figure class="wide whole">' in page
