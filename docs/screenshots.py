"""Take the pictures of docs/start anew: from a real run on this machine, with a headless Chromium.

`python docs/screenshots.py`, as root, takes about a minute. It runs the scenario of the demo and writes pictures of its
report, and of the graphs of two topologies, to docs/start/images/*.png, with numbers that the text refers to.
`python docs/screenshots.py REPORT.html` takes the report of a run of that scenario that was made before. Look at the
pictures before they are committed.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/start/images"
SCENARIO = ROOT / "scenarios/ecmp-against-spraying.yml"
WIDTH = 1100
LARGEST = 150_000
"""Bytes of a picture."""
MARGIN = 16
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_MEASURE = """<script>
const rect = (one) => {{
  const box = one.getBoundingClientRect();
  return [box.left + scrollX, box.top + scrollY, box.right + scrollX, box.bottom + scrollY];
}};
const after = (words) => [...document.querySelectorAll("h2")].find((one) => one.textContent.includes(words));
const figure = (words) => [...document.querySelectorAll("figure")].find((one) => one.textContent.includes(words));
const page = document.createElement("pre");
page.id = "measured";
page.textContent = JSON.stringify([{expressions}].map(rect));
document.body.append(page);
</script></body>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One picture: what of a page is in it, and what gets a number. Both are expressions in JavaScript."""

    name: str
    first: str
    last: str
    marks: tuple[str, ...]
    height: int | None = None
    """Of the window; None: as high as the page, out of which the picture is cut."""
    opened: bool = False
    """The first point is unfolded before."""


REPORT = (
    Shot(
        name="report-verdict",
        first='document.querySelector("header")',
        last='document.querySelector("#measured + section")',
        marks=(
            'document.querySelector(".verdict h2")',
            'document.querySelector(".verdict table")',
            'document.querySelector(".tiles")',
            'document.querySelector("#measured + section")',
        ),
    ),
    Shot(
        name="report-bars",
        first='document.querySelector(".plots > figure")',
        last='document.querySelectorAll(".plots > figure")[1]',
        marks=(
            'document.querySelector(".plots > figure h3")',
            'document.querySelector(".plots > figure .words")',
        ),
    ),
    Shot(
        name="report-completion",
        first='figure("Completion times")',
        last='figure("Completion times")',
        marks=('figure("Completion times")',),
    ),
    Shot(
        name="report-fabric",
        first='figure("The fabric under load")',
        last='figure("The fabric under load")',
        marks=(),
        opened=True,
    ),
    Shot(
        name="report-trust",
        first='after("trusted")',
        last='after("trusted").nextElementSibling',
        marks=(
            'after("trusted").nextElementSibling.querySelector("table")',
            'after("trusted").nextElementSibling.querySelector("h3")',
        ),
    ),
)
GRAPHS = {
    "demo": Shot(name="graph", first="document.body", last="document.body", marks=(), height=640),
    "datacentre": Shot(name="graph-networks", first="document.body", last="document.body", marks=(), height=760),
}
"""By the topology that is drawn."""


def main(arguments: list[str]) -> int:
    browser = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
    if browser is None or (os.geteuid() != 0 and not arguments):
        print("needs a browser (apt-get install chromium) and, to run the scenario, root", file=sys.stderr)
        return 2
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        report = Path(arguments[0]).resolve() if arguments else run_scenario(work / "results")
        for shot in REPORT:
            take(shot, report, browser, work)
        for topology, shot in GRAPHS.items():
            testbed("graph", "-t", f"topologies/{topology}.yml", "-o", str(work / "graph.html"))
            take(shot, work / "graph.html", browser, work)
    return 0


def run_scenario(results: Path) -> Path:
    """The report of a run of the demo's scenario. Raises `RuntimeError` unless it passes.

    A busy machine makes the run invalid, and its figures no example: then end what else runs, and try again.
    """
    testbed("run", str(SCENARIO), "--results", str(results))
    (report,) = results.glob("*/report.html")
    return report


def testbed(*arguments: str) -> None:
    """Run the command line. Raises `RuntimeError` if it fails."""
    done = subprocess.run([sys.executable, "-m", "testbed", *arguments], cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"testbed {' '.join(arguments)}: exit code {done.returncode}")


def take(shot: Shot, page: Path, browser: str, work: Path) -> None:
    """Write one picture of a page. Raises `RuntimeError` if it gets too large to be kept."""
    expressions = ", ".join(("document.documentElement", shot.first, shot.last, *shot.marks))
    text = _POLICY.sub("", page.read_text())  # which forbids the script that measures, as it should
    measured = work / "measured.html"
    if shot.opened:
        text = text.replace('<details class="point"', '<details class="point" open', 1)
        page = work / "opened.html"
        page.write_text(text)
    measured.write_text(text.replace("</body>", _MEASURE.format(expressions=expressions)))
    shown = browse(browser, work, f"--window-size={WIDTH},{shot.height or 800}", "--dump-dom", measured.as_uri())
    found = re.search(r'<pre id="measured">(.*?)</pre>', shown)
    if found is None:
        raise RuntimeError(f"{page} cannot be measured")
    whole, first, last, *marks = json.loads(html.unescape(found[1]))
    picture = work / "page.png"
    window = f"--window-size={WIDTH},{shot.height or int(whole[3]) + 100}"
    browse(browser, work, window, f"--screenshot={picture}", page.as_uri())
    with Image.open(picture) as image:
        drawn = image.convert("RGB")
    for number, (left, top, _, _) in enumerate(marks, start=1):
        draw_number(drawn, number, left, top)
    upper = max(0, int(first[1]) - MARGIN)
    lower = drawn.height if shot.height else min(drawn.height, int(last[3]) + MARGIN)
    cut = drawn.crop((0, upper, WIDTH, lower)).quantize(128)
    path = IMAGES / f"{shot.name}.png"
    cut.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {cut.width} x {cut.height}, {size:,} bytes")
    if size > LARGEST:
        raise RuntimeError(f"{path} is larger than {LARGEST:,} bytes")


def draw_number(image: Image.Image, number: int, left: float, top: float) -> None:
    """A number in a circle at the upper left corner of what it is about."""
    draw = ImageDraw.Draw(image)
    x, y, radius = max(left - 16, 14), max(top + 8, 14), 12
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill="#c2410c", outline="white", width=2)
    draw.text((x, y), str(number), fill="white", anchor="mm", font=ImageFont.load_default(15))


def browse(browser: str, work: Path, *arguments: str) -> str:
    """Run the browser without a network and without a user's profile; what it prints."""
    profile = tempfile.mkdtemp(dir=work)
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
    command = [browser, *fixed, "--blink-settings=preferredColorScheme=1", f"--user-data-dir={profile}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
