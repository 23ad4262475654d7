"""The browser that tests open pages in: Chromium without a screen, offline, with a directory of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
QUIET = ("background-networking", "component-update", "sync", "quic")
TIMEOUT_S = 60


def browse(page: Path, options: Sequence[str], profile: Path) -> str:
    """Return the browser's output for a page with these options; `profile` is a directory for it alone."""
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command += [f"--disable-{what}" for what in QUIET] + [f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
