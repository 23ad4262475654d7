"""The eBPF programs of link groups, loaded: for a host that has no bonding driver, and for a leaf's split horizon and
the VLANs of its peer link."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from testbed.base.datapath import bpf, build
from testbed.base.datapath.load import load_plain

PROGRAMS = ("to_member", "from_member", "split_horizon", "to_trunk", "from_trunk", "trunk_only")
_MAPS = ("members", "ports", "vlans", "tails")
_LISTED, _PEER = 1, 2
_COUNT, _FIXED, _SEED, _FIRST = 0, 1, 2, 3
MOST_MEMBERS = 8


def lag_object(cache: Path | None = None) -> Path:
    """The compiled programs, from the cache where they were compiled before. Raises `CapabilityError`."""
    sources = build.source_texts("testbed.base.datapath", "programs", ("layout.h", "flows.h", "lag.bpf.c"))
    return build.compiled("lag", ".bpf.o", sources, build.BPF_FLAGS, cache, what="link aggregation")


class LagPrograms:
    """The programs and maps of one node. The maps live as long as this process or a filter has them."""

    def __init__(self) -> None:
        """Raises `CapabilityError`, `DriverError`."""
        self.programs, maps = load_plain(lag_object(), PROGRAMS, _MAPS)
        self._members, self._ports = maps["members"], maps["ports"]
        self._vlans, self._tails = maps["vlans"], maps["tails"]
        self._listed: frozenset[int] = frozenset()

    def named(self, name: str) -> tuple[str, int]:
        """A program by its name, with its descriptor."""
        return name, self.programs[name]

    def fix(self, ifindex: int) -> None:
        """Name the aggregate's inner end, or the leaf's peer link."""
        bpf.update_u32(self._members, _FIXED, ifindex)

    def seed(self, seed: int) -> None:
        """Have the hash of a flow that a host sends, `testbed.base.datapath.flow_hash.port_hash`, begin with a seed."""
        bpf.update_u32(self._members, _SEED, seed)

    def mark_peer(self, ifindex: int) -> None:
        """Name a port that the peer's frames come in by."""
        bpf.update_u32(self._ports, ifindex, _PEER)

    def add_trunk(self, tail: int, vlan: int) -> None:
        """Have frames of a VLAN go between the peer link and this interface."""
        bpf.update_u32(self._vlans, tail, vlan)
        bpf.update_u32(self._tails, vlan, tail)

    def forget(self, port: int, *, tail: int = 0, vlan: int = 0) -> None:
        """Know a port no more, nor the interface of a VLAN, where one goes with it."""
        gone = [(self._ports, port)]
        if vlan:
            gone += [(self._vlans, tail), (self._tails, vlan)]
        for table, key in gone:
            with contextlib.suppress(FileNotFoundError):  # a port is listed now and then alone
                bpf.delete_u32(table, key)
        self._listed -= {port}

    def distribute(self, members: Sequence[int]) -> None:
        """Have these members, by ifindex, and no others, take what the host sends."""
        if len(members) > MOST_MEMBERS:
            raise ValueError(f"{len(members)} members; there is room for {MOST_MEMBERS}")
        for number, ifindex in enumerate(members):
            bpf.update_u32(self._members, _FIRST + number, ifindex)
        bpf.update_u32(self._members, _COUNT, len(members))

    def list_ports(self, ports: Collection[int]) -> None:
        """Have these ports, and no others, collect (at a host), or be kept from the peer's frames (at a leaf)."""
        wanted = frozenset(ports)
        for ifindex in wanted - self._listed:
            bpf.update_u32(self._ports, ifindex, _LISTED)
        for ifindex in self._listed - wanted:
            bpf.delete_u32(self._ports, ifindex)
        self._listed = wanted

    def close(self) -> None:
        for descriptor in (*self.programs.values(), self._members, self._ports, self._vlans, self._tails):
            os.close(descriptor)
