"""A browser of few words: asks an ASGI application in this process, and returns what it answers."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1:9470"
ORIGIN = f"http://{HOST}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer: its status, its headers by lower-case name, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: object = None
) -> Answer:
    """Ask for a path, with its query. A body is sent as JSON. The headers are those of our own page, but for those that
    are given; one that is "" is left out."""
    own = {"host": HOST, **({} if method == "GET" else {"origin": ORIGIN})}
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    if body is not None:
        own["content-type"] = "application/json"
    own |= {name.lower(): value for name, value in (headers or {}).items()}
    said: list[dict[str, Any]] = []
    bare, _, query = path.partition("?")
    received = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in received:
            return message
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": bare,
        "raw_path": bare.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in own.items() if value],
        "server": ("127.0.0.1", 9470),
        "client": ("127.0.0.1", 50000),
    }
    await app(scope, receive, send)
    start = said[0]
    found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(
        status=start["status"], headers=found, body=b"".join(message.get("body", b"") for message in said[1:])
    )


async def open_socket(app: Any, path: str, *, headers: Mapping[str, str] | None = None) -> int | None:
    """Open a WebSocket; None where it was accepted, else the code that closed it."""
    own = {"host": HOST, "origin": ORIGIN} | {name.lower(): value for name, value in (headers or {}).items()}
    bare, _, query = path.partition("?")
    received = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1001}])
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return next(received)

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": bare,
        "raw_path": bare.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in own.items() if value],
        "subprotocols": [],
        "server": ("127.0.0.1", 9470),
        "client": ("127.0.0.1", 50000),
    }
    await app(scope, receive, send)
    first = said[0]
    return None if first["type"] == "websocket.accept" else int(first.get("code", 1000))
