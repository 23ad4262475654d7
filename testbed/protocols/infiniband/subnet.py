"""A subnet as its manager has set it up: who is in it, and the tables by which frames cross it.

It is plain data: what a subnet manager wrote into switches and HCAs, read back from them. Everything that forwards or
judges works from it. Names are InfiniBand's (IBTA Architecture Specification, volume 1): a LID is the 16-bit address of
a port, a linear forwarding table (LFT) has the output port for each LID, a service level (SL) is what a packet carries
of its class, and a virtual lane (VL) is the buffer that each link makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

NO_PORT = 255
"""The entry of a forwarding table that has no route (IBTA section 18.2.4.3.1.2)."""
SERVICE_LEVELS = 16
LARGEST_UNICAST_LID = 0xBFFF
"""Larger LIDs are multicast groups' (IBTA section 4.1.3)."""
MAX_PATH = 64
"""More channels than any path has that leads somewhere (the hop limit of directed routes, IBTA section 14.2.2)."""

Channel = tuple[str, int]
"""A link in one direction: the node that sends by it, and its output port there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetNode:
    """An HCA, called HOST:INTERFACE, or a switch, by the name of its node. `lid` 0: the manager has not given one."""

    name: str
    guid: int
    lid: int
    ports: int
    is_switch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetLink:
    """A link that is up. `rate_bps` is the real fabric's, in each direction."""

    a: str
    a_port: int
    b: str
    b_port: int
    rate_bps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetPartition:
    """A partition with its full members, HCAs by name. `pkey` has 15 bits: the 16th says full membership."""

    name: str
    pkey: int
    sl: int
    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """A subnet at one moment.

    `lfts` has the forwarding table of each switch: the output port by LID, `NO_PORT` for none. `sl2vl` has the VL of
    each of the 16 SLs, at every port of every node alike. `vl_high` and `vl_low` are the two tables of VL arbitration,
    as (VL, weight in 64 bytes); `vl_high_limit` says for how many 4 KiB the high one may keep the low one waiting, 255
    without end (IBTA section 7.6.9). `sls` has the SL of the paths that have another one than 0, by source and
    destination LID. `engine` is the routing engine whose tables these are, `sm` the HCA of the master SM.
    """

    nodes: Mapping[str, SubnetNode]
    links: tuple[SubnetLink, ...]
    lfts: Mapping[str, bytes]
    vls: int = 1
    sl2vl: tuple[int, ...] = (0,) * SERVICE_LEVELS
    vl_high: tuple[tuple[int, int], ...] = ()
    vl_low: tuple[tuple[int, int], ...] = ()
    vl_high_limit: int = 0
    sls: Mapping[tuple[int, int], int] = field(default_factory=dict)
    partitions: tuple[SubnetPartition, ...] = ()
    engine: str = ""
    sm: str = ""

    @cached_property
    def hcas(self) -> tuple[SubnetNode, ...]:
        """The HCAs, in the order of their GUIDs."""
        return tuple(sorted((node for node in self.nodes.values() if not node.is_switch), key=lambda node: node.guid))

    @cached_property
    def switches(self) -> tuple[SubnetNode, ...]:
        """The switches, in the order of their GUIDs."""
        return tuple(sorted((node for node in self.nodes.values() if node.is_switch), key=lambda node: node.guid))

    @cached_property
    def peers(self) -> Mapping[Channel, Channel]:
        """The far end of each port that is linked: node and port."""
        found: dict[Channel, Channel] = {}
        for link in self.links:
            found[link.a, link.a_port] = (link.b, link.b_port)
            found[link.b, link.b_port] = (link.a, link.a_port)
        return found

    def peer(self, name: str, port: int) -> Channel | None:
        """Return the node and port at the other end of a port's link; None where it has none."""
        return self.peers.get((name, port))

    def sl(self, source: str, destination: str) -> int:
        """Return the service level of the path from one HCA to another, by names."""
        return self.sls.get((self.nodes[source].lid, self.nodes[destination].lid), 0)

    def vl(self, source: str, destination: str) -> int:
        """Return the virtual lane of that path."""
        return self.sl2vl[self.sl(source, destination)]

    def path(self, source: str, destination: str) -> tuple[Channel, ...] | None:
        """Return the channels from one HCA to another, the HCA's own first; None where no route leads there."""
        lid = self.nodes[destination].lid
        channel: Channel = (source, 1)
        found = [channel]
        while len(found) <= MAX_PATH:
            peer = self.peers.get(channel)
            if peer is None:
                return None
            here = peer[0]
            if here == destination:
                return tuple(found)
            table = self.lfts.get(here)
            if table is None or lid >= len(table) or table[lid] in (0, NO_PORT):
                return None
            channel = (here, table[lid])
            found.append(channel)
        return None

    def to_json(self) -> str:
        """Write it as text that `from_json` reads."""
        data: dict[str, Any] = {
            "nodes": [asdict(node) for node in self.nodes.values()],
            "links": [asdict(link) for link in self.links],
            "lfts": {name: table.hex() for name, table in self.lfts.items()},
            "sls": [[*pair, sl] for pair, sl in self.sls.items()],
            "partitions": [asdict(partition) for partition in self.partitions],
        }
        for name in ("vls", "sl2vl", "vl_high", "vl_low", "vl_high_limit", "engine", "sm"):
            data[name] = getattr(self, name)
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises `ValueError`, `KeyError` and `TypeError` for anything else."""
        data = json.loads(text)
        nodes = [SubnetNode(**node) for node in data["nodes"]]
        return cls(
            nodes={node.name: node for node in nodes},
            links=tuple(SubnetLink(**link) for link in data["links"]),
            lfts={name: bytes.fromhex(table) for name, table in data["lfts"].items()},
            vls=data["vls"],
            sl2vl=tuple(data["sl2vl"]),
            vl_high=tuple((vl, weight) for vl, weight in data["vl_high"]),
            vl_low=tuple((vl, weight) for vl, weight in data["vl_low"]),
            vl_high_limit=data["vl_high_limit"],
            sls={(source, destination): sl for source, destination, sl in data["sls"]},
            partitions=tuple(
                SubnetPartition(**{**partition, "members": tuple(partition["members"])})
                for partition in data["partitions"]
            ),
            engine=data["engine"],
            sm=data["sm"],
        )
