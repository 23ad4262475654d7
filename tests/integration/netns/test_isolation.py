"""Attacks on access ports: each is stopped where its guard is on, and is seen to succeed where it is off."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from testbed.collect.lab_reader import LabReader
from testbed.collect.openmetrics import render_metrics
from testbed.deploy.isolation.attacks import ATTACKS
from testbed.deploy.isolation.check import AttackResult, IsolationReport, check_isolation
from testbed.deploy.isolation.reachability import Matrix, Protocol, intended_matrix, reached
from testbed.deploy.links.changes import LinkChange, LinkControl
from testbed.deploy.watch.check import CheckStatus, check_lab
from testbed.drivers.netlink.guards import GuardCounter, guard_messages, read_guards
from testbed.drivers.netlink.nftables import NetfilterSocket
from testbed.drivers.nodes import syscalls
from testbed.errors import DriverError
from testbed.model import NO_GUARDS, Guard, Guards
from testbed.plan.operations import AddRule, GuardedPort, GuardSwitch
from testbed.spec import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1}}
networks:
  guarded: {{leaves: 2, spines: 1, nic: {{ports: 2}}, guards: on}}
  a: {{design: single-switch, guards: {{source: false, storm: false, arp: false}}}}
  b: {{design: single-switch, guards: {{mac: false, vlan: false}}}}
  c: {{design: single-switch, guards: {{servers: false, control: false}}}}
"""
OFF = {
    "backend": set(Guard),
    "guarded": set(),
    "a": {Guard.SOURCE, Guard.STORM, Guard.ARP},
    "b": {Guard.MAC, Guard.VLAN},
    "c": {Guard.SERVERS, Guard.CONTROL},
}


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Any:
    return shared_sandbox.deploy(load_topology_text(TEXT.format(name=shared_sandbox.name()), file="guards.yml")).lab


@pytest.fixture(scope="module")
def report(lab: Any) -> IsolationReport:
    return check_isolation(lab)


def attacks(report: IsolationReport, network: str) -> list[AttackResult]:
    return [item for item in report.attacks if item.network == network]


@pytest.mark.parametrize("network", list(OFF))
def test_exactly_the_attacks_succeed_whose_guard_is_off(report: IsolationReport, network: str) -> None:
    found = attacks(report, network)
    assert len(found) == len(ATTACKS)
    assert [item.attack for item in found if not item.ports] == ["VXLAN into a tenant"], "there are none here"
    assert {item.attack: item.succeeded for item in found} == {
        attack.name: item.ports if attack.guard in OFF[network] else 0
        for attack, item in zip(ATTACKS, found, strict=True)
    }


@pytest.mark.parametrize("network", list(OFF))
def test_what_was_stopped_was_counted(report: IsolationReport, network: str) -> None:
    for item in attacks(report, network):
        assert item.guarded == (item.guard not in OFF[network])
        assert item.unseen == 0
        if item.guarded and item.ports:
            assert item.stopped == item.ports <= item.dropped


def test_intended_traffic_passes_before_and_after(report: IsolationReport) -> None:
    results = {result.name: result for result in report.results}
    for name in ("UDP", "TCP", "ICMP", "gateways", "UDP after the attacks"):
        assert results[name].status is CheckStatus.PASS, results[name]
        assert results[name].count
    assert report.exit_code == 1, "the back end has no guards"


def test_the_lab_is_whole_after_the_attacks(lab: Any, report: IsolationReport) -> None:
    assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}


def test_counters_are_shown_by_port_and_guard(lab: Any, report: IsolationReport, shared_sandbox: Any) -> None:
    shown = shared_sandbox.cli("inspect", "guards", "-n", lab.name, "--network", "guarded", "--format", "json")
    rows = json.loads(shown.stdout)
    assert {row["guard"] for row in rows} == set(Guard)
    assert all(row["dropped"] > 0 and row["bytes"] > 0 for row in rows)
    assert {row["switch"] for row in rows} == {"guarded-leaf1", "guarded-leaf2"}


def test_stats_and_metrics_count_what_guards_dropped(lab: Any, report: IsolationReport, shared_sandbox: Any) -> None:
    inspected = shared_sandbox.cli("inspect", "guards", "-n", lab.name, "--network", "guarded", "--format", "json")
    whole = shared_sandbox.cli("stats", "-n", lab.name, "--network", "guarded", "--format", "json")
    assert json.loads(whole.stdout)["guards"] == json.loads(inspected.stdout)
    (reading,) = LabReader(lab.state, only=lab.name).read()
    text = render_metrics(lambda: (reading,)).decode()
    row = json.loads(inspected.stdout)[0]
    labels = f'guard="{row["guard"]}",interface="{row["port"]}",lab="{lab.name}",node="{row["switch"]}"'
    assert f"testbed_guard_dropped_packets_total{{{labels}}} {float(row['dropped'])}" in text


def test_a_guarded_network_passes_by_itself(lab: Any, shared_sandbox: Any) -> None:
    shown = shared_sandbox.cli("check", "--isolation", "-n", lab.name, "--network", "guarded", "--format", "json")
    document = json.loads(shown.stdout)
    assert (shown.returncode, document["exit_code"]) == (0, 0)
    assert {attack["network"] for attack in document["attacks"]} == {"guarded"}


def test_a_nic_that_is_cut_off_is_missed(lab: Any) -> None:
    """The matrix is no tautology: what is intended and does not happen is found, and named."""
    with LinkControl(lab) as control:
        control.set("p1-s1-h2:a1", LinkChange(up=False), both=True)
        broken = {result.name: result for result in check_isolation(lab, "a").results}
        control.reset("p1-s1-h2:a1")
    assert {broken[name].status for name in ("UDP", "TCP", "ICMP", "gateways")} == {CheckStatus.FAIL}
    assert "p1-s1-h3:a1 -> p1-s1-h2:a1 lost" in broken["TCP"].failures


def test_a_host_that_passes_packets_on_is_found(lab: Any) -> None:
    """What arrives and is not intended is found in each protocol that goes one way, whether an answer comes or not."""
    nics = {(nic.node, nic.name): nic for host in lab.plan.hosts for nic in host.nics}
    source, through, target = (nics[key] for key in (("p1-s1-h1", "a1"), ("p1-s1-h2", "a1"), ("p1-s1-h3", "rail1")))
    pair = [(source, target)]
    rules = {rule.source: rule.table for rule in lab.plan.operations if isinstance(rule, AddRule)}
    table = str(rules[source.address.ip])
    route = [f"{target.address.ip}/32", "via", str(through.address.ip), "dev", "a1", "table", table]
    matrix = intended_matrix(lab, ["a", "backend"])
    assert matrix.pairs.index(pair[0]) not in matrix.intended
    one = Matrix(pairs=tuple(pair), intended=frozenset(), total=1)
    assert reached(lab.name, Protocol.UDP, one) == reached(lab.name, Protocol.ICMP, one) == set()
    lab.run("p1-s1-h1", ["ip", "route", "add", *route])
    lab.run("p1-s1-h2", ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
    try:
        assert reached(lab.name, Protocol.UDP, one) == reached(lab.name, Protocol.ICMP, one) == {0}
    finally:
        lab.run("p1-s1-h2", ["sysctl", "-q", "-w", "net.ipv4.ip_forward=0"])
        lab.run("p1-s1-h1", ["ip", "route", "del", *route])


def test_guards_go_with_the_lab(sandbox: Any) -> None:
    """A table is in its namespace alone, and a lab of the same name has one of its own."""
    text = TEXT.replace("hosts: 3", "hosts: 2").format(name=sandbox.name())
    model = load_topology_text(text[: text.index("  a:")], file="guards.yml")
    for _ in range(2):
        lab = sandbox.deploy(model, routing=False).lab
        counters = lab.guard_counters()
        assert set(counters) == {"guarded-leaf1", "guarded-leaf2"}
        assert all(not counter.packets for counts in counters.values() for counter in counts)
        sandbox.destroy()
    assert sandbox.leftovers() == []


def test_a_transaction_that_the_kernel_refuses_leaves_nothing() -> None:
    """One port in three has a name that no interface can have: none is guarded, and a second try finds no table."""
    one = GuardedPort(name="p", ifindex=1, mac="02:00:00:00:00:01", addresses=(), gateway=None)
    good = GuardSwitch(node="s", guards=Guards.all(), ports=(one,), switches=(), stations=(one.mac,))
    bad = replace(good, ports=(one, replace(one, name="a-name-of-20-letters"), replace(one, name="q")))

    def attempt() -> list[GuardCounter]:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        with closing(NetfilterSocket()) as filters:
            with pytest.raises(DriverError, match="switch s: nf_tables message"):
                filters.commit(guard_messages(bad), "switch s")
            assert read_guards(filters) == []
            filters.commit(guard_messages(good), "switch s")
            return read_guards(filters)

    counters = syscalls.in_thread(attempt)
    assert {counter.guard for counter in counters} == set(Guard)
    assert {(counter.interface, counter.packets) for counter in counters} == {("p", 0)}


TENANTS = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 4, gpus: 1, segments: 1, spines: 1, overlay: evpn}}
tenants:
  red: {{subnets: {{web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1"]}}}}}}
  blue: {{subnets: {{web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h2:rail1"]}}}}}}
"""


@pytest.mark.parametrize("guards", [NO_GUARDS, Guards.all()], ids=["open", "guarded"])
def test_nobody_injects_frames_into_a_tenant_past_the_guard(sandbox: Any, guards: Guards) -> None:
    """From the ports that are no tenant's; files may not ask for guards there yet, so the model is changed."""
    model = load_topology_text(TENANTS.format(name=sandbox.name()), file="tenants.yml")
    report = check_isolation(sandbox.deploy(replace(model, guards=guards)).lab)
    found = {item.attack: item for item in report.attacks}["VXLAN into a tenant"]
    assert found.ports == 2
    assert (found.succeeded, found.stopped) == ((0, 2) if guards else (2, 0))
    reach = {result.name: result.status for result in report.results}
    assert {reach[name] for name in ("UDP", "TCP", "ICMP", "UDP after the attacks")} == {CheckStatus.PASS}
    assert (report.exit_code == 0) == bool(guards)
