"""What the keeper of an overlay is started from, as data and as the file that carries it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

from testbed.base.files import write_atomically
from testbed.daemons.keeper.vrfs import EntryKind, ExpectedEntry

PROCESS_NAME = "testbed-keeper"
"""What the process is called (comm in proc(5))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVrf:
    """A tenant's VRF on a switch, and the entries that it has of the routers of other VTEPs.

    `namespace` is where its interfaces are, and `bridge` the index of the one of its L3VNI there. `directory` has the
    sockets of the switch's daemons, and `asn` is that of its bgpd. `routers` are its FDB entries and neighbours that
    come with any route of their VTEP.
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
    routers: tuple[ExpectedEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperConfiguration:
    """The VRFs of a lab. `events` is the file that is told what was done."""

    lab: str
    events: Path
    vrfs: tuple[KeptVrf, ...]

    def write(self, path: Path) -> None:
        """Write the file that `read` reads."""
        document = {"lab": self.lab, "events": str(self.events), "vrfs": [_encoded(vrf) for vrf in self.vrfs]}
        write_atomically(path, json.dumps(document), durable=False)

    @classmethod
    def read(cls, path: Path) -> KeeperConfiguration:
        """Raises `OSError`, and `ValueError` for what `write` did not write."""
        document = json.loads(path.read_bytes())
        try:
            vrfs = tuple(map(_decoded, document["vrfs"]))
            return cls(lab=document["lab"], events=Path(document["events"]), vrfs=vrfs)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is no configuration of a keeper: {error!r}") from error


def _encoded(vrf: KeptVrf) -> dict[str, Any]:
    return {
        **{name: getattr(vrf, name) for name in ("namespace", "switch", "tenant", "table", "bridge", "vxlan", "ipv6")},
        "asn": vrf.asn,
        "directory": str(vrf.directory),
        "routers": [
            {
                "kind": entry.kind.value,
                "vni": entry.vni,
                "ifindex": entry.ifindex,
                "of": entry.of,
                "switch": entry.switch,
                "mac": entry.mac,
                "address": str(entry.address or ""),
                "vteps": list(map(str, entry.vteps)),
            }
            for entry in vrf.routers
        ],
    }


def _decoded(fields: Mapping[str, Any]) -> KeptVrf:
    routers = tuple(
        ExpectedEntry(
            **item
            | {
                "kind": EntryKind(item["kind"]),
                "address": ip_address(item["address"]) if item["address"] else None,
                "vteps": tuple(map(IPv4Address, item["vteps"])),
            }
        )
        for item in fields["routers"]
    )
    return KeptVrf(**dict(fields) | {"directory": Path(fields["directory"]), "routers": routers})
