"""Attacks on access ports: each is stopped where its guard is on, and is seen to succeed where it is off."""

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from filters import commit, in_node, remove_table
from sandbox import Sandbox

from testbed.base.errors import DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.nftables import NetfilterSocket
from testbed.lab.checks.isolation.attacks import ATTACKS
from testbed.lab.checks.isolation.check import AttackResult, IsolationReport, check_isolation
from testbed.lab.checks.isolation.reachability import Matrix, Protocol, intended_matrix, reached, service_matrices
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.model import Guard, Guards, Service, ServiceProtocol
from testbed.lab.core.plan.operations import AddRule, GuardedPort, GuardSwitch
from testbed.lab.core.plan.overlay_operations import SetPolicy
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.guards.apply import GuardCounter, guard_messages, read_guards
from testbed.lab.features.guards.watch import guard_counters
from testbed.lab.features.overlay.policies_nft import TABLE, DeniedCounter, policy_messages, read_denied
from testbed.lab.observe.dropped import read_dropped
from testbed.lab.observe.lab_reader import LabReader
from testbed.lab.observe.openmetrics import render_metrics

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1}}
networks:
  guarded: {{leaves: 2, spines: 1, nic: {{ports: 2}}, guards: on}}
  a: {{design: single-switch, guards: {{source: false, storm: false, arp: false}}}}
  b: {{design: single-switch, guards: {{mac: false, vlan: false}}}}
  c:
    {{leaves: 2, spines: 1, guards: {{servers: false, control: false}},
     routing: {{password: true, ttl_security: true}}}}
"""
IPV6 = {
    "IPv6 source of nobody",
    "IPv6 source of a neighbour",
    "ND: I am the IPv6 gateway",
    "ND: I am an IPv6 neighbour",
    "ND: the address is taken",
    "BGP to the IPv6 gateway",
}
"""What subnets of tenants alone have."""
ON_LINK = {"ND: I am an IPv6 neighbour", "ND: the address is taken"}
"""Those that need another host on the same leaf."""
SIGNED = {"BGP to the gateway", "BGP to the loopback"}
"""What a password stops without any guard."""
OFF = {
    "backend": set(Guard),
    "guarded": set(),
    "a": {Guard.SOURCE, Guard.STORM, Guard.ARP},
    "b": {Guard.MAC, Guard.VLAN},
    "c": {Guard.SERVERS, Guard.CONTROL},
}


@pytest.fixture(scope="module")
def report(lab: Any) -> IsolationReport:
    return check_isolation(lab)


def attacks(report: IsolationReport, network: str) -> list[AttackResult]:
    return [item for item in report.attacks if item.network == network]


@pytest.mark.parametrize("network", list(OFF))
def test_exactly_the_attacks_succeed_whose_guard_is_off(report: IsolationReport, network: str) -> None:
    found = attacks(report, network)
    assert len(found) == len(ATTACKS)
    assert {item.attack for item in found if not item.ports} == {"VXLAN into a tenant", *IPV6}, "there are none here"
    assert {item.attack: item.succeeded for item in found} == {
        attack.name: item.ports
        if attack.guard in OFF[network] and not (network == "c" and attack.name in SIGNED)
        else 0
        for attack, item in zip(ATTACKS, found, strict=True)
    }


@pytest.mark.parametrize("network", list(OFF))
def test_what_was_stopped_was_counted(report: IsolationReport, network: str) -> None:
    for item in attacks(report, network):
        assert item.guarded == (item.guard not in OFF[network])
        assert item.unseen == 0
        if item.guarded and item.ports:
            assert item.stopped == item.ports <= item.dropped


def test_a_password_stops_bgp_of_hosts_where_no_guard_does(report: IsolationReport) -> None:
    """The kernel counts what is not signed; in a network that has no guard and no password BGP is talked to."""
    without, signed = ({item.attack: item for item in attacks(report, name)} for name in ("backend", "c"))
    for name in SIGNED:
        assert without[name].succeeded == without[name].ports
        assert signed[name].stopped == signed[name].ports == signed[name].by_password
        assert signed[name].dropped >= signed[name].ports
    details = {result.name: result.detail for result in report.results}
    assert details["BGP to the gateway, c"].endswith("no guard control, but a password")


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
    labels = f'guard="{row["guard"]}",interface="{row["port"]}",lab="{lab.name}"'
    labels += f',network="guarded",node="{row["switch"]}"'
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
    matrix = intended_matrix(lab, ["a", "backend"], Protocol.UDP)
    assert matrix.pairs.index(pair[0]) not in matrix.intended
    udp, icmp = (
        Matrix(pairs=tuple(pair), intended=frozenset(), total=1, service=Service(protocol=protocol))
        for protocol in (ServiceProtocol.UDP, ServiceProtocol.ICMP)
    )
    assert reached(lab.name, udp) == reached(lab.name, icmp) == set()
    lab.run("p1-s1-h1", ["ip", "route", "add", *route])
    lab.run("p1-s1-h2", ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
    try:
        assert reached(lab.name, udp) == reached(lab.name, icmp) == {0}
    finally:
        lab.run("p1-s1-h2", ["sysctl", "-q", "-w", "net.ipv4.ip_forward=0"])
        lab.run("p1-s1-h1", ["ip", "route", "del", *route])


def test_guards_go_with_the_lab(sandbox: Sandbox) -> None:
    """A table is in its namespace alone, and a lab of the same name has one of its own."""
    text = TEXT.replace("hosts: 3", "hosts: 2").format(name=sandbox.name())
    model = load_topology_text(text[: text.index("  a:")], file="guards.yml")
    for _ in range(2):
        lab = sandbox.deploy(model, routing=False).lab
        counters = guard_counters(lab)
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
fabric: {{design: rail-optimized, hosts: 6, gpus: 2, segments: 1, spines: 1, guards: {guards},
         overlay: {{evpn: {{rt_filter: {filtered}}}}}}}
tenants:
  red:
    subnets:
      web: {{prefix: 10.1.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail1", "p1-s1-h3:rail2"]}}
  blue:
    subnets: {{web: {{prefix: 10.1.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h4:rail1", "p1-s1-h5:rail1"]}}}}
"""


@pytest.mark.parametrize("guards", ["off", "on"])
def test_ports_of_tenants_are_guarded_in_their_vrfs(sandbox: Any, guards: str) -> None:
    """From the ports of two tenants on one leaf, of one on the other leaf, and of nobody: all, or all but none."""
    text = TENANTS.format(name=sandbox.name(), guards=guards, filtered=str(guards == "on").lower())
    model = load_topology_text(text, file="tenants.yml")
    lab = sandbox.deploy(model).lab
    assert [counts for counts in read_dropped(lab).values() if counts != (0, 0)] == [], "hosts have not misbehaved yet"
    report = check_isolation(lab)
    found = {item.attack: item for item in report.attacks}
    leaked = found.pop("unauthorised route target")
    assert (leaked.ports, leaked.succeeded, leaked.stopped) == ((1, 1, 0) if guards == "off" else (1, 0, 1))
    nobodys = 12 - 5
    of_one_leaf = {"MAC of a neighbour", "ARP: I am a neighbour", "spanning tree root", *ON_LINK}
    assert all(found[name].ports == (4 if name in ON_LINK else 5) for name in IPV6), "red has a NIC alone on a leaf"
    assert found["ARP: I am the gateway"].ports - found["ARP: I am a neighbour"].ports == 1, "it lies across the fabric"
    assert all(found[name].not_tried["no other host of the segment is on the switch"] == 1 for name in of_one_leaf)
    assert [name for name, item in found.items() if not item.ports] == ["VXLAN to the loopback"], "VTEPs say nothing"
    for item in found.values():
        assert item.ports >= 4 or item.attack == "VXLAN to the loopback", item
        assert (item.succeeded, item.stopped)[guards == "on"] == item.ports, item
    if guards == "off":
        assert found["BGP to the loopback"].ports == nobodys
    else:
        assert found["BGP to the loopback"].ports == 12, "what has no route is dropped and counted, too"
        assert found["VXLAN into a tenant"].ports == 12 - 1, "one has no NIC of another tenant on its leaf"
    reach = {result.name: result.status for result in report.results}
    tried = [*Protocol, "UDP after the attacks"]
    assert {reach[name] for name in ("gateways", *tried, *(f"{name}, IPv6" for name in tried))} == {CheckStatus.PASS}
    assert (report.exit_code == 0) == (guards == "on")


TALKS = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 6, gpus: 2, segments: 1, spines: 1, guards: on,
         overlay: {{evpn: {{rt_filter: true, vrf_by: namespace}}}}}}
tenants:
  hub: {{subnets: {{web: {{prefix: 10.10.0.0/24, prefix6: "fd00:10::/64", nics: ["p1-s1-h1:rail1"]}}}}}}
  red:
    talks_to: [hub]
    subnets: {{web: {{prefix: 10.11.0.0/24, prefix6: "fd00:11::/64", nics: ["p1-s1-h2:rail2", "p1-s1-h3:rail1"]}}}}
  blue:
    talks_to: {{hub: [tcp/80, udp/53, icmp]}}
    subnets: {{web: {{prefix: 10.12.0.0/24, prefix6: "fd00:12::/64", nics: ["p1-s1-h4:rail2", "p1-s1-h5:rail1"]}}}}
  green:  # with the addresses of red
    subnets: {{web: {{prefix: 10.11.0.0/24, prefix6: "fd00:11::/64", nics: ["p1-s1-h6:rail1"]}}}}
"""


def test_tenants_reach_of_each_other_what_they_may_ask_for_and_it_is_the_policy_that_stops_the_rest(
    sandbox: Any,
) -> None:
    """All is tried from all. Without the table of one VRF what it denied arrives; put back in one step it is denied."""
    lab = sandbox.lab(TALKS)
    assert check_lab(lab).exit_code == 0
    report = check_isolation(lab)
    assert report.exit_code == 0, [result for result in report.results if result.status is not CheckStatus.PASS]
    found = {result.name: result for result in report.results}
    services = {"tcp/80 of tenants", "udp/53 of tenants"}
    assert services | {f"{name}, IPv6" for name in services} <= set(found)
    both = [intended_matrix(lab, ["backend"], Protocol.UDP, ipv6=ipv6) for ipv6 in (False, True)]
    for udp in both:
        names = {(a.tenant, b.tenant) for index, (a, b) in enumerate(udp.pairs) if index in udp.intended}
        assert {pair for pair in names if pair[0] and pair[0] != pair[1]} == {("red", "hub"), ("hub", "red")}
        http = service_matrices(lab, ["backend"], ipv6=udp.ipv6)[0]
        assert {(a.tenant, b.tenant) for index, (a, b) in enumerate(http.pairs) if index in http.intended} == {
            ("red", "hub"),
            ("blue", "hub"),
        }

    policy = next(
        item for item in lab.plan.operations if isinstance(item, SetPolicy) and item.node == "p1-s1-rail2-hub"
    )

    def denied() -> list[DeniedCounter]:
        with closing(NetfilterSocket()) as filters:
            return read_denied(filters)

    shown = json.loads(sandbox.cli("inspect", "guards", "-n", lab.name, "--format", "json").stdout)
    assert {"p1-s1-rail2 hub:to50003 tenant blue"} == {
        f"{row['switch']} {row['port']} {row['host']}"
        for row in shown
        if row["guard"] == "policy"
        and row["port"].startswith("hub:")
        and row["dropped"]
        and row["switch"] == "p1-s1-rail2"
    }
    assert {item.interface: item.packets > 0 for item in in_node(lab, policy.node, denied)} == {
        "to50002": False,
        "to50003": True,
    }
    remove_table(lab, policy.node, TABLE)
    for udp in both:
        leaked = [udp.pairs[index] for index in reached(lab.name, udp) - udp.intended]
        assert ("10.12.0.2/24", "hub") in {(str(a.address), b.tenant) for a, b in leaked}
    commit(lab, policy.node, policy_messages(policy))
    assert all(reached(lab.name, udp) == udp.intended for udp in both)
