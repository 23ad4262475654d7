"""A page that asks a console over HTTP, as a browser does, but for drawing anything."""

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event of a stream."""

    id: str
    event: str
    data: Any


class Page:
    """A browser of one console: its cookie, and what it asks."""

    def __init__(self, host: str, cookie: str) -> None:
        self.host = host
        self.cookie = cookie

    @classmethod
    def by_link(cls, link: str) -> Self:
        """Log in by a link that the console has shown."""
        parts = urlsplit(link)
        host = parts.netloc
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", f"/?{parts.query}")
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
