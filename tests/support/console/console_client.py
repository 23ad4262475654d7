"""A console in a process of its own, and a page that asks it over HTTP, as a browser does."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

LINK = re.compile(r"(?:console|for another browser): http://([^/]+)/\?token=(\S+)")
BEGIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event of a stream."""

    id: str
    event: str
    data: Any


class ConsoleProcess:
    """`testbed console`, which has told its link."""

    def __init__(self, words: Sequence[str], directory: Path) -> None:
        command = [sys.executable, "-P", "-m", "testbed", "console", "--bind", "127.0.0.1:0", *words]
        self.process = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said: list[str] = []
        self.links: list[tuple[str, str]] = []
        self._told = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._told.wait(BEGIN_S) or not self.links:
            self.process.kill()
            raise AssertionError(f"the console did not begin: {self.said}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if match := LINK.search(line):
                self.links.append((match[1], match[2]))
                self._told.set()
        self._told.set()

    def page(self) -> Page:
        """Return a browser that has logged in by the latest link."""
        host, token = self.links[-1]
        return Page.logged_in(host, token)

    def end(self) -> int:
        """End it as Ctrl-C does; its exit code."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def console_process(words: Sequence[str], directory: Path) -> Iterator[ConsoleProcess]:
    """A console that ends with the context."""
    console = ConsoleProcess(words, directory)
    try:
        yield console
    finally:
        if console.process.poll() is None:
            console.end()


class Page:
    """A browser of one console: its cookie, and what it asks."""

    def __init__(self, host: str, cookie: str) -> None:
        self.host = host
        self.cookie = cookie

    @classmethod
    def logged_in(cls, host: str, token: str) -> Self:
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", f"/?token={token}")
        answer = connection.getresponse()
        assert answer.status == 303, (answer.status, answer.read())
        cookie = str(answer.getheader("Set-Cookie")).partition(";")[0]
        connection.close()
        return cls(host, cookie)

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status, and the JSON of the answer."""
        own = {"Cookie": self.cookie, "Origin": f"http://{self.host}"}
        if body is not None:
            own["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {**own, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text

    def get(self, path: str) -> Any:
        """Return the JSON of an answer that is no refusal."""
        status, document = self.ask("GET", path)
        assert status == 200, (status, document)
        return document

    @contextmanager
    def stream(self, path: str, last: str = "") -> Iterator[Iterator[Told]]:
        """The events of a stream, as they come."""
        host, _, port = self.host.rpartition(":")
        stream = socket.create_connection((host, int(port)), timeout=60)
        lines = [f"GET {path} HTTP/1.1", f"Host: {self.host}", f"Cookie: {self.cookie}"]
        lines += [f"Last-Event-ID: {last}"] if last else []
        stream.sendall("\r\n".join([*lines, "", ""]).encode())
        try:
            yield _events(_body(stream))
        finally:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
            stream.close()


def _body(stream: socket.socket) -> Iterator[str]:
    """The lines of a body in chunks (RFC 9112, 7.1)."""
    with stream.makefile("rb") as received:
        status = received.readline()
        assert b" 200 " in status, status
        while received.readline().strip():
            pass
        rest = b""
        while size := int(received.readline() or b"0", 16):
            rest += received.read(size)
            received.readline()
            *lines, rest = rest.split(b"\n")
            yield from (line.decode() for line in lines)


def _events(lines: Iterator[str]) -> Iterator[Told]:
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "event" in fields:
                yield Told(id=fields.get("id", ""), event=fields["event"], data=json.loads(fields["data"]))
            fields = {}
            continue
        name, _, value = line.partition(": ")
        fields[name] = value
