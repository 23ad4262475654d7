"""Labs as topology files make them, field by field: labs/NAME.yml has the files, and labs/NAME.txt what comes of them.

Files are separated by `---`; all begin with what stands before the first of them. Of the first one all of the lab is
told, of each other one how its lab differs from that.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from golden_files import Golden
from spelled import spelled_lines

from testbed.lab.core.schema.load import load_topology_text

FILES = sorted(Path(__file__).with_name("labs").glob("*.yml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_lab_is_what_its_file_says(path: Path, golden: Golden) -> None:
    beginning, first, *others = path.read_text().split("---\n")
    reference = list(spelled_lines(load_topology_text(beginning + first, file="lab.yml"), "lab"))
    told = [first, *(f"{line}\n" for line in reference)]
    for other in others:
        lines = list(spelled_lines(load_topology_text(beginning + other, file="lab.yml"), "lab"))
        changes = list(difflib.unified_diff(reference, lines, lineterm="", n=0))[2:]
        told += ["---\n", other, *(f"{line}\n" for line in changes if not line.startswith("@@"))]
    golden(path.with_suffix(".txt")).check("".join(told))
