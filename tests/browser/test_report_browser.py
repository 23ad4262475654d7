"""Reports as a browser shows them: nothing sticks out at the width of a phone, and dark is dark."""

import re
import statistics
from pathlib import Path

import pytest
from headless_browser import browse
from PIL import Image
from recorded import NAMES, load

from testbed.record.report import render_report
from testbed.record.report.comparison import compare_records, render_comparison

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MEASURE = """<script>
const wide = [...document.querySelectorAll("section, figure, svg.chart, p, h1, h2, h3, summary, dd, li")]
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll, .plot"));
document.title = "measured " + document.documentElement.scrollWidth + " " + innerWidth + " " + wide.length;
</script></body>"""

pytestmark = [pytest.mark.browser, pytest.mark.process]


def page(name: str) -> str:
    if name == "comparison":
        record = load("permutation-lb")
        return render_comparison([compare_records(record, record)])
    return render_report(load(name))


@pytest.mark.parametrize("name", [*NAMES, "comparison"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(name: str, width: int, tmp_path: Path) -> None:
    text = page(name).replace("<details", "<details open")
    text, replaced = POLICY.subn("", text)  # which forbids the script that measures, as it should
    assert replaced == 1
    (tmp_path / "page.html").write_text(text.replace("</body>", MEASURE))
    shown = browse(tmp_path / "page.html", [f"--window-size={width},800", "--dump-dom"], tmp_path / "browser")
    found = re.search(r"<title>measured (\d+) (\d+) (\d+)</title>", shown)
    scrolled, inner, wide = map(int, found.groups())
    assert scrolled <= inner and not wide


@pytest.mark.parametrize(("scheme", "setting"), [("dark", 0), ("light", 1)])
def test_dark_is_dark_and_light_is_light(scheme: str, setting: int, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page("permutation-lb"))
    picture = tmp_path / "page.png"
    options = [f"--blink-settings=preferredColorScheme={setting}", "--window-size=1280,3000"]
    browse(tmp_path / "page.html", [*options, f"--screenshot={picture}"], tmp_path / "browser")
    with Image.open(picture) as image:
        grey = image.convert("L").resize((64, 64)).tobytes()
    brightness = statistics.median(grey)
    assert brightness < 60 if scheme == "dark" else brightness > 220
