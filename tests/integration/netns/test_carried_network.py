"""A network that another one carries: packets of both on the same switches, each by ports of its own, and apart."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from testbed.base.names import namespace_name
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckResult, CheckStatus, check_lab
from testbed.lab.features.overlay.watch_tenants import probe_isolation
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport, TransportKind
from testbed.workload.patterns import generate_permutation

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 4000.0
TEXT = """name: {name}
fabric: {{design: single-switch, hosts: 3, gpus: 1}}
networks:
  frontend: {{leaves: 2, spines: 2, nic: {{rate: 100G}}, overlay: evpn, mtu: 4050}}
  storage: {{on: frontend, nic: {{rate: 200G}}, prefix: 198.18.7.0/24, mtu: 3000}}
"""
ONE, NEAR, FAR = "198.18.7.2", "198.18.7.3", "198.18.7.4"
"""The first host's address in the storage network, that of the second, on the same leaf, and of the third."""


def checked(lab: RunningLab) -> dict[str, CheckResult]:
    return {result.name: result for result in check_lab(lab).results}


def pings(lab: RunningLab, node: str, target: str, source: str, *options: str) -> bool:
    argv = ["ping", "-q", "-c", "2", "-i", "0.05", "-W", "1", *options, "-I", source, target]
    return lab.run(node, argv).returncode == 0


def address(lab: RunningLab, node: str, port: str) -> str:
    return str(next(nic.address.ip for nic in lab.plan.ports if (nic.node, nic.name) == (node, port) and nic.address))


def test_both_networks_carry_their_packets_and_are_checked_by_name(lab: RunningLab) -> None:
    found = checked(lab)
    assert {name: result.failures for name, result in found.items() if result.status is not CheckStatus.PASS} == {}
    for name in ("subnets", "path mtu", "black holes"):
        assert found[f"{name}, storage"].count and found[f"{name}, frontend"].count
    assert (
        "at 3000 to 3050 bytes" in found["path mtu, storage"].detail
        and "4050 bytes" in found["path mtu, frontend"].detail
    )
    assert pings(lab, "p1-s1-h1", FAR, ONE, "-M", "do", "-s", "2972")
    assert not pings(lab, "p1-s1-h1", FAR, ONE, "-M", "do", "-s", "2973")


def test_a_host_sends_what_is_for_a_network_by_its_own_port(lab: RunningLab) -> None:
    def way(*words: str) -> str:
        return lab.run("p1-s1-h1", ["ip", "-o", "route", "get", *words]).stdout.split(" dev ")[1].split()[0]

    frontend = address(lab, "p1-s1-h3", "fe1")
    assert (way(FAR), way(frontend)) == ("st1", "fe1")
    assert way(frontend, "from", ONE) == "st1", "what has its address leaves by its port, and the leaf refuses it"


def test_none_reaches_the_other_and_it_is_the_vrf_that_keeps_them_apart(lab: RunningLab) -> None:
    """Joined by hand, the VRF and its leaf carry what they stopped before, and the probes of `check` arrive."""
    near = address(lab, "p1-s1-h2", "fe1")
    assert pings(lab, "p1-s1-h1", near, address(lab, "p1-s1-h1", "fe1")), "within the front end it is reached"
    assert not pings(lab, "p1-s1-h1", near, ONE)
    with joined(lab, "fe-leaf1", near):
        assert pings(lab, "p1-s1-h1", near, ONE)
        assert "p1-s1-h1:st1 -> p1-s1-h2:fe1 arrived" in probe_isolation(lab.plan)[1]
    assert not pings(lab, "p1-s1-h1", near, ONE)


@contextmanager
def joined(lab: RunningLab, leaf: str, near: str) -> Iterator[None]:
    """A wire between a leaf and its VRF of the storage network, with routes from its first host to `near` and back."""
    switch, vrf = namespace_name(lab.name, leaf), namespace_name(lab.name, f"{leaf}-storage")

    def ip(*argv: str) -> None:
        subprocess.run(["ip", *argv], check=True)

    ip("link", "add", "to-vrf", "netns", switch, "type", "veth", "peer", "to-leaf", "netns", vrf)
    try:
        for namespace, name, own in ((vrf, "to-leaf", "192.0.2.1/30"), (switch, "to-vrf", "192.0.2.2/30")):
            ip("-n", namespace, "addr", "add", own, "dev", name)
            ip("-n", namespace, "link", "set", name, "up")
        ip("-n", vrf, "route", "add", f"{near}/32", "via", "192.0.2.2")
        ip("-n", switch, "route", "add", f"{ONE}/32", "via", "192.0.2.1")
        yield
    finally:
        ip("-n", vrf, "link", "del", "to-leaf")


def test_check_names_the_network_of_a_port_that_is_gone(lab: RunningLab) -> None:
    with LinkControl(lab) as control:
        control.set("p1-s1-h1:st1", LinkChange(up=False), both=True)
        broken = checked(lab.of_network("storage"))["rails"]
        frontend = pings(lab, "p1-s1-h1", address(lab, "p1-s1-h3", "fe1"), address(lab, "p1-s1-h1", "fe1"))
        control.reset("p1-s1-h1:st1")
    assert broken.status is CheckStatus.FAIL
    assert any(line.startswith("p1-s1-h1:st1 -> ") for line in broken.failures) and frontend


def test_ranks_in_it_send_by_its_ports(lab: RunningLab) -> None:
    def received() -> dict[str, int]:
        shown = json.loads(lab.run("p1-s1-h3", ["ip", "-j", "-s", "link"]).stdout)
        return {link["ifname"]: link["stats64"]["rx"]["bytes"] for link in shown}

    seen = lab.of_network("storage")
    nics = place_ranks(seen.model, seen.plan, Ranks(networks=("storage",)), seed=1).nics
    assert [f"{nic.node}:{nic.name}" for nic in nics] == ["p1-s1-h1:st1", "p1-s1-h2:st1", "p1-s1-h3:st1"]
    before = received()
    with WorkloadRunner(seen, Transport(kind=TransportKind.TCP)) as runner:
        result = runner.run(
            generate_permutation(ranks=3, size_bytes=200_000, rng=Random(1)), nics, WorkloadRunOptions(seed=1)
        )
    assert result.complete, result.failure
    grown = {name: number - before[name] for name, number in received().items()}
    assert grown["st1"] > 200_000 > 10 * grown["fe1"]
