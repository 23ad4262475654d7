"""The console as a test uses it: the command that serves it, and a page of it in Debian's Chromium."""

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headless_browser import BROWSERS

START_S = 60.0
_LINK = re.compile(r"https?://\S+\?token=\S+")
STRANGER = "stranger.example"
"""A name that resolves to this machine: what DNS rebinding makes of a stranger's."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--force-color-profile=srgb",
    f"--host-resolver-rules=MAP {STRANGER} 127.0.0.1",
)


class ConsoleProcess:
    """`lab console`, until it is closed. Each of its links is good for one browser."""

    def __init__(self, *arguments: str, directory: Path) -> None:
        """Start it. Raises `AssertionError` where it prints no link."""
        command = [sys.executable, "-m", "testbed", "console", *arguments]
        self.process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self.said: list[str] = []
        self._links: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if found := _LINK.search(line):
                self._links.put(found[0])

    def link(self) -> str:
        """The next link, with its token."""
        try:
            return self._links.get(timeout=START_S)
        except queue.Empty:
            raise AssertionError(f"the console shows no link: {''.join(self.said)}") from None

    def close(self) -> int:
        """End it as Ctrl-C does; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._reader.join(5)
        return self.process.wait(5)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's, without its download: Debian's, in software rendering."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class PageErrors:
    """What a page complains of: errors of scripts, and what its policy refuses."""

    def __init__(self, page: Any) -> None:
        self.found: list[str] = []
        page.on("pageerror", lambda error: self.found.append(str(error)))
        page.on("console", self._said)

    def _said(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:  # a refusal is an answer
            self.found.append(message.text)
