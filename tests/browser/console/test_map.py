"""The map of the console: all networks, coloured live, in layers, by pointer and keyboard."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from waiting import until

Open = Callable[..., Any]
LAB, HOST = "console-tests", "p1-s1-h1"
pytestmark = [pytest.mark.browser, pytest.mark.netns, pytest.mark.frr, pytest.mark.process, pytest.mark.timeout(600)]

SHOWN = "() => document.querySelectorAll('.world .n').length > 0"


def seen_nodes(page: Any) -> int:
    return int(page.evaluate("seenNodes()"))


def map_of(page: Any) -> Any:
    page.wait_for_function(SHOWN)
    page.evaluate("rest()")
    return page.locator(".stage")


def selection(page: Any) -> list[str]:
    return list(page.evaluate("selection()"))


@pytest.mark.thorough
def test_all_networks_and_domains_are_on_it_and_can_be_left_out(look: Open) -> None:
    page = look()
    map_of(page)
    names = page.locator(".networks label").all_inner_texts()
    assert len(names) >= 5 and any("scale-up" in name for name in names), names
    before = seen_nodes(page)
    page.get_by_label("storage", exact=True).uncheck()
    assert seen_nodes(page) < before
    assert "off=storage" in page.url
    page.reload()
    map_of(page)
    assert not page.get_by_label("storage", exact=True).is_checked() and seen_nodes(page) < before
    page.get_by_label("storage", exact=True).check()
    assert seen_nodes(page) == before


def test_half_links_have_the_colours_of_what_is_measured(look: Open) -> None:
    """Values are put in the page's hand; what the server measures, the test of queues and rates sees."""
    page = look()
    map_of(page)

    page.evaluate("setAll('use', 0)")
    idle = set(page.evaluate("painted()"))
    page.evaluate("setAll('use', 990)")
    full = set(page.evaluate("painted()"))
    hottest = page.evaluate("() => getComputedStyle(document.querySelectorAll('.legend i')[6]).backgroundColor")
    red, green, blue = map(int, re.findall(r"\d+", hottest))
    near = [
        c for c in full if abs(int(c[:2], 16) - red) + abs(int(c[2:4], 16) - green) + abs(int(c[4:], 16) - blue) < 40
    ]
    assert near, (hottest, full)
    assert not [c for c in idle if c in near]


def test_a_click_selects_and_the_address_restores_it(look: Open) -> None:
    page = look()
    map_of(page)
    page.locator(f'.world .n[aria-label*=", {HOST},"]').first.click()
    assert selection(page) == [f"node:{HOST}"]
    assert page.locator(".panel h2").first.inner_text() == HOST
    page.reload()
    map_of(page)
    assert selection(page) == [f"node:{HOST}"]
    assert page.locator(f'.world .n.pinned[aria-label*=", {HOST},"]').count() == 1
    page.keyboard.press("Escape")
    assert selection(page) == []


def test_a_line_can_be_selected(look: Open) -> None:
    page = look()
    stage = map_of(page)
    box = stage.bounding_box()
    at = page.evaluate("pointOnLine()")
    page.mouse.click(box["x"] + at[0], box["y"] + at[1])
    assert selection(page) and selection(page)[0].split(":")[0] in ("port", "link")


def test_the_keyboard_does_it_all(look: Open) -> None:
    page = look()
    map_of(page)
    page.evaluate("() => document.querySelector('.world .n[tabindex=\"0\"]').focus()")
    first = page.evaluate("() => document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("() => document.activeElement.getAttribute('aria-label')")
    assert first != second
    page.keyboard.press("Enter")
    assert selection(page) == [f"node:{second.split(', ')[1]}"]
    style = page.evaluate("() => getComputedStyle(document.activeElement.querySelector('.c')).strokeWidth")
    assert float(style.removesuffix("px")) >= 2, "the focus is seen"
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("() => document.activeElement.id") == "find"
    page.keyboard.type("p1-s1-h")
    page.wait_for_function("() => document.querySelectorAll('.world .n.on').length >= 4")
    lit = page.evaluate("() => [...document.querySelectorAll('.world .n.on')].map(n => n.getAttribute('aria-label'))")
    assert lit and all("p1-s1-h" in name for name in lit)
    page.keyboard.press("Enter")
    assert selection(page) == ["node:p1-s1-h1"]
    page.keyboard.press("Escape")
    page.locator("#main").focus()
    page.keyboard.press("m")
    assert page.evaluate("() => consoleApp.address.get().measure") == "queue"
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    page.keyboard.press("3")
    assert page.evaluate("() => consoleApp.address.get().view") == "table"


def test_the_wheel_zooms_and_a_drag_pans(look: Open) -> None:
    page = look()
    box = map_of(page).bounding_box()
    of = "transformNow()"
    before = page.evaluate(of)
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] - 20)
    page.mouse.wheel(0, -400)
    page.wait_for_function("zoom => transformNow()[0] > zoom * 1.1", arg=before[0])
    page.evaluate("rest()")
    zoomed = page.evaluate(of)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + box["height"] - 80, steps=5)
    page.mouse.up()
    page.evaluate("rest()")
    panned = page.evaluate(of)
    assert panned[1] - zoomed[1] == pytest.approx(100, abs=2) and panned[2] - zoomed[2] == pytest.approx(-60, abs=2)
    assert selection(page) == [], "a drag selects nothing"
    page.get_by_role("button", name="Fit").click()
    page.evaluate("rest()")
    assert page.evaluate(of)[0] == pytest.approx(before[0], rel=0.01)


def test_a_box_selects_several_nodes(look: Open) -> None:
    page = look()
    box = map_of(page).bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] - 4, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert len(selection(page)) > 10


def test_positions_are_kept_beside_the_topology_file(look: Open, served: Any) -> None:
    page = look()
    map_of(page)
    page.get_by_role("button", name="Move nodes").click()
    node = page.locator('.world .n[aria-label*=", p1-spine1,"]')
    before = node.bounding_box()
    page.mouse.move(before["x"] + before["width"] / 2, before["y"] + before["height"] / 2)
    page.mouse.down()
    page.mouse.move(before["x"] + before["width"] / 2 + 60, before["y"] + before["height"] / 2 + 25, steps=4)
    page.mouse.up()
    file = served.directory / "lab.positions.json"
    until(file.exists, "the position is kept")
    kept = json.loads(file.read_text())
    assert list(kept) == ["p1-spine1"] and kept["p1-spine1"][0] > 20
    page.reload()
    map_of(page)
    again = node.bounding_box()
    assert again["x"] - before["x"] == pytest.approx(60, abs=3) and again["y"] - before["y"] == pytest.approx(25, abs=3)
    page.get_by_role("button", name="Move nodes").click()
    page.get_by_role("button", name="Put back").click()
    until(lambda: not file.exists(), "no position is kept")
    assert node.bounding_box()["x"] == pytest.approx(before["x"], abs=1)


@pytest.mark.parametrize("kind", ["honeycomb", "matrix"])
def test_honeycomb_and_matrix_are_one_click_away(kind: str, look: Open) -> None:
    page = look()
    map_of(page)
    page.get_by_role("radio", name=kind.title()).click()
    canvas = page.locator(".cells canvas")
    canvas.focus()
    first = page.locator(".said").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("first => document.querySelector('.said').textContent !== first", arg=first)
    page.keyboard.press("Enter")
    assert selection(page)[0].split(":")[0] in ("port", "link")
    assert f"p.look={kind}" in page.url
    page.get_by_role("radio", name="Map", exact=True).click()
    page.wait_for_function(SHOWN)
