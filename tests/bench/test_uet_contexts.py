"""What 10,000 idle PDCs of one agent cost: memory of each, and time that the others lose by them."""

from __future__ import annotations

import gc
import time
import tracemalloc
from random import Random

import pytest
from figures import Figure, judge

from testbed.protocols.datagram import Incoming
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

JOB = 7
COUNT = 10_000
MESSAGES = 1000
"""Three times as many are fewer than an endpoint keeps without a receive."""
CONFIG = UetConfig()


class Hub:
    """A FEP with many peers, which come and go in silence."""

    def __init__(self) -> None:
        self.fep = Fep("10.0.0.1", CONFIG, Random(1), 0)
        self.endpoint = self.fep.endpoint(job_id=JOB, resource_index=1)
        self.now = 0

    def peer(self, number: int) -> Fep:
        peer = Fep(f"10.{number >> 16 | 1}.{number >> 8 & 255}.{number & 255}", CONFIG, Random(number), 0)
        peer.endpoint(job_id=JOB, resource_index=1)
        return peer

    def message(self, peer: Fep) -> None:
        """One byte to a peer, and its acknowledgement."""
        operation = self.endpoint.send(FepAddress(peer.address, job_id=JOB), b"x", self.now)
        while True:
            sent = [(peer, self.fep, item) for item in self.fep.transmit(self.now)]
            sent += [(self.fep, peer, item) for item in peer.transmit(self.now)]
            if not sent:
                break
            for receiver, sender, item in sent:
                receiver.receive([Incoming(sender.address, item.entropy, item.to_bytes())], self.now)
        assert operation.ok
        self.endpoint.completions.clear()

    def rest(self) -> None:
        """Until no timer is left."""
        while (due := self.fep.next_timer()) is not None:
            self.now = max(self.now, due)
            self.fep.handle_timer(self.now)


def time_messages(hub: Hub) -> float:
    """Seconds of `MESSAGES` messages to one peer, the best of three."""
    peer = hub.peer(COUNT + 1)
    hub.message(peer)
    times = []
    for _ in range(3):
        begin = time.process_time()
        for _ in range(MESSAGES):
            hub.message(peer)
        times.append(time.process_time() - begin)
    return min(times)


def test_ten_thousand_idle_contexts() -> None:
    alone = time_messages(Hub())
    hub = Hub()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(COUNT):
        hub.message(hub.peer(number))
    hub.rest()
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / COUNT
    tracemalloc.stop()
    assert len(hub.fep.pdcs) == COUNT
    crowded = time_messages(hub)
    judge(
        Figure("UET: memory of an idle PDC, of 10,000", each, at_most=4096, unit="B"),
        Figure("UET: time of a message beside 10,000 PDCs", crowded / alone, at_most=1.5, unit="x"),
    )
