"""A lab, a console that looks at it, and pages of it in a browser: shared by the tests of a file's folder."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from console_browser import ConsoleProcess, PageErrors, chromium

ROOT = Path(__file__).parents[3]
LAB = "console-tests"
PROBES = (ROOT / "tests/support/console/probes.js").read_text()
TOPOLOGY = (ROOT / "topologies/datacentre.yml").read_text()
"""Five networks and scale-up domains, in small."""


def testbed(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(command, check=check, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A lab of five networks that is up, and a console with `--write` that was started beside its topology file."""

    console: ConsoleProcess
    directory: Path
    context: Any
    """A browser that has logged in."""
    address: str

    @property
    def topology(self) -> Path:
        return self.directory / "lab.yml"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def served(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("served")
    text = TOPOLOGY.replace("name: datacentre\n", f"name: {LAB}\n")
    assert text != TOPOLOGY
    (directory / "lab.yml").write_text(text)
    testbed("deploy", "-t", str(directory / "lab.yml"))
    console = ConsoleProcess(LAB, "--write", "--bind", "127.0.0.1:0", directory=directory)
    try:
        link = console.link()
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        page = context.new_page()
        page.goto(link)
        page.wait_for_selector(".bar")
        page.close()
        yield Served(console=console, directory=directory, context=context, address=link.split("?")[0])
        context.close()
    finally:
        console.close()
        testbed("destroy", "-n", LAB, "--yes", check=False)


Open = Callable[..., Any]


@pytest.fixture
def look(served: Served) -> Iterator[Open]:
    """Opens `#/labs/LAB/<where>`; at the end no page may have complained of anything."""
    pages: list[tuple[Any, PageErrors]] = []

    def opened(where: str = "map") -> Any:
        page = served.context.new_page()
        page.add_init_script(PROBES)
        pages.append((page, PageErrors(page)))
        page.goto(f"{served.address}#/labs/{LAB}/{where}")
        page.wait_for_function("() => performance.getEntriesByName('console-ready').length > 0")
        page.wait_for_function("() => consoleApp.live.get().shown !== null")
        return page

    yield opened
    complaints = [text for _, errors in pages for text in errors.found]
    for page, _ in pages:
        page.close()
    assert complaints == []
