"""The guard before every request: who asks, from which page, by which name of ours; and what a browser may do with it.

| attack | guard |
|---|---|
| a name of a stranger's that resolves to this machine (DNS rebinding) | `Host` is one of ours |
| a form or a script of another site | `Origin` is ours for whatever is no GET, and for WebSockets; `Sec-Fetch-Site` |
| somebody on this machine without the token | the session's cookie, which scripts and other sites have not |
| markup in the name of a lab | Content-Security-Policy: no script but our files |
| our page in a frame of another one | `frame-ancestors 'none'` |
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from testbed.api.console.answers import RefusedRequest, error_answer
from testbed.api.console.listening import is_loopback
from testbed.api.console.sessions import Sessions

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
WEBSOCKET_REFUSED = 4403
"""The code (RFC 6455, 7.4.2: of private use) that closes a WebSocket which may not be opened."""
_WITHOUT_SESSION = frozenset({"/", "/login", "/favicon.ico"})
_STATIC = "/static/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names by which browsers may call the console. `port` is None where any is right: a socket that is forwarded
    has the port of the other machine's end."""

    hosts: frozenset[str]
    port: int | None
    any_address: bool = False
    """All addresses of this machine are listened at, so that a numeric one is as good as another: no resolver can make
    a stranger's name into it."""

    @classmethod
    def of(cls, host: str, port: int | None, certified: Collection[str] = ()) -> Names:
        """Return the names of a console that listens at a numeric address, with a certificate for some names."""
        hosts = {host.lower(), *certified}
        if is_loopback(host):
            hosts |= {"localhost", "127.0.0.1", "::1"}
        return cls(hosts=frozenset(hosts), port=port, any_address=host in ("0.0.0.0", "::"))

    @classmethod
    def of_tunnel(cls, *hosts: str) -> Names:
        """Return the names of a console that is reached through a tunnel, whose other end has any port of loopback."""
        return cls(hosts=frozenset({"localhost", "127.0.0.1", "::1", *hosts}), port=None)

    def know(self, header: str) -> bool:
        """Tell whether a `Host` header (RFC 9110, 7.2) names us."""
        try:
            parts = urlsplit(f"//{header}")
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        if not host or parts.path or "@" in header or (self.port is not None and (port or 0) not in self._ports):
            return False
        return host in self.hosts or (self.any_address and _is_numeric(host))

    @property
    def _ports(self) -> tuple[int, ...]:
        assert self.port is not None
        return (self.port, 0) if self.port in (80, 443) else (self.port,)


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(slots=True)
class ConsoleGuard:
    """Middleware around the whole application. Without `sessions` nobody has to log in (a lab's own service)."""

    app: ASGIApp
    names: Names
    sessions: Sessions | None
    secure: bool = False
    """Requests come by TLS."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            self._check(scope, Headers(scope=scope))
        except RefusedRequest as refused:
            if scope["type"] == "websocket":
                await _refuse_websocket(refused, receive, send)
                return
            await error_answer(refused)(scope, receive, _with_headers(scope["path"], send))
            return
        await self.app(scope, receive, send if scope["type"] == "websocket" else _with_headers(scope["path"], send))

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raises `RefusedRequest` for a request that is not to be answered."""
        host, path = headers.get("host", ""), scope["path"]
        if len(headers.getlist("host")) != 1 or not self.names.know(host):
            raise RefusedRequest(403, f"this console is not called {host!r}", code="host")
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        ours = f"{'https' if self.secure else 'http'}://{host}"
        if changes and headers.get("origin", "").lower() != ours.lower():
            raise RefusedRequest(403, "the request comes from another site", code="origin")
        if path.startswith("/api/") and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RefusedRequest(403, "the request comes from another site", code="origin")
        if self.sessions is None or path in _WITHOUT_SESSION or path.startswith(_STATIC):
            return
        if not self.sessions.knows(headers.get("cookie", "")):
            raise RefusedRequest(
                401, "log in first", hint="by the link that `testbed console` has printed", code="login"
            )


async def _refuse_websocket(refused: RefusedRequest, receive: Receive, send: Send) -> None:
    """Close a WebSocket before it is accepted: the browser gets status 403 (ASGI, WebSocket close)."""
    await receive()
    await send({"type": "websocket.close", "code": WEBSOCKET_REFUSED, "reason": refused.message})


def _with_headers(path: str, send: Send) -> Send:
    """Add to each answer what a browser may do with it. An answer that brings a policy of its own keeps that."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if not path.startswith(_STATIC):
                headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
