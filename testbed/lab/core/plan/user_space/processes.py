"""The number of processes that have the endpoints that carry what programs send: as few as keep up.

A turn of a process costs as much as many packets, and all endpoints of one process share it: two hosts in one process
take half of the turns that they take in two.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import ceil

from testbed.lab.core.plan.lab_plan import PortPlan

PACKET_CPU_S = 120e-6
"""The CPU time that a packet may cost at both of its ends together (`tests/bench/test_carrier.py`)."""
MOST_BUSY = 0.5
"""The part of a CPU that a process is to need while all its NICs send full packets at their rate."""


def serving_processes(nics: Sequence[PortPlan]) -> int:
    """Return how many processes share the hosts of these NICs: one for each CPU at most, and one for each host."""
    packets_per_s = sum(nic.rate_bps / (8 * nic.mtu_bytes) for nic in nics)
    hosts = len({nic.node for nic in nics})
    return min(ceil(packets_per_s * PACKET_CPU_S / MOST_BUSY), len(os.sched_getaffinity(0)), hosts)
