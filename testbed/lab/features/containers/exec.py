"""A command in a container as a child process of ours: `spawn` in here, and the program that the child is.

Docker runs a command in a container for whoever asks, and streams its input and output over the connection that
asked. Whoever has a node, though, expects a process: file descriptors to hand over, a terminal, signals, a status. So
the child is this file, run as a program: it stands on the standard library alone (the SDK takes longer to import than
most commands run), asks the engine, pumps, hands signals on, and ends with the command's status.

The API: https://docs.docker.com/reference/api/engine/ (Exec; "Stream format" under attach).
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import termios
import tty
from collections.abc import Mapping, Sequence
from typing import Any

API = "/v1.40"
CANNOT_RUN = 126
KILL = signal.SIGUSR2
"""Sent to the child where SIGKILL is meant for the command: the child itself must live to tell of its end."""
_RETRY_S = 0.05
"""After which it is asked again whether a command that is to be signalled has been started."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, KILL)


class ContainerProcess(subprocess.Popen[bytes]):
    """A command in a container. What is signalled is the command: `kill`, too. Its status is 128 + n for signal n."""

    def send_signal(self, sig: int) -> None:
        super().send_signal(KILL if sig == signal.SIGKILL else sig)


def spawn(
    socket_path: str,
    container: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    **options: Any,
) -> ContainerProcess:
    """Start `argv` in a container of the engine at `socket_path`; `options` are those of `subprocess.Popen`.

    `env` is added to the container's own. With a terminal as its standard input the command gets one, too.
    """
    request: dict[str, Any] = {
        "socket": socket_path,
        "container": container,
        "argv": list(argv),
        "env": dict(env or {}),
        "cwd": cwd,
    }
    request["stdin"] = options.get("stdin") != subprocess.DEVNULL
    return ContainerProcess([sys.executable, "-I", "-S", __file__, json.dumps(request)], **options)


# --- the child -----------------------------------------------------------------------------------------


class _Engine(http.client.HTTPConnection):
    """A connection to an engine's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _Refused(Exception):
    """The engine's answer to what it does not do."""


def _ask(path: str, method: str, url: str, body: Mapping[str, Any] | None = None) -> Any:
    with contextlib.closing(_Engine(path)) as engine:
        headers = {"Content-Type": "application/json"}
        engine.request(method, API + url, None if body is None else json.dumps(body), headers)
        answer = engine.getresponse()
        text = answer.read().decode("utf-8", "replace")
    if answer.status >= 300:
        with contextlib.suppress(ValueError, KeyError):
            text = json.loads(text)["message"]
        raise _Refused(text.strip())
    return json.loads(text) if text else None


def _begin(path: str, exec_id: str, *, tty: bool) -> tuple[socket.socket, bytes]:
    """Start the command: the stream it speaks over, and what came of it already."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.connect(path)
    body = json.dumps({"Detach": False, "Tty": tty}).encode()
    head = f"POST {API}/exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
    head += f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
    stream.sendall(head.encode() + body)
    received = b""
    while b"\r\n\r\n" not in received:
        part = stream.recv(65536)
        if not part:
            raise _Refused("the engine closed the connection")
        received += part
    header, _, rest = received.partition(b"\r\n\r\n")
    status = int(header.split(None, 2)[1])
    if status not in (101, 200):
        with contextlib.suppress(ValueError, KeyError):
            rest = json.loads(rest)["message"].encode()
        raise _Refused(rest.decode("utf-8", "replace").strip())
    return stream, rest


class _Command:
    """The command while it runs."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._socket = request["socket"]
        self._tty = bool(request["stdin"]) and os.isatty(0)
        body = {
            "Cmd": request["argv"],
            "AttachStdin": request["stdin"],
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": self._tty,
            "Env": [f"{key}={value}" for key, value in request["env"].items()],
        }
        if request["cwd"]:
            body["WorkingDir"] = request["cwd"]
        if self._tty and "TERM" in os.environ:
            body["Env"].append(f"TERM={os.environ['TERM']}")
        self._wants_input = bool(request["stdin"])
        self._id = _ask(self._socket, "POST", f"/containers/{request['container']}/exec", body)["Id"]
        self._frames = b""
        self._undelivered: list[int] = []

    def run(self) -> int:
        """Run until its end; return its status."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer)
        for number in (*_FORWARDED, signal.SIGWINCH):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        before = termios.tcgetattr(0) if self._tty else None
        try:
            if before is not None:
                tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is not lost
            stream, rest = _begin(self._socket, self._id, tty=self._tty)
            self._resize()
            self._pump(stream, rest, reader)
        finally:
            if before is not None:
                termios.tcsetattr(0, termios.TCSADRAIN, before)
        status = _ask(self._socket, "GET", f"/exec/{self._id}/json")["ExitCode"]
        return CANNOT_RUN if status is None else int(status)

    def _pump(self, stream: socket.socket, rest: bytes, signals: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ, "output")
            selector.register(signals, selectors.EVENT_READ, "signals")
            if self._wants_input:
                try:
                    selector.register(0, selectors.EVENT_READ, "input")
                except PermissionError:  # a regular file is always ready, and epoll has none of them
                    self._send_file(stream)
            self._print(rest)
            while True:
                for key, _ in selector.select(_RETRY_S if self._undelivered else None):
                    match key.data:
                        case "output":
                            data = stream.recv(65536)
                            if not data:
                                return
                            self._print(data)
                        case "signals":
                            for number in os.read(signals, 64):
                                if number == signal.SIGWINCH:
                                    self._resize()
                                else:
                                    self._undelivered.append(number)
                        case "input":
                            if data := os.read(0, 65536):
                                stream.sendall(data)
                            else:
                                selector.unregister(0)
                                stream.shutdown(socket.SHUT_WR)
                if self._undelivered:
                    self._deliver()

    def _send_file(self, stream: socket.socket) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while data := os.read(0, 65536):
                stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)

    def _print(self, data: bytes) -> None:
        """Hand output on. Without a terminal it comes in frames: stream (1 or 2), three zeros, length, bytes."""
        if self._tty:
            _write(1, data)
            return
        self._frames += data
        while len(self._frames) >= 8:
            source, length = struct.unpack_from(">BxxxI", self._frames)
            if len(self._frames) < 8 + length:
                return
            _write(2 if source == 2 else 1, self._frames[8 : 8 + length])
            self._frames = self._frames[8 + length :]

    def _deliver(self) -> None:
        """Hand signals on. One that comes before the engine has started the command waits for it.

        For a moment the engine says that it runs and does not know its number yet.
        """
        state = _ask(self._socket, "GET", f"/exec/{self._id}/json")
        if (state["Running"] and not state["Pid"]) or (not state["Running"] and state["ExitCode"] is None):
            return
        for number in self._undelivered:
            if state["Running"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(state["Pid"], signal.SIGKILL if number == KILL else number)
        self._undelivered.clear()

    def _resize(self) -> None:
        if self._tty:
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))
            with contextlib.suppress(_Refused):  # it may have ended
                _ask(self._socket, "POST", f"/exec/{self._id}/resize?h={rows}&w={columns}")


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def main(argument: str) -> int:
    try:
        return _Command(json.loads(argument)).run()
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except (_Refused, OSError) as error:
        print(f"docker: {error}", file=sys.stderr)
        return CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
