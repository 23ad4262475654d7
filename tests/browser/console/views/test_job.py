"""The job on a lab while it runs, who is furthest behind, what touched it, and its record played back afterwards."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from waiting import until

from .conftest import LAB, SCENARIO, Desk

pytestmark = [
    pytest.mark.browser,
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.process,
    pytest.mark.timeout(900),
    pytest.mark.thorough,
]
SLOW = 120_000
TOUCH = """name => consoleApp.post(`./actions/${name}`, {targets: ["leaf3:down2"], confirmed: true,
  values: name === "link-set" ? {loss: "1%", both: true} : {}})"""
"""What the dialogs of these actions send."""


@pytest.fixture
def record(desk: Desk) -> Iterator[Path]:
    """A run of a small scenario, watched and touched while it goes on; afterwards the directory of its record."""
    before = {path.name for path in (desk.directory / "results").glob("*")}
    page = desk.open(f"/labs/{LAB}/job")
    expect(page.get_by_text("No scenario runs on this lab")).to_be_visible()
    command = [sys.executable, "-m", "testbed", "run", "incast.yml", "--quiet"]
    run = subprocess.Popen(command, cwd=desk.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        card = page.get_by_role("region", name="The scenario small-incast")
        expect(card).to_be_visible(timeout=SLOW)
        expect(card).to_contain_text("of its bytes have arrived", timeout=SLOW)
        expect(card).to_contain_text("link-down leaf2:up")
        expect(card.get_by_role("heading", name="Furthest behind")).to_be_visible(timeout=SLOW)
        card.get_by_role("button", name="Path").first.click()
        ways = card.get_by_role("region", name="The path of the flow")
        expect(ways).to_contain_text("leaf4:down1", timeout=SLOW)
        assert "sel=port:" in page.url, "its ports are selected, and the map shows them"
        page.evaluate(TOUCH, "link-set")
        until(lambda: desk.changed().get("leaf3:down2"), "the action's command has set it")
        page.evaluate(TOUCH, "link-reset")
        expect(page.get_by_text("has ended")).to_be_visible(timeout=300_000)
        expect(page.locator(".verdict-line")).to_contain_text("invalid")
    finally:
        run.communicate(timeout=300)
    page.get_by_role("button", name="Record and report").click()
    expect(page.get_by_role("heading", name="small-incast")).to_be_visible(timeout=SLOW)
    (found,) = (path for path in (desk.directory / "results").iterdir() if path.name not in before)
    yield found


def test_a_job_is_watched_touched_and_played_back(desk: Desk, record: Path) -> None:
    shown = desk.said("results", "show", str(record))
    assert shown["verdict"] == "invalid"
    assert any("the run was touched: leaf3:down2" in reason for reason in shown["reasons"])
    page = desk.open("/results")
    page.get_by_role("button", name="small-incast").click()
    expect(page.get_by_text("touched", exact=True)).to_be_visible(timeout=SLOW)
    page.get_by_role("link", name="Play back").click()
    page.wait_for_function("() => consoleApp.live.get().shown && consoleApp.live.get().lab?.live === false")
    lab = page.evaluate(
        "() => ({live: consoleApp.live.get().lab.live, sampled: consoleApp.live.get().lab.record.sampled})"
    )
    assert lab == {"live": False, "sampled": True}
    begin, end = page.evaluate("() => consoleApp.live.get().lab.span")
    uses = [
        _shown(page, "use", "leaf4:down1", begin + (end - begin) * share, (end - begin) / 20)
        for share in (0.0, 0.3, 0.5)
    ]
    assert uses[0] == 0 and max(uses) > 500, "the receiver's port is busy in the middle of the run"
    page.get_by_role("link", name="Job").click()
    expect(page.get_by_text("This run was touched")).to_be_visible()
    expect(page.locator("main")).to_contain_text("testbed link set leaf3:down2")
    expect(page.locator(".axis")).to_contain_text("link-down leaf2:up")
    page.reload()
    expect(page.get_by_text("This run was touched")).to_be_visible(timeout=SLOW)


def _shown(page: Page, column: str, port: str, t: float, near: float) -> int:
    """What the page shows of a port at a moment, or so near to it."""
    page.evaluate("t => consoleApp.at(t)", t)
    page.wait_for_function("([t, near]) => Math.abs(consoleApp.live.get().shown.t - t) < near", arg=[t, near])
    value = """([column, port]) => { const {lab, shown} = consoleApp.live.get();
      return shown.columns[column][lab.portNumber.get(port)]; }"""
    return int(page.evaluate(value, [column, port]))


def test_a_simulated_run_is_played_back_though_it_took_microseconds(desk: Desk) -> None:
    """On its own lab, which keeps less buffer for pauses than this machine's does."""
    text = "".join(line for line in SCENARIO.splitlines(keepends=True) if not line.startswith("faults:"))
    (desk.directory / "burst.yml").write_text(text)
    desk.testbed("run", "burst.yml", "--backend", "simulation", "--quiet", "--no-report", "-o", "simulated")
    (directory,) = (desk.directory / "simulated").iterdir()
    page = desk.open(f"/runs/{desk.directory.name}~simulated~{directory.name}/0/1/map?m=queue")
    begin, end = page.evaluate("() => consoleApp.live.get().lab.span")
    assert begin == 0 < end < 0.05
    assert _shown(page, "queue", "leaf1:up", end / 2, end / 50) > 0
    at = page.evaluate("() => consoleApp.live.get().shown.t")
    page.locator("#main").focus()
    page.get_by_label("Speed of playing").select_option("in 5 s")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("at => consoleApp.live.get().shown.t > at", arg=at)
    page.wait_for_function("end => consoleApp.address.get().moment === consoleApp.rounded(end)", arg=end, timeout=SLOW)
    expect(page.locator(".strip-words")).to_contain_text("ms")
