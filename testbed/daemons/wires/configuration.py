"""The file that the process of a lab's cut links is started from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROCESS_NAME = "testbed-wires"
"""The name of the process (comm in proc(5))."""
LOCK_NAME = "lock"
"""In its directory: it holds that as long as it lives."""
STATUS_NAME = "status.json"
"""In its directory: which machines it hears (`WiresStatus`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WiredMachine:
    """Another machine of the lab, by its address on the underlay."""

    name: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WiredLink:
    """A cut link. `number` is the same on both machines; `namespace` and `ifindex` are those of its port here, and
    `stub` is the index of its other end. `port` and `peer` are the link's ends as people name them."""

    number: int
    machine: str
    namespace: str
    ifindex: int
    stub: int
    port: str
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WiresConfiguration:
    """All cut links of a lab on one machine. `namespace` is that of the stubs, `key` the file with the lab's key,
    `events` the file that is told what happens, and `status` the one that says how it is (`WiresStatus`). All machines
    of the lab use the same UDP port."""

    lab: str
    machine: str
    namespace: str
    address: str
    port: int
    key: Path
    events: Path
    status: Path
    machines: tuple[WiredMachine, ...]
    links: tuple[WiredLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WiresStatus:
    """The machines that are heard, and the links whose far end is down, by their port here."""

    heard: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
