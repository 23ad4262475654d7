"""What it is worth that netlink in bulk is packed here: the same veth pairs and the same readings by pyroute2."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from figures import Figure, judge

from testbed.base.linux import namespaces, syscalls
from testbed.base.linux.counters import read_counters
from testbed.base.linux.iproute import converse_here
from testbed.base.linux.namespaces import Namespace
from testbed.base.linux.rtnetlink import LinkEnd, new_veth

pytestmark = [pytest.mark.bench, pytest.mark.netns]

PAIRS = 500
LEAST_MADE, LEAST_READ = 2.0, 5.0
"""How many times as much CPU pyroute2 takes, at least."""


def cpu_s(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def make_pairs(where: Namespace) -> None:
    batch = []
    for number in range(PAIRS):
        mac = "{:02x}:{:02x}".format(*divmod(number, 256))
        a = LinkEnd(where.fd, f"a{number}", 2 + number, f"02:00:00:00:{mac}", 0)
        b = LinkEnd(where.fd, f"b{number}", 2 + PAIRS + number, f"02:00:00:01:{mac}", 0)
        batch.append(new_veth(a, b, 1500, 200))
    where.route.expect(batch, ["veth"] * PAIRS)


def measure() -> tuple[float, float]:
    """The ratios of making the pairs and of reading all interfaces, each in a namespace of its own."""
    made = namespaces.create_namespaces(["ours", "theirs"], {"ours": 1, "theirs": 1})
    try:
        ours = cpu_s(lambda: make_pairs(made["ours"]))
        read = cpu_s(lambda: read_counters(made["ours"].route))
        syscalls.setns(made["theirs"].fd, syscalls.CLONE_NEWNET)

        def talk(route: Any) -> tuple[float, float]:
            def make() -> None:
                for number in range(PAIRS):
                    route.link("add", ifname=f"a{number}", kind="veth", peer={"ifname": f"b{number}"})

            return cpu_s(make), cpu_s(lambda: list(route.get_links()))

        their_making, their_reading = converse_here(talk)
    finally:
        for namespace in made.values():
            namespace.close()
    return their_making / ours, their_reading / read


def test_netlink_in_bulk() -> None:
    making, reading = syscalls.in_thread(measure)
    what = f"CPU of pyroute2, in that of our packer: {PAIRS} veth pairs"
    judge(
        Figure(f"{what} made", making, at_least=LEAST_MADE, ratio=True),
        Figure(f"{what} read", reading, at_least=LEAST_READ, ratio=True),
    )
