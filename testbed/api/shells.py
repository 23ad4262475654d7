"""A shell in a node: the command line of it, and what it is started with."""

from __future__ import annotations

import os
from typing import Any

from testbed.lab.core.deploy.live import RunningLab


def shell_command(lab: RunningLab, node: str) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments of `RunningLab.spawn` for a shell in a node: its words, and its options.

    Raises `NoSuchNode`, and `DriverError` where the node was not started.
    """
    from testbed.base.linux.processes import search_path
    from testbed.lab.features.management.client_environment import service_environment

    prompt = {"PS1": f"{lab.name}/{node}# ", "TESTBED_NODE": node}
    if lab.runtime(node) is not None:
        # Of a container it is only known that it has a shell, if it has any.
        return ["/bin/sh"], {"env": prompt}
    program = os.environ.get("SHELL") or "/bin/sh"
    own = {**lab.environment(node), **service_environment(lab, node)}
    environment = {**os.environ, "PATH": search_path(), **own, **prompt}
    argv = [program, "--norc"] if program.endswith("bash") else [program]
    return argv, {"own_sysfs": True, "env": environment}
