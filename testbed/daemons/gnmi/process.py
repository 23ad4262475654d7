"""The process: a gRPC server for each switch, at its address of management, all in one process."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from pygnmi.spec.v080 import gnmi_pb2_grpc

from testbed.base.datapath.maps import LabMaps
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.daemons.gnmi.configuration import (
    PASSWORD_FILE,
    PORT,
    GnmiConfiguration,
    TargetSwitch,
    certificate_file,
    key_file,
)
from testbed.daemons.gnmi.readings import SwitchReadings
from testbed.daemons.gnmi.service import GnmiService
from testbed.daemons.kit.client import CONTROL_SOCKET
from testbed.daemons.kit.control import ControlServer
from testbed.daemons.kit.reloading import reload_switches

CALLS_AT_ONCE = 16
"""Calls of one switch, streams among them; more are refused (RESOURCE_EXHAUSTED)."""
_LARGEST_REQUEST_BYTES = 1 << 16
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # nobody else may listen there beside us
    ("grpc.max_receive_message_length", _LARGEST_REQUEST_BYTES),
    ("grpc.max_concurrent_streams", CALLS_AT_ONCE * 2),
)
_GRACE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A switch that answers."""

    readings: SwitchReadings
    service: GnmiService
    server: grpc.Server


class GnmiProcess:
    """Serves until SIGTERM or SIGINT, or until it is told `shutdown` over its control socket.

    Told `reload`, it serves what the file of its configuration says by then.
    """

    def __init__(self, configuration: GnmiConfiguration, directory: Path, source: Path | None = None) -> None:
        """`directory` is where the control socket is made, `source` the file of the configuration, where there is one.

        Raises `OSError` for credentials that are not there, `RuntimeError` for an address that is taken.
        """
        self._configuration = configuration
        self._source = source
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._password = (configuration.credentials / PASSWORD_FILE).read_text()
        self._maps = None if configuration.data_path is None else LabMaps.open(configuration.data_path, with_room=True)
        self._targets = {switch.name: self._target(switch) for switch in configuration.switches}
        self._epoll = select.epoll()
        self._control = ControlServer(self._directory, CONTROL_SOCKET, self._handle, self._epoll)

    def _target(self, switch: TargetSwitch) -> _Target:
        readings = SwitchReadings(switch, self._maps)
        service = GnmiService(switch, readings, self._password)
        return _Target(readings=readings, service=service, server=self._server(switch, service))

    def _reload(self) -> None:
        """Serve what the configuration says now (`reload_switches`). Raises `TestbedError`."""
        reload_switches(
            self._source,
            self._configuration,
            stop=lambda names: _stop([self._targets.pop(name) for name in names]),
            serve=self._serve,
        )

    def _serve(self, new: GnmiConfiguration) -> None:
        self._configuration = new
        for switch in new.switches:
            if switch.name not in self._targets:
                self._targets[switch.name] = self._target(switch)
                self._targets[switch.name].server.start()

    def _server(self, switch: TargetSwitch, service: GnmiService) -> grpc.Server:
        server = grpc.server(
            ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix=switch.name),
            options=_OPTIONS,
            maximum_concurrent_rpcs=CALLS_AT_ONCE,
        )
        gnmi_pb2_grpc.add_gNMIServicer_to_server(service, server)
        directory = self._configuration.credentials
        key, certificate = (directory / name(switch.name) for name in (key_file, certificate_file))
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])

        def listen() -> int:
            enter_namespace(switch.namespace)
            return int(server.add_secure_port(f"{switch.address}:{PORT}", credentials))

        if not syscalls.in_thread(listen):
            raise RuntimeError(f"cannot listen at {switch.address}:{PORT} of {switch.name}")
        return server

    def run(self) -> None:
        """Serve until the end."""
        self._control.catch_signals()
        for target in self._targets.values():
            target.server.start()
        while not self._control.ending:
            for descriptor, _ in self._epoll.poll():
                self._control.serve(descriptor)
        _stop(list(self._targets.values()))
        if self._maps is not None:
            self._maps.close()
        self._control.close()
        os.close(self._directory)

    def _handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        reloaded = request.get("command") == "reload"
        if reloaded:
            self._reload()
        if request.get("command") == "shutdown":
            self._control.ending = True
        calls = sum(target.service.calls for target in self._targets.values())
        return {"reloaded": reloaded, "switches": len(self._targets), "calls": calls}


def _stop(targets: Sequence[_Target]) -> None:
    """End targets: calls that are under way have a moment to end by themselves."""
    for stopped in [target.server.stop(_GRACE_S) for target in targets]:
        stopped.wait()
    for target in targets:
        target.readings.close()
