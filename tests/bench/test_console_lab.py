"""How soon a person sees what happens: an event of the lab on the page, a key in a shell. And whether a run notices
that somebody looks.

Pages are those of Debian's Chromium; what is waited for is the first frame that shows it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from console_browser import ConsoleProcess, chromium
from figures import Figure, judge
from test_bring_up import ROOT, TESTBED, destroyed

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.record.record import Outcome, Record
from testbed.record.store import load_record

pytestmark = [
    pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.browser, pytest.mark.timeout(1800),
]  # fmt: skip

LAB = "bench-seen"
SOON_S, ECHO_S, APART = 0.7, 0.05, 0.02
EVENTS, KEYS = 40, 100
DEMO = ROOT / "scenarios/ecmp-against-spraying.yml"
DEMO_LAB = "uec-spray"
REPEATS = 5
PROBES = (ROOT / "tests/support/console/probes.js").read_text()


@contextmanager
def looking(browser: Any, directory: Path, lab: str, *words: str) -> Iterator[tuple[str, Any]]:
    """A console of a lab, and a browser that has logged in: its address, and the browser."""
    console = ConsoleProcess("--bind", "127.0.0.1:0", *words, lab, directory=directory)
    try:
        link = console.link()
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        page = context.new_page()
        page.goto(link)
        page.wait_for_selector(".bar")
        page.close()
        context.add_init_script(PROBES)
        yield link.split("?")[0], context
        context.close()
    finally:
        console.close()


def opened(context: Any, address: str) -> Any:
    page = context.new_page()
    page.goto(address)
    page.wait_for_function("() => performance.getEntriesByName('console-ready').length > 0")
    page.wait_for_function("() => consoleApp.live.get().shown !== null")
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    directory = tmp_path_factory.mktemp("lab")
    with destroyed(LAB, directory):
        topology = str(ROOT / "topologies/dcqcn-victim.yml")
        subprocess.run([*TESTBED, "deploy", "-t", topology, "-n", LAB], check=True, timeout=600, cwd=directory)
        yield RunningLab.open(LAB, StateDirectory())


def at_95(waits: list[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.95)]


def test_an_event_of_the_lab_is_seen_soon(lab: RunningLab, browser: Any, tmp_path: Path) -> None:
    """From the command that takes a link down, or up, to the first frame that draws it so."""
    waits = []
    with looking(browser, tmp_path, LAB) as (address, context):
        page = opened(context, f"{address}#/labs/{LAB}/map")
        page.wait_for_function("() => document.querySelectorAll('.world .n').length > 0")
        for turn in range(EVENTS):
            up = turn % 2
            page.evaluate(f"() => {{ window.seen = frameOfLink('r:eth1', {up}); }}")
            begin = time.time()
            lab.set_link("r", "eth1", up=bool(up))
            waits.append(page.evaluate("() => window.seen") / 1000 - begin)
    judge(Figure("console: event in the lab to the frame that shows it, p95", at_95(waits), at_most=SOON_S, unit="s"))


def test_a_shell_echoes_soon(lab: RunningLab, browser: Any, tmp_path: Path) -> None:
    """From the event of a key in the page to the frame that has its echo."""
    with looking(browser, tmp_path, LAB, "--write") as (address, context):
        page = opened(context, f"{address}#/labs/{LAB}/map")
        page.evaluate("() => consoleApp.services.shell('r')")
        page.wait_for_function("() => (document.querySelector('.xterm-rows')?.textContent || '').includes('#')")
        page.evaluate("() => watchEcho('.xterm-rows')")
        for key in range(KEYS):
            page.keyboard.press("abcdefghij"[key % 10])
            page.wait_for_function(f"() => echoes.length > {key}")
        waits = [one / 1000 for one in page.evaluate("() => echoes")]
    judge(Figure("console: key in a shell to the frame that has its echo, p95", at_95(waits), at_most=ECHO_S, unit="s"))


def measured(directory: Path, name: str) -> Record:
    """Run the demo's scenario on the lab that is up, or bring it up."""
    command = [*TESTBED, "run", str(DEMO), "--keep", "--quiet", "--repeat", str(REPEATS), "-o", name]
    subprocess.run(command, check=False, cwd=directory, timeout=900, stdout=sys.stderr)
    (found,) = (directory / name).glob("*/record.json")
    return load_record(found)


Medians = dict[tuple[str, str], float]


def medians(record: Record) -> Medians:
    """What a report has at its top, by point and figure."""
    return {
        (point.name, one.name): one.median
        for point in record.points
        for one in point.metrics
        if one.headline and one.median
    }


def apart(one: Medians, others: Sequence[Medians]) -> Medians:
    """How far figures are from the means of others, as a share of these."""
    means = {key: statistics.mean(other[key] for other in others) for key in one if all(key in o for o in others)}
    return {key: abs(one[key] / mean - 1) for key, mean in means.items()}


def test_a_run_does_not_notice_who_looks(browser: Any, tmp_path: Path) -> None:
    """The figures of the demo are those that it expects something of. Others are printed: marks and drops are few, and
    two runs without a console have them apart by half.
    """
    with destroyed(DEMO_LAB, tmp_path):
        before = medians(measured(tmp_path, "before"))
        with looking(browser, tmp_path, DEMO_LAB) as (address, context):
            pages = [opened(context, f"{address}#/labs/{DEMO_LAB}/{view}") for view in ("map", "job")]
            record = measured(tmp_path, "looked-at")
            assert all(page.evaluate("() => consoleApp.live.get().connected") for page in pages)
        after = medians(measured(tmp_path, "after"))
    looked_at = medians(record)
    assert record.verdict.outcome is Outcome.PASS, record.verdict.reasons
    judged = {one.metric for one in record.expectations}
    assert looked_at.keys() >= {(point.name, name) for point in record.points for name in judged}
    differs, own = apart(looked_at, [before, after]), apart(after, [before])
    for key in sorted(set(differs) & set(own)):  # two runs without a console are apart by as much as that
        print(f"{' '.join(key)}: {differs[key]:.1%} apart; without a console {own[key]:.1%}", file=sys.stderr)
    worst = max(value for (_, name), value in differs.items() if name in judged)
    judge(Figure("console: figures of the demo with it and without", worst * 100, at_most=APART * 100, unit="%"))
