"""Take the pictures of docs/guides/console.md anew: of a lab that carries traffic, with a headless Chromium.

`python docs/console_screenshots.py`, as root, takes some minutes. It deploys a lab, runs a scenario on it while
pictures are taken, and writes them to docs/guides/images/console-*.png at 1280 by 720, and at 1920 by 1080 to the
directory that is named. Look at the pictures before they are committed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/support/console"), str(ROOT / "tests/support/machines")]
BROWSER: Any = import_module("console_browser")
"""The console and the browser as tests have them."""

IMAGES = ROOT / "docs/guides/images"
LAB = "victim"
SIZES = ((1280, 720), (1920, 1080))


def testbed(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    """Begin a command of testbed."""
    command = [sys.executable, "-m", "testbed", *arguments]
    return subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Camera:
    """Takes a picture at each size; those of the guide are of the first."""

    def __init__(self, page: Any, large: Path | None) -> None:
        self.page = page
        self.large = large

    def take(self, name: str) -> None:
        """Take the page as it is."""
        for width, height in SIZES:
            directory = IMAGES if (width, height) == SIZES[0] else self.large
            if directory is None:
                continue
            self.page.set_viewport_size({"width": width, "height": height})
            self.page.wait_for_timeout(1500)
            self.page.screenshot(path=str(directory / f"console-{name}.png"))
        self.page.set_viewport_size({"width": SIZES[0][0], "height": SIZES[0][1]})


def take_all(directory: Path, large: Path | None) -> None:
    """Deploy, run, and take every picture."""
    (directory / "topologies").mkdir()
    text = (ROOT / "topologies/dcqcn-victim.yml").read_text().replace("name: dcqcn-victim\n", f"name: {LAB}\n")
    (directory / "topologies/victim.yml").write_text(text)
    scenario = (
        (ROOT / "scenarios/pfc-victim.yml").read_text().replace("../topologies/dcqcn-victim", "topologies/victim")
    )
    (directory / "pfc-victim.yml").write_text(scenario)
    testbed("deploy", "-t", "topologies/victim.yml", cwd=directory).wait()
    console = BROWSER.ConsoleProcess(LAB, "--write", "--bind", "127.0.0.1:0", directory=directory)
    try:
        link = console.link()
        with BROWSER.chromium() as browser:
            page = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
            page.goto(link)
            page.wait_for_function("() => consoleApp.views.get().loaded")
            _take(page, link.split("?")[0], directory, Camera(page, large))
    finally:
        console.close()
        testbed("destroy", "-n", LAB, cwd=directory).wait()


def _take(page: Any, address: str, directory: Path, camera: Camera) -> None:
    run = testbed("run", "pfc-victim.yml", "--only", "cc=none", "--only", "senders=6", "--quiet", cwd=directory)
    page.goto(f"{address}#/labs/{LAB}/job")
    page.get_by_role("heading", name="Furthest behind").wait_for(timeout=180_000)
    page.get_by_role("button", name="Path").first.click()
    page.get_by_role("region", name="The path of the flow").wait_for(timeout=60_000)
    camera.take("job")
    page.goto(f"{address}#/labs/{LAB}/pauses")
    page.locator(".pause-row").first.wait_for(timeout=60_000)
    page.get_by_role("button", name="Hold still").click()
    camera.take("pauses")
    page.goto(f"{address}#/labs/{LAB}/map?m=queue")
    page.wait_for_timeout(1500)
    camera.take("map")
    page.evaluate("() => consoleApp.services.ask('link-set', ['leaf4:down1'], {loss: '1%', rate: '50%'})")
    page.wait_for_timeout(1000)
    camera.take("impair")
    page.keyboard.press("Escape")
    run.wait()
    page.goto(f"{address}#/labs?p.file={directory.name}/topologies/victim.yml")
    page.locator(".editor textarea").wait_for(timeout=60_000)
    page.locator(".editor textarea").fill("\n".join(text_with_a_mistake(directory)))
    page.locator(".problems li").first.wait_for(timeout=60_000)
    camera.take("labs")
    page.keyboard.press("Escape")
    (results,) = (directory / "results").iterdir()
    page.goto(f"{address}#/runs/{directory.name}~results~{results.name}/0/1/map?m=pauses&t=9")
    page.wait_for_timeout(4000)
    camera.take("results")


def text_with_a_mistake(directory: Path) -> list[str]:
    """The topology, with a rate that is none."""
    lines = (directory / "topologies/victim.yml").read_text().splitlines()
    return [line.replace("rate: 80G", "rate: fast") if "leaf1:up" in line else line for line in lines[6:]]


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="console-") as name:
        take_all(Path(name), Path(sys.argv[1]) if len(sys.argv) > 1 else None)
