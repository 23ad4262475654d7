"""Tenants of an EVPN overlay on real switches: bridged and routed over VXLAN, apart from each other, and gone after."""

import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from shared_lab import SharedLab, speaker
from waiting import until

from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.processes import kill_processes, processes_in
from testbed.base.linux.vty import ask_json, configure
from testbed.base.names import namespace_name
from testbed.daemons.keeper.configuration import PROCESS_NAME
from testbed.lab.core.deploy.links.changes import LinkChange, set_link
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.routing import start_routing, stop_routing
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.deploy.watch.events import EventStream
from testbed.lab.core.deploy.watch.sessions import missing_sessions
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.overlay.keeper import start_keeper
from testbed.lab.features.overlay.watch import missing_lines, read_missing

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGY = """
name: {name}
scale: {{time: 10000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 6
  gpus: 2
  spines: {spines}
  nic: {{rate: 400G}}
  overlay: {{evpn: {{vrf_by: namespace}}}}
tenants:
  red:
    subnets:
      web: {{prefix: 10.1.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}
      db: {{prefix: 10.1.1.0/24, prefix6: "fd00:1:0:1::/64", nics: ["p1-s1-h3:rail2"]}}
  blue:
    subnets:
      web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h4:rail1", "p1-s1-h5:rail2"]}}
      own: {{prefix: 10.9.0.0/24, prefix6: "fd00:9::/64", nics: ["p1-s1-h6:rail1"]}}
"""
WEB, WEB_FAR, DB_RED, OWN_BLUE = "10.1.0.2", "10.1.0.3", "10.1.1.2", "10.9.0.2"
"""The addresses of h1 and h4, of h2 and h5, of h3, and of h6."""
WEB6, WEB6_FAR, DB6_RED = "fd00:1::2", "fd00:1::3", "fd00:1:0:1::2"
"""Those of IPv6 of h1, h2 and h3."""
TCP_ESTABLISHED = 1
"""Of the states of TCP (include/net/tcp_states.h of Linux)."""
LEAF, FAR_LEAF = "p1-s1-rail1", "p1-s1-rail2"


def _text(sandbox: Any, spines: int = 2) -> str:
    return TOPOLOGY.format(name=sandbox.name(), spines=spines)


@pytest.fixture(scope="module")
def shared_lab(shared_sandbox: Any) -> SharedLab:
    model = load_topology_text(_text(shared_sandbox), file="tenants.yml")
    return SharedLab(shared_sandbox, model, _whole, k=10_000.0)


@pytest.fixture
def lab(shared_lab: SharedLab) -> RunningLab:
    return shared_lab.get()


def _whole(lab: RunningLab) -> bool:
    return all(lab.link_states().values()) and not any(read_missing(lab.plan).values())


def _ip(*argv: str) -> Any:
    result = subprocess.run(["ip", "-j", *argv], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return json.loads(result.stdout or "[]")


def _pings(lab: RunningLab, node: str, target: str, *, source: str = "") -> bool:
    argv = ["ping", "-c", "3", "-i", "0.2", "-W", "1", *(["-I", source] if source else []), target]
    return lab.run(node, argv).returncode == 0


def _vrf(lab: RunningLab, leaf: str, tenant: str) -> str:
    return namespace_name(lab.name, f"{leaf}-{tenant}")


@contextmanager
def _captured(
    lab: RunningLab, node: str, interface: str, expression: str, *, verbose: bool = False
) -> Iterator[list[str]]:
    """The packets of an interface while the block runs, as tcpdump's lines, complete once it has ended.

    They go to a file: a pipe that nobody reads is full after some 200 packets, and then tcpdump misses others.
    """
    lines: list[str] = []
    argv = ["tcpdump", "--immediate-mode", "-n", "-l", *(["-tv"] if verbose else []), "-i", interface, expression]
    with tempfile.TemporaryFile() as out:
        capture = lab.spawn_at(lab.port(node, interface), argv, stdout=out, stderr=subprocess.PIPE)
        while b"listening on" not in capture.stderr.readline():
            assert capture.poll() is None
        try:
            yield lines
            until(lambda: _sleeps(capture.pid), "tcpdump has taken what has arrived")
        finally:
            capture.send_signal(signal.SIGINT)
            capture.communicate(timeout=20)
            out.seek(0)
            lines += [line for line in out.read().decode().splitlines() if line]


def _sleeps(pid: int) -> bool:
    """Whether a process waits for something to come: whatever came before has woken it up, and is done with."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@contextmanager
def _on_the_fabric(lab: RunningLab, leaf: str) -> Iterator[list[str]]:
    """The VXLAN packets of both uplinks of a leaf while the block runs, complete once it has ended."""
    packets: list[str] = []
    expression = "udp port 4789"
    with _captured(lab, leaf, "uplink1", expression) as first, _captured(lab, leaf, "uplink2", expression) as second:
        yield packets
    packets += first + second


def _vni(lab: RunningLab, tenant: str, subnet: str = "") -> int:
    """The VNI of a subnet, or the L3VNI of a tenant."""
    assert lab.model.overlay is not None
    found = next(one for one in lab.model.overlay.tenants if one.name == tenant)
    return next((one.vni for one in found.subnets if one.name == subnet), found.vni)


def test_a_deploy_waits_for_the_overlay_and_check_passes(lab: RunningLab) -> None:
    assert not any(read_missing(lab.plan).values())
    report = check_lab(lab)
    assert report.exit_code == 0, report
    tests = {result.name: result for result in report.results}
    assert tests["overlay"].count > 20
    assert tests["tenants"].count >= 4
    assert tests["isolation"].count >= 4


def test_a_subnet_is_bridged_over_both_leaves_by_vxlan(lab: RunningLab) -> None:
    with _on_the_fabric(lab, LEAF) as packets:
        assert _pings(lab, "p1-s1-h1", WEB_FAR)
    assert len([line for line in packets if f"vni {_vni(lab, 'red', 'web')}" in line]) >= 6, packets


def test_subnets_are_routed_over_the_l3vni(lab: RunningLab) -> None:
    """Symmetric IRB: the leaf of the sender routes into the L3VNI, and that of the receiver out of it, both ways."""
    vni = _vni(lab, "red")
    routes = {route["dst"]: route for route in _ip("-n", _vrf(lab, LEAF, "red"), "route")}
    assert routes["10.1.1.0/24"]["dev"] == routes[DB_RED]["dev"] == f"br{vni}"
    assert routes[DB_RED]["gateway"] == str(speaker(lab, FAR_LEAF).loopback.ip)
    with _on_the_fabric(lab, LEAF) as packets:
        assert _pings(lab, "p1-s1-h1", DB_RED)
    assert len([line for line in packets if f"vni {vni}" in line]) >= 6, packets
    assert not [line for line in packets if f"vni {_vni(lab, 'red', 'db')}" in line], packets


def test_a_connection_keeps_its_path_after_a_time_out(lab: RunningLab) -> None:
    """A VXLAN device draws its source port by the hash of the sender's socket. The far host answers one connection,
    which nobody accepts, and no other; each is tried three times. Those that are opened without the host's setting have
    another port each time."""
    host, far = (namespace_name(lab.name, node) for node in ("p1-s1-h1", "p1-s1-h2"))
    rehash = Path("/proc/sys/net/core/txrehash")
    tried = 2  # times again

    def opened_in(namespace: str) -> socket.socket:
        kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
        return stack.enter_context(in_namespace(namespace, lambda: socket.socket(socket.AF_INET, kind)))

    def connect() -> socket.socket:
        opened = opened_in(host)
        opened.connect_ex((WEB_FAR, 9))
        return opened

    def tcp_info(one: socket.socket) -> bytes:
        return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)

    with ExitStack() as stack:
        server = opened_in(far)
        server.bind((WEB_FAR, 9))
        server.listen(0)
        first = connect()
        until(lambda: tcp_info(first)[0] == TCP_ESTABLISHED, "one is taken")
        with _on_the_fabric(lab, LEAF) as packets:
            kept = [connect() for _ in range(8)]
            in_namespace(host, lambda: rehash.write_text("1"))
            stack.callback(in_namespace, host, lambda: rehash.write_text("0"))
            others = [connect() for _ in range(8)]
            until(lambda: all(tcp_info(one)[2] >= tried for one in kept + others), "each was tried three times")
        ports: dict[int, set[str]] = {}
        for outer, inner in pairwise(packets):
            wrapped = re.search(r"\.(\d+) > [\d.]+\.4789: VXLAN", outer)
            syn = re.search(rf"IP {re.escape(WEB)}\.(\d+) > {re.escape(WEB_FAR)}\.9: Flags \[S\]", inner)
            if wrapped and syn:
                ports.setdefault(int(syn[1]), set()).add(wrapped[1])
        assert [len(ports[one.getsockname()[1]]) for one in kept] == [1] * len(kept), ports
        assert max(len(ports[one.getsockname()[1]]) for one in others) > 1, "it is the setting that keeps them"


def test_ipv6_is_bridged_and_routed_beside_ipv4(lab: RunningLab) -> None:
    """Type-2 routes with two labels and type-5 routes, whose next hops are the VTEPs of IPv4."""
    vni, vtep = _vni(lab, "red"), speaker(lab, FAR_LEAF).loopback.ip
    routes = {route["dst"]: route for route in _ip("-6", "-n", _vrf(lab, LEAF, "red"), "route")}
    for prefix in ("fd00:1:0:1::/64", DB6_RED, WEB6_FAR):
        assert (routes[prefix]["dev"], routes[prefix]["gateway"]) == (f"br{vni}", f"::ffff:{vtep}")
    with _on_the_fabric(lab, LEAF) as packets:
        assert _pings(lab, "p1-s1-h1", WEB6_FAR)
        assert _pings(lab, "p1-s1-h1", DB6_RED)
    for crossed in (_vni(lab, "red", "web"), vni):
        assert len([line for line in packets if f"vni {crossed}" in line]) >= 6, packets


@pytest.mark.parametrize(
    ("target", "asked"),
    [(WEB_FAR, f"ARP, Request who-has {WEB_FAR}"), (WEB6_FAR, f"neighbor solicitation, who has {WEB6_FAR}")],
    ids=["arp", "nd"],
)
def test_a_leaf_answers_for_a_remote_nic_and_asks_nobody(lab: RunningLab, target: str, asked: str) -> None:
    """What bridges answer from the routes of type 2 crosses no VXLAN; without suppression the question does."""
    mac = next(nic.mac for host in lab.plan.hosts for nic in host.nics if (nic.node, nic.name) == ("p1-s1-h2", "rail2"))

    def questions() -> list[str]:
        lab.run("p1-s1-h1", ["ip", "neigh", "flush", "dev", "rail1"])
        lab.run("p1-s1-h1", ["ip", "-6", "neigh", "flush", "dev", "rail1"])
        with _on_the_fabric(lab, LEAF) as packets:
            assert _pings(lab, "p1-s1-h1", target)
        (found,) = _ip("-n", namespace_name(lab.name, "p1-s1-h1"), "neigh", "show", target)
        assert found["lladdr"] == mac
        return [line for line in packets if asked in line]

    assert questions() == []
    vxlan = f"vx{_vni(lab, 'red', 'web')}"
    suppress = ["bridge", "-n", _vrf(lab, LEAF, "red"), "link", "set", "dev", vxlan, "neigh_suppress"]
    subprocess.run([*suppress, "off"], check=True)
    try:
        assert questions()
    finally:
        subprocess.run([*suppress, "on"], check=True)
    assert questions() == []


def test_ipv6_comes_back_with_the_link_of_a_nic(lab: RunningLab) -> None:
    """Its address stays while it is down, and its routes come back, that of its default in its own table, too."""
    set_link(lab, "p1-s1-h1:rail1", LinkChange(up=False))
    assert not _pings(lab, "p1-s1-h1", DB6_RED)
    set_link(lab, "p1-s1-h1:rail1", LinkChange(up=True))
    until(lambda: _pings(lab, "p1-s1-h1", DB6_RED), "the route by the gateway is back")
    assert _pings(lab, "p1-s1-h2", WEB6)
    until(lambda: not any(read_missing(lab.plan).values()), "the overlay is whole")


def test_the_same_address_is_another_host_in_another_tenant(lab: RunningLab) -> None:
    nics = {(nic.node, nic.name): nic for host in lab.plan.hosts for nic in host.nics}
    assert nics["p1-s1-h1", "rail1"].address == nics["p1-s1-h4", "rail1"].address
    with _captured(lab, "p1-s1-h5", "rail2", "icmp") as blue:
        assert _pings(lab, "p1-s1-h1", WEB_FAR)
    assert blue == []
    with _captured(lab, "p1-s1-h5", "rail2", "icmp") as blue:
        assert _pings(lab, "p1-s1-h4", WEB_FAR)
    assert len(blue) == 6


def test_tenants_do_not_reach_each_other_and_it_is_the_vrf_that_stops_them(lab: RunningLab) -> None:
    """Only blue has 10.9.0.0/24. Joined by hand, the VRFs of the leaf carry the packets that they stopped before."""
    assert _pings(lab, "p1-s1-h4", OWN_BLUE), "within blue it is reached"
    with _captured(lab, LEAF, "down1", "icmp") as arrived:
        assert not _pings(lab, "p1-s1-h1", OWN_BLUE, source=WEB)
    assert any("unreachable" in line for line in arrived), "the leaf's VRF has no route, and says so"

    with _joined(_vrf(lab, LEAF, "red"), _vrf(lab, LEAF, "blue")):
        assert _pings(lab, "p1-s1-h1", OWN_BLUE, source=WEB)
        leaked = {result.name: result for result in check_lab(lab).results}["isolation"]
        assert leaked.status is CheckStatus.FAIL, leaked
        assert "p1-s1-h1:rail1 -> p1-s1-h6:rail1 arrived" in leaked.failures
        assert "p1-s1-h1:rail1 -> p1-s1-h6:rail1 arrived over IPv6" in leaked.failures
    assert not _pings(lab, "p1-s1-h1", OWN_BLUE, source=WEB)


@contextmanager
def _joined(red: str, blue: str) -> Iterator[None]:
    """A wire between two VRFs, and routes to blue's own subnet over it, and back to red's first NIC."""

    def ip(*argv: str) -> None:
        subprocess.run(["ip", *argv], check=True)

    ip("link", "add", "tored", "netns", blue, "type", "veth", "peer", "toblue", "netns", red)
    try:
        for namespace, name, address in ((red, "toblue", "192.0.2.1/30"), (blue, "tored", "192.0.2.2/30")):
            ip("-n", namespace, "addr", "add", address, "dev", name)
            ip("-n", namespace, "link", "set", name, "up")
        ip("-n", red, "route", "add", "10.9.0.0/24", "via", "192.0.2.2")
        ip("-n", blue, "route", "add", f"{WEB}/32", "via", "192.0.2.1")
        for namespace, name in ((red, "toblue"), (blue, "tored")):
            ip("netns", "exec", namespace, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=0")
        ip("-n", blue, "addr", "add", "fe80::b/64", "dev", "tored", "nodad")
        ip("-n", red, "route", "add", "fd00:9::/64", "via", "fe80::b", "dev", "toblue")
        yield
    finally:
        ip("-n", red, "link", "del", "toblue")


def test_tenants_do_not_reach_the_underlay_nor_the_other_way_round(lab: RunningLab) -> None:
    assert not _pings(lab, "p1-s1-h1", str(speaker(lab, FAR_LEAF).loopback.ip), source=WEB)
    assert not _pings(lab, LEAF, WEB)


def test_nics_in_no_tenant_stay_on_their_rail(lab: RunningLab) -> None:
    nics = {(nic.node, nic.name): nic for host in lab.plan.hosts for nic in host.nics}
    mine, other = nics["p1-s1-h1", "rail2"], nics["p1-s1-h4", "rail2"]
    assert not mine.tenant
    assert (mine.mtu_bytes, nics["p1-s1-h1", "rail1"].mtu_bytes) == (4500, 4450)
    assert _pings(lab, "p1-s1-h1", str(other.address.ip), source=str(mine.address.ip))


def test_what_is_missing_is_named_with_its_reason_and_comes_back(lab: RunningLab) -> None:
    run = lab.state.run_directory(lab.name)
    for uplink in ("uplink1", "uplink2"):
        lab.set_link(FAR_LEAF, uplink, up=False)
    try:
        reason = f"the underlay of {LEAF} has no route to {FAR_LEAF}"
        until(lambda: [line for line in missing_lines(lab.plan, run) if "flood" in line and reason in line], reason)
    finally:
        for uplink in ("uplink1", "uplink2"):
            lab.set_link(FAR_LEAF, uplink, up=True)
    until(lambda: missing_lines(lab.plan, run) == [], "the overlay is whole")

    stop_routing(lab, FAR_LEAF)
    until(lambda: [line for line in missing_lines(lab.plan, run) if line.startswith(f"{LEAF}-red")], "it is missed")
    assert start_routing(lab, FAR_LEAF)
    until(lambda: missing_lines(lab.plan, run) == [], "the overlay is whole")
    assert _pings(lab, "p1-s1-h1", WEB_FAR)


def test_what_is_routed_survives_the_loss_of_one_uplink(lab: RunningLab) -> None:
    """bgpd then has the route deleted and added again by the same VTEP; its router must not go with what is deleted.

    Both leaves have taken note of each change before the next. Where the two come within microseconds, zebra 8.4.4
    loses the router nevertheless, and the lab's keeper has it announced again.
    """
    seen = {leaf: f"show bgp vrf red ipv4 unicast {nic}/32 json" for leaf, nic in ((LEAF, DB_RED), (FAR_LEAF, WEB))}
    for uplink in ("uplink1", "uplink2"):
        for up, paths in ((False, 1), (True, 2)):
            lab.set_link(LEAF, uplink, up=up)
            for leaf, show in seen.items():
                until(
                    lambda leaf=leaf, show=show, paths=paths: (
                        len(ask_json(lab.run_directory(leaf), "bgpd", show).get("paths", ())) == paths
                    ),
                    f"a route with {paths} paths on {leaf}",
                )
            until(lambda: not any(read_missing(lab.plan).values()), "the overlay is whole")
    assert _pings(lab, "p1-s1-h1", DB_RED)


def test_a_router_that_zebra_loses_is_lost_until_it_is_announced_again(lab: RunningLab) -> None:
    """zebra as it is by default takes up withdrawals and announcements together, and then loses routers."""
    leaves = (LEAF, FAR_LEAF)
    keeper = next(item for item in processes_in(set(lab.identities.values())) if item.command == PROCESS_NAME)
    kill_processes([keeper])
    overlay = {result.name: result for result in check_lab(lab).results}["overlay"]
    assert overlay.status is CheckStatus.FAIL
    assert "keeper" in overlay.failures[0]
    try:
        for leaf in leaves:
            configure(lab.run_directory(leaf), "zebra", ["zebra zapi-packets 1000", "zebra work-queue 10"])
        until(lambda: _loses_routers(lab), "zebra loses a router", 60)
        lost = {node for node, entries in read_missing(lab.plan).items() if entries}
        assert {line.rpartition(": ")[2] for line in missing_lines(lab.plan, lab.state.run_directory(lab.name))} == {
            f"zebra of {leaf} has not installed it" for leaf in leaves if any(node.startswith(leaf) for node in lost)
        }
        with closing(EventStream(lab)) as events:
            start_keeper(lab.plan, lab.state)
            told = next(event for event in events if event.kind.startswith("router-"))
        assert (told.kind, f"{told.node}-{told.subject}" in lost) == ("router-renewed", True), told
        until(lambda: _whole(lab), "the overlay is whole")
        assert _pings(lab, "p1-s1-h1", DB_RED)
        assert {result.name: result for result in check_lab(lab).results}["overlay"].status is CheckStatus.PASS
    finally:
        for leaf in leaves:
            configure(lab.run_directory(leaf), "zebra", ["zebra zapi-packets 1", "zebra work-queue 0"])
        start_keeper(lab.plan, lab.state)


def _loses_routers(lab: RunningLab) -> bool:
    """Take an uplink down and up; whether afterwards nothing is missing but routers, and stays so for a second."""
    for uplink in ("uplink1", "uplink2"):
        for up in (False, True):
            lab.set_link(LEAF, uplink, up=up)
            until(lambda: lab.link_states()[LEAF, uplink] is up, "the link has changed")  # noqa: B023
        until(lambda: missing_sessions(lab.plan.switches, lab.state.run_directory(lab.name)) == [], "BGP is back")
        with suppress(AssertionError):
            until(lambda: _whole(lab), "the overlay is whole", 1.0)
            continue
        return True
    return False


@pytest.mark.parametrize(
    ("address", "others"), [(WEB, (WEB_FAR, DB_RED)), (WEB6, (WEB6_FAR, DB6_RED))], ids=["ipv4", "ipv6"]
)
def test_a_silent_nic_is_named_by_its_leaf(lab: RunningLab, address: str, others: tuple[str, str]) -> None:
    run = lab.state.run_directory(lab.name)
    bridge = f"br{_vni(lab, 'red', 'web')}"
    subprocess.run(["ip", "-n", _vrf(lab, LEAF, "red"), "neigh", "del", address, "dev", bridge], check=True)
    reason = f"{LEAF} has not heard it"
    until(lambda: [line for line in missing_lines(lab.plan, run) if address in line and reason in line], reason)
    for other in others:
        assert _pings(lab, "p1-s1-h1", other)
    until(lambda: missing_lines(lab.plan, run) == [], "the overlay is whole")


def test_views_and_captures_know_tenants(lab: RunningLab, shared_sandbox: Any) -> None:
    rows = json.loads(shared_sandbox.cli("inspect", "tenants", "-n", lab.name, "-f", "json").stdout)["rows"]
    assert {(row["tenant"], row["subnet"]) for row in rows} == {
        ("red", "web"),
        ("red", "db"),
        ("blue", "web"),
        ("blue", "own"),
    }
    vteps = json.loads(shared_sandbox.cli("inspect", "vteps", "-n", lab.name, "-f", "json").stdout)["rows"]
    assert all(row["entries"] == row["planned"] > 0 for row in vteps)
    links = lab.link_states()
    assert all(links.values()) and (LEAF, "down1") in links


def test_tenants_of_two_networks_and_of_ibgp_with_queues(sandbox: Any) -> None:
    """Overlays of the back end (iBGP, with the eBPF data path) and of a front end, with a tenant that is in both."""
    text = f"""
name: {sandbox.name()}
scale: {{time: 10000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 4
  gpus: 2
  spines: 1
  nic: {{rate: 400G}}
  uplink: {{rate: 200G, count: 1}}
  routing: {{protocol: ibgp}}
  overlay: {{evpn: {{mtu: 4400}}}}
networks:
  frontend: {{design: leaf-spine, leaves: 2, spines: 1, nic: {{per: host, ports: 1, rate: 100G}}, overlay: evpn}}
qos: {{preset: uec}}
tenants:
  red:
    subnets:
      web: {{prefix: 10.200.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h1:fe1", "p1-s1-h3:fe1"]}}
      gpu: {{prefix: 10.201.0.0/24, prefix6: "fd00:2::/64", nics: ["p1-s1-h1:rail1", "p1-s1-h3:rail2"]}}
  blue:
    subnets:
      web: {{prefix: 10.200.0.0/24, nics: ["p1-s1-h2:fe1", "p1-s1-h4:fe1"]}}
      gpu: {{prefix: 10.202.0.0/24, nics: ["p1-s1-h2:rail2"]}}
"""
    lab = sandbox.deploy(load_topology_text(text, file="tenants.yml")).lab
    report = check_lab(lab)
    assert report.exit_code == 0, report
    assert {nic.tenant for host in lab.plan.hosts for nic in host.nics if nic.address6 is not None} == {"red"}
    assert {vrf.switch for vrf in lab.plan.overlay.vrfs} == {LEAF, FAR_LEAF, "fe-leaf1", "fe-leaf2"}
    assert {vrf.switch for vrf in lab.of_network("frontend").plan.overlay.vrfs} == {"fe-leaf1", "fe-leaf2"}
    shown = sandbox.cli("inspect", "tenants", "-n", lab.name, "--network", "frontend", "-f", "json").stdout
    assert {row["subnet"] for row in json.loads(shown)["rows"]} == {"web"}
    with _captured(lab, LEAF, "uplink1", "udp port 4789", verbose=True) as packets:
        lab.run("p1-s1-h1", ["ping", "-c", "3", "-i", "0.2", "-Q", "0x68", "10.201.0.3"])
    marked = [line for line in packets if "(tos 0x68" in line]
    assert len(marked) >= 8, "requests and answers, inside and outside; the capture may miss the last one"
    _check_that_marks_come_out_of_the_tunnel(lab, "10.201.0.3")


RECEIVES = """
import socket, sys
taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taker.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
taker.bind((sys.argv[1], 7000))
print(flush=True)
taker.settimeout(20)
while True:
    data, ancillary, _, _ = taker.recvmsg(4096, socket.CMSG_SPACE(1))
    if not data:
        break
    print(ancillary[0][2][0])
"""
SENDS = """
import socket, sys, time
giver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
giver.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[2]))
for _ in range(400):
    giver.sendto(bytes(1400), (sys.argv[1], 7000))
time.sleep(0.3)  # the queues have room again for what says that it is over
giver.sendto(b"", (sys.argv[1], 7000))
"""


def _check_that_marks_come_out_of_the_tunnel(lab: RunningLab, target: str) -> None:
    """A leaf's uplink, half as fast as the NIC, marks the outer header alone, and the other leaf, where nothing queues,
    hands the mark on to the inner one (RFC 6040 section 4.2). What is trimmed is lost."""
    ect0, ce = 0x6A, 0x6B
    taker = lab.spawn("p1-s1-h3", [sys.executable, "-c", RECEIVES, target], stdout=subprocess.PIPE)
    taker.stdout.readline()
    with _captured(lab, FAR_LEAF, "uplink1", "udp port 4789", verbose=True) as lines:
        sent = lab.run("p1-s1-h1", [sys.executable, "-c", SENDS, target, str(ect0)])
        out, _ = taker.communicate(timeout=30)
    assert sent.returncode == 0, sent.stderr
    received = [int(line) for line in out.split()]
    assert set(received) == {ect0, ce}, "the first ones find no queue"
    inside = {
        inner.partition("(")[2].partition(" ttl")[0]
        for outer, vxlan, inner in zip(lines, lines[1:], lines[2:], strict=False)
        if "(tos 0x6b,CE" in outer and "VXLAN" in vxlan and "tos" in inner
    }
    assert inside == {"tos 0x6a,ECT(0),"}, "the mark is outside alone"


def test_destroy_leaves_nothing(sandbox: Any) -> None:
    sandbox.deploy(load_topology_text(_text(sandbox, spines=1), file="tenants.yml"))
    assert f"{sandbox.name()}-{LEAF}-red" in sandbox.namespaces()
    sandbox.destroy()
    assert sandbox.leftovers() == []


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_destroy_leaves_nothing_of_a_deploy_that_was_killed(sandbox: Any) -> None:
    path: Path = sandbox.root / "topology.yml"
    path.write_text(_text(sandbox, spines=1))

    def deploy() -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = sandbox.start("deploy", "-q", "-t", str(path))
        return process

    started = time.monotonic()
    assert deploy().wait(120) == 0, (sandbox.root / "out").read_text()
    full = time.monotonic() - started
    sandbox.destroy()
    numbers = random.Random("tenants")
    points = 4
    for point in range(points):
        process = deploy()
        delay = full * (point + numbers.random()) / points
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        sandbox.note_daemons()
        result = sandbox.cli("destroy", "-n", sandbox.name())
        assert result.returncode == 0 or "no lab named" in result.stderr, result
        assert sandbox.leftovers() == [], f"SIGKILL after {delay:.2f} of {full:.2f} s"
