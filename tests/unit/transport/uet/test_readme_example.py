"""The README's example of the transport runs, without root."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[4] / "README.md"


def test_the_example_runs() -> None:
    section = README.read_text().split("\n## Ultra Ethernet\n", 1)[1].split("\n## ", 1)[0]
    [example] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "127.0.0.2/0/1 b'hello'\nTrue\n", done.stderr
