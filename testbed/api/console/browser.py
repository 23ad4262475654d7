"""Opens the link to the console in a browser of this machine, without showing its token to others on it.

The command line of a browser can be read by every user (proc(5), cmdline). So what it is given is the name of a file
that its owner alone can read, a page that leads on to the link.
"""

from __future__ import annotations

import html
import os
import shutil
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>testbed console</title>
<p><a href="{link}">To the console</a>
</html>
"""


class LinkFile:
    """The file with the link, which is there from `open` to `remove`."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def open(self, link: str, tell: Callable[[str], None]) -> None:
        """Have a browser follow a link, in a thread of its own: some are waited for until they end.

        `tell` gets a sentence where there is none; the link was printed as well.
        """
        self.remove()
        place = os.environ.get("XDG_RUNTIME_DIR", "")
        self._directory = Path(
            tempfile.mkdtemp(prefix="testbed-console-", dir=place if os.access(place, os.W_OK) else None)
        )
        page = self._directory / "console.html"
        descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:  # noqa: PTH123 - it is open already
            stream.write(_PAGE.format(link=html.escape(link)))

        def follow() -> None:
            if not webbrowser.open(page.as_uri()):
                tell("--open: no browser was found here that could be started; follow the link in one")

        threading.Thread(target=follow, name="browser", daemon=True).start()

    def remove(self) -> None:
        """Remove the file; twice does nothing."""
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def tell_on_standard_error(sentence: str) -> None:
    """Print a sentence for who has started the console."""
    print(sentence, file=sys.stderr, flush=True)
