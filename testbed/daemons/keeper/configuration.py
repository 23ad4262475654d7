"""The configuration that the keeper of an overlay is started from."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from testbed.daemons.keeper.entries import EntryKind, ExpectedEntry

PROCESS_NAME = "testbed-keeper"
"""The name of the process (comm in proc(5))."""
LOCK_NAME = "lock"
"""In its directory: it holds that as long as it lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEntry:
    """An entry of the router of another VTEP. `address` is that of a neighbour, "" for an FDB entry."""

    kind: EntryKind
    vni: int
    ifindex: int
    of: str
    switch: str
    mac: str
    address: str
    vteps: tuple[IPv4Address, ...]

    @property
    def expected(self) -> ExpectedEntry:
        """The entry in the form that the overlay expects."""
        return ExpectedEntry(
            kind=self.kind,
            vni=self.vni,
            ifindex=self.ifindex,
            of=self.of,
            switch=self.switch,
            mac=self.mac,
            address=ip_address(self.address) if self.address else None,
            vteps=self.vteps,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVrf:
    """A tenant's VRF on a switch, and the entries that it has of the routers of other VTEPs.

    `namespace` is where its interfaces are, and `bridge` the index of the one of its L3VNI there. `directory` has the
    sockets of the switch's daemons, and `asn` is that of its bgpd. `entries` are its FDB entries and neighbours
    that come with any route of their VTEP.
    """

    namespace: str
    switch: str
    tenant: str
    table: int
    bridge: int
    vxlan: int
    ipv6: bool
    asn: int
    directory: Path
    entries: tuple[KeptEntry, ...]

    @property
    def routers(self) -> tuple[ExpectedEntry, ...]:
        """Its entries, as the overlay expects them."""
        return tuple(entry.expected for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperConfiguration:
    """The VRFs of a lab. `events` is the file that is told what was done."""

    lab: str
    events: Path
    vrfs: tuple[KeptVrf, ...]
