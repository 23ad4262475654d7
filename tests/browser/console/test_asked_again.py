"""What a page asks for and does not get, as by a network that comes and goes, is asked for again until it is there."""

from typing import Any

import pytest

from .conftest import LAB

pytestmark = [pytest.mark.browser, pytest.mark.netns, pytest.mark.frr, pytest.mark.process, pytest.mark.timeout(600)]
PATIENCE_MS = 30_000


@pytest.mark.parametrize(
    ("view", "path", "shown"),
    [
        ("map", f"**/api/labs/{LAB}", ".world .n"),
        ("map", f"**/api/labs/{LAB}/map", ".world .n"),
        ("time", f"**/api/labs/{LAB}/history?*", ".chart.large canvas"),
        ("table", f"**/api/labs/{LAB}/table/*", ".rows tbody tr"),
        ("job", f"**/api/labs/{LAB}/views/job", ".empty h2"),
        ("pauses", f"**/api/labs/{LAB}/views/pauses", ".empty h2"),
    ],
)
def test_what_has_failed_is_asked_for_again(view: str, path: str, shown: str, served: Any) -> None:
    page = served.context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route(path, lambda route: route.abort())
    page.goto(f"{served.address}#/labs/{LAB}/{view}")
    page.locator(".failure").wait_for(timeout=PATIENCE_MS)
    assert "the console does not answer" in page.locator(".failure").inner_text()
    assert page.locator(shown).count() == 0
    page.unroute(path)
    page.locator(shown).first.wait_for(timeout=PATIENCE_MS)
    assert page.locator(".failure").count() == 0 and errors == []
    if view == "map":
        page.wait_for_function("() => consoleApp.live.get().shown !== null")  # with figures, too
    page.close()
