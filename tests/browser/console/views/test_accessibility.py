"""Every page in both themes, as axe-core sees it: no violation of WCAG 2.1 A and AA, nor of its best practices."""

from pathlib import Path
from typing import Any

import pytest

from testbed.record.store import RECORD_FILE, load_record, write_record

from .conftest import LAB, ROOT, Desk

pytestmark = [
    pytest.mark.browser,
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.process,
    pytest.mark.timeout(900),
    pytest.mark.thorough,
]
AXE = (ROOT / "tests/support/console/axe-core-4.14.1/axe.min.js").read_text()
RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .map(one => `${one.id}: ${one.help} — ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(" | ")}`)"""
PAGES = {
    "labs": "/labs",
    "results": "/results",
    "map": f"/labs/{LAB}/map?sel=port:leaf4:down1",
    "table": f"/labs/{LAB}/table",
    "time": f"/labs/{LAB}/time?sel=port:leaf4:down1",
    "job": f"/labs/{LAB}/job",
    "pauses": f"/labs/{LAB}/pauses",
    "capture": f"/labs/{LAB}/capture",
}
DIALOGS = {
    "impair": "() => consoleApp.services.ask('link-set', ['leaf4:down1'], {loss: '1%'})",
    "menu": "() => consoleApp.services.actions({targets: ['port:leaf4:down1'], x: 300, y: 200})",
    "shell": "() => consoleApp.services.shell('leaf1')",
    "logs": "() => consoleApp.services.logs('leaf1')",
    "toast": "() => consoleApp.say('Something was done', {action: {title: 'Undo', run() {}}, lasts: 0})",
    "keys": "() => consoleApp.keys.get('?')[0].run()",
}


def violations(desk: Desk, page: Any, theme: str) -> list[str]:
    """What axe-core finds in a page. It is run outside of the page's policy, which allows no script of others."""
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    page.wait_for_timeout(800)
    session = desk.context.new_cdp_session(page)
    session.send("Page.setBypassCSP", {"enabled": True})
    page.evaluate(AXE)
    return list(page.evaluate(RUN))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page(name: str, theme: str, desk: Desk) -> None:
    page = desk.open(PAGES[name])
    assert violations(desk, page, theme) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", DIALOGS)
def test_what_opens_above_a_page(name: str, theme: str, desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map?sel=port:leaf4:down1")
    page.evaluate(DIALOGS[name])
    page.wait_for_timeout(1500)
    assert violations(desk, page, theme) == []


@pytest.fixture
def recorded(desk: Desk) -> str:
    directory = desk.directory / "results" / "axe"
    directory.mkdir(parents=True, exist_ok=True)
    write_record(load_record(ROOT / "tests/data/records/permutation.json"), directory / RECORD_FILE)
    return f"/runs/{desk.directory.name}~results~axe/0/1"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", ["map", "job", "pauses", "table"])
def test_a_record_that_is_played_back(view: str, theme: str, desk: Desk, recorded: str) -> None:
    page = desk.open(f"{recorded}/{view}")
    assert violations(desk, page, theme) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_dialog_with_a_text(theme: str, desk: Desk) -> None:
    page = desk.open(f"/labs?p.file={desk.directory.name}/lab.yml")
    page.wait_for_selector(".editor textarea")
    page.wait_for_timeout(1500)
    assert violations(desk, page, theme) == []


def test_it_would_find_one(desk: Desk) -> None:
    page = desk.open("/labs")
    page.evaluate(
        "() => { const image = document.createElement('img'); document.querySelector('main').append(image); }"
    )
    assert any(found.startswith("image-alt") for found in violations(desk, page, "light"))


def test_its_file_is_as_the_registry_has_it() -> None:
    """Of npm's axe-core 4.14.1, package/axe.min.js."""
    import hashlib

    digest = hashlib.sha256((Path(ROOT) / "tests/support/console/axe-core-4.14.1/axe.min.js").read_bytes()).hexdigest()
    assert digest == "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
