"""Names of scale-up links: what each means in a lab, and what is said of one that the lab does not have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.lab.core.model import Lab, ScaleUpBy
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.scale_up.links import (
    NoSuchScaleUpLink,
    ScaleUpPlace,
    find_link,
    find_links,
    names_gpu_link,
    resembles_link,
)

TOPOLOGIES = Path(__file__).parents[5] / "topologies"


def with_packets(name: str) -> Lab:
    lab = load_topology(TOPOLOGIES / f"{name}.yml", overrides={})
    return replace(lab, scale_up=replace(lab.scale_up, by=ScaleUpBy.PACKETS))


@pytest.fixture(scope="module")
def board() -> Lab:
    """One host of eight GPUs and four planes."""
    return with_packets("scale-up-domain")


@pytest.fixture(scope="module")
def rack() -> Lab:
    """One segment of 18 hosts with four GPUs each, and 18 planes."""
    return with_packets("nvl72")


@pytest.mark.parametrize(
    ("text", "count", "first", "last"),
    [
        ("p1-s1-h1.gpu1:plane2", 1, "p1-s1-h1.gpu1:plane2", "p1-s1-h1.gpu1:plane2"),
        ("p1-s1-h1:gpu3p4", 1, "p1-s1-h1.gpu3:plane4", "p1-s1-h1.gpu3:plane4"),
        ("p1-s1-h1.gpu8:planes", 4, "p1-s1-h1.gpu8:plane1", "p1-s1-h1.gpu8:plane4"),
        ("p1-s1-h1:plane2-3", 16, "p1-s1-h1.gpu1:plane2", "p1-s1-h1.gpu8:plane3"),
        ("plane4", 8, "p1-s1-h1.gpu1:plane4", "p1-s1-h1.gpu8:plane4"),
        ("planes", 32, "p1-s1-h1.gpu1:plane1", "p1-s1-h1.gpu8:plane4"),
    ],
)
def test_links_of_a_board(board: Lab, text: str, count: int, first: str, last: str) -> None:
    found = find_links(board, text)
    assert len(set(found)) == len(found) == count
    assert (found[0].name, found[-1].name) == (first, last)
    assert {link.domain for link in found} == {"p1-s1-h1"}


def test_gpus_of_a_rack_are_numbered_over_its_trays(rack: Lab) -> None:
    chip = find_links(rack, "p1-s1:plane3")
    assert [link.gpu for link in chip] == list(range(72)) and {link.plane for link in chip} == {3}
    tray = find_links(rack, "p1-s1-h2:planes")
    assert len(tray) == 4 * 18 and {link.gpu for link in tray} == {4, 5, 6, 7}
    link = find_link(rack, "p1-s1-h2.gpu1:plane18")
    assert (link.gpu, link.interface, link.domain) == (4, "gpu1p18", "p1-s1")
    assert find_links(rack, "plane3") == chip, "the only domain need not be named"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p1-s1-h1.gpu9:plane1", "p1-s1-h1 has no GPU 9"),
        ("p1-s1-h1.gpu1:plane5", "no such planes"),
        ("p1-s1-h1:plane3-2", "the first plane comes after the last"),
        ("p1-s1-h1.gpu0:plane1", "is no link of a scale-up domain"),
        ("plane0", "is no link of a scale-up domain"),
        ("p1-s1-h7:planes", "no scale-up domain or host of one 'p1-s1-h7'"),
        ("p1-s1-h1:rail1", "is no link of a scale-up domain"),
    ],
)
def test_a_link_that_is_not_there(board: Lab, text: str, words: str) -> None:
    with pytest.raises(NoSuchScaleUpLink) as raised:
        find_links(board, text)
    assert words in raised.value.message and raised.value.hint
    assert resembles_link(text) or text == "p1-s1-h1:rail1"


def test_a_domain_that_is_a_host_is_offered_once(board: Lab) -> None:
    with pytest.raises(NoSuchScaleUpLink) as raised:
        find_links(board, "nosuch:plane1")
    assert raised.value.hint == "there is p1-s1-h1"


def test_what_a_lab_must_have(board: Lab, rack: Lab) -> None:
    by_time = replace(board, scale_up=replace(board.scale_up, by=ScaleUpBy.TIME))
    with pytest.raises(NoSuchScaleUpLink, match="has no links of scale-up domains"):
        find_links(by_time, "p1-s1-h1:plane1")
    with pytest.raises(NoSuchScaleUpLink, match="72 links"):
        find_link(rack, "p1-s1:plane1")
    with pytest.raises(NoSuchScaleUpLink, match="p1-s1 is no host"):
        find_links(rack, "p1-s1.gpu1:plane1")
    several = with_packets("rail-optimized")
    with pytest.raises(NoSuchScaleUpLink, match="has 8 scale-up domains"):
        find_links(several, "plane1")
    assert len(find_links(several, "p1-s1-h1:plane1")) == 8


@pytest.mark.parametrize("text", ["h1:rail1", "h1.gpu0:plane1", "h1.gpu1", "plane0", "h1:plane", "H1:plane1", ""])
def test_what_is_no_name(text: str) -> None:
    assert ScaleUpPlace.parse(text) is None
    assert not names_gpu_link(text)
