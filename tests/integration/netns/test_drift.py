"""What a person changes by hand in a lab that is up is seen, and a repair brings exactly that back."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from shared_lab import speaker
from waiting import until

from testbed.base.linux import vty
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.nftables import NFPROTO_NETDEV, NetfilterSocket, delete_table
from testbed.lab.core.deploy.changing.drift.lab_drift import Drift, find_drift, repair_lab
from testbed.lab.core.deploy.lifecycle import destroy_lab
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.plan.changes import Effect
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.guards.apply import TABLE

pytestmark = [pytest.mark.netns, pytest.mark.frr]

LEAF, SPINE, HOST = "p1-s1-rail1", "p1-spine1", "p1-s1-h1"
TEXT = """name: {name}
fabric: {{design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2, guards: on}}
qos: {{preset: dcqcn}}
"""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[RunningLab]:
    name = shared_sandbox.name()
    yield shared_sandbox.deploy(load_topology_text(TEXT.format(name=name), file="drift.yml")).lab
    destroy_lab(name, shared_sandbox.state)


def fresh(lab: RunningLab) -> RunningLab:
    return RunningLab.open(lab.name, lab.state)


def port_of(lab: RunningLab, node: str) -> PortPlan:
    return next(port for port in lab.plan.ports if port.node == node)


def run(lab: RunningLab, node: str, command: str) -> None:
    """A command that a person types, of iproute2."""
    program, *arguments = command.split()
    subprocess.run([program, "-n", lab.namespace(node), *arguments], check=True, capture_output=True)


def inside(lab: RunningLab, node: str, *argv: str) -> None:
    subprocess.run(["ip", "netns", "exec", lab.namespace(node), *argv], check=True, capture_output=True)


def flush_guards(lab: RunningLab, node: str) -> None:
    """`nft flush ruleset`, of which this machine need not have the program."""

    def remove() -> None:
        with closing(NetfilterSocket()) as item:
            item.commit([delete_table(NFPROTO_NETDEV, TABLE)], "remove the guards")

    in_namespace(lab.namespace(node), remove)


def uplink(lab: RunningLab) -> PortPlan:
    return next(port for port in lab.plan.ports if port.node == LEAF and port.peer.startswith("p1-spine"))


def kill_daemon(lab: RunningLab, node: str, daemon: str) -> None:
    pid = next(status for status in lab.status() if status.name == node).pids[daemon]
    os.kill(pid, signal.SIGKILL)
    until(lambda: daemon in next(s for s in lab.status() if s.name == node).missing_daemons, f"{daemon} has ended")


CHANGES: dict[str, tuple[Callable[[RunningLab], None], list[tuple[Effect, str]]]] = {
    "an address that is removed": (
        lambda lab: run(lab, HOST, f"ip addr flush dev {port_of(lab, HOST).name} scope global"),
        [(Effect.MADE, "add address")],
    ),
    "an address that is added": (
        lambda lab: run(lab, HOST, f"ip addr add 198.51.100.7/24 dev {port_of(lab, HOST).name}"),
        [(Effect.REMOVED, "198.51.100.7/24")],
    ),
    "an address of a switch": (
        lambda lab: run(lab, SPINE, f"ip addr del {speaker(lab, SPINE).loopback} dev lo"),
        [(Effect.MADE, "add address")],
    ),
    "a route that is added": (
        lambda lab: run(lab, HOST, f"ip route add 203.0.113.0/24 dev {port_of(lab, HOST).name}"),
        [(Effect.REMOVED, "203.0.113.0/24")],
    ),
    "routes that are removed": (lambda lab: run(lab, HOST, "ip route flush table 101"), [(Effect.MADE, "add route")]),
    "rules that are removed": (lambda lab: run(lab, HOST, "ip rule flush"), [(Effect.MADE, "add rule")]),
    "a link that is down": (
        lambda lab: run(lab, LEAF, f"ip link set {uplink(lab).name} down"),
        [(Effect.CHANGED, "is down")],
    ),
    "a NIC that is down": (
        lambda lab: run(lab, HOST, f"ip link set {port_of(lab, HOST).name} down"),
        [(Effect.CHANGED, "is down"), (Effect.MADE, "add route")],
    ),
    "an MTU": (
        lambda lab: run(lab, LEAF, f"ip link set {uplink(lab).name} mtu 1300"),
        [(Effect.CHANGED, "has mtu 1300")],
    ),
    "a link that is removed": (
        lambda lab: run(lab, LEAF, f"ip link del {uplink(lab).name}"),
        [(Effect.MADE, "create veth")],
    ),
    "a queue that is replaced": (
        lambda lab: run(lab, LEAF, f"tc qdisc replace dev {uplink(lab).name} root tbf rate 1mbit burst 16k limit 64k"),
        [(Effect.REMADE, "install port")],
    ),
    "a rate": (
        lambda lab: run(
            lab, LEAF, f"tc class change dev {uplink(lab).name} parent 1: classid 1:1 htb rate 1mbit ceil 1mbit"
        ),
        [(Effect.CHANGED, "its rates or weights")],
    ),
    "a program that is removed": (
        lambda lab: run(lab, LEAF, f"tc qdisc del dev {uplink(lab).name} ingress"),
        [(Effect.REMADE, "install port")],
    ),
    "a setting": (
        lambda lab: inside(lab, LEAF, "sysctl", "-qw", "net.ipv4.ip_forward=0"),
        [(Effect.CHANGED, "net.ipv4.ip_forward")],
    ),
    "guards that are removed": (lambda lab: flush_guards(lab, LEAF), [(Effect.REMADE, "guard")]),
    "a line of FRR": (
        lambda lab: vty.configure(
            lab.run_directory(LEAF), "bgpd", [f"router bgp {speaker(lab, LEAF).asn}", "timers bgp 7 21", "exit"]
        ),
        [(Effect.CHANGED, "timers bgp")],
    ),
    "a neighbour of FRR that is removed": (
        lambda lab: vty.configure(
            lab.run_directory(LEAF),
            "bgpd",
            [f"router bgp {speaker(lab, LEAF).asn}", f"no neighbor {uplink(lab).name} interface", "exit"],
        ),
        [(Effect.CHANGED, "neighbor")],
    ),
    "a dead bgpd": (lambda lab: kill_daemon(lab, LEAF, "bgpd"), [(Effect.RESTARTED, "bgpd")]),
    "a dead zebra": (lambda lab: kill_daemon(lab, SPINE, "zebra"), [(Effect.RESTARTED, "zebra")]),
    "a namespace without its name": (
        lambda lab: subprocess.run(["ip", "netns", "del", lab.namespace(HOST)], check=True) and None,
        [(Effect.REMADE, f"node {HOST}")],
    ),
}
"""Each change that a person makes, and what is told of it: the effect of its repair, and words."""


def require_told(drift: Drift, expected: list[tuple[Effect, str]]) -> None:
    rows = [(row.effect, f"{row.what} {row.detail}") for row in drift.rows]
    for effect, words in expected:
        assert any(found is effect and words in what for found, what in rows), rows


def test_a_lab_that_nobody_touched_has_not_drifted(lab: RunningLab) -> None:
    assert find_drift(lab).rows == ()


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_person_changed_is_seen_and_mended(lab: RunningLab, change: str) -> None:
    do, expected = CHANGES[change]
    do(lab)
    drift = find_drift(fresh(lab))
    require_told(drift, expected)
    with lab.state.lock_lab(lab.name):
        repair_lab(fresh(lab), drift)
    assert find_drift(fresh(lab)).rows == ()
    assert lab.life_cycle is LabState.RUNNING
    assert Journal(lab.state_directory).read().work == {}
    until(lambda: check_lab(fresh(lab)).exit_code == 0, "the lab is whole again")


def test_what_link_set_changed_is_no_drift(lab: RunningLab) -> None:
    key = f"{LEAF}:{uplink(lab).name}"
    try:
        with LinkControl(fresh(lab)) as links:
            for change in (LinkChange(rate_share=0.5), LinkChange(loss=0.1), LinkChange(up=False)):
                links.set(key, change)
                assert find_drift(fresh(lab)).rows == ()
    finally:
        with LinkControl(fresh(lab)) as links:
            links.reset_all()
    until(lambda: check_lab(fresh(lab)).exit_code == 0, "the lab is whole again")


def test_interfaces_that_a_person_added_are_theirs(lab: RunningLab) -> None:
    run(lab, HOST, "ip link add mine type bridge")
    run(lab, HOST, "ip addr add 198.51.100.1/24 dev mine")
    run(lab, HOST, "ip link set mine up")
    run(lab, HOST, "ip route add 203.0.113.0/24 dev mine")
    try:
        assert find_drift(fresh(lab)).rows == ()
    finally:
        run(lab, HOST, "ip link del mine")


def test_the_verbs_show_it_and_mend_it(lab: RunningLab, shared_sandbox: Any) -> None:
    file = shared_sandbox.work / "drift.yml"
    file.write_text(TEXT.format(name=lab.name))
    arguments = ("-t", str(file), "-n", lab.name)
    run(lab, HOST, f"ip addr add 198.51.100.7/24 dev {port_of(lab, HOST).name}")
    shown = shared_sandbox.cli("diff", *arguments)
    assert shown.returncode == 1, shown.stderr
    assert "changed by hand" in shown.stdout and "--repair" in shown.stdout
    as_json = json.loads(shared_sandbox.cli("diff", *arguments, "-f", "json").stdout)
    assert as_json["repairs"] == 1
    left = shared_sandbox.cli("apply", "-q", *arguments)
    assert left.returncode == 0 and "nothing to change" in left.stdout, left.stderr
    mended = shared_sandbox.cli("apply", "-q", "--repair", *arguments)
    assert mended.returncode == 0 and "1 removed" in mended.stdout, mended.stdout + mended.stderr
    assert shared_sandbox.cli("diff", *arguments).returncode == 0
    assert find_drift(fresh(lab)).rows == ()
