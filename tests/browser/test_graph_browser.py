"""The picture of a lab as a browser opens it: all of it is in the window, whatever its size, and can be zoomed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.report.graph import render_html
from testbed.spec import load_topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
LARGE = ("superpod-4su", "nvl72-superpod")
"""What is wider than the window at the size of its labels; `demo` is not, and may be enlarged."""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.may_skip,
    pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium-headless-shell"),
]


def browse(page: str, window: tuple[int, int], script: str, directory: Path) -> list[int]:
    """The numbers that `script` evaluates to in a page, in a window of this size."""
    assert BROWSER is not None
    text, replaced = POLICY.subn("", page)  # which forbids the script that measures, as it should
    assert replaced == 1
    end = f'<script>document.title = "measured " + ({script}).map(Math.round).join(" ");</script></body>'
    (directory / "page.html").write_text(text.replace("</body>", end))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += [f"--user-data-dir={directory / 'browser'}", f"--window-size={window[0]},{window[1]}", "--dump-dom"]
    command.append((directory / "page.html").as_uri())
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"<title>measured ([-\d ]+)</title>", shown)
    assert found is not None
    return [int(word) for word in found[1].split()]


def page(name: str) -> str:
    return render_html(load_topology(TOPOLOGIES / f"{name}.yml"))


PLACES = """(() => {
  const all = document.getElementById("scroll"), box = all.getBoundingClientRect();
  const picture = document.getElementById("picture").getBoundingClientRect();
  const spare = [picture.left - box.left, box.right - picture.right];
  spare.push(picture.top - box.top, box.bottom - picture.bottom);
  return [...spare, all.scrollWidth - all.clientWidth, all.scrollHeight - all.clientHeight, picture.width, box.width];
})()"""


@pytest.mark.parametrize("name", [*LARGE, "demo"])
@pytest.mark.parametrize("window", [(1400, 900), (1920, 1080), (390, 800)])
def test_a_picture_opens_fitted_to_the_window(name: str, window: tuple[int, int], tmp_path: Path) -> None:
    left, right, top, bottom, *beyond, width, room = browse(page(name), window, PLACES, tmp_path)
    assert min(left, right, top, bottom) >= -1, "it is in the window as a whole"
    assert max(beyond) <= 1, "and nothing is left to scroll to"
    assert abs(left - right) <= 2, "in the middle"
    assert width > 0.6 * room, "and large"


def test_zooming_in_and_fitting_again(tmp_path: Path) -> None:
    """What was zoomed is scrolled, from the middle of what was seen; `Fit` shows all of it again."""
    script = """(() => {
      const all = document.getElementById("scroll"), found = [];
      for (const button of ["in", "in", "in", "fit"]) {
        document.getElementById(button).click();
        found.push(all.scrollWidth - all.clientWidth, all.scrollLeft);
      }
      return found;
    })()"""
    found = browse(page("superpod-4su"), (1400, 900), script, tmp_path)
    beyond, left = found[::2], found[1::2]
    assert 100 < beyond[0] < beyond[1] < beyond[2] and beyond[3] <= 1
    assert all(abs(2 * at - more) <= 4 for at, more in zip(left[:3], beyond[:3], strict=True))


def test_a_picture_is_fitted_anew_to_another_window_until_one_zooms(tmp_path: Path) -> None:
    script = """(() => {
      const all = document.getElementById("scroll"), found = [];
      const resized = width => {
        all.style.flex = "none"; all.style.width = width + "px";
        window.dispatchEvent(new Event("resize"));
        found.push(document.getElementById("picture").getBoundingClientRect().width);
      };
      resized(700); resized(600);
      document.getElementById("in").click();
      resized(500);
      return found;
    })()"""
    first, second, zoomed = browse(page("superpod-4su"), (1400, 900), script, tmp_path)
    assert abs(first - 700) <= 1 and abs(second - 600) <= 1
    assert abs(zoomed - 750) <= 2, "who zoomed keeps it"
