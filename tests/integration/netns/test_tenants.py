"""Tenants of an EVPN overlay on real switches: bridged and routed over VXLAN, apart from each other, and gone after."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.deploy.live import RunningLab
from testbed.deploy.routing import start_routing, stop_routing
from testbed.deploy.watch.check import CheckStatus, check_lab
from testbed.deploy.watch.overlay import missing_lines, read_missing
from testbed.names import namespace_name
from testbed.spec import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGY = """
name: {name}
scale: {{time: 10000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 4
  gpus: 2
  spines: {spines}
  nic: {{rate: 400G}}
  overlay: evpn
tenants:
  red:
    subnets:
      web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}
      db: {{prefix: 10.1.1.0/24, nics: ["p1-s1-h2:rail1"]}}
  blue:
    subnets:
      web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h4:rail2"]}}
      own: {{prefix: 10.9.0.0/24, nics: ["p1-s1-h4:rail1"]}}
"""
WEB_RED, WEB_RED_FAR, DB_RED = "10.1.0.2", "10.1.0.3", "10.1.1.2"
OWN_BLUE = "10.9.0.2"
LEAF, FAR_LEAF = "p1-s1-rail1", "p1-s1-rail2"


def _text(sandbox: Any, spines: int = 2) -> str:
    return TOPOLOGY.format(name=sandbox.name(), spines=spines)


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    found: RunningLab = shared_sandbox.deploy(
        load_topology_text(_text(shared_sandbox), file="tenants.yml"), k=10_000.0
    ).lab
    return found


def _ip(*argv: str) -> Any:
    result = subprocess.run(["ip", "-j", *argv], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return json.loads(result.stdout or "[]")


def _pings(lab: RunningLab, node: str, target: str, *, source: str = "") -> bool:
    argv = ["ping", "-c", "3", "-i", "0.2", "-W", "1", *(["-I", source] if source else []), target]
    return lab.run(node, argv).returncode == 0


def _vrf(lab: RunningLab, leaf: str, tenant: str) -> str:
    return namespace_name(lab.name, f"{leaf}-{tenant}")


@contextmanager
def _captured(lab: RunningLab, node: str, interface: str, expression: str) -> Iterator[list[str]]:
    """The packets of an interface while the block runs, as tcpdump's lines, complete once it has ended."""
    lines: list[str] = []
    argv = ["tcpdump", "-n", "-l", "-i", interface, expression]
    capture = lab.spawn_at(lab.port(node, interface), argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert capture.stderr is not None
    while b"listening on" not in capture.stderr.readline():
        assert capture.poll() is None
    try:
        yield lines
    finally:
        capture.send_signal(signal.SIGINT)
        out, _ = capture.communicate(timeout=20)
        lines += out.decode().splitlines()


def test_a_deploy_waits_for_the_overlay_and_check_passes(lab: RunningLab) -> None:
    assert not any(read_missing(lab.plan).values())
    report = check_lab(lab)
    assert report.exit_code == 0, report
    tests = {result.name: result for result in report.results}
    assert tests["overlay"].count > 20
    assert tests["tenants"].count >= 4
    assert tests["isolation"].count >= 4


def test_a_subnet_is_bridged_over_both_leaves_by_vxlan(lab: RunningLab) -> None:
    with _captured(lab, LEAF, "uplink1", "udp port 4789") as first:
        with _captured(lab, LEAF, "uplink2", "udp port 4789") as second:
            assert _pings(lab, "p1-s1-h1", WEB_RED_FAR)
    vni = str(lab.switch_plan(LEAF).evpn.vnis[0].vni)  # type: ignore[union-attr]
    assert [line for line in first + second if f"vni {vni}" in line], first + second


def test_subnets_are_routed_over_the_l3vni(lab: RunningLab) -> None:
    """Symmetric IRB: the leaf of the sender routes into the L3VNI, and that of the receiver out of it."""
    tenant = next(tenant for tenant in lab.model.overlay.tenants if tenant.name == "red")  # type: ignore[union-attr]
    routes = {route["dst"]: route for route in _ip("-n", _vrf(lab, FAR_LEAF, "red"), "route")}
    assert routes["10.1.1.0/24"]["dev"] == routes[DB_RED]["dev"] == f"br{tenant.vni}"
    with _captured(lab, FAR_LEAF, "uplink1", "udp port 4789") as first:
        with _captured(lab, FAR_LEAF, "uplink2", "udp port 4789") as second:
            assert _pings(lab, "p1-s1-h2", WEB_RED, source=DB_RED)
            assert _pings(lab, "p1-s1-h1", DB_RED)
    assert routes[DB_RED]["gateway"] == str(lab.switch_plan(LEAF).loopback.ip)
    assert [line for line in first + second if "vni" in line] == [] or first + second


def test_the_same_address_is_another_host_in_another_tenant(lab: RunningLab) -> None:
    nics = {(nic.node, nic.name): nic for host in lab.plan.hosts for nic in host.nics}
    assert nics["p1-s1-h1", "rail1"].address == nics["p1-s1-h3", "rail1"].address
    with _captured(lab, "p1-s1-h4", "rail2", "icmp") as blue:
        assert _pings(lab, "p1-s1-h1", WEB_RED_FAR)
    assert blue == []
    with _captured(lab, "p1-s1-h4", "rail2", "icmp") as blue:
        assert _pings(lab, "p1-s1-h3", WEB_RED_FAR)
    assert len(blue) == 6


def test_tenants_do_not_reach_each_other_and_it_is_the_vrf_that_stops_them(lab: RunningLab) -> None:
    """Only blue has 10.9.0.0/24. Joined by hand, the two VRFs of the leaf carry the packets that they stopped before."""
    assert _pings(lab, "p1-s1-h3", OWN_BLUE), "within blue it is reached"
    with _captured(lab, LEAF, "down1", "icmp") as arrived:
        assert not _pings(lab, "p1-s1-h1", OWN_BLUE)
    assert any("unreachable" in line for line in arrived), "the leaf's VRF has no route, and says so"

    red, blue = _vrf(lab, LEAF, "red"), _vrf(lab, LEAF, "blue")
    subprocess.run(
        ["ip", "link", "add", "tored", "netns", blue, "type", "veth", "peer", "toblue", "netns", red], check=True
    )
    try:
        for namespace, name, address in ((red, "toblue", "192.0.2.1/30"), (blue, "tored", "192.0.2.2/30")):
            subprocess.run(["ip", "-n", namespace, "addr", "add", address, "dev", name], check=True)
            subprocess.run(["ip", "-n", namespace, "link", "set", name, "up"], check=True)
        subprocess.run(["ip", "-n", red, "route", "add", "10.9.0.0/24", "via", "192.0.2.2"], check=True)
        subprocess.run(["ip", "-n", blue, "route", "add", f"{WEB_RED}/32", "via", "192.0.2.1"], check=True)
        assert _pings(lab, "p1-s1-h1", OWN_BLUE)
        leaked = {result.name: result for result in check_lab(lab).results}["isolation"]
        assert leaked.status is CheckStatus.FAIL, leaked
        assert any("p1-s1-h1:rail1 -> p1-s1-h4:rail1 arrived" in line for line in leaked.failures), leaked
    finally:
        subprocess.run(["ip", "-n", red, "link", "del", "toblue"], check=True)
        subprocess.run(["ip", "-n", blue, "route", "flush", "192.0.2.1"], check=False)
    assert not _pings(lab, "p1-s1-h1", OWN_BLUE)


def test_tenants_do_not_reach_the_underlay_nor_the_other_way_round(lab: RunningLab) -> None:
    assert not _pings(lab, "p1-s1-h1", str(lab.switch_plan(FAR_LEAF).loopback.ip), source=WEB_RED)
    assert not _pings(lab, LEAF, WEB_RED)


def test_nics_in_no_tenant_stay_on_their_rail(lab: RunningLab) -> None:
    nics = {(nic.node, nic.name): nic for host in lab.plan.hosts for nic in host.nics}
    mine, other = nics["p1-s1-h1", "rail2"], nics["p1-s1-h3", "rail2"]
    assert not mine.tenant
    assert mine.address is not None and other.address is not None
    assert mine.mtu_bytes == 4500 and nics["p1-s1-h1", "rail1"].mtu_bytes == 4450
    assert _pings(lab, "p1-s1-h1", str(other.address.ip), source=str(mine.address.ip))


def test_what_is_missing_is_named_with_its_reason_and_comes_back(lab: RunningLab) -> None:
    run = lab.state.run_directory(lab.name)
    for uplink in ("uplink1", "uplink2"):
        lab.set_link(FAR_LEAF, uplink, up=False)
    try:
        _until(lambda: missing_lines(lab.plan, run) != [])
        lines = _until(lambda: [line for line in missing_lines(lab.plan, run) if "flood" in line])
        assert any(f"the underlay of {LEAF} has no route to {FAR_LEAF}" in line for line in lines), lines
    finally:
        for uplink in ("uplink1", "uplink2"):
            lab.set_link(FAR_LEAF, uplink, up=True)
    _until(lambda: missing_lines(lab.plan, run) == [])

    stop_routing(lab, FAR_LEAF)
    lines = _until(lambda: [line for line in missing_lines(lab.plan, run) if line.startswith(f"{FAR_LEAF}-red")])
    assert any("bgpd" in line or "no route to" in line for line in lines), lines
    assert start_routing(lab, FAR_LEAF)
    _until(lambda: missing_lines(lab.plan, run) == [])
    assert _pings(lab, "p1-s1-h1", WEB_RED_FAR)


def test_a_silent_nic_is_named_by_its_leaf(lab: RunningLab) -> None:
    run = lab.state.run_directory(lab.name)
    vrf = next(vrf for vrf in lab.plan.overlay.vrfs if vrf.node == f"{LEAF}-red")  # type: ignore[union-attr]
    namespace = _vrf(lab, LEAF, "red")
    subprocess.run(["ip", "-n", namespace, "neigh", "del", WEB_RED, "dev", vrf.l2[0].bridge], check=True)
    lines = _until(lambda: [line for line in missing_lines(lab.plan, run) if "p1-s1-h1:rail1" in line])
    assert any(f"{LEAF} has not heard it" in line for line in lines), lines
    assert _pings(lab, "p1-s1-h1", WEB_RED_FAR)
    assert _pings(lab, "p1-s1-h1", DB_RED)
    _until(lambda: missing_lines(lab.plan, run) == [])


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


def test_destroy_leaves_nothing(sandbox: Any) -> None:
    sandbox.deploy(load_topology_text(_text(sandbox, spines=1), file="tenants.yml"))
    assert f"{sandbox.name()}-{LEAF}-red" in sandbox.namespaces()
    sandbox.destroy()
    assert sandbox.leftovers() == []


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


def _until(condition: Any, timeout_s: float = 30.0) -> Any:
    """Wait until a condition is true; its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)
    return value
