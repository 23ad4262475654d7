"""The files of the page. Their addresses name what is in all of them, so that a browser asks for each of them once."""

from __future__ import annotations

import hashlib
import html
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from testbed.api.console.answers import RefusedRequest, error_answer

STATIC = Path(str(files("testbed.api.console"))) / "static"
_PICTURE = {f"graph/{name}": Path(str(files("testbed.lab.graph"))) / name for name in ("picture.js", "picture.css")}
"""Files that the pictures of `testbed graph` and the map have in common, by where the page finds them."""
_DIGEST = re.compile(r"[0-9a-f]{16}")
_FOR_EVER = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".json": "application/json"}
"""A machine's own table of types may say anything, and a browser that is told not to guess runs no script of another
type."""


class PageFiles(StaticFiles):
    """`/static/DIGEST/PATH` is kept by a browser without asking again, where DIGEST is that of the files when the page
    was last asked for; of `/static/PATH`, and of files as they were before, it asks each time."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)
        self._seen: dict[str, tuple[int, int]] = {}
        self._digest = ""

    def _renewed(self) -> str:
        """Return the digest of all files as they are now. They are read again only where one was written since.

        One that goes meanwhile, as in an upgrade, is none of them; the digest is made anew next time.
        """
        paths = [*sorted(STATIC.rglob("*")), *_PICTURE.values()]
        seen = {str(path): _stamp(status) for path in paths if (status := _file_status(path)) is not None}
        if seen != self._seen:
            content, self._seen = hashlib.sha256(), {}
            for path in map(Path, seen):
                with suppress(FileNotFoundError):
                    content.update(f"{path}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
                    self._seen[str(path)] = seen[str(path)]
            self._digest = content.hexdigest()[:16]
        return self._digest

    def index(self, opens: str | None) -> Response:
        """Answer with the page. `opens` is what it shows first, which it asks for before all of its parts are there."""

        def addressed(text: str) -> str:
            text = text.replace('data-opens=""', f'data-opens="{html.escape(opens or "")}"')
            return text.replace('"/static/', f'"/static/{self._renewed()}/')

        return _page("index.html", addressed)

    def login(self) -> Response:
        """Answer with the form to log in."""
        return _page("login.html", str, 401)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file, whatever digest its address names. One that was written since the digest was made is not
        what that names: who kept it would have it beside the files of before, should they come back."""
        first, _, rest = path.partition(os.sep)
        named = _DIGEST.fullmatch(first) is not None
        response = await super().get_response(rest if named else path, scope)
        is_named = named and first == self._digest and self._is_as_seen(rest)
        response.headers["Cache-Control"] = _FOR_EVER if is_named else "no-cache"
        return response

    def _is_as_seen(self, path: str) -> bool:
        full_path, status = self.lookup_path(path)
        return status is not None and self._seen.get(full_path) == _stamp(status)

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Return where a file is, and what is known of it."""
        if path in _PICTURE:
            status = _file_status(_PICTURE[path])
            return ("" if status is None else str(_PICTURE[path])), status
        return super().lookup_path(path)

    def file_response(self, full_path: Any, *arguments: Any, **settings: Any) -> Response:
        """Answer with a file, as what it is."""
        response = super().file_response(full_path, *arguments, **settings)
        kind = _TYPES.get(Path(full_path).suffix)
        if kind is not None:
            response.headers["Content-Type"] = f"{kind}; charset=utf-8"
        return response


def _page(name: str, completed: Callable[[str], str], status: int = 200) -> Response:
    """Answer with a page whose text `completed` makes of what is in its file."""
    try:
        text = (STATIC / name).read_text()
    except FileNotFoundError:
        hint = "ask again once the upgrade of testbed is done"
        return error_answer(RefusedRequest(503, f"{STATIC / name} is not there", hint=hint))
    return HTMLResponse(completed(text), status)


def _file_status(path: Path) -> os.stat_result | None:
    """Return what is known of a file; None where there is none, or something else."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _stamp(status: os.stat_result) -> tuple[int, int]:
    """Return what tells whether a file was written: when, and its size."""
    return status.st_mtime_ns, status.st_size
