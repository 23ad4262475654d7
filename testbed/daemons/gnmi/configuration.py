"""The process's configuration: the switches, their ports and queues, and where certificates and password are."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

PROCESS_NAME = "gnmi-targets"
"""As `ps` shows it."""
PORT = 9339
"""The TCP port of gNMI (IANA, gnmi-gnoi)."""
ACCOUNT = "admin"
PASSWORD_FILE = "password"


def certificate_file(name: str) -> str:
    """Return the name of the file of a switch's certificate, in the directory of credentials."""
    return f"{name}.pem"


def key_file(name: str) -> str:
    """Return the name of the file of a switch's key."""
    return f"{name}.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPort:
    """A port of a switch. `number` is its number in the data path (0: none), and `queues` the priorities and names of
    its traffic classes there."""

    name: str
    ifindex: int
    namespace: str
    mtu_bytes: int
    number: int = 0
    queues: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSwitch:
    """A switch. `daemons` is the directory of its routing daemons' sockets; None: it runs none of this machine's."""

    name: str
    namespace: str
    address: IPv4Address
    daemons: Path | None
    ports: tuple[TargetPort, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GnmiConfiguration:
    """All of it. `credentials` is a directory for root alone."""

    lab: str
    credentials: Path
    data_path: Path | None
    switches: tuple[TargetSwitch, ...]
