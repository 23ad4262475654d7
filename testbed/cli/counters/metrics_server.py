"""The HTTP server of `serve metrics`: it answers with OpenMetrics text until it is told to end."""

from __future__ import annotations

import errno
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from testbed.api.console.listening import CannotListen, is_loopback
from testbed.base.descriptors import wait_readable
from testbed.base.errors import TestbedError
from testbed.base.interrupt import Interrupt
from testbed.cli.output import warn
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.probing.machine import require_root
from testbed.lab.observe.lab_reader import LabReader
from testbed.lab.observe.openmetrics import CONTENT_TYPE, render_metrics

DEFAULT_PORT = 9464
"""The port that OpenTelemetry's Prometheus exporters use by default, and Prometheus' list has reserved for them."""
PATH = "/metrics"
_CLIENT_TIMEOUT_S = 10.0


def serve_metrics(name: str | None, listen: str, *, histograms: bool) -> None:
    """Serve until SIGINT or SIGTERM; then return. Raises `CannotListen`."""
    require_root(without=("CAP_SYS_PTRACE",))  # it looks at no processes, and the service telemetry does not have it
    host, port = parse_address(listen)
    state = StateDirectory()
    if name is not None and not state.exists(name):
        raise state.not_found(name)
    reader = LabReader(state, only=name)
    # one scrape at a time: two of them would only share one CPU
    lock = threading.Lock()

    def render() -> bytes:
        with lock:
            return render_metrics(reader.read, histograms=histograms)

    with Interrupt() as interrupt, open_server(host, port, render) as server:
        if not is_loopback(str(server.server_address[0])):
            warn(f"anyone who reaches {listen} can read the counters of every lab")
        bound = f"[{host}]" if ":" in host else host or "localhost"
        print(f"serving http://{bound}:{server.server_address[1]}{PATH} (Ctrl-C ends it)", file=sys.stderr)
        serve_until(server, interrupt)


def serve_until(server: HTTPServer, interrupt: Interrupt) -> None:
    """Answer requests until there is an interrupt; then return."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="http", daemon=True)
    thread.start()
    try:
        wait_readable(interrupt)
    finally:
        server.shutdown()
        thread.join()


def parse_address(text: str) -> tuple[str, int]:
    """Read `127.0.0.1:9464`, `[::1]:9464`, `:9464` (all addresses), or a host alone. Raises `TestbedError`."""
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port if parts.port is not None else DEFAULT_PORT
        if parts.path or parts.query or parts.fragment or parts.username is not None or not text:
            raise ValueError(text)
    except ValueError as error:
        raise TestbedError(f"{text!r} is no address to listen on", hint="for example 127.0.0.1:9464") from error
    return parts.hostname or "", port


class MetricsServer(ThreadingHTTPServer):
    """Answers GET and HEAD of `PATH` with what `render` returns."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily, render: Callable[[], bytes]) -> None:
        self.address_family = family
        self.render = render
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, unless a client went away or fell silent, which is its own affair."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = _CLIENT_TIMEOUT_S
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == PATH:
            try:
                body = self.server.render()
            except (TestbedError, OSError) as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", f"{error}\n".encode())
                return
            self._answer(HTTPStatus.OK, CONTENT_TYPE, body)
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/plain; charset=utf-8", f"OpenMetrics text is at {PATH}\n".encode())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"only {PATH} is here\n".encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a scrape every few seconds is no news."""


def open_server(host: str, port: int, render: Callable[[], bytes]) -> MetricsServer:
    """Make a server that is bound and listens. Raises `CannotListen` with what to do about it."""
    try:
        candidates = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = candidates[0]
        return MetricsServer((str(address[0]), port), family, render)
    except socket.gaierror as error:
        raise CannotListen(f"{host}: {error.strerror}", hint="give a numeric address: 127.0.0.1:9464") from error
    except (OSError, OverflowError) as error:
        code = error.errno if isinstance(error, OSError) else None
        what = error.strerror if isinstance(error, OSError) else str(error)
        hint = "another program serves there; choose a port with --listen" if code == errno.EADDRINUSE else None
        raise CannotListen(f"cannot listen on {host or '*'}:{port}: {what}", hint=hint) from error
