"""Real endpoints in the link simulator: fabrics of 100 Gbit/s and 12 us, transfers over them, what they achieved."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from simulated_topologies import leaf_spine, plane_port, star

from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.semantics.endpoint import Endpoint
from testbed.protocols.uet.semantics.operations import Operation
from testbed.protocols.uet.trace import Trace

GBPS = 10**9
RATE = 100 * GBPS
BASE_RTT_NS = 12_000
PAYLOAD = 4096
PLANE_BDP = RATE * BASE_RTT_NS // (8 * GBPS)
WIRE_BYTES = PAYLOAD + 12 + 44 + 66
"""A full packet on the wire: PDS and standard SES headers, and all below."""
ACK_BYTES = 44 + 66
JOB = 7
KEY = 99
NEVER_NS = 1 << 50
ALL_ACCESS = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


def delay_ns(hops: int, base_rtt_ns: int = BASE_RTT_NS) -> int:
    """Of each link of a path, so that this is the base RTT of a full packet and its ACK."""
    serialisation = hops * (WIRE_BYTES + ACK_BYTES) * 8 * GBPS // RATE
    return (base_rtt_ns - serialisation) // (2 * hops)


def config(**settings: Any) -> UetConfig:
    """An endpoint of the modelled fabric itself, hence at time scale 1."""
    defaults: dict[str, Any] = {
        "link_rate_bps": RATE,
        "base_rtt_ns": BASE_RTT_NS,
        "time_scale": 1.0,
        "payload_bytes": PAYLOAD,
        "rto_min_ns": 20 * BASE_RTT_NS,
        "entropies": tuple(range(49152, 49152 + 256)),
    }
    return UetConfig(**(defaults | settings))


@dataclass(slots=True)
class Transfer:
    """A WRITE from one host to another."""

    source: int
    target: int
    operation: Operation


class Fabric:
    """Endpoints `10.0.0.<i>`, one per host, each with a region of its own to be written."""

    def __init__(self, hosts: int, settings: UetConfig, *, seed: int = 1, traced: bool = False) -> None:
        self.config = settings
        self.traces = [Trace() if traced else None for _ in range(hosts)]
        self.feps = [
            Fep(f"10.0.0.{index + 1}", settings, Random(f"{seed} {index}"), 0, trace=self.traces[index])
            for index in range(hosts)
        ]
        self.endpoints: list[Endpoint] = [fep.endpoint(job_id=JOB) for fep in self.feps]
        self.addresses = [FepAddress(fep.address, job_id=JOB) for fep in self.feps]
        self.transfers: list[Transfer] = []
        self.seed = seed
        self._awaited = 0
        self._hosts_per_leaf = 0
        self.network: FabricNetwork

    def star(self, port: FabricPortSettings) -> Fabric:
        link = LinkSettings(rate_bps=RATE, delay_ns=delay_ns(2, self.config.base_rtt_ns))
        self.network = star(self.feps, link=link, port=port, seed=self.seed)
        return self

    def leaf_spine(self, leaves: int, spines: int, port: FabricPortSettings) -> Fabric:
        self._hosts_per_leaf = len(self.feps) // leaves
        link = LinkSettings(rate_bps=RATE, delay_ns=delay_ns(4, self.config.base_rtt_ns))
        self.network = leaf_spine(self.feps, leaves, spines, link=link, port=port, seed=self.seed)
        return self

    def write(self, source: int, target: int, size: int) -> Operation:
        """Write `size` bytes of a pattern of its own into a region that nobody else writes."""
        key = KEY + len(self.transfers)
        self.feps[target].register(bytearray(size), ALL_ACCESS, JOB, key)
        data = bytes([key & 0xFF]) * size
        operation = self.endpoints[source].write(self.addresses[target], data, RemoteBuffer(key), self.network.now)
        self.transfers.append(Transfer(source, target, operation))
        return operation

    def permutation(self, size: int) -> None:
        """Every host of a leaf-spine network writes to one of another leaf, and is written to by one."""
        assert self._hosts_per_leaf > 0, "a star has no leaves"
        random = Random(self.seed)
        targets = list(range(len(self.feps)))
        while any(
            source // self._hosts_per_leaf == target // self._hosts_per_leaf for source, target in enumerate(targets)
        ):
            random.shuffle(targets)
        for source, target in enumerate(targets):
            self.write(source, target, size)

    def incast(self, size: int) -> None:
        """All other hosts write to the first, beginning at random times within one base RTT, as hosts do that are told
        to begin.

        Begun at the same instant, the senders of a simulator without noise stay in lockstep: some always find the queue
        longer than others do.
        """
        random = Random(self.seed)
        for sender in range(1, len(self.feps)):
            self.later(random.randrange(self.config.base_rtt_ns), sender, 0, size)

    def later(self, when_ns: int, source: int, target: int, size: int) -> None:
        """As `write`, at that time."""
        self._awaited += 1

        def begin(_: int) -> None:
            self._awaited -= 1
            self.write(source, target, size)
            self.network.nics[self.feps[source].address].wake()

        self.network.at(when_ns, begin)

    def run(self, limit_ns: int = 1_000_000_000) -> None:
        """Until all transfers have ended; fails if that takes longer than `limit_ns`."""
        self.network.run(limit_ns, self._is_over)
        assert all(transfer.operation.ok for transfer in self.transfers), self.transfers

    def _is_over(self) -> bool:
        return not self._awaited and all(transfer.operation.done for transfer in self.transfers)

    @property
    def spans_ns(self) -> list[tuple[int, int]]:
        """Beginning and end of each transfer."""
        return [(transfer.operation.started_ns, transfer.operation.finished_ns) for transfer in self.transfers]

    @property
    def finished_ns(self) -> list[int]:
        return [transfer.operation.finished_ns for transfer in self.transfers]

    def counted(self, name: str) -> int:
        return sum(fep.counters[name] for fep in self.feps)


def ideal_ns(flows: int, size: int) -> int:
    """So long does the bottleneck take for `flows` messages of `size` bytes, their headers included."""
    return flows * (size // PAYLOAD) * WIRE_BYTES * 8 * GBPS // RATE


def jain(values: list[float]) -> float:
    """Jain's index of fairness: 1 for equal shares."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def port_settings(trimming: bool, medium_planes: float = 1) -> FabricPortSettings:
    return plane_port(PLANE_BDP, trimming=trimming, medium_planes=medium_planes)
