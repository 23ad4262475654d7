"""The process: agents of all switches of a lab, their sockets, and the round in which they are served.

Ten times a second it takes what was sampled meanwhile, so that a sample is sent well within the second that sFlow
allows, and counters are sent in turns, as many each round as spread all ports evenly over the polling interval.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from testbed.base.datapath.abi import SampleFate
from testbed.base.errors import TestbedError
from testbed.base.linux import syscalls
from testbed.base.linux.counters import read_counters
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.port_counters import PortCounters
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.daemons.kit.client import CONTROL_SOCKET
from testbed.daemons.kit.control import ControlServer
from testbed.daemons.kit.reloading import reload_switches
from testbed.daemons.sflow.agent import SflowAgent
from testbed.daemons.sflow.configuration import MACHINE_NETWORK, SampledPort, SampledSwitch, SflowConfiguration
from testbed.daemons.sflow.datagram import INTERNAL, InterfaceCounters
from testbed.daemons.sflow.samples import DataPath, SampledPacket
from testbed.daemons.sflow.taps import PortTap

ROUND_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPort:
    """A port, the agent of its switch, and what it is asked by."""

    port: SampledPort
    agent: SflowAgent
    route: RouteSocket
    tap: PortTap | None


class SflowProcess:
    """Serves until SIGTERM or SIGINT, or until it is told `shutdown` over its control socket.

    Told `reload`, it serves what the file of its configuration says by then.
    """

    def __init__(self, configuration: SflowConfiguration, directory: Path, source: Path | None = None) -> None:
        """`directory` is where the control socket is made, `source` the file of the configuration, where there is one.

        Raises `OSError` and `DriverError`.
        """
        self._configuration = configuration
        self._source = source
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._sockets: dict[str, socket.socket] = {}
        self._began = time.monotonic()
        self._counts = {"datagrams": 0, "unsent": 0, "samples": 0, "drops": 0}
        self._data_path = None if configuration.data_path is None else DataPath.open(configuration.data_path)
        self._served: list[ServedPort] = []
        self._agents: dict[str, SflowAgent] = {}
        for switch in configuration.switches:
            self._serve_switch(switch)
        self._number_ports()
        self._epoll = select.epoll()
        self._control = ControlServer(self._directory, CONTROL_SOCKET, self._handle, self._epoll)
        self._next = 0
        self._due = 0.0

    def _number_ports(self) -> None:
        self._by_number = {one.port.number: one for one in self._served if one.port.number}

    def _serve_switch(self, switch: SampledSwitch) -> None:
        name = switch.name
        self._sockets[name] = syscalls.in_thread(lambda: self._sender(switch))
        self._agents[name] = SflowAgent(
            switch.address, self._configuration.sampling, lambda content: self._send(name, content)
        )
        routes: dict[str, RouteSocket] = {}
        for port in switch.ports:

            def open_inside(port: SampledPort = port) -> tuple[RouteSocket, PortTap | None]:
                enter_namespace(port.namespace)
                tap = None if port.number else PortTap(port.name, self._configuration.sampling)
                return routes.get(port.namespace) or RouteSocket(), tap

            routes[port.namespace], tap = syscalls.in_thread(open_inside)
            agent, route = self._agents[name], routes[port.namespace]
            self._served.append(ServedPort(port=port, agent=agent, route=route, tap=tap))

    def _stop_switches(self, names: Sequence[str]) -> None:
        for name in names:
            self._stop_switch(name)

    def _stop_switch(self, name: str) -> None:
        agent = self._agents.pop(name)
        for served in [served for served in self._served if served.agent is agent]:
            self._served.remove(served)
            served.route.close()
            if served.tap is not None:
                served.tap.close()
        self._sockets.pop(name).close()

    def _reload(self) -> None:
        """Serve what the configuration says now (`reload_switches`). Raises `TestbedError`."""
        old = self._configuration
        new = reload_switches(
            self._source,
            old,
            stop=self._stop_switches,
            serve=self._serve,
            alike=lambda new: (old.sampling, old.collector) == (new.sampling, new.collector),
        )
        self._number_ports()
        if self._data_path is not None and old.sampling != new.sampling:
            self._data_path.begin(new.sampling)

    def _serve(self, new: SflowConfiguration) -> None:
        self._configuration = new
        for switch in new.switches:
            if switch.name not in self._agents:
                self._serve_switch(switch)

    def _sender(self, switch: SampledSwitch) -> socket.socket:
        """A socket of the switch's; or of this machine's, where the collector is there."""
        collector = self._configuration.collector
        source: IPv4Address | None = None
        if collector.is_loopback:
            syscalls.setns(int(os.environ[MACHINE_NETWORK]), syscalls.CLONE_NEWNET)
        else:
            enter_namespace(switch.namespace)
            source = switch.address
        item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if source is not None:
            item.bind((str(source), 0))
        return item

    def _send(self, switch: str, content: bytes) -> None:
        """Send a datagram. Nobody may be there to take it, and a switch may be without power: it goes on."""
        place = str(self._configuration.collector), self._configuration.collector_port
        try:
            self._sockets[switch].sendto(content, place)
            self._counts["datagrams"] += 1
        except OSError:
            self._counts["unsent"] += 1

    def run(self) -> None:
        """Serve until the end."""
        self._control.catch_signals()
        if self._data_path is not None:
            self._data_path.begin(self._configuration.sampling)
        try:
            while not self._control.ending:
                for descriptor, _ in self._epoll.poll(ROUND_S):
                    self._control.serve(descriptor)
                self.serve_round(time.monotonic())
        finally:
            self._close()

    def serve_round(self, now: float) -> None:
        """Take all samples that are there, and the counters whose turn it is at `now`, and send them."""
        now_ms = int((now - self._began) * 1000)
        for packet in self._data_path.take() if self._data_path is not None else ():
            self._take(packet, now_ms)
        counters: dict[int, Mapping[str, PortCounters]] = {}
        for served in self._served:
            if served.tap is not None:
                self._take_tapped(served, counters, now_ms)
        for served in self._polled(now):
            if (read := self._counters(served, counters)) is not None:
                served.agent.counted(read, now_ms)
        for agent in self._agents.values():
            agent.flush(now_ms)

    def _take(self, packet: SampledPacket, now_ms: int) -> None:
        served = self._by_number.get(packet.port)
        data_path = self._data_path
        if served is None or data_path is None:
            return
        came_in = self._by_number.get(packet.came_in)
        ingress = came_in.port.ifindex if came_in is not None else INTERNAL
        if packet.fate is SampleFate.SENT:
            self._counts["samples"] += 1
            served.agent.sent(
                packet,
                egress=served.port.ifindex,
                ingress=ingress,
                pool=data_path.admitted_packets(packet.port),
                drops=data_path.lost_samples,
                now_ms=now_ms,
            )
            return
        self._counts["drops"] += 1
        egress = 0 if packet.fate is SampleFate.CAP else served.port.ifindex
        served.agent.dropped(packet, egress=egress, ingress=ingress, untold=data_path.untold_drops, now_ms=now_ms)

    def _take_tapped(self, served: ServedPort, counters: dict[int, Mapping[str, PortCounters]], now_ms: int) -> None:
        assert served.tap is not None
        for header, length in served.tap.take():
            self._counts["samples"] += 1
            now = self._read(served, counters)
            pool = 0 if now is None else now.tx_packets
            served.agent.tapped(header, length, egress=served.port.ifindex, pool=pool, now_ms=now_ms)

    def _polled(self, now: float) -> Iterator[ServedPort]:
        """Yield the ports whose turn it is: each once in a polling interval."""
        gap = self._configuration.polling_ns / 1e9 / max(1, len(self._served))
        self._due = max(self._due, now - ROUND_S * 2)
        while self._served and self._due <= now:
            yield self._served[self._next % len(self._served)]
            self._next += 1
            self._due += gap

    def _read(self, served: ServedPort, counters: dict[int, Mapping[str, PortCounters]]) -> PortCounters | None:
        """The kernel's counters of a port, read once a round for all ports of its namespace; None: it is not there."""
        key = id(served.route)
        if key not in counters:
            try:
                counters[key] = read_counters(served.route)
            except (OSError, TestbedError):
                counters[key] = {}
        return counters[key].get(served.port.name)

    def _counters(
        self, served: ServedPort, counters: dict[int, Mapping[str, PortCounters]]
    ) -> InterfaceCounters | None:
        read = self._read(served, counters)
        if read is None:
            return None
        dropped_in, dropped_out = read.rx_dropped, read.tx_dropped
        if served.port.number and self._data_path is not None:
            dropped_in, dropped_out = self._data_path.dropped_packets(served.port.number)
        return InterfaceCounters(
            ifindex=served.port.ifindex,
            name=served.port.name,
            speed_bps=served.port.rate_bps,
            up=read.up,
            in_octets=read.rx_bytes,
            in_packets=read.rx_packets,
            in_discards=dropped_in,
            out_octets=read.tx_bytes,
            out_packets=read.tx_packets,
            out_discards=dropped_out,
        )

    def _handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        reloaded = request.get("command") == "reload"
        if reloaded:
            self._reload()
        if request.get("command") == "shutdown":
            self._control.ending = True
        return {"reloaded": reloaded, **self._counts, "switches": len(self._agents), "ports": len(self._served)}

    def _close(self) -> None:
        if self._data_path is not None:
            with contextlib.suppress(ValueError):
                self._data_path.end()
            self._data_path.close()
        for served in self._served:
            if served.tap is not None:
                served.tap.close()
        for item in self._sockets.values():
            item.close()
        self._control.close()
        os.close(self._directory)
