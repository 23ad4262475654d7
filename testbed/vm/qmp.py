"""QEMU's machine protocol, as much as asking how a machine is and ending it takes. Source: QEMU, qmp-spec.rst."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

TIMEOUT_S = 5.0


def ask(path: Path, command: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Return what the machine behind the socket answers. Raises `OSError` where nobody does, `ValueError` if it
    refuses.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        with connection.makefile("rw") as stream:
            stream.readline()  # its greeting
            for name in ("qmp_capabilities", command):
                stream.write(json.dumps({"execute": name}) + "\n")
                stream.flush()
                answer = _answer(stream)
            return answer


def _answer(stream: Any) -> Any:
    while line := stream.readline():
        said = json.loads(line)
        if "return" in said:
            return said["return"]
        if "error" in said:
            raise ValueError(said["error"].get("desc", "refused"))
    raise OSError("the machine ended")
