"""What the link aggregation of a node is started from, as data and as the file that carries it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.files import write_atomically

PROCESS_NAME = "testbed-lag"
"""What the process of a node's link groups is called (comm in proc(5))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPort:
    """A port of a link group. `number` is its port number in LACP, unique in its system."""

    name: str
    ifindex: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregate:
    """The link group of a host's NIC. What is sent through the NIC comes out of the interface `inner`."""

    namespace: str
    node: str
    nic: str
    inner: int
    system: str
    key: int
    members: tuple[MemberPort, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafGroup:
    """A host's link group at a leaf, by the host's name."""

    name: str
    key: int
    member: MemberPort


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedBridge:
    """A bridge that a leaf and its peer have alike, in the namespace of the leaf or of a VRF.

    `peer_port` is its port to the peer. `vlan` is its tag on the peer link, and `tail` the other end of its port there;
    both are 0 for the one that the peer link itself is a port of. `vxlan` is the device of its VNI, and `entries` how
    many prefixes and flood lists EVPN brings its VRF.
    """

    namespace: str
    ifindex: int
    peer_port: int
    groups: tuple[LeafGroup, ...]
    vlan: int = 0
    tail: int = 0
    vxlan: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedLeaf:
    """A leaf of a pair that is one LACP partner. `loopback` and `peer_loopback` are where they ask over the fabric.

    `routes` is how many routes BGP brings it when all of the network is there. `vtep` is the address that both have as
    one VTEP, "" without an overlay.
    """

    namespace: str
    node: str
    peer: str
    primary: bool
    system: str
    secret: str
    peer_interface: str
    peer_ifindex: int
    loopback: str
    peer_loopback: str
    bridges: tuple[PairedBridge, ...]
    uplinks: tuple[int, ...]
    routes: int
    vtep: str = ""

    @property
    def groups(self) -> tuple[LeafGroup, ...]:
        """All of its groups, whatever bridge they are on."""
        found = (group for bridge in self.bridges for group in bridge.groups)
        return tuple(sorted(found, key=lambda group: group.key))


NodeConfiguration = HostAggregate | PairedLeaf


@dataclass(frozen=True, slots=True, kw_only=True)
class LagConfiguration:
    """The nodes of a lab that have link groups. `directory` is where each keeps its status and its log."""

    directory: Path
    nodes: tuple[NodeConfiguration, ...]

    def write(self, path: Path) -> None:
        """Write the file, which root alone may read: it has the secret of the pairs."""
        nodes = [{"kind": type(node).__name__, **dataclasses.asdict(node)} for node in self.nodes]
        content = json.dumps({"directory": str(self.directory), "nodes": nodes})
        write_atomically(path, content, mode=0o600, durable=False)

    @classmethod
    def read(cls, path: Path) -> LagConfiguration:
        """Raises `OSError`, and `ValueError` for what `write` did not write."""
        document = json.loads(path.read_bytes())
        try:
            return cls(directory=Path(document["directory"]), nodes=tuple(map(_node, document["nodes"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is no configuration of link groups: {error!r}") from error


def _node(fields: Mapping[str, Any]) -> NodeConfiguration:
    values = dict(fields)
    match values.pop("kind"):
        case "HostAggregate":
            return HostAggregate(**values | {"members": tuple(MemberPort(**item) for item in values["members"])})
        case "PairedLeaf":
            bridges = tuple(map(_bridge, values["bridges"]))
            return PairedLeaf(**values | {"bridges": bridges, "uplinks": tuple(values["uplinks"])})
        case kind:
            raise ValueError(f"a node of kind {kind}")


def _bridge(fields: Mapping[str, Any]) -> PairedBridge:
    groups = tuple(
        LeafGroup(name=item["name"], key=item["key"], member=MemberPort(**item["member"])) for item in fields["groups"]
    )
    return PairedBridge(**dict(fields) | {"groups": groups})
