"""The documentation as a browser shows it: lines of code fit their column, and text can be read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from headless_browser import browse

STATIC = Path(__file__).parents[2] / "docs/_static"
LONGEST = 120
"""Characters of a line of code, but for few of them."""

pytest.importorskip("furo", reason="the documentation's packages are not installed: pip install testbed[docs]")
pytestmark = [pytest.mark.browser, pytest.mark.process]

COLUMNS = 10
"""Columns of the widest table of ours."""

CONF = f"""
project = "pages"
extensions = ["myst_parser"]
html_theme = "furo"
html_static_path = [{str(STATIC)!r}]
html_css_files = ["site.css"]
"""
PROSE = "Words that make a paragraph as long as paragraphs are. " * 20
PAGE = f"""# A page

{PROSE}

```sh
{"echo " * (LONGEST // 5)}
{"x" * LONGEST}
```

```{{note}}
{PROSE}
```

## A part

```text
{"y" * (2 * LONGEST)}
```

| key | value |
|---|---|
| `a-key-of-a-table` | `{"word, " * 40}` |

| {" | ".join(["heading"] * COLUMNS)} |
|{"---|" * COLUMNS}
| `{"a-scenario-with-a-name" * 2}` | `{"metric[of=a-point]" * 2}` | {" | ".join(["0.975 to 1.025"] * (COLUMNS - 2))} |
"""
MEASURE = """<script>
const boxes = [...document.querySelectorAll("pre")].map(one => [one.scrollWidth - one.clientWidth,
  Math.round((one.clientHeight - 2 * parseFloat(getComputedStyle(one).paddingTop))
             / parseFloat(getComputedStyle(one).lineHeight))]);
const prose = document.querySelector("article p");
const tables = [...document.querySelectorAll("table")].map(one => one.parentElement);
const size = parseFloat(getComputedStyle(prose).fontSize);
document.title = "measured " + [...boxes.flat(), document.documentElement.scrollWidth - innerWidth,
  Math.round(prose.getBoundingClientRect().width / size),
  Math.max(...tables.map(one => one.scrollWidth - one.clientWidth)),
  document.querySelector(".admonition").clientWidth - document.querySelector(".admonition-title").offsetWidth,
].join(" ");
</script></body>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page in the dress of ours."""
    source = tmp_path_factory.mktemp("docs")
    (source / "conf.py").write_text(CONF)
    (source / "index.md").write_text(PAGE)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(source), str(source / "built")]
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=100)
    built = source / "built/index.html"
    built.write_text(built.read_text().replace("</body>", MEASURE))
    return built


@pytest.mark.parametrize("width", [1400, 1920, 1000])
def test_code_fits_its_column(width: int, page: Path, tmp_path: Path) -> None:
    shown = browse(page, [f"--window-size={width},900", "--dump-dom"], tmp_path / "browser")
    found = re.search(r"<title>measured ([-\d ]+)</title>", shown)
    beyond, lines, beyond_broken, broken, sideways, prose, table, beside_title = map(int, found[1].split())
    assert max(beyond, beyond_broken, sideways, table) <= 0, "nothing has to be scrolled sideways"
    assert width == 1000 or lines == 2, "lines of a terminal's width are not broken"
    assert broken >= 2, "a longer one is"
    assert beside_title <= 0, "the title of a note is as wide as its box"
    assert prose <= 50, "a line of text has some ninety characters"
