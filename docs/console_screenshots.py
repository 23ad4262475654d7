"""Take the pictures of the console anew: each page at two sizes, light and dark, of a lab that carries traffic.

`python docs/console_screenshots.py`, as root, takes some minutes. It deploys a lab, runs a scenario on it while
pictures are taken with a headless Chromium, and writes them to docs/guides/images/console-*.png. Look at the pictures
before they are committed: `--sheets DIR` puts those of each size and theme beside each other.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/support/console"), str(ROOT / "tests/support/machines")]
BROWSER: Any = import_module("console_browser")
"""The console and the browser as tests have them."""

IMAGES = ROOT / "docs/guides/images"
LAB = "victim"
SIZES = {"": (1280, 720), "-tablet": (834, 1112)}
THEMES = {"": "light", "-dark": "dark"}
COLOURS = 256
"""Of a picture, which is a third as large by that: rare ones, such as those of values, stay exactly as they are."""


def testbed(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    """Begin a command of testbed."""
    command = [sys.executable, "-m", "testbed", *arguments]
    return subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Camera:
    """Takes a picture at each size and in each theme."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.taken: list[str] = []

    def take(self, name: str) -> None:
        """Take the page as it is, without the band that says how busy the machine is that takes the pictures."""
        hide = self.page.get_by_role("alert").get_by_role("button", name="Hide")
        if hide.count():
            hide.click()
        for theme, word in THEMES.items():
            self.page.evaluate("word => { document.documentElement.dataset.theme = word; }", word)
            for size, (width, height) in SIZES.items():
                self.page.set_viewport_size({"width": width, "height": height})
                self.page.wait_for_timeout(700)
                with Image.open(io.BytesIO(self.page.screenshot())) as shot:
                    small = shot.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
                small.save(IMAGES / f"console-{name}{size}{theme}.png", optimize=True)
        self.page.set_viewport_size(dict(zip(("width", "height"), SIZES[""], strict=True)))
        self.page.evaluate("() => { document.documentElement.dataset.theme = 'light'; }")
        self.taken.append(name)


def sheets(names: list[str], directory: Path) -> None:
    """Put all pictures of a size and theme beside each other, three in a row."""
    for size, (width, height) in SIZES.items():
        for theme in THEMES:
            whole = Image.new("RGB", (3 * width, -(-len(names) // 3) * height), "white")
            for at, name in enumerate(names):
                with Image.open(IMAGES / f"console-{name}{size}{theme}.png") as one:
                    whole.paste(one.convert("RGB"), (at % 3 * width, at // 3 * height))
            whole.save(directory / f"sheet{size}{theme}.png")


def take_all(directory: Path) -> list[str]:
    """Deploy, run, and take every picture; returns their names."""
    (directory / "topologies").mkdir()
    text = (ROOT / "topologies/dcqcn-victim.yml").read_text().replace("name: dcqcn-victim\n", f"name: {LAB}\n")
    (directory / "topologies/victim.yml").write_text(text)
    scenario = (
        (ROOT / "scenarios/pfc-victim.yml").read_text().replace("../topologies/dcqcn-victim", "topologies/victim")
    )
    (directory / "pfc-victim.yml").write_text(scenario)
    played = str(ROOT / "scenarios/ecmp-against-spraying.yml")
    testbed("run", "--backend", "simulation", "--quiet", "--only", "paths=single", played, cwd=directory).wait()
    testbed("deploy", "-t", "topologies/victim.yml", cwd=directory).wait()
    console = BROWSER.ConsoleProcess(LAB, "--write", "--bind", "127.0.0.1:0", directory=directory)
    try:
        link = console.link()
        with BROWSER.chromium() as browser:
            page = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
            page.set_default_timeout(180_000)
            page.goto(link)
            page.wait_for_function("() => consoleApp.views.get().loaded")
            camera = Camera(page)
            _take_live(page, link.split("?")[0], directory, camera)
            _take_others(page, link.split("?")[0], directory, camera)
            return camera.taken
    finally:
        console.close()
        testbed("destroy", "-n", LAB, cwd=directory).wait()


def _take_live(page: Any, address: str, directory: Path, camera: Camera) -> None:
    """What one sees of a lab while a scenario runs."""
    words = ("--only", "cc=none", "--only", "senders=6", "--repeat", "4", "--set", "workload.bytes=18MB", "--quiet")
    run = testbed("run", "pfc-victim.yml", *words, cwd=directory)
    page.goto(f"{address}#/labs/{LAB}/job")
    page.get_by_role("heading", name="Furthest behind").wait_for()
    page.wait_for_timeout(5000)  # queues fill
    page.get_by_role("button", name="Path").first.click()
    page.get_by_role("region", name="The path of the flow").get_by_text("holds it up").wait_for()
    camera.take("job")
    page.goto(f"{address}#/labs/{LAB}/pauses")
    page.locator(".pause-row").first.wait_for()
    page.get_by_role("button", name="Hold still").click()
    camera.take("pauses")
    page.goto(f"{address}#/labs/{LAB}/map?m=queue")
    page.locator(".worst button").first.wait_for()
    camera.take("map")
    page.goto(f"{address}#/labs/{LAB}/capture?p.ports=leaf4:down1+leaf1:up")
    page.get_by_role("button", name="Capture", exact=True).click()
    page.locator(".packets tbody tr").nth(8).wait_for()
    camera.take("capture")
    if (stop := page.get_by_role("button", name="Stop", exact=True)).count():  # it also ends by its size
        stop.click()
    page.goto(f"{address}#/labs/{LAB}/time?sel=node:leaf1&m=queue")
    page.locator(".chart.large canvas").wait_for()
    camera.take("time")
    page.goto(f"{address}#/labs/{LAB}/table?p.sort=-queue&m=queue")
    page.locator(".rows tbody tr").first.wait_for()
    camera.take("table")
    page.goto(f"{address}#/labs/{LAB}/map?m=queue")
    page.locator(".world .n").first.wait_for()
    page.evaluate("() => consoleApp.services.ask('link-set', ['leaf4:down1'], {loss: '1%', rate: '50%'})")
    page.get_by_role("dialog").locator(".copyline").wait_for()
    camera.take("impair")
    page.keyboard.press("Escape")
    page.evaluate("() => consoleApp.services.shell('leaf1')")
    page.locator(".xterm-rows").get_by_text("#").first.wait_for()
    page.wait_for_timeout(500)
    page.keyboard.type("vtysh -c 'show bgp summary'\n")
    page.wait_for_timeout(3000)
    camera.take("shell")
    page.get_by_role("button", name="Close this tab").click()
    run.wait()


def _take_others(page: Any, address: str, directory: Path, camera: Camera) -> None:
    """The list of labs, and what was measured."""
    page.goto(f"{address}#/labs?p.file={directory.name}/topologies/victim.yml")
    page.locator(".editor textarea").wait_for()
    page.locator(".editor textarea").fill("\n".join(text_with_a_mistake(directory)))
    page.locator(".problems button").first.click()
    camera.take("labs")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Discard it").click()
    page.goto(f"{address}#/results")
    page.locator(".results tbody tr").first.wait_for()
    camera.take("results")
    (emulated,) = (directory / "results").glob("pfc-victim-*")
    (simulated,) = (directory / "results").glob("ecmp-against-spraying-*")
    for name, results, where in (
        ("record", emulated, "map?m=pauses"),
        ("honeycomb", simulated, "map?p.look=honeycomb"),
        ("matrix", simulated, "map?p.look=matrix"),
    ):
        page.goto(f"{address}#/runs/{directory.name}~results~{results.name}/0/1/{where}")
        page.wait_for_function("() => consoleApp.live.get().lab?.span && consoleApp.live.get().shown")
        page.evaluate(
            "() => { const [begin, end] = consoleApp.live.get().lab.span; consoleApp.at((begin + end) / 2); }"
        )
        page.wait_for_timeout(3000)
        camera.take(name)


def text_with_a_mistake(directory: Path) -> list[str]:
    """The topology, with a rate that is none."""
    lines = (directory / "topologies/victim.yml").read_text().splitlines()
    return [line.replace("rate: 80G", "rate: fast") if "leaf1:up" in line else line for line in lines[5:]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sheets", type=Path, help="a directory for all pictures of a size and theme as one")
    arguments = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="console-") as name:
        Path(name).chmod(0o755)  # FRR's daemons, which are another user's, come through
        for variable, place in (("TESTBED_STATE_DIR", "state"), ("TESTBED_RUN_DIR", "run")):  # no other labs are listed
            os.environ[variable] = str(Path(name) / place)
        (Path(name) / "here").mkdir()
        taken = take_all(Path(name) / "here")
    if arguments.sheets:
        sheets(taken, arguments.sheets)
