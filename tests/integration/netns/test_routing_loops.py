"""A routing loop on the real kernel: packets go round as often as their time to live says, and `check` finds it."""

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.linux.namespaces import in_namespace
from testbed.base.names import namespace_name
from testbed.base.units import Duration
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.deploy.watch.loops import TTL_KEY
from testbed.lab.core.deploy.watch.probe import Probe, Prober
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.faults.lab_fault import FaultSite
from testbed.run.faults.loops import RoutingLoop
from testbed.run.schema.model import Fault

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, segments: 2, hosts: 1, gpus: 1, spines: 1, nic: {{rate: 10G}}, uplink: {{rate: 10G}}}}
qos: {{preset: dcqcn}}
"""
LEAF, SPINE, TO = "p1-s1-rail1", "p1-spine1", "p1-s2-h1:rail1"
TTL = 16
PROBES = 20


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Any:
    return shared_sandbox.deploy(load_topology_text(TEXT.format(name=shared_sandbox.name()), file="loop.yml")).lab


def loop(ttl: int = TTL) -> RoutingLoop:
    settings = {"through": SPINE, "to": TO, "ttl": ttl}
    return RoutingLoop(Fault(at=Duration(0), kind="routing-loop", target=LEAF, settings=settings))


def found(lab: Any) -> dict[str, tuple[CheckStatus, tuple[str, ...]]]:
    return {one.name: (one.status, one.failures) for one in check_lab(lab).results}


def sent(lab: Any, port: str) -> int:
    node, interface = port.split(":")
    return int(lab.counters()[node, interface].tx_packets)


def test_packets_go_round_until_their_time_is_over_and_the_check_says_so(lab: Any) -> None:
    assert check_lab(lab).exit_code == 0
    site = FaultSite(lab=lab, links=SimpleNamespace(), kill_worker=lambda host: None)  # type: ignore[arg-type]
    near, far = (host.nics[0] for host in lab.plan.hosts)
    fault = loop()
    try:
        fault.do(site)
        assert in_namespace(namespace_name(lab.name, near.node), TTL_KEY.read_text).strip() == str(TTL)
        seen = found(lab)
        assert seen["loops"][0] is CheckStatus.FAIL and f"{LEAF} > {SPINE} > {LEAF}" in seen["loops"][1][0]
        assert f"{near.node} sends with a time to live of {TTL}" in seen["loops"][1][1]
        assert seen["buffer cycles"][0] is CheckStatus.FAIL
        with closing(Prober(lab.name, [near, far])) as prober:
            before = sent(lab, f"{LEAF}:uplink1")
            assert len(prober.lost([Probe(source=near, target=far)] * PROBES)) == PROBES
            passed = sent(lab, f"{LEAF}:uplink1") - before
        assert passed >= PROBES * TTL // 2, "each passes the uplink once in two switches"
    finally:
        fault.undo(site)
        fault.undo(site)
    assert in_namespace(namespace_name(lab.name, near.node), TTL_KEY.read_text).strip() == "64"
    report = check_lab(lab)
    assert report.exit_code == 0, str(report)


@pytest.mark.thorough
def test_of_two_loops_with_the_same_routes_the_one_that_is_left_goes_on(lab: Any) -> None:
    site = FaultSite(lab=lab, links=SimpleNamespace(), kill_worker=lambda host: None)  # type: ignore[arg-type]
    near = lab.plan.hosts[0]
    first, second = loop(16), loop(32)

    def seen() -> tuple[CheckStatus, str]:
        ttl = in_namespace(namespace_name(lab.name, near.node), TTL_KEY.read_text).strip()
        return found(lab)["loops"][0], ttl

    try:
        first.do(site)
        second.do(site)
        assert seen() == (CheckStatus.FAIL, "32")
        first.undo(site)
        assert seen() == (CheckStatus.FAIL, "32"), "the routes of the second one are there still"
    finally:
        for one in (first, second):
            one.undo(site)
    assert seen() == (CheckStatus.PASS, "64")
