"""A tool of InfiniBand as a host has it, such as ibnetdiscover: the machine's own, at one of the host's HCAs.

It is a program of its own, which links of the tools' names lead to, and becomes the tool: in the namespace of the
subnet, as nobody. `-C rail2`, which all tools have, chooses another HCA than the host's first. Its settings lie beside
it. It imports the standard library alone.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HOST_VARIABLE = "TESTBED_INFINIBAND_HOST"
PERFORMANCE_VARIABLE = "TESTBED_PERFORMANCE_SOCKET"
"""The socket that questions for counters go to, by the library that is loaded before that of ibsim."""
SETTINGS = "tools.json"
_CHOOSING = ("-C", "--Ca")


def command_of(settings: Mapping[str, Any], host: str, tool: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that a tool of a host stands for. Raises `ValueError` with a sentence for the user."""
    hcas = settings["hcas"].get(host)
    if not hcas:
        raise ValueError(f"{tool}: this node has no HCA")
    chosen, left = next(iter(hcas)), list(arguments)
    for index, word in enumerate(left[:-1]):
        if word in _CHOOSING:
            chosen = left[index + 1]
            del left[index : index + 2]
            break
    if chosen not in hcas:
        raise ValueError(f"{tool}: {host} has no HCA {chosen}: it has {', '.join(hcas)}")
    return [
        *("nsenter", f"--net={settings['namespace']}", f"--wd={settings['work']}", "--"),
        *settings["unprivileged"],
        *("env", f"PATH={settings['path']}", f"LD_PRELOAD={settings['library']}", f"SIM_HOST={hcas[chosen]}"),
        *((f"{PERFORMANCE_VARIABLE}={settings['performance']}",) if settings["performance"] else ()),
        tool,
        *left,
    ]


def main() -> None:
    """Become the tool whose name this program was called by."""
    own = Path(os.path.realpath(__file__)).parent
    settings = json.loads((own / SETTINGS).read_text())
    try:
        command = command_of(settings, os.environ.get(HOST_VARIABLE, ""), Path(sys.argv[0]).name, sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
    os.environ["PATH"] = settings["path"]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
