"""The mirror from which Debian packages come on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

DEFAULT_MIRROR = "http://deb.debian.org/debian"
DEFAULT_SECURITY_MIRROR = "http://deb.debian.org/debian-security"


def mirror() -> str:
    """The Debian mirror: $TESTBED_MIRROR, or the one that this machine's own apt uses, or Debian's own."""
    if given := os.environ.get("TESTBED_MIRROR"):
        return given
    return _from_apt("debian") or DEFAULT_MIRROR


def security_mirror() -> str:
    """The mirror of security updates that this machine's own apt uses, or Debian's own."""
    return _from_apt("debian-security") or DEFAULT_SECURITY_MIRROR


def _from_apt(archive: str, directory: Path = Path("/etc/apt")) -> str:
    for path in (directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))):
        if path.suffix in {".list", ".sources"} and path.is_file():
            for line in path.read_text().splitlines():
                found = re.match(rf"(?:URIs:|deb\s(?:\[.*\])?)\s*(https?://\S+/{archive})/?(?:\s|$)", line)
                if found:
                    return found[1]
    return ""
