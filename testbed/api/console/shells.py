"""Shells in nodes: a pseudo-terminal (pty(7)) behind a WebSocket, for as long as the page has it open.

Binary messages are what is typed and what is printed; a text message is JSON: `{"resize": [columns, rows]}`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.console import MOST_SHELLS, Console
from testbed.api.shells import shell_command
from testbed.base.errors import TestbedError
from testbed.base.linux.processes import stat_fields
from testbed.lab.core.deploy.live import RunningLab

CHUNK = 65536
GRACE_S = 2.0
"""The time that what runs in a shell has after SIGHUP until it is killed."""
REFUSED, NO_SUCH_NODE, TOO_MANY = 4403, 4404, 4429
"""The codes (RFC 6455, 7.4.2: of private use) with which a shell is refused."""
_CODES = {404: NO_SUCH_NODE, 429: TOO_MANY}
_MOST_COLUMNS, _MOST_ROWS = 500, 300
_LONGEST_REASON = 120
"""Bytes of the reason of a close: a frame of control has room for 123 (RFC 6455, 5.5.1)."""
_TERMINAL = "xterm-256color"
_PROGRAMS = ("shell", "vtysh")


async def serve_shell(console: Console, socket: WebSocket) -> None:
    """Serve a shell in the node that the address names, until the page closes it or the shell ends."""
    await socket.accept()
    if console.shells >= MOST_SHELLS:
        await socket.close(TOO_MANY, f"{MOST_SHELLS} shells are open already")
        return
    console.shells += 1  # before it is opened: several may come at once
    terminal = None
    try:
        terminal = await _opened(console, socket)
        if terminal is not None:
            await _exchange(terminal, socket)
    finally:
        console.shells -= 1
        if terminal is not None:
            await asyncio.shield(asyncio.to_thread(terminal.close))


async def _opened(console: Console, socket: WebSocket) -> Terminal | None:
    """Open the terminal that a page asks for; None where it is refused, which the page has been told."""
    try:
        console.require_write()
        source = await console.live_lab(socket.path_params["name"])
        query = socket.query_params
        size = _size(query.get("cols", "80"), query.get("rows", "24"))
        program = query.get("program", "shell")
        if program not in _PROGRAMS:
            raise RefusedRequest(400, f"program={program}: one of {', '.join(_PROGRAMS)}")
        node = socket.path_params["node"]
        found: Terminal = await console.readers.run(lambda: Terminal.open(source.lab, node, program, size))
        return found
    except (TestbedError, OSError) as error:
        status = error.status if isinstance(error, RefusedRequest) else 404
        said = error.message if isinstance(error, TestbedError) else str(error)
        reason = said.encode(errors="replace")[:_LONGEST_REASON].decode(errors="ignore")
        with suppress(RuntimeError):
            await socket.close(_CODES.get(status, REFUSED), reason)
        return None


async def _exchange(terminal: Terminal, socket: WebSocket) -> None:
    """Pass on what is typed and printed until either side ends; then close the socket with the shell's status."""
    printing = asyncio.ensure_future(_print(terminal, socket))
    typing = asyncio.ensure_future(_type(terminal, socket))
    try:
        done, _ = await asyncio.wait((printing, typing), return_when=asyncio.FIRST_COMPLETED)
        if printing in done and printing.exception() is None:
            status = await asyncio.to_thread(terminal.status)
            with suppress(RuntimeError, WebSocketDisconnect):
                await socket.close(1000, f"ended with status {status}")
    finally:
        for task in (printing, typing):
            task.cancel()
        await asyncio.gather(printing, typing, return_exceptions=True)


async def _print(terminal: Terminal, socket: WebSocket) -> None:
    """Send what the shell prints, as fast as the page takes it: who does not read stops the shell, not this process."""
    while content := await terminal.read():
        await socket.send_bytes(content)


async def _type(terminal: Terminal, socket: WebSocket) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if (content := message.get("bytes")) is not None:
            await terminal.write(content)
        elif (text := message.get("text")) is not None:
            with suppress(msgspec.DecodeError, TypeError, ValueError, KeyError):
                columns, rows = msgspec.json.decode(text)["resize"]
                terminal.resize(*_size(str(columns), str(rows)))


def _size(columns: str, rows: str) -> tuple[int, int]:
    try:
        return min(max(int(columns), 2), _MOST_COLUMNS), min(max(int(rows), 2), _MOST_ROWS)
    except ValueError as error:
        raise RefusedRequest(400, "cols and rows are whole numbers") from error


class Terminal:
    """A program in a node, at a terminal of its own. It leads a session, with all that is started in it."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self._process = process
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    @classmethod
    def open(cls, lab: RunningLab, node: str, program: str, size: tuple[int, int]) -> Terminal:
        """Start a shell, or another program, in a node. Raises `NoSuchNode`, `DriverError`."""
        argv, settings = shell_command(lab, node)
        if program == "vtysh":
            if node not in {speaker.node for speaker in lab.plan.speakers}:
                raise RefusedRequest(404, f"{node} does not route: it has no vtysh")
            argv = ["vtysh"]
        master, slave = pty.openpty()
        try:
            _set_size(master, *size)
            environment = {**(settings.pop("env", None) or {}), "TERM": _TERMINAL}
            # setsid(1) --ctty: the terminal is the session's own, so that Ctrl-C reaches what runs in it
            words = argv if lab.runtime(node) is not None else ["setsid", "--ctty", *argv]
            process = lab.spawn(
                node, words, stdin=slave, stdout=slave, stderr=slave, close_fds=True, env=environment, **settings
            )
        except OSError as error:
            os.close(master)
            raise TestbedError(f"cannot start a shell in {node}: {error.strerror}") from error
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return cls(process, master)

    async def read(self) -> bytes:
        """Return what is printed next; b"" once all that had the terminal have ended."""
        await self._ready(asyncio.get_running_loop().add_reader, asyncio.get_running_loop().remove_reader)
        try:
            return os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return await self.read()
        except OSError:  # EIO: nobody has the other end any more
            return b""

    async def write(self, content: bytes) -> None:
        """Type something; wait while the program does not take it."""
        while content:
            try:
                content = content[os.write(self._descriptor, content) :]
            except BlockingIOError:
                await self._ready(asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer)
            except OSError:
                return

    async def _ready(self, add: Any, remove: Any) -> None:
        ready = asyncio.Event()
        add(self._descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            remove(self._descriptor)

    def resize(self, columns: int, rows: int) -> None:
        """Tell the program another size of its window."""
        with suppress(OSError):
            _set_size(self._descriptor, columns, rows)

    def status(self) -> int:
        """Wait for the program's end, and return its status."""
        try:
            return self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return -1

    def close(self) -> None:
        """Hang up: end the program and all that was started in its session, whatever they do about it."""
        session = self._process.pid
        for number in (signal.SIGHUP, signal.SIGKILL):
            leader = [session] if self._process.poll() is None else []  # else its number may be somebody else's
            for pid in {*leader, *_of_session(session)}:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, number)
            if number == signal.SIGHUP:
                with suppress(OSError):
                    os.close(self._descriptor)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
            if not _of_session(session):
                break
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)


def _of_session(session: int) -> list[int]:
    """Return the processes of a session (proc(5), stat), but for those that have ended."""
    return [pid for pid, own in _sessions() if own == session]


def _sessions() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            fields = stat_fields(int(entry.name))
            if fields[0] != "Z":
                yield int(entry.name), int(fields[3])


def _set_size(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
