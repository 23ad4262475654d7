"""The site that all hosts of a simulated run share, which hosts their endpoints: a network and its clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from testbed.protocols.simulation import FabricNetwork

if TYPE_CHECKING:
    from testbed.protocols.simulation import Endpoint


class RunSite:
    """The network, once it is built, the endpoints that it is built between, and memory that carries nothing.

    It is what endpoints stand on: `endpoints.worker.datagrams.hosting.Hosting` says what its methods do.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.network: FabricNetwork | None = None
        self.endpoints: dict[str, Endpoint] = {}
        """By address, in the order in which they were opened."""
        self._room = memoryview(b"")

    def now(self) -> int:
        """Simulated ns since the begin."""
        return 0 if self.network is None else self.network.now

    def random(self, address: str) -> Random:
        """Return the random numbers of an endpoint."""
        return Random(f"{self.seed} {address}")

    def memory(self, size: int) -> memoryview:
        """Memory for transfers that are traffic alone. All have the same: nobody looks at what is in it."""
        if len(self._room) < size:
            self._room = memoryview(bytearray(size))
        return self._room[:size]

    def touch(self, endpoint: Endpoint) -> None:
        network = self.network
        if network is not None:
            network.nics[endpoint.address].wake()

    def call_at(self, when: int, action: Callable[[int], None]) -> None:
        """Have `action(now)` called at a simulated time."""
        network = self.network
        if network is not None:
            network.at(when, action)

    def received_bytes(self, address: str) -> int:
        network = self.network
        return 0 if network is None else network.nics[address].delivered_bytes

    def counters(self, address: str) -> Mapping[str, int]:
        """Return the datagrams that the NIC sent and got."""
        network = self.network
        if network is None:
            return {}
        host = network.nics[address]
        return {"datagrams_received": host.delivered, "datagrams_sent": host.sent}

    def first_packet_counter(self) -> int:
        """There was no life of this endpoint before."""
        return 1

    def close(self) -> None:
        """Do nothing: the network goes with the run."""
