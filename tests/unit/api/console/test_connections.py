"""Browsers that stall, or fall silent: their connections end, whatever waits for them."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from testbed.api.console import connections
from testbed.api.console.connections import BrowserConnection, BrowserWebSocket
from testbed.api.console.listening import Tls
from testbed.api.console.start import _configuration, _Server

PATIENCE_S = 10.0
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def flood(scope: Any, receive: Any, send: Any) -> None:
    """Answer with 64 MiB, more than kernels keep for a connection."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(64):
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})


async def listen(scope: Any, receive: Any, send: Any) -> None:
    """Accept a WebSocket, and wait for its end."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def shell(scope: Any, receive: Any, send: Any) -> None:
    """Accept a WebSocket, and print without an end."""
    await receive()
    await send({"type": "websocket.accept"})
    for _ in range(64):
        await send({"type": "websocket.send", "bytes": bytes(1 << 20)})


@asynccontextmanager
async def serving(app: Any, tls: Tls | None = None, **changed: Any) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    config = _configuration(app, tls)
    for name, value in changed.items():
        setattr(config, name, value)
    server = _Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        await until(lambda: server.started)
        try:
            yield server, listener.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await task


async def until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def stalled(port: int, request: bytes) -> socket.socket:
    """A connection that asks, and reads nothing of the answer."""
    item = socket.socket()
    item.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    item.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(item, ("127.0.0.1", port))
    await loop.sock_sendall(item, request)
    return item


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


def test_a_page_that_stalls_would_hold_its_connection_for_ever() -> None:
    """What the guard is there for: a server that closes lets what waits go first."""

    async def story() -> None:
        async with serving(flood, http="httptools") as (server, port):
            item = await stalled(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: any(one.flow and one.flow.write_paused for one in server.server_state.connections))
            (connection,) = server.server_state.connections
            connection.transport.close()
            await asyncio.sleep(0.5)
            assert server.server_state.connections == {connection}
            connection.transport.abort()
            item.close()

    run(story)


@pytest.mark.parametrize(("app", "request_"), [(flood, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), (shell, UPGRADE)])
def test_a_page_that_stalls_is_given_up(monkeypatch: pytest.MonkeyPatch, app: Any, request_: bytes) -> None:
    monkeypatch.setattr(connections, "STALLED_S", 0.3)

    async def story() -> None:
        async with serving(app) as (server, port):
            item = await stalled(port, request_)
            await until(lambda: bool(server.server_state.connections))
            await until(lambda: not server.server_state.connections)
            item.close()

    run(story)


def test_a_page_that_reads_slowly_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_S", 0.4)

    async def story() -> None:
        async with serving(flood) as (server, port):
            item = await stalled(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            loop = asyncio.get_running_loop()
            for _ in range(15):
                await asyncio.sleep(0.1)
                for _ in range(200):
                    await loop.sock_recv(item, 4096)
            assert server.server_state.connections
            item.close()

    run(story)


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_a_websocket_that_answers_no_ping_ends(tls: Tls, is_secure: bool) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def story() -> None:
        given = tls if is_secure else None
        async with serving(listen, given, ws_ping_interval=0.2, ws_ping_timeout=0.3) as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context if is_secure else None)
            writer.write(UPGRADE)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            assert server.server_state.connections
            await until(lambda: not server.server_state.connections, 5)
            writer.close()

    run(story)


def test_a_websocket_that_answers_stays_under_tls(tls: Tls) -> None:
    from websockets.asyncio.client import connect

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def story() -> None:
        async with (
            serving(listen, tls, ws_ping_interval=0.1, ws_ping_timeout=0.3) as (server, port),
            connect(f"wss://127.0.0.1:{port}/ws", ssl=context, ping_interval=None) as client,
        ):
            await asyncio.sleep(1)
            await client.send("still here")
            assert len(server.server_state.connections) == 1

    run(story)


def test_the_console_serves_by_these() -> None:
    config = _configuration(listen, None)
    assert (config.http, config.ws) == (BrowserConnection, BrowserWebSocket)
    assert config.ws_ping_interval and config.ws_ping_timeout
