"""What of the checkout goes into the lab VM."""

import io
import json
import os
import re
import tarfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from testbed.vm.image import checkout
from testbed.vm.image.recipe import CHECKOUT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        *("testbed/__init__.py", "testbed/record/record.py", "testbed/__pycache__/x.pyc", "results/a/record.json"),
        *("lab", ".git/HEAD", ".venv/bin/python", "testbed.egg-info/PKG-INFO", "tests/unit/test_x.py"),
        *("docs/reference/errors.md", "build/docs/index.html"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "lab").chmod(0o755)
    return tmp_path


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return sorted(tar.getnames())


def test_code_goes_and_what_it_made_stays(tree: Path) -> None:
    wanted = ["lab", "testbed/__init__.py", "testbed/record/record.py", "tests/unit/test_x.py"]
    assert names(checkout.archive(tree)) == wanted
    assert names(checkout.archive(tree, prefix="p/", folder="testbed")) == [f"p/{name}" for name in wanted[1:3]]


def test_the_packages_of_this_project_are_all_there() -> None:
    there = {name for name, _ in checkout.checkout_files()}
    for init in (CHECKOUT / "testbed").rglob("__init__.py"):
        assert str(init.relative_to(CHECKOUT)) in there


def test_vagrant_leaves_nothing_of_it_out() -> None:
    """rsync(1), filter rules: a pattern that begins with a slash is the top's alone, another one is everybody's."""
    excluded = re.search(r"rsync__exclude: (\[.*\])", (CHECKOUT / "Vagrantfile").read_text())
    assert excluded
    patterns = [word.rstrip("/") for word in json.loads(excluded[1])]
    lost = [
        name
        for name, _ in checkout.checkout_files()
        for pattern in patterns
        if (
            fnmatch(name.partition("/")[0], pattern[1:])
            if pattern.startswith("/")
            else any(fnmatch(part, pattern) for part in name.split("/"))
        )
    ]
    assert lost == []


def test_it_depends_on_names_contents_and_modes_alone(tree: Path) -> None:
    first, hashed = checkout.archive(tree), checkout.fingerprint(tree)
    os.utime(tree / "lab", (1, 1))
    assert (checkout.archive(tree), checkout.fingerprint(tree)) == (first, hashed)
    (tree / "lab").chmod(0o644)
    assert checkout.fingerprint(tree) != hashed


def test_a_time_follows_from_the_content(tree: Path) -> None:
    """Python takes a compiled module for valid if the time and the size of its source are the same."""

    def time_of(name: str) -> float:
        with tarfile.open(fileobj=io.BytesIO(checkout.archive(tree))) as tar:
            return tar.getmember(name).mtime

    before = time_of("testbed/__init__.py")
    (tree / "testbed/__init__.py").write_text("TESTBED/__init__.py")
    assert time_of("testbed/__init__.py") != before
