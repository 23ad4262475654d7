"""What a person does to links and nodes: by a menu, with a command line, a question, and one step back."""

from typing import Any

import pytest
from playwright.sync_api import expect
from waiting import until

from .conftest import LAB, Desk

pytestmark = [
    pytest.mark.browser,
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.process,
    pytest.mark.timeout(600),
    pytest.mark.thorough,
]
PORT, PEER = "leaf4:down1", "r:eth1"
SLOW = 60_000


def menu(page: Any, name: str) -> None:
    """Choose an entry of the menu of actions by the keyboard."""
    page.keyboard.press(".")
    page.get_by_role("menuitem", name=name).click()


def confirm(page: Any, said: str = "done") -> None:
    """Say yes to what a dialog asks, and wait until the page says how it has ended."""
    page.get_by_role("button", name="Yes, ").click()
    expect(page.locator(".toast", has_text=said)).to_be_visible(timeout=SLOW)


def test_several_impairments_in_one_dialog_and_one_undo_for_all(desk: Desk) -> None:
    desk.testbed("link", "set", PEER, "--delay", "7us", "-n", LAB)  # somebody has changed the other direction before
    page = desk.open(f"/labs/{LAB}/map?sel=port:{PORT},port:leaf2:up")
    menu(page, "Impair link")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Impair link")).to_be_disabled()
    dialog.get_by_label("Rate").fill("50%")
    dialog.get_by_label("Loss").fill("1%")
    dialog.get_by_label("In both directions").uncheck()
    lines = dialog.locator(".copyline code")
    expect(lines).to_have_text([
        f"testbed link set {PORT} --rate 50% --loss 1% -n {LAB}",
        f"testbed link set leaf2:up --rate 50% --loss 1% -n {LAB}",
    ])  # fmt: skip
    expect(dialog.get_by_role("alert")).to_contain_text("can be lost")
    confirm(page)
    before = desk.changed()
    assert before[PORT]["loss"] == before["leaf2:up"]["loss"] == 0.01
    known = page.evaluate("() => consoleApp.live.get().tasks.length")
    page.get_by_role("button", name="Undo").last.click()
    page.wait_for_function(
        "known => consoleApp.live.get().tasks.length > known"
        " && consoleApp.live.get().tasks.every(one => one.state === 'done')",
        arg=known,
        timeout=SLOW,
    )
    assert desk.changed() == {PEER: {"delay_ns": before[PEER]["delay_ns"]}}, "and what was there before is there again"
    desk.testbed("link", "reset", "--all", "-n", LAB)


def test_what_was_done_is_found_in_events_with_its_command(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map?sel=port:{PORT}")
    page.keyboard.press("d")
    expect(page.get_by_role("dialog").locator("code")).to_have_text(f"testbed link down {PORT} -n {LAB}")
    confirm(page)
    page.wait_for_function(
        "name => consoleApp.live.get().state.links[consoleApp.live.get().lab.portNumber.get(name)] === 0", arg=PORT
    )
    page.keyboard.press("z")
    page.wait_for_function(
        "name => consoleApp.live.get().state.links[consoleApp.live.get().lab.portNumber.get(name)] === 1",
        arg=PORT,
        timeout=SLOW,
    )
    found = [event for event in desk.events() if (event["node"], event["kind"]) == ("leaf4", "link-down")]
    assert found and f"testbed link down {PORT} -n {LAB} (process " in found[-1]["by"]
    assert any(event["kind"] == "console-action" and PORT in event["detail"] for event in desk.events())


def test_a_click_with_the_right_button_opens_the_menu_of_a_node(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map")
    page.locator(".world .n", has_text="leaf3").first.click(button="right")
    names = page.get_by_role("menuitem").all_inner_texts()
    assert any("Power off" in name for name in names) and any("Shell" in name for name in names)
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)


def test_power_a_daemon_and_a_restart(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map?sel=node:leaf3")
    state = "() => consoleApp.live.get().state.nodes[consoleApp.live.get().lab.nodeNumber.get('leaf3')]"
    menu(page, "Kill a daemon")
    expect(page.get_by_role("dialog").locator("code")).to_have_text(f"testbed node kill leaf3 bgpd -n {LAB}")
    confirm(page)
    page.wait_for_function(f"() => ({state})() === 'degraded'", timeout=SLOW)
    page.get_by_role("button", name="Undo").last.click()
    page.wait_for_function(f"() => ({state})() === 'running'", timeout=SLOW)
    over = "() => consoleApp.live.get().tasks.every(task => task.state !== 'running')"
    page.wait_for_function(over, timeout=SLOW)  # the restart works on the lab until its routing has converged
    page.keyboard.press("o")
    confirm(page)
    page.wait_for_function(f"() => ({state})() === 'off'", timeout=SLOW)
    menu(page, "Power on")
    page.wait_for_function(f"() => ({state})() === 'running'", timeout=SLOW)
    kinds = [event["kind"] for event in desk.events() if event["node"] == "leaf3"]
    assert {"daemon-killed", "power-off", "power-on"} <= set(kinds)


def test_a_node_that_is_recreated_comes_back_with_its_sessions(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map?sel=node:leaf3")
    menu(page, "Recreate")
    expect(page.get_by_role("dialog").locator("code")).to_have_text(f"testbed node recreate leaf3 -n {LAB}")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    confirm(page)
    page.wait_for_function(
        "() => { const {lab, state} = consoleApp.live.get();"
        " const runs = state.nodes[lab.nodeNumber.get('leaf3')] === 'running';"
        " return runs && state.sessions_up === state.sessions_planned; }",
        timeout=SLOW,
    )


def test_a_link_is_slow_late_and_silent(desk: Desk) -> None:
    """What a link is made to do, all at once, and undone by a key."""
    page = desk.open(f"/labs/{LAB}/map?sel=port:{PORT}")
    page.keyboard.press("i")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Delay, one way").fill("5us")
    dialog.get_by_label("Corruption").fill("0.1%")
    dialog.get_by_label("Silent").check()
    confirm(page)
    changed = desk.changed()
    assert set(changed) == {PORT, PEER}, "in both directions"
    assert {"delay_ns", "corruption", "silent"} <= set(changed[PORT])
    page.keyboard.press("z")
    page.wait_for_function(
        "() => consoleApp.live.get().tasks.every(task => task.state !== 'running')"
        " && Object.keys(consoleApp.live.get().state.conditions).length === 0",
        timeout=SLOW,
    )
    until(lambda: not desk.changed(), "its ends are as they were")


def test_a_storm_is_a_root_of_the_tree_of_pauses(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/pauses?sel=port:{PEER}")
    expect(page.get_by_text("Nobody pauses anybody")).to_be_visible()
    menu(page, "PFC storm")
    page.get_by_role("dialog").get_by_label("For (lab time)").fill("20s")
    page.get_by_role("button", name="Yes, ").click()
    tree = page.get_by_role("tree")
    expect(tree).to_contain_text(f"{PORT}paused by{PEER}", timeout=SLOW)
    expect(tree.locator(".branch.storm")).to_contain_text("pauses its peers without a reason")
    expect(page.locator(".page-head")).to_contain_text(f"storm from {PEER}")
    assert any(event["kind"] == "pfc-storm" and event["node"] == "r" for event in desk.events())


def test_a_mistake_is_told_beside_its_field_and_nothing_is_done(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map?sel=port:{PORT}")
    page.keyboard.press("i")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Loss").fill("lots")
    expect(dialog.get_by_role("alert")).to_contain_text("lots")
    expect(dialog.get_by_role("button", name="Impair link")).to_be_disabled()
    dialog.get_by_label("Loss").fill("")
    dialog.get_by_label("Rate").fill("200%")  # only the lab knows that its link is not made for it
    confirm(page, "more than the")
    assert desk.changed() == {}


def test_a_console_that_only_reads_does_nothing(reader: Desk, desk: Desk) -> None:
    """The menu says why; and who asks the server without the page is refused, too."""
    page = reader.open(f"/labs/{LAB}/map?sel=port:{PORT}")
    expect(page.get_by_text("read-only")).to_be_visible()
    page.keyboard.press(".")
    item = page.get_by_role("menuitem", name="Take link down")
    expect(item).to_be_disabled()
    assert "--write" in (item.get_attribute("title") or "")
    asked = """async name => {
      const answer = await fetch(`/api/labs/console-views/actions/link-down`, {method: "POST",
        headers: {"Content-Type": "application/json"}, body: JSON.stringify({targets: [name], confirmed: true})});
      return answer.status;
    }"""
    assert page.evaluate(asked, PORT) == 403
    assert desk.changed() == {}
    for path in ("views/logs/leaf1", "views/capture/x/file"):
        assert page.evaluate("async path => (await fetch(`/api/labs/console-views/${path}`)).status", path) == 403
    page.close()
