"""The README is short, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def test_it_is_what_a_newcomer_needs() -> None:
    assert len(README.splitlines()) <= 150


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) > 15
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_it_leads_to_every_guide_concept_and_page_to_learn_from() -> None:
    pages = [path for part in ("start", "learn", "guides", "concepts") for path in (ROOT / "docs" / part).glob("*.md")]
    assert [path.name for path in pages if f"({path.relative_to(ROOT)})" not in README] == []


@pytest.mark.parametrize(
    ("command", "tested_by"),
    [("./lab demo", "integration/test_lab_script.py"), ("vagrant up", "integration/vm/test_vagrant_up.py")],
)
def test_each_way_in_is_one_that_a_test_goes(command: str, tested_by: str) -> None:
    (line,) = (line for line in README.splitlines() if line.startswith("|") and f"`{command}`" in line)
    assert line.count("|") == 3, "a line says where and how"
    assert command.rsplit(maxsplit=1)[-1] in (ROOT / "tests" / tested_by).read_text()
