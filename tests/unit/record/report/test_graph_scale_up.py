"""Pictures of scale-up domains: planes are a layer of their own, one box a domain where they would be many."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.units import Rate
from testbed.lab.core.model import UNSTATED_SCALE_UP, Lab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.graph import render_dot, render_html, render_mermaid
from testbed.lab.graph.layers import group_layers, lay_out_layers, layers_of
from testbed.lab.graph.scale_up import MAX_PLANES, SCALE_UP, domain_scales, with_domains

TOPOLOGIES = Path(__file__).parents[4] / "topologies"


def shipped(name: str, **overrides: object) -> Lab:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_topology(TOPOLOGIES / f"{name}.yml", overrides=dotted)


def planes_of(lab: Lab) -> list[str]:
    return [node.name for node in lab.nodes if node.network == SCALE_UP]


def test_a_lab_that_states_no_domains_is_drawn_without_them() -> None:
    lab = shipped("demo")
    assert lab.scale_up == UNSTATED_SCALE_UP
    assert with_domains(lab) is lab
    assert SCALE_UP not in render_html(lab)


def test_every_plane_of_a_rack_is_a_switch_that_all_hosts_are_on_at_the_rate_of_their_gpus() -> None:
    drawn = with_domains(shipped("nvl72"))
    assert planes_of(drawn) == [f"p1-s1 plane {number}" for number in range(1, 19)]
    links = [link for link in drawn.links if link.network == SCALE_UP]
    assert len(links) == 18 * 18
    assert {link.rate for link in links} == {Rate.parse("1.6T")}  # four GPUs with a link of 400G each


def test_unequal_planes_have_unequal_rates() -> None:
    drawn = with_domains(shipped("rail-optimized", fabric__segments=1, fabric__hosts=1))
    links = [link for link in drawn.links if link.network == SCALE_UP]
    assert [link.rate for link in links] == [Rate.parse(rate) for rate in ("8T", "6.4T", "6.4T", "8T")]


@pytest.mark.parametrize(("name", "domains"), [("rail-optimized", 8), ("nvl72-superpod", 8)])
def test_many_planes_are_one_box_for_each_domain(name: str, domains: int) -> None:
    lab = shipped(name)
    assert domains * lab.scale_up.planes > MAX_PLANES
    drawn = with_domains(lab)
    assert len(planes_of(drawn)) == domains
    sent = sum(link.rate.bps for link in drawn.links if link.network == SCALE_UP)
    gpus = 64 if name == "rail-optimized" else 576
    assert sent == gpus * lab.scale_up.rate.bps


@pytest.mark.parametrize("name", ["nvl72", "rail-optimized", "nvl72-superpod"])
def test_the_layer_can_be_left_out_and_says_what_it_is(name: str) -> None:
    lab = shipped(name)
    page = render_html(lab)
    assert re.search(rf'<input type="checkbox" id="layer1"[^>]* checked[^>]*><i></i>{SCALE_UP}</label>', page)
    assert "9 times its NIC" in page
    for node in planes_of(with_domains(lab)):
        assert page.count(f'aria-label="{node}, scale-up switch,') == 1
    assert f"<b>{len(lab.switches)}</b> switches" in page  # planes are none of the fabric's
    assert f"<b>{len(lab.links):,}</b> links" in page


def test_planes_stand_below_the_hosts_and_nothing_over_another() -> None:
    drawn = with_domains(shipped("nvl72"))
    layers = layers_of(drawn)
    layout = lay_out_layers(drawn, group_layers(drawn, layers), layers)
    (band,) = layout.bands
    boxes = sorted((box.rect for box in band.nodes), key=lambda rect: rect.x)
    assert len(boxes) == 18
    assert all(left.x + left.width < right.x for left, right in itertools.pairwise(boxes))
    assert band.rect.y > max(tray.rect.bottom for tray in layout.trays)
    assert [row.title for row in layout.low_rows] == ["Planes"]


def test_a_domain_beside_other_networks_has_the_last_number_and_a_colour_of_its_own() -> None:
    lab = replace(shipped("datacentre"), scale_up=replace(shipped("nvl72").scale_up, shares=(1,)))
    page = render_html(lab)
    number = len(lab.networks) + 1
    assert f'id="layer{number}"' in page
    assert f".net{number} {{ --c:" in page
    assert "Leaf switches" in page


def test_dot_and_mermaid_have_the_layer_too() -> None:
    lab = shipped("nvl72")
    dot, chart = render_dot(lab), render_mermaid(lab)
    assert f'label="{SCALE_UP}"' in dot
    assert dot.count('-- "p1-s1 plane 7" [') + dot.count('"p1-s1 plane 7" -- ') == 18
    assert f'["{SCALE_UP}"]' in chart
    assert "p1-s1 plane 7" in chart


def test_the_page_has_both_scales_of_a_lab_with_packets() -> None:
    """Credits and the retry window are counted in transactions of the real system, and in frames of the lab."""
    lab = shipped("scale-up-domain")
    shown = {name: (real, here) for name, real, here in domain_scales(lab, lab.scale.time)}
    assert shown["a GPU, one way"] == ("3.6 Tbit/s", "72 Mbit/s")
    assert shown["round trip"] == ("1 us", "50 ms")
    assert shown["credits of a VC"] == ("247 x 256 B", "17 x 4.096 kB")
    assert shown["retry window"] == ("221 frames", "15 frames")
    page = render_html(lab)
    assert "k = 50,000" in page and "17 x 4.096 kB" in page
    assert "k = 25,000" in render_html(lab, k=25_000.0), "a deployed lab has a time scale of its own"
    assert '<th class="num">lab</th>' in render_html(lab, k=25_000.0)


def test_what_is_not_known_of_a_lab_is_left_out() -> None:
    lab = shipped("nvl72")
    assert lab.scale.time is None
    assert {here for _, _, here in domain_scales(lab, None)} == {""}
    assert '<th class="num">lab</th>' not in render_html(lab), "a column without a figure says nothing"
    assert "credits of a VC" not in {name for name, _, _ in domain_scales(lab, None)}, "no frames are sent"
