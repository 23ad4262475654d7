"""Lines of the documentation fit a terminal: 120 characters, but for what cannot be broken."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
MOST = 120


def long_lines(text: str) -> Iterator[str]:
    """Lines that are too long, without rows of tables, programs and their output, comments, and a link by itself."""
    fence, comment = "", False
    for line in text.splitlines():
        stripped = line.strip()
        opens = re.match(r"`{3,}|:{3,}", stripped)
        if fence:
            fence = "" if stripped.startswith(fence) else fence
        elif opens:
            fence = opens[0] if "{glossary}" not in line else ""
        elif comment or stripped.startswith("<!--"):
            comment = "-->" not in line
        elif len(line) > MOST and not stripped.startswith("|") and " " in stripped.lstrip("-*> "):
            yield line


def pages_of_people() -> list[Path]:
    return [page for page in PAGES if page.parent.name != "reference"]


@pytest.mark.parametrize("page", pages_of_people(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_lines_of_docs_are_short(page: Path) -> None:
    assert list(long_lines(page.read_text())) == []
