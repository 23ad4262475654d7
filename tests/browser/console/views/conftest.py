"""A lab with lossless classes, a console that may change it, and pages of it: for the tests of views and actions."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from console_browser import ConsoleProcess, PageErrors

ROOT = Path(__file__).parents[4]
LAB = "console-views"
TOPOLOGY = (ROOT / "topologies/dcqcn-victim.yml").read_text().replace("name: dcqcn-victim\n", f"name: {LAB}\n")
SCENARIO = """name: small-incast
description: Four hosts send to one.
topology: {file: lab.yml}
transport: {kind: roce, cc: none}
workload: {kind: incast, senders: 4, bytes: 12MB, time_limit: 200s}
faults: [{at: 500ms, until: 1s, link: "leaf2:up", down: true}]
repeat: {runs: 1, seed: 1, retries: 0}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A console in a directory, and a browser that has logged in. `complaints` are what its pages have found wrong."""

    console: ConsoleProcess
    directory: Path
    context: Any
    address: str
    complaints: list[PageErrors]

    def open(self, where: str) -> Any:
        """A page at `#<where>`, once it shows what it is about."""
        page = self.context.new_page()
        self.complaints.append(PageErrors(page))
        page.goto(f"{self.address}#{where}")
        page.wait_for_function("() => performance.getEntriesByName('console-ready').length > 0")
        page.wait_for_function("() => consoleApp.views.get().loaded")
        if where.startswith(("/labs/", "/runs/")):
            page.wait_for_function("() => consoleApp.live.get().shown !== null")
        return page

    def testbed(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the command line in the console's directory."""
        return subprocess.run(
            [sys.executable, "-m", "testbed", *arguments],
            cwd=self.directory, check=check, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=400,
        )  # fmt: skip

    def said(self, *arguments: str) -> Any:
        """What a command says as JSON."""
        return json.loads(self.testbed(*arguments, "-f", "json").stdout)

    def changed(self) -> dict[str, dict[str, Any]]:
        """What is changed of links now, by the port that sends."""
        return {one["port"]: one["changed"] for one in self.said("link", "show", "-n", LAB)}

    def events(self) -> list[dict[str, str]]:
        """What is kept of the lab."""
        lines = self.testbed("events", "-n", LAB, "--since", "deploy").stdout.splitlines()
        return [json.loads(line) for line in lines]


def logged_in(browser: Any, console: ConsoleProcess, directory: Path) -> Desk:
    """Log a browser in."""
    link = console.link()
    context = browser.new_context(viewport={"width": 1280, "height": 720}, accept_downloads=True)
    page = context.new_page()
    page.goto(link)
    page.wait_for_selector(".bar")
    page.close()
    return Desk(console=console, directory=directory, context=context, address=link.split("?")[0], complaints=[])


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("console")
    (found / "lab.yml").write_text(TOPOLOGY)
    (found / "incast.yml").write_text(SCENARIO)
    return found


@pytest.fixture(scope="session")
def lab(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "testbed"]
    subprocess.run([*command, "deploy", "-t", "lab.yml"], cwd=directory, check=True, capture_output=True, timeout=400)
    yield LAB
    subprocess.run([*command, "destroy", "-n", LAB], cwd=directory, check=False, capture_output=True, timeout=400)


@pytest.fixture(scope="session")
def session_desk(lab: str, directory: Path, browser: Any) -> Iterator[Desk]:
    console = ConsoleProcess(lab, "--write", "--bind", "127.0.0.1:0", directory=directory)
    try:
        found = logged_in(browser, console, directory)
        yield found
        found.context.close()
    finally:
        console.close()


@pytest.fixture
def desk(session_desk: Desk) -> Iterator[Desk]:
    """A console with `--write`. At the end no page may have complained, and no link may be left changed."""
    session_desk.complaints.clear()
    yield session_desk
    for page in session_desk.context.pages:
        page.close()
    assert [text for errors in session_desk.complaints for text in errors.found] == []
    assert session_desk.changed() == {}


@pytest.fixture(scope="session")
def reader(lab: str, directory: Path, browser: Any) -> Iterator[Desk]:
    """A console that only reads."""
    console = ConsoleProcess(lab, "--bind", "127.0.0.1:0", directory=directory)
    try:
        found = logged_in(browser, console, directory)
        yield found
        found.context.close()
    finally:
        console.close()
