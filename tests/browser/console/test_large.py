"""A lab of 1,024 NICs on the page: what it shows first, and what that costs. It is a record's, and deployed nowhere."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_browser import PageErrors

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests/support/console"
TOPOLOGY = ROOT / "topologies/superpod-4su.yml"
PROBES = (SUPPORT / "probes.js").read_text()
MOST_DRAWINGS = 8
"""Of the canvas before the first picture is there: the machine may be so slow that it takes some frames."""
WHERE = "#/runs/x/0/1/map"
FETCHED = """() => performance.getEntriesByType("resource").filter(one => one.transferSize > 0)
  .map(one => new URL(one.name).pathname)"""

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def context(browser: Any) -> Iterator[Any]:
    """A browser that has logged in, and has been there once."""
    command = [sys.executable, str(SUPPORT / "fake_console.py"), str(TOPOLOGY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        link = console.stdout.readline().strip()
        found = browser.new_context(viewport={"width": 1280, "height": 720})
        try:
            page = found.new_page()
            page.goto(link)
            page.wait_for_function("() => performance.getEntriesByName('console-ready').length > 0", timeout=120_000)
            page.close()
            found.address = link.split("?")[0]
            yield found
        finally:
            found.close()
            console.terminate()


@pytest.fixture
def page(context: Any) -> Iterator[Any]:
    page = context.new_page()
    page.set_default_timeout(120_000)
    errors = PageErrors(page)
    page.add_init_script(PROBES)
    page.add_init_script(
        "window.drawings = 0; const clear = CanvasRenderingContext2D.prototype.clearRect;"
        "CanvasRenderingContext2D.prototype.clearRect = function(...at) {"
        " if (this.canvas.closest('.world, .cells')) window.drawings += 1; return clear.apply(this, at); };"
    )
    yield page
    page.close()
    assert errors.found == []


def shown(page: Any, context: Any, where: str) -> None:
    page.goto(context.address + where)
    for mark in ("console-picture", "console-ready"):
        page.wait_for_function(f"() => performance.getEntriesByName('{mark}').length > 0")


def test_a_honeycomb_stands_for_the_map_which_is_one_click_away(page: Any, context: Any) -> None:
    shown(page, context, WHERE)
    assert page.get_by_role("radio", name="Honeycomb").get_attribute("aria-checked") == "true"
    page.locator(".cells canvas").focus()
    page.wait_for_function("() => document.querySelector('.said').textContent.includes('sends')")
    page.get_by_role("radio", name="Map", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.world .n').length > 100")
    page.get_by_role("radio", name="Matrix").click()
    page.wait_for_selector(".cells canvas")
    assert "p.look=matrix" in page.url


@pytest.mark.parametrize("look", ["map", "honeycomb"])
def test_a_browser_that_was_here_asks_for_figures_alone(look: str, page: Any, context: Any) -> None:
    """Its files are kept, and what the first picture needs is asked for before the page's parts are run."""
    shown(page, context, f"{WHERE}?p.look={look}")
    fetched = page.evaluate(FETCHED)
    assert [path for path in fetched if path.startswith("/static/")] == []
    assert fetched.count("/api/runs/x/0/1/map") == fetched.count("/api/runs/x/0/1") == 1


@pytest.mark.parametrize("look", ["map", "honeycomb"])
def test_the_first_picture_is_drawn_once(look: str, page: Any, context: Any) -> None:
    page.add_init_script(
        "const mark = performance.mark.bind(performance);"
        "performance.mark = (...words) => { window.drawnFirst ??= window.drawings; return mark(...words); };"
    )
    shown(page, context, f"{WHERE}?p.look={look}")
    assert 1 <= page.evaluate("() => window.drawnFirst") <= MOST_DRAWINGS
