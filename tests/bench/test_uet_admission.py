"""What a SYN with a forged source costs the endpoint that it reaches, in ordinary packets of a transfer.

One thread, no sockets: time is the processor's, of receiving and of sending what that brings about.
"""

from __future__ import annotations

import time
from random import Random

import pytest
from figures import Figure, judge

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

JOB = 7
KEY = 5
SIZE = 16 << 20
FLOOD = 20_000
BATCH = 64
"""Datagrams that the I/O layer hands over at once."""
GAP_NS = 100_000
"""10,000 SYNs a second."""
CONFIG = UetConfig(cc="none", mpr=255)


def target() -> Fep:
    """An endpoint with memory that anybody of the job may write."""
    fep = Fep("10.0.0.1", CONFIG, Random(1), 0)
    fep.endpoint(job_id=JOB)
    fep.register(bytearray(SIZE), Access.REMOTE_WRITE, JOB, KEY)
    return fep


def exchange(fep: Fep, arrived: list[Incoming], now: int) -> tuple[float, list[Outgoing]]:
    """Seconds that it takes to receive datagrams and to send what they bring about, and that."""
    begin = time.process_time()
    fep.receive(arrived, now)
    answers = fep.transmit(now, 2 * BATCH)
    due = fep.next_timer()
    if due is not None and due <= now:
        fep.handle_timer(now)
    return time.process_time() - begin, answers


def ordinary_packet_s() -> float:
    """Of each packet of a WRITE of 16 MiB, 4 KiB each, with its share of the acknowledgements."""
    fep = target()
    peer = Fep("10.0.0.2", CONFIG, Random(2), 0)
    end = peer.endpoint(job_id=JOB)
    operation = end.write(FepAddress(fep.address, job_id=JOB), bytes(SIZE), RemoteBuffer(KEY), 0)
    spent = packets = 0.0
    while not operation.done:
        arrived = [Incoming(peer.address, item.entropy, item.to_bytes()) for item in peer.transmit(0, BATCH)]
        seconds, answers = exchange(fep, arrived, 0)
        spent += seconds
        packets += len(arrived)
        peer.receive([Incoming(fep.address, item.entropy, item.to_bytes()) for item in answers], 0)
    assert operation.ok
    return spent / packets


def forged_syn_s() -> float:
    """Of each of 20,000 SYNs from as many sources, of which nothing is heard again: a short WRITE each. The first
    thousand or so open PDCs, which end after New_PDC_Time."""
    fep = target()
    peer = Fep("10.0.0.2", CONFIG, Random(3), 0)
    end = peer.endpoint(job_id=JOB)
    end.write(FepAddress(fep.address, job_id=JOB), b"forged", RemoteBuffer(KEY), 0)
    (syn,) = peer.transmit(0)
    spent = 0.0
    for first in range(0, FLOOD, BATCH):
        sources = (
            f"10.{number >> 16 | 1}.{number >> 8 & 255}.{number & 255}" for number in range(first, first + BATCH)
        )
        arrived = [Incoming(source, syn.entropy, syn.to_bytes()) for source in sources]
        spent += exchange(fep, arrived, first * GAP_NS)[0]
    return spent / FLOOD


def test_a_flood_of_forged_syns() -> None:
    ordinary = min(ordinary_packet_s() for _ in range(3))
    forged = min(forged_syn_s() for _ in range(3))
    judge(
        Figure("UET: CPU of a SYN with a forged source", forged * 1e6, at_most=30, unit="us"),
        Figure("UET: the same, in ordinary packets of 4 KiB", forged / ordinary, at_most=3, ratio=True),
    )
