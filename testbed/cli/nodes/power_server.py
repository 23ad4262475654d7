"""The HTTP server of `serve power`: what an emulator of BMCs is told of, it does to nodes (`sushy-emulator --fake`).

A notification is a PUT of a system as JSON: its `name` is a node, and `pending_power` has the state that was asked for,
while that is not reached. It listens at a loopback address, and serves root and one other user alone: what else runs on
the management server has no business with power.
"""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Callable, Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from testbed.api.console.listening import CannotListen, is_loopback
from testbed.base.errors import TestbedError
from testbed.base.interrupt import Interrupt
from testbed.cli.counters.metrics_server import parse_address, serve_until
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.power import power_off, power_on
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.probing.machine import require_root

LARGEST_BYTES = 65536


def serve_power(name: str, listen: str, user: str) -> None:
    """Serve root and `user` until SIGINT or SIGTERM; then return.

    Raises `CannotListen`, `LabNotFound`, and `TestbedError` for a user that there is not.
    """
    require_root()
    host, port = parse_address(listen)
    state = StateDirectory()
    RunningLab.open(name, state)  # there is one
    try:
        served = {os.geteuid(), *([pwd.getpwnam(user).pw_uid] if user else [])}
    except KeyError as error:
        raise TestbedError(f"there is no user {user}") from error
    with Interrupt() as interrupt, _PowerServer(lambda: RunningLab.open(name, state), host, port, served) as server:
        serve_until(server, interrupt)


def switch_power(open_lab: Callable[[], RunningLab], system: Any) -> None:
    """Do to a node what a notification says of it, in the lab as it is by now.

    Raises `TestbedError`, also for one that says nothing.
    """
    pending = system.get("pending_power") if isinstance(system, dict) else None
    name = system.get("name") if isinstance(system, dict) else None
    wanted = pending.get("power_state") if isinstance(pending, dict) else None
    if not isinstance(name, str) or (pending is not None and not isinstance(wanted, str)):
        raise TestbedError("not the notification of a system")
    if wanted is None:
        return  # it is told of once more when it is reached
    lab = open_lab()
    if wanted != "On":
        power_off(lab, name)
    if wanted != "Off":  # a restart is both
        power_on(lab, name)


def user_of(client: Any, server: Any) -> int | None:
    """The number of the user whose socket has a TCP connection of this network namespace; None where there is none."""
    ends = [
        f"{int.from_bytes(IPv4Address(host).packed, sys.byteorder):08X}:{port:04X}" for host, port in (client, server)
    ]
    for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1:3] == ends:
            return int(words[7])
    return None


class _PowerServer(HTTPServer):
    """Does to nodes of a lab what it is told, one thing at a time. Raises `CannotListen`."""

    def __init__(self, open_lab: Callable[[], RunningLab], host: str, port: int, served: Collection[int]) -> None:
        self.open_lab = open_lab
        self.served = served
        try:
            if not is_loopback(host):
                raise CannotListen(f"{host} is no loopback address", hint="127.0.0.1:9465: who reaches it has power")
            super().__init__((host, port), _Handler)
        except (OSError, ValueError, OverflowError) as error:
            raise CannotListen(f"cannot listen on {host}:{port}: {error}") from error


class _Handler(BaseHTTPRequestHandler):
    server: _PowerServer
    timeout = 10.0
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        try:
            if user_of(self.client_address, self.server.server_address) not in self.server.served:
                self._answer(HTTPStatus.FORBIDDEN)
                return
            size = int(self.headers.get("Content-Length", "0"))
            if not 0 < size <= LARGEST_BYTES:
                raise ValueError(size)
            switch_power(self.server.open_lab, json.loads(self.rfile.read(size)))
            self._answer(HTTPStatus.NO_CONTENT)
        except (ValueError, RecursionError):
            self._answer(HTTPStatus.BAD_REQUEST)
        except TestbedError as error:
            print(f"error: {error.message}", flush=True)
            self._answer(HTTPStatus.CONFLICT)

    def _answer(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing but what went wrong."""
