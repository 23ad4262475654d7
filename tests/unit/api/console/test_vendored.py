"""Libraries of other people in the console's page: which, whose, and that they are what the registry has."""

import base64
import hashlib
import io
import json
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import testbed.api.console

VENDORED = Path(testbed.api.console.__path__[0]) / "static/vendor"
LIBRARIES: list[dict[str, Any]] = json.loads((VENDORED / "list.json").read_text())["libraries"]
FREE = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC"}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def of_registry(entry: dict[str, Any], here: bytes) -> bytes:
    """The registry's file that ours was made from."""
    text = here.decode()
    for theirs, ours, _ in reversed(entry.get("replaced", [])):
        assert ours in text, f"{entry['path']} has lost {ours!r}"
        text = text.replace(ours, theirs)
    return text.encode()


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda one: str(one["name"]))
def test_a_library_is_as_the_registry_has_it(library: dict[str, Any]) -> None:
    for entry in library["files"]:
        here = (VENDORED / entry["path"]).read_bytes()
        assert sha256(of_registry(entry, here)) == entry["sha256"], entry["path"]


def test_a_changed_byte_is_noticed() -> None:
    entry = LIBRARIES[0]["files"][0]
    here = (VENDORED / entry["path"]).read_bytes()
    assert sha256(of_registry(entry, here + b" ")) != entry["sha256"]


def test_all_files_are_in_the_list_and_each_library_has_its_licence() -> None:
    listed = {entry["path"] for library in LIBRARIES for entry in library["files"]}
    there = {str(path.relative_to(VENDORED)) for path in VENDORED.rglob("*") if path.is_file()}
    assert there - {"list.json"} == listed
    for library in LIBRARIES:
        assert library["licence"] in FREE
        assert any(entry["path"].endswith("/LICENSE") for entry in library["files"]), library["name"]


def test_versions_are_those_of_the_folders() -> None:
    for library in LIBRARIES:
        folder = library["name"].removeprefix("@").replace("xterm/", "xterm-").replace("xterm-xterm", "xterm")
        assert {entry["path"].partition("/")[0] for entry in library["files"]} == {f"{folder}-{library['version']}"}


def test_nothing_is_left_in_them_that_a_policy_without_inline_styles_refuses() -> None:
    for path in VENDORED.rglob("*.*js"):
        text = path.read_text()
        assert 'createElement("style")' not in text and 'setAttribute("style"' not in text, path
        assert "new Function(" not in text and "eval(" not in text, path


@pytest.mark.thorough
@pytest.mark.may_skip
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda one: str(one["name"]))
def test_the_list_is_that_of_the_registry(library: dict[str, Any]) -> None:
    """Fetch the package as npm does, and compare each file with what the list says of it."""
    try:
        with urllib.request.urlopen(library["tarball"], timeout=60) as answer:
            package = answer.read()
    except urllib.error.URLError as error:
        pytest.skip(f"the npm registry cannot be reached: {error.reason}")
    assert library["integrity"] == "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for entry in library["files"]:
            member = archive.extractfile(entry["member"])
            assert member is not None and sha256(member.read()) == entry["sha256"], entry["path"]
