"""Reading what a switch has to say: interfaces from the kernel, queues from the data path, BGP from bgpd."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from testbed.base.datapath.maps import LabMaps
from testbed.base.errors import DriverError
from testbed.base.linux import syscalls, vty
from testbed.base.linux.counters import read_counters
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.port_counters import PortCounters
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.daemons.gnmi.configuration import TargetSwitch

FRESH_S = 0.1
"""A reading serves all who ask within so long: many subscribers, or a fast one, read no more often."""
QUEUE_DROPS = ("tail", "buffer", "wred", "headroom", "purged")
_VTY_TIMEOUT_S = 2.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounters:
    """Counters of a queue of a port since the deploy, and the longest that it was."""

    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    dropped_bytes: int
    longest_bytes: int
    marked_packets: int


class Fresh(Generic[_T]):
    """A reading that is read again once it is older than `FRESH_S`, by one thread at a time."""

    def __init__(self, read: Callable[[], _T], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._value: _T | None = None
        self._at = float("-inf")

    def get(self) -> _T:
        """Return one that is fresh. Whatever reading raises is raised."""
        with self._lock:
            if self._value is None or self._clock() - self._at > FRESH_S:
                self._value = self._read()
                self._at = self._clock()
            return self._value


class SwitchReadings:
    """Reads one switch. What cannot be read, such as BGP of a daemon that has ended, is as if it were not there."""

    def __init__(self, switch: TargetSwitch, maps: LabMaps | None) -> None:
        """Opens a netlink socket in each namespace that the switch's ports are in. Raises `DriverError`, `OSError`."""
        self._switch = switch
        self._maps = maps
        self._routes = {name: _route_inside(name) for name in dict.fromkeys(port.namespace for port in switch.ports)}
        self.interfaces = Fresh(self._read_interfaces)
        self.queues = Fresh(self._read_queues)
        self.neighbors = Fresh(self._read_neighbors)

    def _read_interfaces(self) -> Mapping[str, PortCounters]:
        found: dict[str, PortCounters] = {}
        for namespace, route in self._routes.items():
            counted = read_counters(route)
            for port in self._switch.ports:
                if port.namespace == namespace and port.name in counted:
                    found[port.name] = counted[port.name]
        return found

    def _read_queues(self) -> Mapping[tuple[str, str], QueueCounters]:
        """The queues by port and traffic class."""
        if self._maps is None:
            return {}
        queues = self._maps.by_port("queues")
        found = {}
        for port in self._switch.ports:
            for priority, name in port.queues if port.number else ():
                row = queues[port.number][priority]
                found[port.name, name] = QueueCounters(
                    sent_packets=int(row["out_packets"]),
                    sent_bytes=int(row["out_bytes"]),
                    dropped_packets=sum(int(row[f"{cause}_packets"]) for cause in QUEUE_DROPS),
                    dropped_bytes=sum(int(row[f"{cause}_bytes"]) for cause in QUEUE_DROPS),
                    longest_bytes=int(row["max_bytes"]),
                    marked_packets=int(row["ce_packets"]),
                )
        return found

    def _read_neighbors(self) -> Mapping[str, Any]:
        """The neighbours as bgpd tells of them, by its name of each."""
        directory = self._switch.daemons
        return {} if directory is None else _neighbors(directory)

    def close(self) -> None:
        for route in self._routes.values():
            route.close()


def _neighbors(directory: Path) -> Mapping[str, Any]:
    try:
        said = vty.ask_json(directory, "bgpd", "show bgp neighbors json", timeout_s=_VTY_TIMEOUT_S)
    except DriverError:
        return {}
    return {str(name): item for name, item in said.items() if isinstance(item, dict)} if isinstance(said, dict) else {}


def _route_inside(namespace: str) -> RouteSocket:
    def opened() -> RouteSocket:
        enter_namespace(namespace)
        return RouteSocket()

    return syscalls.in_thread(opened)
