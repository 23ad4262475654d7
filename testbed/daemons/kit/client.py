"""Asking a daemon over its control socket: one line of JSON, and one for the answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.base.unix_sockets import open_connection

CONTROL_SOCKET = "control"
"""The name of the socket of a service's process, in the service's own directory."""
NOBODY = (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)
"""The errors of `open_connection` where no daemon listens."""


def ask(directory: Path, name: str, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """The answer, whether the daemon did it (`ok`) or not.

    Raises `OSError`, as `open_connection` does; `TimeoutError` where no answer comes, and `EOFError` where the daemon
    ends before it has answered.
    """
    received = bytearray()
    with open_connection(directory, name, timeout_s=timeout_s) as item:
        item.sendall(json.dumps(request).encode() + b"\n")
        deadline = time.monotonic() + timeout_s
        while not received.endswith(b"\n"):
            item.settimeout(max(0.001, deadline - time.monotonic()))
            data = item.recv(1 << 18)
            if not data:
                raise EOFError(name)
            received += data
    return dict(json.loads(received))
