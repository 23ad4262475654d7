"""The interface of a service, and what it is told of the lab that it is started in."""

from __future__ import annotations

import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from testbed.base.typed_json import encode
from testbed.daemons.kit.client import CONTROL_SOCKET, ask
from testbed.lab.core.model.management import SERVICES, ManagementService
from testbed.lab.features.management.services.asking import TIMEOUT_S

RELOAD_S = 20.0
DIRECTORY_NAME = ".svc"
"""In the lab's run directory; no node can have this name. Short, as are the next two, for
`<run>/<lab>/.svc/<node>/<service>/own/s` must fit sockaddr_un (108 bytes, unix(7))."""
OWN = "own"
SOCKET = "s"
PID = "pid"
"""In a service's own directory: the pid file of a program that insists on one."""
LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPort:
    """A port of a switch in a data network, as services that read its counters know it.

    `namespace` is that of the switch, or of the VRF that the port is in; `number` its number in the data path, 0
    for a port without queues of it; `classes` are the priorities and names of its traffic classes there. `rate_bps` is
    its rate in the lab, `line_rate_bps` that of the real fabric.
    """

    node: str
    name: str
    ifindex: int
    namespace: str
    network: str
    rate_bps: int
    line_rate_bps: int
    mtu_bytes: int
    number: int = 0
    classes: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """All that a service may know of its lab.

    `directory` has the files of all services, a directory for each node in it; `run` those of routing daemons.
    `addresses`, `macs` and `interfaces` are those of every node in the management network, and `data_ports` its others.
    """

    lab: str
    server: str
    network: IPv4Network
    addresses: Mapping[str, IPv4Address]
    macs: Mapping[str, str]
    interfaces: Mapping[str, str]
    data_ports: Mapping[str, tuple[str, ...]]
    routing: frozenset[str]
    """The nodes that run routing daemons of this machine."""
    hosts: Mapping[str, tuple[str, ...]]
    """The hosts that run services, with the access switches of their NICs of the back end, in the order of the NICs."""
    switches: tuple[str, ...]
    """The switches of data networks."""
    switchable: frozenset[str]
    """The nodes whose power can be switched."""
    services: Mapping[str, ManagementService]
    """The services that the lab has, by name."""
    namespaces: Mapping[str, str]
    """The network namespace of every node."""
    run: Path
    ports: tuple[CountedPort, ...] = ()
    """The ports of switches in data networks."""
    data_path: Path | None = None
    """The directory in which the lab's maps are pinned; None: it has no queues of the data path."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """In which a program of ours finds this package and this lab."""

    @property
    def directory(self) -> Path:
        return self.run / DIRECTORY_NAME

    @property
    def served(self) -> tuple[str, ...]:
        """The nodes that run services: not those that are containers."""
        return tuple(node for node in self.addresses if node == self.server or node in self.switchable)

    @property
    def server_address(self) -> IPv4Address:
        return self.addresses[self.server]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A service on one node."""

    service: str
    node: str
    address: IPv4Address
    lab: Surroundings

    @property
    def directory(self) -> Path:
        """Return where its files are, which are root's to change."""
        return self.lab.directory / self.node / self.service

    @property
    def own(self) -> Path:
        """Return the directory that it may write into, and nobody else looks into."""
        return self.directory / OWN

    @property
    def log(self) -> Path:
        """Return the file of what its programs print."""
        return self.directory / LOG

    @property
    def namespace(self) -> str:
        return self.lab.namespaces[self.node]

    def has(self, service: str) -> bool:
        """Tell whether the node runs another service, too."""
        return service in self.lab.services and SERVICES[service].runs_on.includes(
            self.node, self.lab.server, host=self.node in self.lab.hosts
        )

    @property
    def is_server(self) -> bool:
        return self.node == self.lab.server

    def __str__(self) -> str:
        return f"{self.service} of {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a service: its text, and whether it is for the service's user alone to read."""

    text: str
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port that a service listens at. `kind` is tcp or udp."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}/{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProgram:
    """A program that a service runs, in the foreground.

    It has of all capabilities only `capabilities` (in lower case, without CAP_), and can never get more. `user` "" is
    root; `groups` are those it has beside its own. `hostname`: it sees the node's name as that of the machine. `binds`
    are files of the service's directory, or paths elsewhere, that it sees in the place of others; `scratch` are
    directories that are empty for it. `confined`: its package brings an AppArmor profile, which knows nothing of a
    second service and its files, so it is started by a path that the profile is not for; its user and capabilities
    bound it instead. `machine_network` names a variable of its environment that has a descriptor of this machine's own
    network namespace.
    """

    name: str
    arguments: tuple[str, ...]
    user: str = ""
    groups: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    hostname: bool = False
    confined: bool = False
    binds: Mapping[str, str] = field(default_factory=dict)
    scratch: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    machine_network: str = ""


class Service(ABC):
    """A service of the management network."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """The programs that it wants installed (`testbed.base.installation.packages` knows their packages)."""
    looks_into_nodes: ClassVar[bool] = False
    """It keeps sockets in the namespaces of other nodes, or knows these by their identities."""
    is_used: ClassVar[bool] = False
    """It starts processes for users, which outlive it."""
    rereads: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The files that it takes anew while it runs, and by which of its programs; others are read at the start alone."""

    def prepare(self, lab: Surroundings) -> None:  # noqa: B027 - most have nothing of this kind
        """Make what the places of a lab share, where it is not there yet: keys, for example."""

    def user(self, place: Place) -> str:
        """Return the user whom its own directory belongs to; "" for root."""
        return ""

    def files(self, place: Place) -> Mapping[str, File]:
        """The files of its directory, by name."""
        return {}

    @abstractmethod
    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        """Return the programs that are started on a node, in this order."""

    @abstractmethod
    def ports(self, place: Place) -> tuple[Port, ...]:
        """The ports of the node's address that it listens at."""

    @abstractmethod
    def answer(self, place: Place) -> str | None:
        """Ask it, and return how it stands as a few words; None while it does not answer.

        Called in the network namespace of the node.
        """

    def tell(self, place: Place, changed: Collection[str], pids: Mapping[str, int]) -> None:
        """Have its programs, which run as `pids` say, take `changed` files of `rereads` anew: by SIGHUP, as most do.

        Raises `OSError` for a program that is gone meanwhile.
        """
        for program in {self.rereads[name] for name in changed}:
            os.kill(pids[program], signal.SIGHUP)

    def environment(self, place: Place) -> Mapping[str, str]:
        """Return what its clients need in their environment, where users run them on the node."""
        return {}

    def for_people(self, lab: Surroundings) -> Mapping[str, str]:
        """Return what the lab directory is to have for those who use it: texts by their file names. No secrets."""
        return {}


class ServiceOfSwitches(Service):
    """A service of which one process on the server serves all switches, in whose namespaces it has its sockets.

    It is the module `testbed.daemons.NAME`, which is told what it serves by the file NAME.json and has a
    control socket in the service's own directory.
    """

    looks_into_nodes = True
    capabilities: ClassVar[tuple[str, ...]]

    @abstractmethod
    def configuration(self, place: Place) -> Any:
        """Return what the process is told, as a value that is written as JSON."""

    def machine_network(self, place: Place) -> str:
        """Return the variable that tells it this machine's own network namespace; "" where it is told nothing."""
        return ""

    def tell(self, place: Place, changed: Collection[str], pids: Mapping[str, int]) -> None:
        """Have the process serve what its file says now, by its control socket; what both say alike goes on."""
        said = ask(place.own, CONTROL_SOCKET, {"command": "reload"}, RELOAD_S)
        if not said.get("reloaded"):
            raise OSError(said.get("error", f"{self.name} knows nothing of reloading"))

    def files(self, place: Place) -> Mapping[str, File]:
        return {f"{self.name}.json": File(text=encode(self.configuration(place)).decode() + "\n")}

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        return (
            ServiceProgram(
                name=self.name,
                arguments=(
                    *(sys.executable, "-m", f"testbed.daemons.{self.name}"),
                    *(str(place.directory / f"{self.name}.json"), str(place.own)),
                ),
                capabilities=self.capabilities,
                environment=place.lab.environment,
                machine_network=self.machine_network(place),
            ),
        )

    def ports(self, place: Place) -> tuple[Port, ...]:
        return ()

    def answer(self, place: Place) -> str | None:
        with suppress(OSError, EOFError, ValueError):
            return self.told(place, ask(place.own, CONTROL_SOCKET, {"command": "status"}, TIMEOUT_S))
        return None

    @abstractmethod
    def told(self, place: Place, said: Mapping[str, Any]) -> str:
        """Return the status that the process has said as a few words."""
