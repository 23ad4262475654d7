"""tshark with a dissector of ours over a capture: what it prints, and that no Lua failed."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "images" / "wireshark"


def run_tshark(script: str, path: Path, *options: str) -> str:
    """`script`: the name of a dissector in images/wireshark."""
    argv = ["tshark", "-n", "-X", f"lua_script:{SCRIPTS / script}"]
    done = subprocess.run(
        [*argv, "-r", str(path), *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    said = done.stdout + done.stderr
    assert "Lua" not in done.stderr, done.stderr
    assert "Lua Error" not in said
    assert "dissector failed" not in said
    return done.stdout


def pdml_packets(script: str, path: Path, *options: str) -> Iterator[ET.Element]:
    """Each packet with all its protocols and fields."""
    return ET.fromstring(run_tshark(script, path, *options, "-T", "pdml")).iter("packet")
