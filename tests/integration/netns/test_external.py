"""A router outside, on a border leaf: who reaches it, what it is told and believed, and what it may send."""

import json
import random
import subprocess
from contextlib import closing
from typing import Any

import pytest
from filters import commit, remove_table
from waiting import until

from testbed.base.linux import vty
from testbed.base.linux.namespaces import in_namespace
from testbed.base.names import namespace_name
from testbed.lab.checks.isolation.arena import Arena, Fate
from testbed.lab.checks.isolation.attacks import ATTACKS
from testbed.lab.checks.isolation.reachability import Protocol, intended_matrix, reached
from testbed.lab.checks.isolation.sites import find_sites
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.routing import bgp_password, start_routing, stop_routing
from testbed.lab.core.drivers.nodes.unsigned import UnsignedCount
from testbed.lab.core.plan.overlay_operations import SetBorder
from testbed.lab.features.overlay.policies_nft import BORDER_TABLE, border_messages
from testbed.lab.features.overlay.watch import missing_lines, read_missing
from testbed.lab.observe.dropped import DroppedRow, dropped_rows, read_dropped
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport
from testbed.workload.requests.inference_requests import InferenceRequests, generate_inference_requests

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """
name: {name}
scale: {{time: 20000}}
fabric: {{design: rail-optimized, segments: 1, hosts: 6, gpus: 1, spines: 1}}
networks:
  frontend:
    {{leaves: 2, spines: 1, nic: {{ports: 1}}, overlay: {{evpn: {{vrf_by: namespace}}}}, guards: {{control: false}},
     routing: {{password: true, ttl_security: true}}}}
  users: {{on: frontend, hosts: [p1-s1-h3]}}
tenants:
  red:
    external: {{leaf: fe-leaf1, asn: 64999, prefixes: [198.51.100.0/24, 203.0.113.7/32], rate: 10G}}
    talks_to: [hub]
    subnets:
      web: {{prefix: 10.201.0.0/24, nics: ["p1-s1-h4:fe1"]}}
      db: {{prefix: 10.202.0.0/24, nics: ["p1-s1-h5:fe1"]}}
  hub: {{subnets: {{web: {{prefix: 10.203.0.0/24, nics: ["p1-s1-h1:fe1"]}}}}}}
  blue: {{subnets: {{web: {{prefix: 10.201.0.0/24, nics: ["p1-s1-h2:fe1", "p1-s1-h6:fe1"]}}}}}}
"""
ROUTER, BORDER, FAR = "red-external", "fe-leaf1", "fe-leaf2"
WEB, DB, HUB, OUTSIDE, ALONE = "10.201.0.2", "10.202.0.2", "10.203.0.2", "198.51.100.1", "203.0.113.7"
"""The addresses of h4, h5 and h1, and of the router."""
DECLARED, STRANGE = "198.51.100.0/24", "192.0.2.0/24"


def _pings(lab: RunningLab, node: str, target: str, source: str = "") -> bool:
    argv = ["ping", "-c", "2", "-i", "0.2", "-W", "1", *(["-I", source] if source else []), target]
    return lab.run(node, argv).returncode == 0


def _ip(lab: RunningLab, node: str, *argv: str) -> Any:
    command = ["ip", "-j", "-n", namespace_name(lab.name, node), *argv]
    result = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return json.loads(result.stdout or "[]")


def _routes(lab: RunningLab, node: str) -> set[str]:
    return {route["dst"] for route in _ip(lab, node, "route", "show", "proto", "bgp")}


def _bgp(lab: RunningLab, node: str, question: str) -> Any:
    return vty.ask_json(lab.run_directory(node), "bgpd", f"show bgp {question} json")


def test_deploy_waits_for_it(lab: RunningLab) -> None:
    assert not any(read_missing(lab.plan).values())
    states = {(one.node, one.interface): one.state for one in lab.sessions()}
    assert states[ROUTER, "uplink1"] == "Established"
    assert set(states.values()) == {"Established"}
    assert [vrf.l2 for vrf in lab.plan.overlay.vrfs if vrf.node == f"{BORDER}-red"] == [()], "no NIC of red is there"


def test_hosts_behind_another_leaf_reach_it_and_it_reaches_them(lab: RunningLab) -> None:
    for host in ("p1-s1-h4", "p1-s1-h5"):
        assert _pings(lab, host, OUTSIDE)
        assert _pings(lab, host, ALONE)
    assert _pings(lab, ROUTER, WEB)
    assert _pings(lab, ROUTER, DB, source=ALONE)


def test_it_is_told_the_subnets_of_its_tenant_and_nothing_else(lab: RunningLab) -> None:
    """The leaf has host routes of red, and a way to hub; it announces neither."""
    assert _routes(lab, ROUTER) == {"10.201.0.0/24", "10.202.0.0/24"}
    assert {f"{WEB}/32", f"{DB}/32"} <= set(_bgp(lab, BORDER, "vrf red ipv4 unicast")["routes"])
    told = _bgp(lab, BORDER, f"vrf red ipv4 unicast neighbors ext{_l3vni(lab)} advertised-routes")
    assert set(told["advertisedRoutes"]) == {"10.201.0.0/24", "10.202.0.0/24"}


def _l3vni(lab: RunningLab) -> int:
    return lab.model.overlay.tenants[0].vni


def test_bgp_that_is_not_signed_is_dropped_in_a_vrf(lab: RunningLab) -> None:
    """No guard keeps BGP from a VRF here: that of hosts is dropped for want of a signature, and so is the router's."""
    gateway = next(attack for attack in ATTACKS if attack.name == "BGP to the gateway")
    sites = [site for site in find_sites(lab.model, lab.plan, "frontend") if site.nic.tenant]
    with closing(Arena(lab.name, sites)) as arena:
        outcomes = arena.carry_out(gateway, 0, sites)
    assert len(outcomes) == len(sites) == 5
    assert all(outcome.fate is Fate.STOPPED and outcome.by_password for outcome in outcomes)

    password = bgp_password(lab.plan, lab.state.lab_directory(lab.name))
    signing = [f"neighbor {group} password {password}" for group in ("fabric", "strangers")]
    router = lab.run_directory(ROUTER)
    with closing(in_namespace(namespace_name(lab.name, f"{BORDER}-red"), UnsignedCount)) as unsigned:
        before = unsigned.read()
        vty.configure(router, "bgpd", ["router bgp 64999", *(f"no {line}" for line in signing)])
        until(lambda: unsigned.read() > before and not _is_established(lab), "the leaf drops what the router says")
        vty.configure(router, "bgpd", ["router bgp 64999", *signing])
    until(lambda: _is_established(lab) and not any(read_missing(lab.plan).values()), "the session is back")


def _is_established(lab: RunningLab) -> bool:
    return any(one.node == ROUTER and one.state == "Established" for one in lab.sessions())


def test_its_tenant_alone_reaches_it_and_is_reached(lab: RunningLab) -> None:
    """hub talks to red, and blue is apart: they have no route to it, and what it sends to them does not arrive."""
    for protocol in Protocol:
        matrix = intended_matrix(lab, ["frontend"], protocol)
        of_router = {
            (a.node, b.node)
            for index, (a, b) in enumerate(matrix.pairs)
            if index in matrix.intended and ROUTER in (a.node, b.node)
        }
        red = {"p1-s1-h4", "p1-s1-h5"}
        assert of_router == {(host, ROUTER) for host in red} | {(ROUTER, host) for host in red}
        assert sum(ROUTER in (a.node, b.node) for a, b in matrix.pairs) == 12
        assert reached(lab.name, matrix) == matrix.intended


def test_users_outside_are_answered_by_hosts_of_the_tenant(lab: RunningLab) -> None:
    """A scenario's rank outside: connections are the router's, and come in at the leaf's port to it."""
    ranks = place_ranks(lab.model, lab.plan, Ranks(tenants=("red",), externals=("red",)), seed=1).nics
    assert [nic.node for nic in ranks] == [ROUTER, "p1-s1-h4", "p1-s1-h5"]
    asked = InferenceRequests(
        clients=1, requests_per_s=1e6, span_ns=50_000, prefill_ns=1000, tpot_ns=500, output_tokens=4, prompt_tokens=64
    )
    workload = generate_inference_requests(asked, ranks=3, rng=random.Random(1))
    port = (BORDER, f"ext{_l3vni(lab)}")
    before = lab.counters()[port].rx_bytes
    with WorkloadRunner(lab, Transport()) as runner:
        result = runner.run(workload, ranks, WorkloadRunOptions(k=lab.plan.k))
    assert result.complete and result.requests is not None
    assert result.requests.counts.answered == len(workload.requests) > 20
    sent = sum(request.request_bytes for request in workload.requests)
    assert lab.counters()[port].rx_bytes - before > sent


def test_what_is_missing_is_named_and_comes_back(lab: RunningLab) -> None:
    run = lab.state.run_directory(lab.name)
    assert missing_lines(lab.plan, run) == []
    stop_routing(lab, ROUTER)
    reason = f"BGP with {ROUTER} is not up, or it does not announce the prefix"
    until(lambda: [line for line in missing_lines(lab.plan, run) if reason in line], reason)
    assert start_routing(lab, ROUTER)
    until(lambda: missing_lines(lab.plan, run) == [], "the overlay is whole")
    assert _pings(lab, "p1-s1-h4", OUTSIDE)


def test_what_its_border_and_policies_dropped_is_seen_in_its_own_network_alone(lab: RunningLab) -> None:
    def seen(network: str) -> set[str]:
        view = lab.of_network(network)
        return {f"{row.port} {row.guard}" for row in dropped_rows(view, read_dropped(view))}

    denied = {"ext50001 border", "hub:to50001 policy", "red:to50002 policy"}
    assert seen("frontend") > denied
    assert seen("users") and not seen("users") & denied
    assert seen("backend") == set()


def test_it_sends_from_its_prefixes_to_its_tenant_alone(lab: RunningLab) -> None:
    """A packet from an address of red, and one to hub; without the filter the first arrives."""
    _ip(lab, ROUTER, "addr", "add", "10.201.0.9/32", "dev", "lo")
    _ip(lab, ROUTER, "route", "add", "10.203.0.0/24", "via", "169.254.0.1", "dev", "uplink1", "onlink")
    border = next(item for item in lab.plan.operations if isinstance(item, SetBorder))
    before = read_dropped(lab)
    assert _arrivals(lab, "p1-s1-h5", DB, source="10.201.0.9") == 0
    assert _arrivals(lab, "p1-s1-h1", HUB, source=OUTSIDE) == 0
    denied = [row for row in dropped_rows(lab, read_dropped(lab), before) if row.guard == "border"]
    port, host = f"ext{_l3vni(lab)}", f"{ROUTER}:uplink1"
    assert denied == [DroppedRow(switch=BORDER, port=port, host=host, guard="border", dropped=6, bytes=6 * 84)]
    remove_table(lab, border.node, BORDER_TABLE)
    try:
        assert _arrivals(lab, "p1-s1-h5", DB, source="10.201.0.9") > 0
    finally:
        commit(lab, border.node, border_messages(border))
    assert _arrivals(lab, "p1-s1-h5", DB, source="10.201.0.9") == 0
    assert _arrivals(lab, "p1-s1-h5", DB, source=OUTSIDE) > 0


def _arrivals(lab: RunningLab, host: str, address: str, *, source: str) -> int:
    """How many echo requests of the router its target's kernel has taken in, of three."""

    def taken_in() -> int:
        text = lab.run(host, ["cat", "/proc/net/snmp"]).stdout
        names, values = (line.split() for line in text.splitlines() if line.startswith("Icmp:"))
        return int(values[names.index("InEchos")])

    before = taken_in()
    lab.run(ROUTER, ["ping", "-c", "3", "-i", "0.1", "-W", "0.2", "-I", source, address])
    return taken_in() - before


def test_it_is_believed_in_its_prefixes_alone_and_not_in_route_targets(lab: RunningLab) -> None:
    """It announces a prefix that is not declared, and all with blue's route target. Without the leaf's route map other
    leaves hear of both. (The second gets into blue's VRF on FRR 8; FRR 10 does not take it up.)"""
    blue = "65000:50003"
    assert blue in next(one.imports for one in lab.model.overlay.tenants if one.name == "blue")
    _ip(lab, ROUTER, "addr", "add", "192.0.2.1/24", "dev", "lo")
    strange = ["route-map strange permit 10", "set metric 77", f"set extcommunity rt {blue}"]
    strange += ["router bgp 64999", "address-family ipv4 unicast", f"network {STRANGE}"]
    vty.configure(lab.run_directory(ROUTER), "bgpd", [*strange, "neighbor fabric send-community both"])
    until(lambda: STRANGE in _told_by_router(lab), "the router announces it")
    vty.configure(
        lab.run_directory(ROUTER),
        "bgpd",
        ["router bgp 64999", "address-family ipv4 unicast", "neighbor fabric route-map strange out"],
    )

    def taken() -> dict[str, Any]:
        found: dict[str, Any] = _bgp(lab, BORDER, "vrf red ipv4 unicast")["routes"]
        return found

    until(lambda: taken()[DECLARED][0]["metric"] == 77, "the leaf has what is announced anew")
    assert STRANGE not in taken()
    assert DECLARED in _routes(lab, f"{FAR}-red")
    assert _routes(lab, f"{FAR}-blue").isdisjoint({DECLARED, STRANGE})
    assert not _targets_heard(lab, DECLARED) & {blue}
    assert not any(read_missing(lab.plan).values())

    name = "external-in-red"
    believe = [f"route-map {name} permit 10", "no set extcommunity none", "exit", f"route-map {name} permit 20"]
    vty.configure(lab.run_directory(BORDER), "bgpd", believe)
    until(
        lambda: STRANGE in _routes(lab, f"{FAR}-red") and blue in _targets_heard(lab, DECLARED),
        "what the route map stopped is everywhere",
    )
    doubt = [f"no route-map {name} permit 20", f"route-map {name} permit 10", "set extcommunity none"]
    vty.configure(lab.run_directory(BORDER), "bgpd", doubt)
    until(
        lambda: STRANGE not in _routes(lab, f"{FAR}-red") and blue not in _targets_heard(lab, DECLARED),
        "it is stopped again",
    )
    until(lambda: DECLARED not in _routes(lab, f"{FAR}-blue"), "blue is rid of it")


def _targets_heard(lab: RunningLab, prefix: str) -> set[str]:
    """The route targets of the type-5 routes to a prefix that the far leaf has."""
    address, _, length = prefix.partition("/")
    found = vty.ask_json(lab.run_directory(FAR), "bgpd", "show bgp l2vpn evpn route type prefix json")
    routes = [item for item in found.values() if isinstance(item, dict)]
    paths = [path for item in routes for path in item.get(f"[5]:[0]:[{length}]:[{address}]", {}).get("paths", [])]
    said = [word for (path,) in paths for word in path["extendedCommunity"]["string"].split()]
    return {word.removeprefix("RT:") for word in said if word.startswith("RT:")}


def _told_by_router(lab: RunningLab) -> Any:
    return _bgp(lab, ROUTER, "ipv4 unicast neighbors uplink1 advertised-routes")["advertisedRoutes"]
