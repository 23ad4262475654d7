"""Gives the hosts of a lab the tools of InfiniBand: a directory of their names, which is the first of a host's PATH."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from testbed.base.files import write_atomically
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.linux.processes import search_path
from testbed.lab.core.plan.lab_plan import InfinibandPlan
from testbed.lab.features.infiniband import tool
from testbed.lab.features.infiniband.plane import SEARCH, TOOLS, UNPRIVILEGED, Plane, preload_library

_PROGRAM = "tool"


def tools_directory(plane: Path) -> Path:
    """Return the directory with the names of the tools, of a plane's directory."""
    return plane / "bin"


def write_tools(plane: Plane, plan: InfinibandPlan) -> None:
    """Write the program that all tools are, its settings and its names. Raises `OSError`."""
    directory = tools_directory(plane.directory)
    directory.mkdir(mode=0o755, exist_ok=True)
    settings = {
        "namespace": str(NETNS_DIRECTORY / plane.namespace),
        "work": str(plane.work),
        "path": SEARCH,
        "library": preload_library(),
        "unprivileged": UNPRIVILEGED,
        "hcas": {host: dict(hcas) for host, hcas in plan.hcas},
    }
    write_atomically(directory / tool.SETTINGS, json.dumps(settings), durable=False)
    interpreter = os.path.realpath(sys.executable)
    source = Path(tool.__file__).read_text()
    program = directory / _PROGRAM
    write_atomically(program, f"#!{interpreter} -IS\n{source}", durable=False)
    program.chmod(0o755)
    for name in TOOLS:
        link = directory / name
        link.unlink(missing_ok=True)
        link.symlink_to(_PROGRAM)


def tool_environment(plane: Path, node: str) -> dict[str, str]:
    """Return what has commands in a host find the tools, and the tools their host."""
    return {"PATH": f"{tools_directory(plane)}{os.pathsep}{search_path()}", tool.HOST_VARIABLE: node}
