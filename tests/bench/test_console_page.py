"""The page of the console on the 1,024-NIC lab, in Debian's Chromium without a GPU.

How soon there is a picture, how many frames a second panning and zooming have, how long scripts hold the page up, and
whether its memory grows. The page marks its own moments (`performance.mark`): the first picture, and that all parts are
loaded. Frames are those for which the browser asks the page, which it does as fast as it shows them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_browser import ConsoleProcess, chromium
from figures import Figure, judge

ROOT = Path(__file__).parents[2]
LAB = "bench-console"
PICTURE_S, READY_S = 1.0, 2.0
FRAMES, LONG_TASK_MS = 30.0, 50.0
GESTURE_S, LOOK_S = 4.0, 60.0
GROWTH_BYTES = 2_000_000
"""What a page may have more after `LOOK_S` than after a third of it: the ring of charts and the last events fill up."""
GROWTH_NODES = 200
PATIENCE_MS = 180_000
"""The time to wait for a page while others use the machine: growth can be seen then, too."""
SAMPLES = 60
WINDOW = {"width": 1280, "height": 720}

InUse = dict[str, float]

pytestmark = [
    pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.browser, pytest.mark.timeout(900),
]  # fmt: skip


def run_testbed(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "testbed", *arguments], check=True, stdin=subprocess.DEVNULL, timeout=600)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    directory = tmp_path_factory.mktemp("console")
    text = (ROOT / "topologies/superpod-4su.yml").read_text().replace("name: superpod-4su", f"name: {LAB}")
    assert f"name: {LAB}\n" in text
    (directory / "lab.yml").write_text(text)
    run_testbed("deploy", "-t", str(directory / "lab.yml"))
    served = ConsoleProcess(LAB, "--bind", "127.0.0.1:0", directory=directory)
    try:
        yield served
    finally:
        served.close()
        run_testbed("destroy", "-n", LAB, "--yes")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def context(console: ConsoleProcess, browser: Any) -> Iterator[Any]:
    """A browser that has logged in, and has the files of the page."""
    found = browser.new_context(viewport=WINDOW)
    found.set_default_timeout(PATIENCE_MS)
    page = found.new_page()
    page.goto(console.link())
    page.wait_for_function(MARKED % "console-ready")
    page.close()
    yield found
    found.close()


MARKED = "() => performance.getEntriesByName('%s').length > 0"
PROBES = (Path(__file__).parents[1] / "support/console/probes.js").read_text()


def at(console: ConsoleProcess, context: Any, where: str) -> Any:
    page = context.new_page()
    page.add_init_script(PROBES)
    page.goto(f"{console.said[0].split('?token')[0].split()[-1]}#/labs/{LAB}/{where}")
    page.wait_for_function(MARKED % "console-ready")
    if where.startswith("map"):
        page.wait_for_function(MARKED % "console-picture")
    return page


@pytest.mark.parametrize("look", ["map", "honeycomb"])
def test_first_picture_and_interactive(look: str, console: ConsoleProcess, context: Any) -> None:
    page = at(console, context, f"map?p.look={look}")
    judge_marks(page, look)
    page.close()


@pytest.mark.parametrize("look", ["map", "honeycomb"])
def test_first_picture_of_a_browser_that_was_never_here(
    look: str, console: ConsoleProcess, context: Any, browser: Any
) -> None:
    """It has none of the files yet, but for the cookie."""
    new = browser.new_context(viewport=WINDOW)
    new.add_cookies(context.cookies())
    judge_marks(at(console, new, f"map?p.look={look}"), f"{look}, no file kept")
    new.close()


def judge_marks(page: Any, look: str) -> None:
    marks = page.evaluate("marks()")
    ready = max(marks.values())
    judge(Figure(f"console, 1,024 NICs: first picture ({look})", marks["console-picture"], at_most=PICTURE_S, unit="s"))
    judge(Figure(f"console, 1,024 NICs: interactive ({look})", ready, at_most=READY_S, unit="s"))


@pytest.mark.parametrize("kind", ["pan", "zoom"])
def test_frames_while_the_map_moves(kind: str, console: ConsoleProcess, context: Any) -> None:
    page = at(console, context, "map?p.look=map")
    page.wait_for_timeout(1000)
    frames = page.evaluate(f"gesture('{kind}', {GESTURE_S * 1000})")
    page.close()
    judge(Figure(f"console, 1,024 NICs: {kind}", frames, at_least=FRAMES, unit="frames/s"))


@pytest.mark.parametrize("look", ["map", "honeycomb"])
def test_no_long_tasks_and_no_growth_while_one_looks(look: str, console: ConsoleProcess, context: Any) -> None:
    page = at(console, context, f"map?p.look={look}")
    page.wait_for_timeout(3000)
    page.evaluate("() => { window.longTasks.length = 0; }")
    session = context.new_cdp_session(page)

    def heap() -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(page.evaluate("() => performance.memory.usedJSHeapSize"))

    time.sleep(LOOK_S / 3)
    first = heap()
    page.evaluate("() => { window.longTasks.length = 0; }")  # that of collecting
    time.sleep(LOOK_S * 2 / 3)
    longest = page.evaluate("() => Math.max(0, ...window.longTasks)")
    grown = heap() - first
    page.close()
    judge(Figure(f"console, 1,024 NICs: longest task ({look})", longest, at_most=LONG_TASK_MS, unit="ms"))
    judge(
        Figure(f"console, 1,024 NICs: growth in {LOOK_S * 2 / 3:g} s ({look})", grown, at_most=GROWTH_BYTES, unit="B")
    )


@pytest.mark.thorough
@pytest.mark.timeout(3000)
def test_no_growth_in_half_an_hour(console: ConsoleProcess, context: Any, browser: Any) -> None:
    """Each view in a page of its own. Charts and rings are full after a quarter of an hour; from then on what a page
    has in use after a collection stays as it is. `TESTBED_CONSOLE_LOOK_S` has it look for another while.
    """
    views = ("map?p.look=map", "map?p.look=honeycomb", "table", "time", "job", "pauses")
    other = browser.new_context(viewport=WINDOW)  # of one browser's pages, five have a stream at once
    other.set_default_timeout(PATIENCE_MS)
    other.add_cookies(context.cookies())
    pages = {view: at(console, (context, other)[place % 2], view) for place, view in enumerate(views)}
    assert not any(page.evaluate("() => document.hidden") for page in pages.values())
    sessions = {view: page.context.new_cdp_session(page) for view, page in pages.items()}
    look_s = float(os.environ.get("TESTBED_CONSOLE_LOOK_S", "1800"))
    begin, seen = time.monotonic(), {view: list[tuple[float, InUse]]() for view in views}
    while time.monotonic() - begin < look_s:
        for view, session in sessions.items():
            pages[view].wait_for_timeout(1000 * look_s / SAMPLES / len(views))
            seen[view].append((time.monotonic() - begin, in_use(session)))
    for view, samples in seen.items():
        half = [used for at_s, used in samples if at_s >= look_s / 2]
        third = max(1, len(half) // 3)
        first, last = half[:third], half[-third:]
        for name, allowed in (("heap", GROWTH_BYTES), ("nodes", GROWTH_NODES), ("listeners", GROWTH_NODES)):
            grown = median(last, name) - median(first, name)
            judge(Figure(f"console: growth of {name} in {look_s / 120:.0f} min ({view})", grown, at_most=allowed))


def in_use(session: Any) -> InUse:
    """What a page has after a collection: bytes of its heap, nodes of documents, listeners."""
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return {"heap": found["JSHeapUsedSize"], "nodes": found["Nodes"], "listeners": found["JSEventListeners"]}


def median(samples: list[InUse], name: str) -> float:
    return statistics.median(sample[name] for sample in samples)
