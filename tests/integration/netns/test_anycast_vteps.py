"""Two leaves that are one VTEP and one LACP partner: tenants over link groups, and what is lost when something goes."""

import json
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filters import commit, remove_table
from outages import FLOWS, ports_down, short_outage
from shared_lab import SharedLab
from waiting import until

from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.rtnetlink import mac_bytes
from testbed.base.names import namespace_name
from testbed.lab.checks.isolation.arena import Arena, Fate
from testbed.lab.checks.isolation.attacks import (
    ATTACKS,
    Attack,
    ForeignSource,
    GatewayAdvertisement,
    GatewayArp,
    GatewaySource6,
    MacFlood,
)
from testbed.lab.checks.isolation.check import check_isolation, warm_up
from testbed.lab.checks.isolation.sites import Site, find_sites
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.power import power_off, power_on
from testbed.lab.core.deploy.watch.check import CheckStatus
from testbed.lab.core.deploy.watch.sessions import missing_sessions
from testbed.lab.core.model import NO_GUARDS, Guard
from testbed.lab.core.plan.operations import GuardSwitch, SetNeighbour
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.guards import apply as guards
from testbed.lab.features.guards.watch import guard_counters
from testbed.lab.features.mlag.apply import missing_members, read_link_groups
from testbed.lab.features.overlay.watch import read_missing
from testbed.lab.features.overlay.watch_tenants import probe_isolation, probe_tenants

pytestmark = [pytest.mark.netns, pytest.mark.frr]
TOPOLOGY = Path(__file__).parents[3] / "topologies" / "mlag-tenants.yml"
WEB = ("p1-s1-h1", "172.31.0.2")
BESIDE = ("p1-s1-h2", "172.31.0.3")
FAR = ("p1-s1-h5", "172.31.0.4")
ROUTED = ("p1-s1-h6", "172.31.1.2")
WEB6, BESIDE6, FAR6 = ("p1-s1-h1", "fd00:1::2"), ("p1-s1-h2", "fd00:1::3"), ("p1-s1-h5", "fd00:1::4")
ROUTED6 = ("p1-s1-h6", "fd00:2::2")
BLUE, BLUE_FAR = ("p1-s1-h3", "172.31.0.2"), ("p1-s1-h7", "172.31.0.3")
NOBODYS, NOBODYS_FAR = ("p1-s1-h4", "192.168.1.5"), ("p1-s1-h8", "192.168.3.5")
PRIMARY, SECONDARY = "fe-leaf1", "fe-leaf2"
OUTSIDE, PEER_VRF = ("red-external", "198.51.100.1"), "fe-leaf2-red"
VTEP = "192.168.0.190"
EXPERIMENTAL = 0x88B6
"""Local experimental EtherType 2 (IEEE 802, 9.2.4)."""
LIMIT_S = 0.3
"""Of the time without service by link state."""

PAIRS = (
    *((WEB, FAR), (FAR, WEB)),  # bridged over VXLAN
    *((WEB, ROUTED), (ROUTED, WEB)),  # routed over the L3VNI
    *((WEB, BESIDE), (BESIDE, WEB)),  # bridged on the leaves of the pair
    *((WEB6, FAR6), (FAR6, WEB6), (WEB6, ROUTED6), (ROUTED6, WEB6), (WEB6, BESIDE6), (BESIDE6, WEB6)),
    *((BLUE, BLUE_FAR), (BLUE_FAR, BLUE)),  # the same addresses in another tenant
    *((NOBODYS, NOBODYS_FAR), (NOBODYS_FAR, NOBODYS)),  # in no tenant: without a tag on the peer link
)


@pytest.fixture(scope="module")
def shared_lab(shared_sandbox: Any) -> SharedLab:
    text = TOPOLOGY.read_text().replace("name: mlag-tenants", f"name: {shared_sandbox.name()}")
    external = f"external: {{leaf: {PRIMARY}, asn: 64999, prefixes: [198.51.100.0/24], rate: 100G}}"
    text = text.replace("  red:\n", f"  red:\n    {external}\n")
    for number, prefix in enumerate(("172.31.0.0/24", "172.31.1.0/24"), 1):
        text = text.replace(f"prefix: {prefix}", f'prefix: {prefix}, prefix6: "fd00:{number}::/64"')
    # At this scale a host's flows fit into one of its two ports.
    model = load_topology_text(text, file="mlag-tenants.yml")
    return SharedLab(shared_sandbox, model, lambda lab: all(lab.link_states().values()) and _whole(lab), k=1_000.0)


@pytest.fixture
def lab(shared_lab: SharedLab) -> Any:
    return shared_lab.get()


def _active(lab: Any, node: str) -> list[str]:
    status = next(status for status in read_link_groups(lab) if status.node == node)
    return [member.name for group in status.groups for member in group.members if member.in_sync]


def _lacking(lab: Any) -> list[str]:
    run = lab.run_directory(PRIMARY).parent
    entries = [f"{node}: {entry}" for node, expected in read_missing(lab.plan).items() for entry in expected]
    return [*missing_members(lab.plan, run), *missing_sessions(lab.plan.switches, run), *entries]


def _whole(lab: Any) -> bool:
    return not _lacking(lab)


def _until_whole(lab: Any, what: str) -> None:
    until(lambda: _whole(lab), lambda: f"{what}: {_lacking(lab)}")


def _ways_to_vtep(lab: Any) -> int:
    """The most next hops that a spine has to the pair's address."""
    routes = [lab.run(spine, ["ip", "-4", "route", "show", VTEP]).stdout for spine in ("fe-spine1", "fe-spine2")]
    return max(str(route).count("via") for route in routes)


def test_a_pair_is_one_vtep_and_its_tenants_are_apart(lab: Any) -> None:
    assert _lacking(lab) == []
    assert probe_tenants(lab.plan) == (2 * 9, []), "over IPv4 and IPv6"
    count, arrived = probe_isolation(lab.plan)
    assert count > 10
    assert arrived == []
    assert _ways_to_vtep(lab) == 2


def test_a_router_outside_on_one_leaf_is_reached_by_way_of_either(lab: Any) -> None:
    """What comes to the other leaf of the pair goes over the peer link; the first leaf goes on without that one."""
    trunk = next(item for item in lab.plan.operations if isinstance(item, SetNeighbour) and item.node == PEER_VRF)

    def over_peer_link() -> int:
        shown = ["ip", "-n", namespace_name(lab.name, PEER_VRF), "-s", "-j", "link", "show", trunk.name]
        (link,) = json.loads(subprocess.run(shown, capture_output=True, check=True).stdout)
        return int(link["stats64"]["tx"]["packets"])

    pairs = ((FAR, OUTSIDE), (OUTSIDE, FAR), (ROUTED, OUTSIDE), (WEB, OUTSIDE), (OUTSIDE, WEB))
    before = over_peer_link()
    with short_outage(lab, pairs, _whole, "router outside", LIMIT_S) as flows:
        flows.well()
        assert over_peer_link() > before + FLOWS
        with ports_down(lab, f"{PRIMARY}:peer2"):
            until(lambda: _ways_to_vtep(lab) == 1, "spines send to the primary alone")
            flows.well()


def _received(lab: Any, host: str) -> int:
    (link,) = json.loads(lab.run(host, ["ip", "-s", "-j", "link", "show", "fe0"]).stdout)
    return int(link["stats64"]["rx"]["packets"])


def test_a_broadcast_arrives_once_on_each_leaf_pair_and_never_comes_back(lab: Any) -> None:
    """A leaf floods into the fabric and over the peer link; the peer must hand it to no host and no VTEP again."""
    asked = 50
    before = {host[0]: _received(lab, host[0]) for host in (WEB, BESIDE, FAR, BLUE, BLUE_FAR)}
    lab.run(WEB[0], ["ping", "-b", "-q", "-c", str(asked), "-i", "0.002", "-W", "0.1", "172.31.0.255"])
    got = {host: _received(lab, host) - count for host, count in before.items()}
    print(f"{asked} broadcasts: {got}")
    assert asked <= got[BESIDE[0]] < asked + 20
    assert asked <= got[FAR[0]] < asked + 20
    assert all(got[host[0]] < 20 for host in (WEB, BLUE, BLUE_FAR))


def test_a_host_that_the_kernel_forgets_is_told_to_it_again(lab: Any) -> None:
    """The table of neighbours, which all labs of a machine share, may be full; and nobody asks a host for what its
    answer might tell to the other leaf."""
    for leaf in (PRIMARY, SECONDARY):
        place = namespace_name(lab.name, f"{leaf}-red")
        show = ["ip", "-j", "-n", place, "neigh", "show", "nud", "noarp"]
        shown = json.loads(subprocess.run(show, check=True, capture_output=True).stdout)
        known = [(entry["dst"], entry["dev"]) for entry in shown]
        assert known
        for address, device in known:
            subprocess.run(["ip", "-n", place, "neigh", "del", address, "dev", device], check=True)
    _until_whole(lab, "hosts are known again")


def test_a_leaf_loses_its_uplinks_and_gets_them_back(lab: Any) -> None:
    uplinks = [f"{PRIMARY}:uplink1", f"{PRIMARY}:uplink2"]
    with short_outage(lab, PAIRS, _whole, "uplinks", LIMIT_S) as flows, ports_down(lab, *uplinks):
        until(lambda: _active(lab, WEB[0]) == ["fe2"], "the leaf holds its member back")
        until(lambda: _ways_to_vtep(lab) == 1, "BGP has taken it out of the fabric")
        flows.well()


def test_without_the_peer_link_the_secondary_is_no_vtep(lab: Any) -> None:
    with short_outage(lab, PAIRS, _whole, "peer link", LIMIT_S) as flows, ports_down(lab, f"{PRIMARY}:peer2"):
        until(lambda: _active(lab, WEB[0]) == ["fe1"], "the secondary holds its member back")
        until(lambda: _ways_to_vtep(lab) == 1, "spines send to the primary alone")
        flows.well()


@pytest.mark.parametrize("leaf", [PRIMARY, SECONDARY])
def test_a_link_to_a_host_goes_and_comes(lab: Any, leaf: str) -> None:
    with short_outage(lab, PAIRS, _whole, f"link to {leaf}", LIMIT_S) as flows, ports_down(lab, f"{leaf}:down1"):
        until(lambda: len(_active(lab, WEB[0])) == 1, "the host has one member left")
        flows.well()


def test_a_leaf_dies_and_returns(lab: Any) -> None:
    """The primary, which says nothing more once it has no power.

    Were its ports taken down while its processes live, it would lose the peer link first and still answer over the
    fabric: the secondary would rightly hold its members back, and hosts have none at all.
    """
    with short_outage(lab, PAIRS, _whole, "leaf", 1.0) as flows:
        assert power_off(lab, PRIMARY)
        try:
            until(lambda: _active(lab, WEB[0]) == ["fe2"], "the host has one member left")
            flows.well()
        finally:
            assert power_on(lab, PRIMARY)


@contextmanager
def _packet_socket(lab: Any, node: str, interface: str) -> Iterator[socket.socket]:
    kinds = (socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(EXPERIMENTAL))
    with in_namespace(namespace_name(lab.name, node), lambda: socket.socket(*kinds)) as item:
        item.bind((interface, EXPERIMENTAL))
        yield item


def _hop(lab: Any, vlans: list[int], wanted: int) -> int:
    """How many frames come to hosts of tenants that a host in none has written these tags into, by either port."""
    arrived = 0

    def look() -> bool:
        nonlocal arrived
        for item in heard:
            with suppress(BlockingIOError):
                while item.recv(2048):
                    arrived += 1
        return arrived >= wanted

    with ExitStack() as opened:
        heard = [opened.enter_context(_packet_socket(lab, node, "fe0")) for node in (WEB[0], BLUE[0])]
        for port in ("fe1", "fe2"):
            sender = opened.enter_context(_packet_socket(lab, NOBODYS[0], port))
            for vlan in vlans:
                tag = struct.pack("!HHH", 0x8100, vlan, EXPERIMENTAL)
                sender.send(b"\xff" * 6 + sender.getsockname()[4] + tag + bytes(46))
        for _ in range(FLOWS):  # by both ports, after the frames
            lab.run(NOBODYS[0], ["ping", "-c", "1", "-W", "1", NOBODYS_FAR[1]])
        until(look, "the frames arrive")
    return arrived


def _guards_of(lab: Any) -> list[GuardSwitch]:
    return [item for item in lab.plan.operations if isinstance(item, GuardSwitch)]


@contextmanager
def _without_guards(lab: Any, leaves: set[str]) -> Iterator[None]:
    taken = [item for item in _guards_of(lab) if item.node in leaves]
    for item in taken:
        remove_table(lab, item.vrf or item.node, guards.TABLE)
    try:
        yield
    finally:
        for item in taken:
            commit(lab, item.vrf or item.node, guards.guard_messages(item))


def _dropped(lab: Any) -> Counter[tuple[str, str]]:
    """What the guards of each switch have dropped, by switch and guard."""
    counts: Counter[tuple[str, str]] = Counter()
    for node, counters in guard_counters(lab).items():
        for counter in counters:
            counts[node, counter.guard] += counter.packets
    return +counts


def test_guards_take_both_members_for_the_aggregate_and_let_its_lacp_in(lab: Any) -> None:
    """Of slow protocols nothing but what a member says of itself, and no more than a station may."""
    before = _dropped(lab)
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    member, other = (mac_bytes(ports[NOBODYS[0], name].mac) for name in ("fe1", "fe2"))
    aggregate = mac_bytes(
        next(nic.mac for host in lab.plan.hosts for nic in host.nics if nic.node == NOBODYS[0] and nic.name == "fe0")
    )
    slow, marker = bytes.fromhex("0180c2000002"), b"\x88\x09\x02".ljust(48, b"\0")
    with _packet_socket(lab, NOBODYS[0], "fe1") as sender:
        for target, source, rest in (
            (slow, aggregate, marker),  # the aggregate itself says nothing to its leaf
            (slow, other, marker),  # which is the member on the other leaf
            (slow[:5] + b"\x03", member, marker),  # another group
            (slow, member, b"\x88\xcc" + marker[2:]),  # another protocol
        ):
            sender.send(target + source + rest)
        until(lambda: (_dropped(lab) - before).total() == 4, "all of them are counted")
        assert _dropped(lab) - before == {(PRIMARY, Guard.CONTROL): 1, (PRIMARY, Guard.MAC): 3}
        sent = 100
        for _ in range(sent):
            sender.send(slow + member + marker)
        until(lambda: (_dropped(lab) - before)[PRIMARY, Guard.CONTROL] > sent // 2, "a flood of them is limited")
    assert _lacking(lab) == []


def test_each_leaf_of_a_pair_guards_its_own_member(lab: Any) -> None:
    """Attacks by both members are seen to succeed without guards, and with those of one leaf alone."""
    sites = find_sites(lab.of_network("frontend").model, lab.plan, "frontend")
    bare = [replace(site, guards=NO_GUARDS) for site in sites]

    def fates(attack: Attack, number: int, among: list[Site]) -> set[Fate]:
        fit = [site for site in among if not attack.misfit(site)]
        return {outcome.fate for outcome in arena.carry_out(attack, number, fit, partial(warm_up, lab, fit))}

    seen_by_one = {one.name for one in (ForeignSource, GatewayAdvertisement, GatewaySource6, MacFlood, GatewayArp)}
    with closing(Arena(lab.name, sites)) as arena:
        with _without_guards(lab, {leaf for pair in lab.model.leaf_pairs for leaf in pair}):
            for number, attack in enumerate(ATTACKS):
                if any(not attack.misfit(site) for site in bare):
                    assert fates(attack, number, bare) == {Fate.SUCCEEDED}, attack.name
        for leaf in (0, 1):
            with _without_guards(lab, {pair[leaf] for pair in lab.model.leaf_pairs}):
                for number, attack in enumerate(ATTACKS):
                    if attack.name in seen_by_one:
                        assert fates(attack, number, sites) == {Fate.SUCCEEDED}, (leaf, attack.name)
    report = check_isolation(lab, "frontend")
    assert report.exit_code == 0, [result for result in report.results if result.status is not CheckStatus.PASS]
    assert all(item.stopped == item.ports for item in report.attacks)
    assert {item.attack: item.ports for item in report.attacks}["BGP to the gateway"] == len(sites) == 8
    _until_whole(lab, "all is there again after the attacks")


def test_a_host_cannot_write_the_tag_of_a_tenant_and_the_peer_link_stops_it_too(lab: Any) -> None:
    """The last one: it takes what stops it away to show that the attack is one."""
    assert lab.plan.link_groups is not None
    leaf = next(leaf for leaf in lab.plan.link_groups.leaves if leaf.node == PRIMARY)
    vlans = [bridge.vlan for bridge in leaf.bridges if bridge.vlan]
    assert len(vlans) == 2
    with LinkControl(lab) as control:
        control.set(f"{PRIMARY}:down1", LinkChange(up=False))
        until(lambda: _active(lab, WEB[0]) == ["fe2"], "what comes over the peer link is for this host")
        assert _hop(lab, vlans, 0) == 0
        for item in _guards_of(lab):
            remove_table(lab, item.vrf or item.node, guards.TABLE)
        assert _hop(lab, vlans, 0) == 0
        for node, port in ((PRIMARY, "peer2"), (SECONDARY, "peer1")):
            assert lab.run(node, ["tc", "filter", "del", "dev", port, "egress"]).returncode == 0
        assert _hop(lab, vlans, 1) == 1
