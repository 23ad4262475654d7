"""The ECMP hash of our ports' ingress program, computed as it does (`base/datapath/programs/port.bpf.c`, `balance`).

Linux divides the hash space evenly over the next hops in their order in the kernel's group (see `fabric_graph`). The
order matters: where two leaves have another one, other flows of theirs meet at a spine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from testbed.base.errors import ScenarioError
from testbed.lab.core.model import BalancingMode, HashEngine
from testbed.lab.core.plan.operations import LabPlan

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FiveTuple:
    """`protocol` is the IP protocol: 6 TCP, 17 UDP."""

    source: IPv4Address
    destination: IPv4Address
    protocol: int
    source_port: int
    destination_port: int


def port_hash(five: FiveTuple, seed: int) -> int:
    """32 bits."""
    addresses = _loaded(five.source.packed) << 32 | _loaded(five.destination.packed)
    ports = _loaded(five.source_port.to_bytes(2, "big") + five.destination_port.to_bytes(2, "big"))
    flow = _mix(addresses ^ seed << 17)
    return _mix((flow + (ports << 8 | five.protocol) + seed) & _WORD) >> 32


def lab_hash(plan: LabPlan, flows: Sequence[FiveTuple], *, run: int) -> Callable[[int, str], int]:
    """(number of a flow, switch) -> its hash there in the run of this seed, for `oracles.ecmp.hashed_choice`.

    Raises `ScenarioError` where a switch leaves hashing to the kernel, or does not balance whole flows.
    """
    if plan.qos is None:
        raise ScenarioError("the lab has no qos: its switches hash with the kernel's own function")
    switches = [buffer for buffer in plan.qos.buffers if buffer.node]
    for buffer in switches:
        if buffer.hash is not HashEngine.EBPF or buffer.mode is not BalancingMode.FLOW:
            raise ScenarioError(
                f"{buffer.node} balances by {buffer.mode} with the hash of {buffer.hash}: not predicted"
            )
    seeds = {buffer.node: buffer.seed_in(run) for buffer in switches}
    return lambda number, switch: port_hash(flows[number], seeds[switch])


def _loaded(data: bytes) -> int:
    """As the program reads bytes of the packet into a number."""
    return int.from_bytes(data, sys.byteorder)


def _mix(x: int) -> int:
    """The finaliser of MurmurHash3."""
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & _WORD
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & _WORD
    return x ^ x >> 33
