"""The site is built strictly, as `./lab docs` does it, and needs nothing from the network."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.base.installation.__main__ import SPHINX

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

pytest.importorskip("sphinx", reason="the documentation's packages are not installed: pip install testbed[docs]")


@pytest.mark.process
@pytest.mark.thorough
def test_mistakes_of_every_kind_are_told_and_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    pages, built = tmp_path / "docs", tmp_path / "built"
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("reference", "_ext", "conf.py"))
    (tmp_path / "images").symlink_to(ROOT / "images")
    with (pages / "index.md").open("a") as index:
        index.write("\n[link](start/no-such-page.md), [heading](start/first-lab.md#no-such-heading)\n")
        index.write("\n```{toctree}\nstart/no-such-entry\n```\n")
    (pages / "start/orphan.md").write_text("# In no list\n")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *SPHINX, "-c", str(DOCS), str(pages), str(built)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    told = sorted(line for line in done.stderr.splitlines() if "WARNING" in line)
    assert done.returncode == 1
    assert "no-such-page" in done.stderr and "no-such-heading" in done.stderr and "no-such-entry" in done.stderr
    assert "orphan.md" in done.stderr
    assert len(told) == 4, told
    assert (built / "reference/commands.html").exists()
    loaded = re.compile(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"(?:https?:)?//")
    sheets = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"](?:https?:)?//")
    assert [path.name for path in built.rglob("*.html") if loaded.search(path.read_text())] == []
    assert [path.name for path in built.rglob("*.css") if sheets.search(path.read_text())] == []
