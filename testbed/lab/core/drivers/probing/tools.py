"""Programs that labs use, as installed: where they are and which version, asked once for each file.

A version is kept with the file's identity, so that what is installed or upgraded meanwhile is asked anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from testbed.base.installation.packages import PROGRAMS, SYSTEM_PATH, KnownProgram
from testbed.base.programs import captured

_TIMEOUT_S = 5.0
_SEARCH = os.pathsep.join((*SYSTEM_PATH, str(Path(sys.executable).parent)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A program found. `path` "" where it is not; `version` "" where it was not asked; `error` if it does not run."""

    name: str
    path: str = ""
    version: str = ""
    error: str = ""
    identity: str = ""


def find_programs(known: Mapping[str, Installed], programs: Sequence[KnownProgram] = PROGRAMS) -> dict[str, Installed]:
    """All programs by name. Those in `known` whose file is the same are not asked again; others all at once."""
    found: dict[str, Installed] = {}
    ask: list[tuple[KnownProgram, Installed]] = []
    for program in programs:
        path = program.locate(None, _SEARCH)
        if path is None:
            found[program.name] = Installed(name=program.name)
            continue
        item = Installed(name=program.name, path=path, identity=_identity(path))
        earlier = known.get(program.name)
        if earlier is not None and earlier.identity == item.identity and earlier.path == path:
            found[program.name] = earlier
        elif program.question is None:
            found[program.name] = item
        else:
            ask.append((program, item))
    if ask:
        with ThreadPoolExecutor(max_workers=len(ask)) as pool:
            for item in pool.map(_ask, *zip(*ask, strict=True)):
                found[item.name] = item
    return {program.name: found[program.name] for program in programs}


def _identity(path: str) -> str:
    status = Path(path).stat()
    return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"


def _ask(program: KnownProgram, item: Installed) -> Installed:
    try:
        answer = captured([item.path, *(program.question or ())], _TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return Installed(name=item.name, path=item.path, identity=item.identity, error=f"does not run: {error}")
    return Installed(
        name=item.name, path=item.path, identity=item.identity, version=parse_version(answer.stdout + answer.stderr)
    )


_VERSION = re.compile(r"\d+(?:\.\d+)+(?:[-+~.\w]*\d)?")


def parse_version(text: str) -> str:
    """The first thing in a program's answer that looks like a version (numbers with dots); "" for none."""
    match = _VERSION.search(text)
    return match[0] if match else ""
