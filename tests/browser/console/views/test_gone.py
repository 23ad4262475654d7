"""A lab that is destroyed while one looks at it, and deployed again; and packets that are no transport's of ours."""

import pytest
from playwright.sync_api import expect

from .conftest import LAB, Desk

pytestmark = [pytest.mark.browser, pytest.mark.netns, pytest.mark.frr, pytest.mark.process, pytest.mark.timeout(900)]
SLOW = 120_000
NAME = "console-gone"
SMALL = f"name: {NAME}\nfabric: {{design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}}\n"


def test_a_lab_goes_and_comes_back_under_its_page(desk: Desk) -> None:
    (desk.directory / "gone.yml").write_text(SMALL)
    desk.testbed("deploy", "-t", "gone.yml")
    try:
        page = desk.open(f"/labs/{NAME}/map")
        desk.testbed("destroy", "-n", NAME)
        expect(page.get_by_role("heading", name="This lab was destroyed")).to_be_visible(timeout=SLOW)
        expect(page.locator(".where")).to_contain_text("destroyed")
        page.wait_for_function("() => consoleApp.live.get().connected")
        expect(page.get_by_text("offline")).to_have_count(0)
        page.get_by_role("link", name="Table", exact=True).click()
        desk.testbed("deploy", "-t", "gone.yml")
        expect(page.locator(".rows tbody tr").first).to_be_visible(timeout=SLOW)
        expect(page.locator(".where")).to_contain_text("running", timeout=SLOW)
        page.wait_for_function("() => consoleApp.live.get().shown !== null && consoleApp.live.get().gone === null")
    finally:
        desk.testbed("destroy", "-n", NAME, check=False)
        (desk.directory / "gone.yml").unlink()


def test_packets_of_others_are_counted_while_they_pass(desk: Desk) -> None:
    page = desk.open(f"/labs/{LAB}/capture?p.ports=leaf4:down1")
    page.get_by_role("button", name="Capture", exact=True).click()
    expect(page.get_by_text("capturing")).to_be_visible(timeout=SLOW)
    address = desk.testbed("exec", "r", "-n", LAB, "--", "hostname", "-I").stdout.split()[0]
    others = page.locator(".capture .pill").filter(has_text="ICMP")
    for _ in range(20):  # until tcpdump is there
        desk.testbed("exec", "h11", "-n", LAB, "--", "ping", "-q", "-c", "3", "-i", "0.2", address)
        if others.count():
            break
    expect(others.first).to_be_visible(timeout=5000)
    expect(page.locator(".capture .page-head")).to_contain_text("frame")
    page.get_by_role("button", name="Stop", exact=True).click()
