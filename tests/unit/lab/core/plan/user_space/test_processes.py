"""As few processes have endpoints as keep up with the NICs of these."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.lab.core.plan.user_space.processes import serving_processes

MBIT = 1_000_000


def nics(hosts: int, rails: int, rate_bps: int, mtu_bytes: int = 4500) -> Any:
    return [
        SimpleNamespace(node=f"h{host}", rate_bps=rate_bps, mtu_bytes=mtu_bytes)
        for host in range(hosts)
        for _ in range(rails)
    ]


@pytest.mark.parametrize(
    ("hosts", "rails", "rate_bps", "cpus", "processes"),
    [
        (2, 1, 20 * MBIT, 8, 1),  # 1,111 packets a second: 0.13 of a CPU
        (1, 1, 1, 8, 1),
        (8, 2, 20 * MBIT, 8, 3),  # 8,889: 1.07 CPUs
        (8, 2, 20 * MBIT, 2, 2),
        (2, 1, 2000 * MBIT, 8, 2),  # no more than there are hosts
    ],
)
def test_processes_are_as_few_as_keep_up(
    monkeypatch: pytest.MonkeyPatch, hosts: int, rails: int, rate_bps: int, cpus: int, processes: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpus)))
    assert serving_processes(nics(hosts, rails, rate_bps)) == processes


def test_small_packets_need_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert serving_processes(nics(8, 1, 20 * MBIT, mtu_bytes=1500)) > serving_processes(nics(8, 1, 20 * MBIT))
