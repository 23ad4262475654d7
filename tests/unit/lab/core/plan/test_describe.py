"""The words of a dry run."""

from __future__ import annotations

from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.plan.describe import summarize_plan
from testbed.lab.core.plan.lab import plan_lab

PLAN = plan_lab(generate_fabric(FabricParams(design="rail-optimized", hosts=2, gpus=2, spines=2), name="pod"), k=1000)


def test_every_operation_is_one_line() -> None:
    lines = [str(operation) for operation in PLAN.operations]
    assert all(line and "\n" not in line for line in lines)
    assert len(set(lines)) == len(lines)


def test_the_words() -> None:
    lines = [str(operation) for operation in PLAN.operations]
    for line in (
        "create node p1-s1-h1",
        "set p1-s1-rail1 net.ipv4.ip_forward = 1",
        "create bridge p1-s1-rail1:br-rail1 mtu 4500",
        "create veth p1-s1-h1:rail1 <-> p1-s1-rail1:down1 mtu 4500",
        "shape p1-s1-h1:rail1 to 400 Mbit/s burst 25 kB",
        "set up p1-s1-h1:rail1",
        "add address p1-s1-h1:rail1 10.0.1.2/24",
        "add route p1-s1-h1 default via 10.0.1.1 interface 72 table 101 source 10.0.1.2",
        "add route p1-s1-h1 10.0.1.0/24 interface 72 table 101 source 10.0.1.2",
        "add rule p1-s1-h1 from 10.0.1.2 table 101 priority 1001",
        "start zebra bgpd bfdd on p1-spine1",
    ):
        assert line in lines


def test_the_summary() -> None:
    assert summarize_plan(PLAN).splitlines() == [
        "lab pod: 2 hosts, 4 switches, 8 links",
        "time scale: k = 1000",
        "rates: 400 Gbit/s as 400 Mbit/s",
        "routing: 4 BGP sessions, 16 routes when converged",
        f"operations: {len(PLAN.operations)}",
    ]
