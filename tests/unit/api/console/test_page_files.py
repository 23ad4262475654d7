"""The files of the page: which a browser keeps, and which are asked for before the page is run."""

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from asgi import Answer, ask
from starlette.responses import Response

from testbed.api.console import page_files
from testbed.api.console.page_files import STATIC, PageFiles

GRAPH = Path(str(STATIC)).parents[2] / "lab/graph"
_IMPORT = re.compile(r'^(?:import|export) [^;]*?from "(\.[^"]+)";|^import "(\.[^"]+)";', re.MULTILINE)
_PRELOADED = re.compile(r'<(?:link rel="modulepreload" href|script type="module"(?: async)? src)="/static/([^"]+)">')


def index_of(files: PageFiles, opens: str | None = None) -> str:
    return bytes(cast(Response, files.index(opens)).body).decode()


def asked(files: PageFiles, path: str) -> Answer:
    return asyncio.run(ask(files, "GET", path))


def reached(module: str, found: set[str]) -> set[str]:
    """All modules that are there before one is run."""
    if module not in found:
        found.add(module)
        path = GRAPH / module.removeprefix("graph/") if module.startswith("graph/") else STATIC / module
        for one, other in _IMPORT.findall(path.read_text()):
            reached(os.path.normpath(f"{Path(module).parent}/{one or other}"), found)
    return found


def test_a_browser_keeps_what_an_address_names_by_its_digest() -> None:
    files = PageFiles()
    (script,) = re.findall(r'src="/static/([0-9a-f]{16}/core/main\.js)"', index_of(files))
    answer = asked(files, f"/{script}")
    assert answer.body == (STATIC / "core/main.js").read_bytes()
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    digest = script.partition("/")[0]
    assert asked(files, f"/{digest}/graph/picture.js").body == (GRAPH / "picture.js").read_bytes()


@pytest.mark.parametrize("before", ["", "0123456789abcdef/"])
def test_of_other_files_it_asks_each_time(before: str) -> None:
    files = PageFiles()
    index_of(files)
    answer = asked(files, f"/{before}core/main.js")
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-cache")


def test_addresses_are_others_as_soon_as_one_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(STATIC, tmp_path / "static")
    monkeypatch.setattr(page_files, "STATIC", tmp_path / "static")
    files = PageFiles()
    before = index_of(files)
    assert index_of(files) == before
    path = tmp_path / "static/core/lib.js"
    path.write_bytes(path.read_bytes().replace(b"Versions", b"versions"))  # no other size
    os.utime(path, ns=(0, 0))
    assert index_of(files) != before


def test_a_file_that_was_written_since_is_not_kept_under_the_digest_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade while a page is open: should the old files come back, so would their digest, and the browser had one
    of the new ones under it for a year."""
    shutil.copytree(STATIC, tmp_path / "static")
    monkeypatch.setattr(page_files, "STATIC", tmp_path / "static")
    files = PageFiles()
    (digest,) = set(re.findall(r'"/static/([0-9a-f]{16})/', index_of(files)))
    terminal, other = (f"/{digest}/core/{name}.js" for name in ("terminal", "lib"))
    assert "immutable" in asked(files, terminal).headers["cache-control"]
    path = tmp_path / "static/core/terminal.js"
    before = path.read_bytes(), path.stat().st_mtime_ns
    path.write_bytes(before[0] + b"\n")
    assert asked(files, terminal).headers["cache-control"] == "no-cache"
    assert "immutable" in asked(files, other).headers["cache-control"]
    path.write_bytes(before[0])
    os.utime(path, ns=(before[1], before[1]))
    assert f"/static/{digest}/" in index_of(files)


def test_a_file_that_vanishes_while_they_are_read_is_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade removes files between the moments at which they are listed, looked at and read."""
    shutil.copytree(STATIC, tmp_path / "static")
    monkeypatch.setattr(page_files, "STATIC", tmp_path / "static")
    going = [tmp_path / "static/core/keys.js", tmp_path / "static/core/touch.js"]
    real: dict[str, Any] = {"stat": Path.stat, "read_bytes": Path.read_bytes}

    def vanishing(name: str, path: Path) -> Any:
        def look(self: Path, **settings: Any) -> Any:
            if self == path:
                path.unlink(missing_ok=True)
            return real[name](self, **settings)

        return look

    files = PageFiles()
    whole = index_of(files)
    (tmp_path / "static/core/lib.js").touch()
    monkeypatch.setattr(Path, "stat", vanishing("stat", going[0]))
    monkeypatch.setattr(Path, "read_bytes", vanishing("read_bytes", going[1]))
    without = index_of(files)
    assert without != whole and not any(os.path.lexists(path) for path in going)
    monkeypatch.undo()
    monkeypatch.setattr(page_files, "STATIC", tmp_path / "static")
    assert index_of(files) == index_of(PageFiles()) == without, "as if neither had ever been there"


@pytest.mark.parametrize("path", ["graph/picture.js", "core/lib.js"])
def test_a_file_that_has_gone_is_not_found(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.exceptions import HTTPException

    shutil.copytree(STATIC, tmp_path / "static")
    monkeypatch.setattr(page_files, "STATIC", tmp_path / "static")
    monkeypatch.setattr(page_files, "_PICTURE", {"graph/picture.js": tmp_path / "picture.js"})
    files = PageFiles()
    (tmp_path / "static/core/lib.js").unlink()
    with pytest.raises(HTTPException) as refused:
        asked(files, f"/{path}")
    assert refused.value.status_code == 404


@pytest.mark.parametrize("name", ["index.html", "login.html"])
def test_a_page_that_has_gone_is_asked_for_again_later(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(STATIC, tmp_path / "static")
    monkeypatch.setattr(page_files, "STATIC", tmp_path / "static")
    files = PageFiles()
    (tmp_path / "static" / name).unlink()
    answer = files.index(None) if name == "index.html" else files.login()
    assert answer.status_code == 503 and "ask again" in bytes(answer.body).decode()


def test_what_is_opened_first_is_text() -> None:
    assert 'data-opens="/api/labs/demo"' in index_of(PageFiles(), "/api/labs/demo")
    assert 'data-opens=""' in index_of(PageFiles())
    assert "<img" not in index_of(PageFiles(), '"><img src=x onerror=alert(1)>').partition("<body>")[0]


def test_all_modules_of_the_page_are_asked_for_at_once() -> None:
    """A module that is missing here is found only when the one before it was read: a step more before the picture."""
    named = _PRELOADED.findall((STATIC / "index.html").read_text())
    assert len(named) == len(set(named))
    assert set(named) == reached("core/main.js", set()) | {"core/early.js"}
    assert not [name for name in named if name.startswith(("vendor/uplot", "vendor/xterm"))]


@pytest.mark.parametrize("path", ["../page_files.py", "%2e%2e/page_files.py", "core/../../page_files.py"])
def test_no_other_file_is_one_of_the_page(path: str) -> None:
    from starlette.exceptions import HTTPException

    files = PageFiles()
    with pytest.raises(HTTPException) as refused:
        asked(files, f"/{path}")
    assert refused.value.status_code == 404
