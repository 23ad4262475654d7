"""What a page does not lose: an edited text, its place when the console is started anew; and what one reaches by keys
and by fingers."""

import socket
from pathlib import Path
from typing import Any

import pytest
from console_browser import ConsoleProcess, PageErrors
from playwright.sync_api import expect

from testbed.lab.core.deploy.records.state import StateDirectory

from .conftest import LAB, Desk

pytestmark = [pytest.mark.browser, pytest.mark.netns, pytest.mark.frr, pytest.mark.process, pytest.mark.timeout(900)]
SLOW = 120_000
OTHER = "name: other\nfabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}\n"
PAUSE = {
    "paused": "spine1:down1",
    "by": "leaf1:up1",
    "traffic_class": "lossless",
    "share": 0.5,
    "now": True,
    "since_s": 0,
    "total_s": 0,
    "storm": False,
    "freed": False,
}
BRANCH = {"node": "spine1", "cause": "pause", "queue": "", "queue_bytes": 0, "pauses": [], "branches": []}
ROOT = {"node": "leaf1", "cause": "queue", "queue": "", "queue_bytes": 0, "pauses": [PAUSE], "branches": [BRANCH]}
TREE = {"lossless": True, "paused_now": 2, "storms": [], "trees": [ROOT]}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as item:
        return int(item.getsockname()[1])


def test_a_problem_leads_to_its_line(desk: Desk) -> None:
    """In a text that is longer than its field, whose numbers move with it."""
    lines = ["name: long", *("# a remark" for _ in range(200)), "fabric: {design: rail-optimized, hosts: two}"]
    (desk.directory / "long.yml").write_text("\n".join(lines) + "\n")
    page = desk.open(f"/labs?p.file={desk.directory.name}/long.yml")
    dialog = page.get_by_role("dialog", name="Deploy a lab")
    problem = dialog.get_by_label("What is wrong").get_by_role("button").filter(has_text=f"{len(lines)}:").first
    problem.click(timeout=SLOW)
    text, number = dialog.get_by_label("Text of", exact=False), dialog.locator(".editor-gutter .wrong")
    expect(text).to_be_focused()
    before = text.evaluate("area => area.value.slice(0, area.selectionStart).split('\\n').length")
    assert before == len(lines)
    expect(number).to_be_in_viewport()
    editor, at = dialog.locator(".editor").bounding_box(), number.bounding_box()
    assert editor["height"] < 600, "it is no longer than its page"
    assert editor["y"] < at["y"] < editor["y"] + editor["height"]
    expect(problem).to_be_in_viewport()
    (desk.directory / "long.yml").unlink()


def test_a_text_that_somebody_else_has_changed_is_loaded_anew(desk: Desk) -> None:
    file = desk.directory / "shared.yml"
    file.write_text(OTHER)
    page = desk.open(f"/labs?p.file={desk.directory.name}/shared.yml")
    dialog = page.get_by_role("dialog", name="Deploy a lab")
    text = dialog.get_by_label("Text of", exact=False)
    text.fill(OTHER + "# mine\n", timeout=SLOW)
    file.write_text(OTHER + "# theirs\n")
    dialog.get_by_role("button", name="Save and deploy").click(timeout=SLOW)
    expect(dialog.get_by_role("alert")).to_contain_text("was changed meanwhile", timeout=SLOW)
    assert file.read_text().endswith("# theirs\n")
    dialog.get_by_role("button", name="Load it as it is now").click()
    expect(text).to_have_value(OTHER + "# theirs\n", timeout=SLOW)
    expect(dialog.get_by_role("alert")).to_have_count(0)
    file.unlink()


@pytest.mark.parametrize("way", ["Escape", "Close", "Cancel", "beside it"])
def test_an_edited_text_is_asked_about_before_it_is_lost(way: str, desk: Desk) -> None:
    page = desk.open(f"/labs?p.edit={LAB}")
    dialog = page.get_by_role("dialog", name=f"Edit and apply {LAB}")
    text = dialog.get_by_label("Text of", exact=False)
    expect(text).to_be_visible(timeout=SLOW)

    def leave() -> None:
        if way == "Escape":
            text.press("Escape")
        elif way == "beside it":
            page.mouse.click(8, 300)
        else:
            dialog.get_by_role("button", name=way, exact=True).click()

    text.press("End")
    text.type("# mine")
    leave()
    asked = dialog.get_by_role("alertdialog")
    expect(asked).to_be_visible()
    expect(asked.get_by_role("button", name="Go on editing")).to_be_focused()
    page.keyboard.press("Enter")
    expect(asked).to_have_count(0)
    assert "# mine" in text.input_value()
    leave()
    dialog.get_by_role("button", name="Discard it").click()
    expect(dialog).to_have_count(0)


def test_a_text_that_was_not_changed_is_left_at_once(desk: Desk) -> None:
    page = desk.open(f"/labs?p.edit={LAB}")
    dialog = page.get_by_role("dialog", name=f"Edit and apply {LAB}")
    text = dialog.get_by_label("Text of", exact=False)
    expect(text).to_be_visible(timeout=SLOW)
    text.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_lab_is_compared_once_nobody_changes_it(desk: Desk) -> None:
    """Compared before, it would differ in all that is not up yet; and who compared before would have to know it."""
    page = desk.open(f"/labs?p.edit={LAB}")
    verdict = page.get_by_role("dialog", name=f"Edit and apply {LAB}").locator(".verdict")
    expect(verdict).to_have_text("Nothing to change", timeout=SLOW)
    with StateDirectory().lock_lab(LAB):  # as a deploy, an apply or a destroy of somebody else
        expect(verdict).to_contain_text("Waiting for", timeout=SLOW)
        expect(page.get_by_role("button", name="Apply", exact=True)).to_be_disabled()
    expect(verdict).to_have_text("Nothing to change", timeout=SLOW)
    page.close()


def test_who_only_reads_may_look_at_files_and_compare(reader: Desk, desk: Desk) -> None:
    (reader.directory / "other.yml").write_text(OTHER)
    page = reader.open("/labs")
    page.get_by_role("button", name="Check a file …").click()
    dialog = page.get_by_role("dialog", name="Check a file")
    choice = dialog.get_by_label("File")
    expect(choice.locator("option", has_text="other.yml")).to_be_attached(timeout=SLOW)
    choice.select_option(f"{reader.directory.name}/other.yml")
    expect(dialog.locator(".verdict")).to_contain_text("other: 2 hosts", timeout=SLOW)
    dialog.get_by_label("Text of", exact=False).fill("name: x\nfabric: {desing: rail-optimized}\n")
    expect(dialog.locator(".verdict")).to_contain_text("problem", timeout=SLOW)
    assert dialog.get_by_role("button", name="Deploy", exact=False).count() == 0
    dialog.get_by_role("button", name="Close", exact=True).last.click()
    dialog.get_by_role("button", name="Discard it").click()
    page.get_by_role("article").filter(has_text=LAB).get_by_role("button", name="Compare with its file …").click()
    other = page.get_by_role("dialog", name=f"What would change of {LAB}")
    expect(other.locator(".verdict")).to_have_text("Nothing to change", timeout=SLOW)
    page.close()


def test_keys_of_one_character_can_be_turned_off(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map")
    page.get_by_role("button", name="Keys", exact=True).click()
    page.get_by_label("Keys of one character work, wherever the focus is").uncheck()
    page.keyboard.press("Escape")
    page.locator("#main").focus()
    page.keyboard.press("m")
    page.keyboard.press("3")
    page.keyboard.press("?")
    assert page.evaluate("() => consoleApp.address.get().measure") == "use"
    assert page.evaluate("() => consoleApp.address.get().view") == "map"
    assert page.get_by_role("dialog").count() == 0
    page.reload()
    page.wait_for_function("() => performance.getEntriesByName('console-ready').length > 0")
    page.locator("#main").focus()
    page.keyboard.press("m")
    assert page.evaluate("() => consoleApp.address.get().measure") == "use", "it is remembered"
    page.get_by_role("button", name="Keys", exact=True).click()
    page.get_by_label("Keys of one character work, wherever the focus is").check()
    page.keyboard.press("Escape")
    page.locator("#main").focus()
    page.keyboard.press("m")
    assert page.evaluate("() => consoleApp.address.get().measure") == "queue"


def test_arrows_walk_through_the_tree_of_pauses(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/pauses")
    page.wait_for_selector(".pauses, .empty")
    page.evaluate("found => consoleApp.told('view', {view: 'pauses', data: found})", TREE)
    page.get_by_role("button", name="Hold still").click()
    page.evaluate("found => consoleApp.told('view', {view: 'pauses', data: found})", TREE)
    here = "() => document.activeElement.dataset.path"
    page.locator("[role='treeitem'][tabindex='0']").focus()
    assert page.evaluate(here) == "/leaf1"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(here) == "/leaf1/spine1:down1 lossless"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(here) == "/leaf1/spine1"
    page.keyboard.press("Enter")
    assert page.evaluate("() => consoleApp.address.get().selection") == ["node:spine1"]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(here) == "/leaf1", "a branch folds first, and then its parent has the focus"
    page.keyboard.press("ArrowLeft")
    assert page.locator("[role='treeitem']").count() == 1
    page.keyboard.press("ArrowRight")
    assert page.locator("[role='treeitem']").count() == 3
    page.keyboard.press("End")
    assert page.evaluate(here) == "/leaf1/spine1"
    assert page.locator("[role='treeitem'][tabindex='0']").count() == 1


def test_a_page_goes_on_when_its_console_was_started_anew(lab: str, directory: Path, browser: Any) -> None:
    bind = f"127.0.0.1:{free_port()}"
    first = ConsoleProcess(lab, "--write", "--bind", bind, directory=directory)
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    page = context.new_page()
    errors = PageErrors(page)
    try:
        page.goto(first.link())
        page.wait_for_function("() => performance.getEntriesByName('console-ready').length > 0")
        page.goto(f"http://{bind}/#/labs?p.edit={LAB}")
        text = page.get_by_label("Text of", exact=False)
        expect(text).to_be_visible(timeout=SLOW)
        text.press("End")
        text.type("# mine")
    finally:
        first.close()
    second = ConsoleProcess(lab, "--write", "--bind", bind, directory=directory)
    try:
        link = second.link()
        band = page.get_by_role("alert").filter(has_text="started anew")
        expect(band).to_be_visible(timeout=SLOW)
        band.get_by_label("Link or token").fill("a guess")
        band.get_by_role("button", name="Log in").click()
        expect(band).to_contain_text("not right")
        band.get_by_label("Link or token").fill(link)
        band.get_by_role("button", name="Log in").click()
        expect(band).to_have_count(0, timeout=SLOW)
        page.wait_for_function("() => consoleApp.live.get().connected")
        assert "# mine" in text.input_value(), "what was written is still there"
        assert [text for text in errors.found if "401" not in text] == []
    finally:
        second.close()
        context.close()


def test_a_part_that_fails_is_named_on_the_page(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map")
    failing = [{"t": 1.0, "part": "the counters of demo", "error": "KeyError: <b>x</b>"}]
    page.evaluate("found => consoleApp.told('failing', found)", failing)
    band = page.get_by_role("alert").filter(has_text="A part of this console fails")
    expect(band).to_contain_text("the counters of demo (KeyError: <b>x</b>)")
    page.evaluate("() => consoleApp.told('failing', [])")
    expect(band).to_have_count(0)


class Fingers:
    """Fingers on a page, by the protocol of Chromium's tools (Input.dispatchTouchEvent)."""

    def __init__(self, page: Any) -> None:
        self._session = page.context.new_cdp_session(page)

    def put(self, kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    def move(self, begins: list[tuple[float, float]], ends: list[tuple[float, float]], steps: int = 8) -> None:
        self.put("touchStart", *begins)
        for step in range(1, steps + 1):
            share = step / steps
            self.put(
                "touchMove",
                *(
                    (ax + (bx - ax) * share, ay + (by - ay) * share)
                    for (ax, ay), (bx, by) in zip(begins, ends, strict=True)
                ),
            )
        self.put("touchEnd")


@pytest.fixture
def tablet(session_desk: Desk, browser: Any) -> Any:
    """A page on a tablet, logged in with the cookies of the desk."""
    context = browser.new_context(viewport={"width": 1024, "height": 768}, has_touch=True, is_mobile=True)
    context.add_cookies(session_desk.context.cookies())
    page = context.new_page()
    errors = PageErrors(page)
    page.goto(f"{session_desk.address}#/labs/{LAB}/map")
    page.wait_for_function("() => performance.getEntriesByName('console-ready').length > 0")
    page.wait_for_function("() => document.querySelectorAll('.world .n').length > 0")
    page.wait_for_timeout(400)  # the map rests after it was placed
    yield page
    assert errors.found == []
    context.close()


PLACE = """() => {
  const at = new DOMMatrix(getComputedStyle(document.querySelector('.world > svg')).transform);
  return [at.e, at.f, at.a];
}"""


def test_fingers_move_and_zoom_the_map(tablet: Any) -> None:
    box = tablet.locator(".stage").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 40
    before = tablet.evaluate(PLACE)
    Fingers(tablet).move([(x, y)], [(x - 120, y - 60)])
    tablet.wait_for_timeout(300)
    after = tablet.evaluate(PLACE)
    assert after[0] - before[0] == pytest.approx(-120, abs=20) and after[1] - before[1] == pytest.approx(-60, abs=20)
    assert after[2] == before[2]
    Fingers(tablet).move([(x - 40, y), (x + 40, y)], [(x - 120, y), (x + 120, y)])
    tablet.wait_for_timeout(300)
    assert tablet.evaluate(PLACE)[2] / after[2] == pytest.approx(3, rel=0.25)


def test_a_finger_that_rests_opens_the_menu(tablet: Any) -> None:
    node = tablet.locator('.world .n[aria-label*="leaf1"]').first
    box = node.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    fingers = Fingers(tablet)
    fingers.put("touchStart", (x, y))
    menu = tablet.get_by_role("menu", name="leaf1")
    expect(menu).to_be_visible(timeout=5000)
    fingers.put("touchEnd")
    tablet.wait_for_timeout(400)
    expect(menu).to_be_visible()
    assert tablet.evaluate("() => consoleApp.address.get().selection") == ["node:leaf1"]
    tablet.keyboard.press("Escape")
    fingers.put("touchStart", (x, y))
    fingers.put("touchEnd")
    tablet.wait_for_timeout(700)
    assert tablet.get_by_role("menu").count() == 0, "a tap selects, and opens nothing"


def test_a_finger_that_rests_on_a_row_opens_its_menu(tablet: Any) -> None:
    tablet.evaluate("() => consoleApp.go({view: 'table'})")
    row = tablet.locator("tr[data-key]").first
    expect(row).to_be_visible(timeout=SLOW)
    box = row.bounding_box()
    fingers = Fingers(tablet)
    fingers.put("touchStart", (box["x"] + 60, box["y"] + box["height"] / 2))
    expect(tablet.get_by_role("menu")).to_be_visible(timeout=5000)
    fingers.put("touchEnd")
    assert len(tablet.evaluate("() => consoleApp.address.get().selection")) == 1
