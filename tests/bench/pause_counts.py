"""Pauses under DCQCN in simulations whose NICs do what those of an emulated lab do: why there are more of them there.

    TESTBED_PURE=1 .venv/bin/python tests/bench/pause_counts.py [BYTES]

A simulated NIC takes a packet as its line gets free, and up to `NIC_PACKETS` while its class is paused. That of an
emulated lab goes on to take packets at the rate of their flow while it sends those (`fed`), and until now a flow made
up for the time in which it had taken none (`makes up`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from testbed.base.compiled.finder import is_pure
from testbed.protocols.datagram import NIC_PACKETS
from testbed.protocols.roce.rate_limiter import BURST_PACKETS, RateLimiter
from testbed.protocols.simulation.nic import NicHost
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.sweeps import read_sweep

SCENARIO = Path(__file__).parents[2] / "scenarios" / "dcqcn-thresholds.yml"
MADE_UP_PACKETS = 16


def pull_while_it_sends(nic: NicHost, now: int) -> None:
    """Take packets up to the bound of a pause, whether the line is free or not."""
    port = nic.port
    assert port is not None
    while port.waiting < NIC_PACKETS or nic._urgent():
        batch = nic._transmit(now)
        if not batch:
            return
        frame = nic._frame_of(batch[0])
        if frame is not None:
            port.offer(now, frame, None)


def make_up(limiter: RateLimiter, now: int, room_at: int, size: int, rate_bps: float) -> None:
    """Let a packet leave as if what was waiting had been asked for late."""
    packet_ns = size * 8e9 / rate_bps
    limiter._rate_bps = rate_bps
    limiter.next_at = max(limiter.next_at, now - MADE_UP_PACKETS * packet_ns) + packet_ns


@contextmanager
def nics(*, fed: bool, makes_up: bool) -> Iterator[None]:
    """Have NICs and limiters be those of an emulated lab, as far as is said."""
    pull = pull_while_it_sends if fed else NicHost._pull
    send = make_up if makes_up else RateLimiter.on_send
    with mock.patch.object(NicHost, "_pull", pull), mock.patch.object(RateLimiter, "on_send", send):
        yield


def main() -> int:
    if not is_pure():
        print("compiled classes cannot be changed: TESTBED_PURE=1", file=sys.stderr)
        return 3
    assert MADE_UP_PACKETS > BURST_PACKETS
    size = sys.argv[1] if len(sys.argv) > 1 else "3MB"
    sweep = read_sweep(SCENARIO, {"workload.bytes": size})
    for point in sweep.points:
        counts = []
        for fed, makes_up in ((False, False), (True, False), (True, True)):
            with nics(fed=fed, makes_up=makes_up):
                result = SimulatedPoint(point, sweep.lab_of(point)).run(1, lambda share: False).result
            counts.append("no run" if result is None else f"{result.metrics['pause_frames']:g}")
        print(f"{point.name}: {counts[0]}, fed {counts[1]}, fed and makes up {counts[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
