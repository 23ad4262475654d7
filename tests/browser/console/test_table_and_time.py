"""Tables, charts and the strip of time: sorted and filtered by the command line's words, and all at one moment."""

import csv
import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

Open = Callable[..., Any]
LAB = "console-tests"
pytestmark = [pytest.mark.browser, pytest.mark.netns, pytest.mark.frr, pytest.mark.process, pytest.mark.timeout(600)]


LONGER_THAN = """seconds => {
    const slider = document.querySelector('[role=slider][aria-label="Moment that is shown"]');
    const kept = slider.getAttribute("aria-valuemax") - slider.getAttribute("aria-valuemin");
    return kept > seconds && kept < 800;
}"""
"""Whether so many seconds are kept. Before anything is, the strip is drawn as a quarter of an hour."""


def rows(page: Any) -> list[list[str]]:
    page.wait_for_selector(".rows tbody tr")
    return [one.split("\t") for one in page.evaluate("tableRows()")]


def test_every_table_has_rows_or_says_that_there_are_none(look: Open) -> None:
    page = look("table")
    titles = page.get_by_role("tab").all_inner_texts()
    assert {"Ports", "Nodes", "Sessions", "Routes", "GPUs"} <= set(titles)
    for title in titles:
        page.get_by_role("tab", name=title, exact=True).click()
        page.wait_for_selector(".rows tbody tr, .empty h2")
        assert page.locator(".failure").count() == 0, page.locator(".failure").all_inner_texts()


def test_a_click_on_a_heading_sorts_and_a_second_one_turns_it_round(look: Open) -> None:
    page = look("table")
    first = rows(page)
    page.get_by_role("button", name="node", exact=True).click()
    page.wait_for_function("() => document.querySelector('th[aria-sort=ascending]') !== null")
    page.wait_for_timeout(500)
    names = [row[0] for row in rows(page)]
    page.get_by_role("button", name="node", exact=True).click()
    page.wait_for_function("() => document.querySelector('th[aria-sort=descending]') !== null")
    page.wait_for_timeout(500)
    turned = [row[0] for row in rows(page)]
    assert names[0] == min(names) and turned[0] == max(turned) and names != turned
    assert "p.sort=-node" in page.url
    page.reload()
    assert [row[0] for row in rows(page)] == turned and len(turned) == len(first)


def test_words_of_the_command_line_filter_and_a_wrong_one_is_told(look: Open) -> None:
    page = look("table?q=p1-s1-rail1:down*")
    found = rows(page)
    assert {(row[0], row[1]) for row in found} == {("p1-s1-rail1", f"down{number}") for number in (1, 2, 3, 4)}
    page.locator("#find").fill("network=storage")
    page.wait_for_function("() => tableRows().length > 0 && tableRows().every(row => row.includes('storage'))")
    page.locator("#find").fill("nowhere")
    page.wait_for_selector(".empty h2")
    assert page.locator(".empty h2").inner_text() == "Nothing matches"


def test_rows_are_the_selection_of_the_map(look: Open) -> None:
    page = look("table?q=p1-s1-rail1:down1")
    page.locator(".rows tbody tr").first.click()
    assert page.evaluate("selection()") == ["port:p1-s1-rail1:down1"]
    assert page.locator(".panel h2").first.inner_text() == "p1-s1-rail1:down1"
    page.get_by_role("link", name="Map").click()
    page.wait_for_selector(".world .n.on")
    lit = page.locator(".world .n.on").evaluate_all(
        "nodes => nodes.map(n => n.getAttribute('aria-label').split(', ')[1])"
    )
    assert {"p1-s1-rail1", "p1-s1-h1"} <= set(lit)


def test_rows_by_keyboard(look: Open) -> None:
    page = look("table")
    page.wait_for_selector(".rows tbody tr")
    page.locator(".rows tbody tr[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    (chosen,) = page.evaluate("selection()")
    assert chosen == page.evaluate("() => document.activeElement.dataset.key")


def test_csv_has_all_rows_of_what_is_shown(look: Open, served: Any) -> None:
    page = look("table?q=p1-s1-*")
    shown = rows(page)
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    text = started.value.path().read_text()
    found = list(csv.DictReader(io.StringIO(text)))
    assert started.value.suggested_filename == f"{LAB}-ports.csv"
    assert len(found) == len(shown) and {row["node"] for row in found} == {row[0] for row in shown}
    assert all(row["node"].startswith("p1-s1-") for row in found)


def test_the_table_says_what_the_command_line_says(look: Open) -> None:
    page = look("table?p.table=sessions")
    rows(page)
    shown = int(page.evaluate("() => Number(document.querySelector('.rows .table').getAttribute('aria-rowcount'))"))
    command = [sys.executable, "-m", "testbed", "inspect", "bgp", "-n", LAB, "-f", "csv"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert shown == len(list(csv.DictReader(io.StringIO(said))))


def test_charts_are_of_what_is_selected_and_a_click_sets_the_moment(look: Open) -> None:
    page = look("time?sel=node:p1-s1-rail1")
    page.wait_for_selector(".chart.large canvas")
    assert page.locator(".chart").count() == 6
    assert all(name.startswith("p1-s1-rail1:") for name in page.locator(".series button").all_inner_texts())
    page.wait_for_timeout(1500)  # two ticks, so that there is something before now
    box = page.locator(".chart.large .u-over").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)
    page.wait_for_function("() => consoleApp.address.get().moment !== null")
    assert "t=" in page.url
    page.wait_for_function("() => consoleApp.live.get().shown.t <= consoleApp.address.get().moment")
    page.get_by_role("link", name="Table").click()  # which complains of nothing that was left behind
    rows(page)


def test_the_scrubber_sets_map_table_and_charts_to_a_moment(look: Open) -> None:
    """Traffic that has ended is there again at the moment when there was some."""
    page = look("map")
    page.wait_for_function("() => document.querySelectorAll('.world .n').length > 0")
    slider = page.get_by_role("slider", name="Moment that is shown")
    page.wait_for_function(LONGER_THAN, arg=3)
    slider.focus()
    now = float(slider.get_attribute("aria-valuenow"))
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => consoleApp.address.get().moment !== null")
    page.wait_for_function("() => consoleApp.live.get().shown.t <= consoleApp.address.get().moment")
    frozen = page.evaluate("() => consoleApp.live.get().shown.t")
    page.wait_for_timeout(1500)
    assert page.evaluate("() => consoleApp.live.get().shown.t") == frozen, "a moment stays, whatever comes"
    assert page.evaluate("() => consoleApp.live.get().t") > frozen, "and the stream goes on"
    page.get_by_role("link", name="Table").click()
    rows(page)
    assert page.evaluate("() => consoleApp.live.get().shown.t") == frozen and now > 0
    page.reload()
    page.wait_for_function("() => consoleApp.live.get().shown !== null")
    assert page.evaluate("() => consoleApp.live.get().shown.t") == frozen, "the address has the moment"
    page.get_by_role("button", name="Live").click()
    page.wait_for_function("frozen => consoleApp.live.get().shown.t > frozen", arg=frozen)
    assert "t=" not in page.url.split("?")[-1]


@pytest.mark.thorough
def test_it_plays(look: Open) -> None:
    page = look("map")
    page.wait_for_timeout(4000)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => consoleApp.address.get().moment !== null")
    first = page.evaluate("() => consoleApp.live.get().shown.t")
    page.wait_for_function("first => consoleApp.live.get().shown.t > first + .4", arg=first)
    page.get_by_role("button", name="Stop").click()
    held = page.evaluate("() => consoleApp.address.get().moment")
    page.wait_for_timeout(700)
    assert page.evaluate("() => consoleApp.address.get().moment") == held
