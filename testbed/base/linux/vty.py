"""Asking an FRR daemon over its vty socket, without a vtysh process for every question.

Protocol (FRR lib/vty.c, vtysh/vtysh.c): a command ended by NUL; the answer is text followed by three
NULs and a status byte, 0 for success.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testbed.base.errors import DriverError

OWN_RUN_DIRECTORY = Path("/run/frr")
OWN_CONFIGURATION = Path("/etc/frr")
"""FRR's own directories: where vtysh and mgmtd look for their files, and daemons for each other's sockets."""
_SECRET = re.compile(r"(?<=password )\S+")
TIMEOUT_S = 10.0
ASKED_AGAIN_S = 0.02
_WARNING = 1
"""The status of a command that had nothing to do (CMD_WARNING of FRR's lib/command.h)."""


def without_secrets(line: str) -> str:
    """Return a line of a configuration with a password hidden."""
    return _SECRET.sub("(hidden)", line)


def shell_directory(directory: Path) -> Path:
    """Return what programs of a node see as `OWN_CONFIGURATION`, in the directory of its daemons: for vtysh alone.

    It is not that of the daemons: mgmtd takes no configuration of its own where frr.conf is beside it.
    """
    return directory / "vtysh"


def is_there(directory: Path, daemon: str) -> bool:
    """Tell whether somebody listens at the socket of `daemon`, however busy it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as stream:
        try:
            stream.connect(str(directory / f"{daemon}.vty"))
        except BlockingIOError:  # more than it takes wait for it
            return True
        except OSError:
            return False
    return True


def ask(directory: Path, daemon: str, command: str, *, timeout_s: float = TIMEOUT_S) -> str:
    """The text that `daemon`, whose sockets are in `directory`, answers to `command`.

    Raises `DriverError` if the daemon is not there, refuses or takes longer than `timeout_s`.
    """
    path = directory / f"{daemon}.vty"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.settimeout(timeout_s)
            stream.connect(str(path))
            _exchange(stream, "enable")
            status, answer = _exchange(stream, command)
    except OSError as error:
        raise DriverError(f"{daemon} in {directory.name} does not answer: {error.strerror or error}") from error
    if status != 0:
        raise DriverError(f"{daemon} in {directory.name} refused {command!r}: {answer.strip()}")
    return answer


def configure(
    directory: Path, daemon: str, commands: Sequence[str], *, again: bool = False, timeout_s: float = TIMEOUT_S
) -> None:
    """Have a running `daemon` carry out configuration commands, one after the other. Its file stays as it is.

    `again`: it may have carried out some of them before, and has not what `no` would take away then, or says nothing
    but a warning (bgpd of `redistribute`). Raises `DriverError` if the daemon is not there, refuses one (those before
    it stand) or takes longer than `timeout_s`.
    """
    path = directory / f"{daemon}.vty"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.settimeout(timeout_s)
            stream.connect(str(path))
            for command in ("enable", "configure terminal", *commands, "end"):
                status, answer = _exchange(stream, command)
                said = answer.strip()
                done = command.startswith("no ") or (status == _WARNING and not said)
                if status != 0 and not (again and done):
                    said = said or f"status {status}"
                    raise DriverError(f"{daemon} in {directory.name} refused {without_secrets(command)!r}: {said}")
    except OSError as error:
        raise DriverError(f"{daemon} in {directory.name} does not answer: {error.strerror or error}") from error


def ask_json(directory: Path, daemon: str, command: str, *, timeout_s: float = TIMEOUT_S) -> Any:
    """`ask`, for a `show ... json` command."""
    return _parsed(directory, daemon, command, ask(directory, daemon, command, timeout_s=timeout_s))


def _parsed(directory: Path, daemon: str, command: str, answer: str) -> Any:
    try:
        return json.loads(answer)
    except json.JSONDecodeError as error:
        raise DriverError(
            f"{daemon} in {directory.name} answered {command!r} with something that is not JSON"
        ) from error


def await_text(
    directory: Path,
    daemon: str,
    command: str,
    ready: Callable[[str], bool],
    awaited: str,
    *,
    runs: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Ask a command again and again until `ready` says of the answer that it is as it must be.

    A daemon that does not answer yet is asked again, unless it `runs`. Raises `DriverError` where it has not `awaited`,
    a noun such as "its VRFs", within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        last = None
        try:
            if ready(ask(directory, daemon, command)):
                return
        except DriverError as error:
            if runs:
                raise
            last = error
        if time.monotonic() > deadline:
            raise DriverError(f"{daemon} of {directory.name} does not have {awaited} within {timeout_s:g} s") from last
        time.sleep(ASKED_AGAIN_S)  # FRR tells nobody of it


def await_json(
    directory: Path,
    daemon: str,
    command: str,
    ready: Callable[[Any], bool],
    awaited: str,
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """`await_text`, for a `show ... json` command."""

    def is_ready(answer: str) -> bool:
        return ready(_parsed(directory, daemon, command, answer))

    await_text(directory, daemon, command, is_ready, awaited, timeout_s=timeout_s)


def await_answer(directory: Path, daemon: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until a daemon that has just been started answers. Raises `DriverError` where it does not in this time."""
    await_text(directory, daemon, "show version", lambda _: True, "an answer", timeout_s=timeout_s)


def _exchange(stream: socket.socket, command: str) -> tuple[int, str]:
    stream.sendall(command.encode() + b"\0")
    received = bytearray()
    while not (len(received) >= 4 and received[-4:-1] == b"\0\0\0"):
        part = stream.recv(65536)
        if not part:
            raise OSError("the connection was closed")
        received += part
    return received[-1], received[:-4].decode("utf-8", "replace")
