"""Pages for developers are true: the picture of the rooms is that of the code, and the files that they name exist."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/internals").rglob("*.md")))
PLACES = ("testbed", "tests", "docs", "images", "topologies", "scenarios")
MOVED = "what-moved-where.md"
"""Names on purpose what is no longer there."""

pytest.importorskip("sphinx", reason="the documentation's packages are not installed: pip install testbed[docs]")


def test_the_picture_of_the_rooms_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    from rooms import PICTURE, picture

    assert PICTURE.read_text() == picture(), "run .venv/bin/python docs/_ext/rooms.py"
    sys.modules.pop("rooms")


def named_files(text: str) -> set[str]:
    """Paths that begin with a folder of the checkout, in commands, too; without those with a place to be filled in."""
    paths = set(re.findall(rf"(?<![\w./<-])((?:{'|'.join(PLACES)})/[\w./-]*\w/?)(?![\w./-]*[<*])", text))
    return {path for path in paths if "NAME" not in path}


def is_there(name: str) -> bool:
    """Tell whether the checkout, or what a build makes of it, has this file or module."""
    path = ROOT / name
    return path.exists() or path.with_suffix(".md").parent == ROOT / "docs/reference"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_file_and_module_that_is_named_is_there(page: Path) -> None:
    text = page.read_text()
    assert sorted(name for name in named_files(text) if not is_there(name)) == []
    if page.name == MOVED:
        return
    modules = set(re.findall(r"`(?:python -m )?(testbed(?:\.\w+)+)", text))
    missing = []
    for name in modules:
        parts = name.split(".")
        while parts and not (ROOT.joinpath(*parts).is_dir() or ROOT.joinpath(*parts).with_suffix(".py").is_file()):
            parts.pop()  # a class or function of a module
        if len(parts) < max(len(name.split(".")) - 2, 1):
            missing.append(name)
    assert sorted(missing) == []


def test_a_recipe_stands_once() -> None:
    recipes = re.findall(r"^### (.+)$", PAGES[0].read_text(), re.MULTILINE)
    assert len(recipes) > 10
    assert sorted(recipes) == sorted(set(recipes))
