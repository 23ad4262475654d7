"""The walk of the guide (docs/guides/console.md): from a lab that is up to its congested queue, as a page leads."""

import time
from typing import Any

import pytest
from playwright.sync_api import expect

from .conftest import LAB, ROOT, Desk

pytestmark = [
    pytest.mark.browser,
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.process,
    pytest.mark.timeout(900),
    pytest.mark.thorough,
]
SLOW = 120_000
FIVE_MINUTES_S = 300.0
BYTES = "24MB"


def view(page: Any, name: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("link", name=name, exact=True).click()


def test_a_newcomer_finds_the_congested_queue(desk: Desk) -> None:
    begin = time.monotonic()
    page = desk.open("/labs")
    page.get_by_role("button", name="Run a scenario …").click()
    dialog = page.get_by_role("dialog", name="Run a scenario")
    dialog.get_by_label("Scenario").fill(f"{desk.directory.name}/incast.yml")
    dialog.get_by_label("Set", exact=False).first.fill(f"workload.bytes={BYTES}")
    line = dialog.locator(".copyline code")
    expect(line).to_contain_text(f"--set workload.bytes={BYTES}", timeout=SLOW)
    expect(line).to_contain_text("testbed run")
    dialog.get_by_role("button", name="un a scenario").click()
    page.get_by_role("article").filter(has_text=LAB).get_by_role("link", name=LAB).click()
    page.wait_for_function("() => consoleApp.live.get().shown !== null", timeout=SLOW)

    view(page, "Job")
    expect(page.get_by_role("heading", name="Furthest behind")).to_be_visible(timeout=SLOW)
    expect(page.locator("main")).to_contain_text("of its bytes have arrived", timeout=SLOW)
    page.get_by_role("button", name="Path").first.click()
    path = page.get_by_role("region", name="The path of the flow")
    expect(path).to_contain_text("holds it up", timeout=SLOW)
    held = path.locator("tr.holds .link").first.inner_text()

    view(page, "Map")
    page.locator("#main").focus()
    page.keyboard.press("Escape")  # all ports again
    while page.evaluate("() => consoleApp.address.get().measure") != "queue":
        page.keyboard.press("m")
    expect(page.get_by_role("heading", name="Highest queue")).to_be_visible(timeout=SLOW)
    deepest = page.locator(".worst button")
    expect(deepest.filter(has_text=held)).to_be_visible(timeout=SLOW)
    deepest.filter(has_text=held).click()
    assert page.evaluate("() => consoleApp.address.get().selection") == [f"port:{held}"]
    page.get_by_role("button", name="Over time").click()
    expect(page.locator(".chart.large canvas")).to_be_visible(timeout=SLOW)
    expect(page.locator(".series")).to_contain_text(held)

    view(page, "Pauses")
    root = page.get_by_role("tree").get_by_role("treeitem").first
    expect(root).to_be_visible(timeout=SLOW)
    assert root.get_attribute("aria-label") in ("leaf1", "leaf4", "spine"), "a switch on the way is the root"
    taken = time.monotonic() - begin
    page.wait_for_function(
        "() => consoleApp.live.get().tasks.every(task => task.state !== 'running')", timeout=5 * SLOW
    )
    assert taken <= FIVE_MINUTES_S


def test_the_guide_has_these_words() -> None:
    text = " ".join((ROOT / "docs/guides/console.md").read_text().split())
    for words in ("Run a scenario", "**Path**", "**Queue**", "**Over time**", "**Pauses**"):
        assert words in text
