"""Captures, shells, logs, labs and results; and that what labs and records are called is text."""

import io
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from testbed.record.captures.pcap import read_capture
from testbed.record.record import Outcome, Verdict
from testbed.record.store import RECORD_FILE, load_record, write_record

from .conftest import LAB, ROOT, TOPOLOGY, Desk

pytestmark = [pytest.mark.browser, pytest.mark.netns, pytest.mark.frr, pytest.mark.process, pytest.mark.timeout(900)]
SLOW = 120_000
SMALL = """name: console-small
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}
scale: {time: 10000}
"""


def test_two_ports_are_captured_decoded_and_downloaded(desk: Desk, tmp_path: Path) -> None:
    page = desk.open(f"/labs/{LAB}/map?sel=port:r:eth1,port:leaf4:down1")
    page.keyboard.press("c")
    page.get_by_label("Filter").fill("ether proto 0x8808 or arp or icmp")
    page.get_by_role("button", name="Capture", exact=True).click()
    expect(page.get_by_text("capturing")).to_be_visible(timeout=SLOW)
    page.get_by_text("Into your own Wireshark").click()
    expect(page.locator(".pipes code").first).to_contain_text(f"testbed capture r:eth1 -w - -n {LAB}")
    expect(page.locator(".pipes code").first).to_contain_text("| wireshark -k -i -")
    address = desk.said("inspect", "nodes", "-n", LAB)
    assert address
    for _ in range(20):
        desk.testbed("pfc", "storm", "r:eth1", "--for", "1s", "-n", LAB)
        desk.testbed("exec", "r", "-n", LAB, "--", "ping", "-c", "1", "-W", "1", "10.255.255.1", check=False)
        if page.locator(".packets tbody tr").count():
            break
    rows = page.locator(".packets tbody tr")
    expect(rows.first).to_contain_text("PFC", timeout=SLOW)
    ports = {row.split("\t")[2] for row in rows.all_inner_texts()}
    assert "leaf4:down1" in ports and ports <= {"r:eth1", "leaf4:down1"}
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("it was stopped")).to_be_visible(timeout=SLOW)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download pcapng").click()
    download.value.save_as(tmp_path / "capture.pcapng")
    content = (tmp_path / "capture.pcapng").read_bytes()
    assert b"r:eth1" in content and b"leaf4:down1" in content
    assert len(list(read_capture(io.BytesIO(content)))) >= len(rows.all_inner_texts())


def test_shells_and_logs_stand_in_tabs_and_end_with_them(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map?sel=node:leaf1")
    page.keyboard.press("s")
    dock = page.get_by_role("region", name="Shells and logs")
    expect(dock.locator(".xterm")).to_be_visible(timeout=SLOW)
    page.wait_for_timeout(1500)
    page.keyboard.type("echo in-$TESTBED_NODE; sleep 4321\n")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.xterm-rows')].some(one => one.textContent.includes('in-leaf1'))",
        timeout=SLOW,
    )
    page.evaluate("() => consoleApp.services.logs('leaf1')")
    expect(dock.get_by_role("tab")).to_have_count(2)
    log = dock.get_by_label("Log of leaf1")
    expect(log).to_contain_text("bgpd:", timeout=SLOW)
    expect(dock.locator(".log-head code")).to_have_text(f"testbed logs leaf1 -F -n {LAB}")
    assert _running("sleep 4321") == 1 and _running(f"logs leaf1 -F -n {LAB}") >= 1
    page.close()
    for _ in range(100):
        if not _running("sleep 4321") and not _running(f"logs leaf1 -F -n {LAB}"):
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert _running("sleep 4321") == 0, "a shell ends with its page"
    assert _running(f"logs leaf1 -F -n {LAB}") == 0, "and so does a log that is followed"


def test_a_double_click_opens_a_shell_and_each_has_a_tab(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map")
    for name in ("leaf2", "leaf3"):
        page.locator(".world .n", has_text=name).first.dblclick()
        tab = page.get_by_role("region", name="Shells and logs").get_by_role("tab", name=name)
        expect(tab).to_have_attribute("aria-selected", "true", timeout=SLOW)
        shown = page.locator(".dock-tab:not([hidden]) .xterm-rows")
        expect(shown).to_contain_text("#", timeout=SLOW)
        page.keyboard.type("echo in-$TESTBED_NODE\n")
        expect(shown).to_contain_text(f"in-{name}", timeout=SLOW)
    assert page.locator(".world").is_visible(), "the map stays in view"
    page.get_by_role("tab", name="leaf2").click()
    expect(page.locator(".dock-tab:not([hidden]) .xterm-rows")).to_contain_text("in-leaf2")
    page.get_by_role("button", name="Close this tab").click()
    expect(page.get_by_role("region", name="Shells and logs").get_by_role("tab")).to_have_count(1)


def test_two_records_are_compared(desk: Desk) -> None:
    source = load_record(ROOT / "tests/data/records/permutation.json")
    directories = [desk.directory / "results" / name for name in ("compared-1", "compared-2")]
    for directory, started in zip(directories, ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"), strict=True):
        directory.mkdir(parents=True)
        write_record(replace(source, started=started), directory / RECORD_FILE)
    try:
        page = desk.open("/results")
        button = page.get_by_role("button", name="Compare two")
        expect(button).to_be_disabled()
        for directory in directories:
            page.get_by_label(f"Compare {directory.name}").check()
        button.click()
        expect(page.get_by_role("heading", name="Two records")).to_be_visible(timeout=SLOW)
        expect(page.get_by_role("region", name="Metrics")).to_contain_text("same", timeout=SLOW)
        assert "p.base=" in page.url and "p.other=" in page.url
        page.reload()
        expect(page.get_by_role("heading", name="Two records")).to_be_visible(timeout=SLOW)
    finally:
        for directory in directories:
            shutil.rmtree(directory)


def _running(words: str) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += (
                words in path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                and "pytest" not in path.read_text()
            )
        except OSError:
            continue
    return found


def test_a_lab_is_deployed_changed_and_destroyed_from_the_page(desk: Desk) -> None:
    (desk.directory / "small.yml").write_text(SMALL.replace("gpus: 1", "gpus: 2"))
    page = desk.open("/labs")
    expect(page.get_by_role("article").filter(has_text=LAB)).to_contain_text("running")
    page.get_by_role("button", name="Deploy …").click()
    root = desk.directory.name
    page.get_by_label("File").select_option(f"{root}/small.yml")
    text = page.get_by_label("Text of ")
    expect(text).to_be_visible(timeout=SLOW)
    text.fill("name: console-small\nfabric: {design: rail-optimized, segments: 1, hosts: two}\n")
    problem = page.get_by_label("What is wrong").get_by_role("button")
    expect(problem.first).to_contain_text("2:", timeout=SLOW)
    expect(page.locator(".editor-gutter .wrong")).to_have_text("2")
    expect(page.get_by_role("button", name="Save and deploy")).to_be_disabled()
    text.fill(SMALL)
    page.get_by_role("button", name="Save and deploy").click(timeout=SLOW)
    task = page.get_by_role("region", name="Deploy a lab")
    expect(task.first.get_by_label("Steps")).to_contain_text("links", timeout=SLOW)
    card = page.get_by_role("article").filter(has_text="console-small")
    try:
        expect(card).to_contain_text("running", timeout=SLOW)
        assert "gpus: 1" in (desk.directory / "small.yml").read_text()
        card.get_by_role("button", name="Edit and apply").click()
        text = page.get_by_label("Text of ")
        expect(page.get_by_text("Nothing to change")).to_be_visible(timeout=SLOW)
        text.fill(text.input_value().replace("hosts: 2", "hosts: 3"))
        changes = page.get_by_role("region", name="What would change")
        expect(changes).to_contain_text("p1-s1-h3", timeout=SLOW)
        page.get_by_role("button", name="Save and apply").click()
        expect(card).to_contain_text("3 hosts", timeout=SLOW)
        card.get_by_role("button", name="More for console-small").click()
        page.get_by_role("menuitem", name="Destroy").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("The lab console-small goes")
        page.get_by_role("button", name="Yes, destroy").click()
        expect(card).to_have_count(0, timeout=SLOW)
    finally:
        desk.testbed("destroy", "-n", "console-small", check=False)


def test_names_from_records_are_text(desk: Desk) -> None:
    """A record of a stranger whose scenario, points and reasons are HTML: nothing of it is any."""
    attack = "<img src=x onerror=window.attacked=1>"
    source = load_record(ROOT / "tests/data/records/permutation.json")
    (point,) = source.points
    record = replace(
        source,
        scenario=replace(source.scenario, name=attack, description=attack),
        points=[replace(point, name=attack)],
        verdict=Verdict(outcome=Outcome.FAIL, reasons=[attack]),
    )
    directory = desk.directory / "results" / "attack"
    directory.mkdir(parents=True)
    write_record(record, directory / RECORD_FILE)
    try:
        page = desk.open("/results")
        page.get_by_role("button", name=attack).click()
        expect(page.get_by_role("heading", name=attack).first).to_be_visible(timeout=SLOW)
        page.get_by_role("link", name="Play back").click()
        page.wait_for_function("() => consoleApp.live.get().shown !== null")
        page.get_by_role("link", name="Job").click()
        expect(page.locator("main")).to_contain_text(attack, timeout=SLOW)
        assert page.evaluate("() => [window.attacked, document.querySelectorAll('img[src=x]').length]") == [None, 0]
    finally:
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()


def test_a_topology_that_is_html_is_told_as_text(desk: Desk) -> None:
    (desk.directory / "attack.yml").write_text(
        TOPOLOGY.replace(f"name: {LAB}", 'name: "<img src=x onerror=window.attacked=1>"')
    )
    page = desk.open(f"/labs?p.file={desk.directory.name}/attack.yml")
    expect(page.get_by_label("What is wrong")).to_contain_text("<img src=x", timeout=SLOW)
    assert page.evaluate("() => window.attacked") is None
    (desk.directory / "attack.yml").unlink()


def test_the_band_says_when_figures_are_worth_nothing(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/map")
    trust = json.dumps(
        {
            "t": 0,
            "busy": 970,
            "steal": 120,
            "late_ms": 9.0,
            "cpus": 2,
            "memory": 1,
            "ok": False,
            "why": ["the machine is 97% busy (limit 90%)"],
        }
    )
    page.evaluate("() => consoleApp.stream.close()")  # which tells of the machine as it is
    page.evaluate(f"() => consoleApp.live.set({{trust: {trust}}})")
    expect(page.locator(".trust-band")).to_contain_text(
        "Figures are worth nothing now: the machine is 97% busy (limit 90%)"
    )
    expect(page.get_by_role("img", name="This machine: busy 97 %, stolen 12 %")).to_be_visible()
