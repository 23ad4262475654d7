"""FRR configurations against files that people have read, and against the daemons themselves."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from golden_files import Golden

from testbed.base.units import Duration
from testbed.lab.core.fabric import FabricParams, UplinkParams, generate_fabric
from testbed.lab.core.model import Bfd, Protocol, Routing
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
from testbed.lab.core.render import FrrVersion, SwitchConfig, render_switch
from testbed.lab.core.schema.load import load_topology_text

FILES = Path(__file__).parent / "frr"
DAEMONS = Path("/usr/lib/frr")
SECOND = Bfd(interval=Duration.parse("1s"), multiplier=3)


def plan(design: str = "rail-optimized", *, protocol: Protocol = Protocol.EBGP, bfd: Bfd | None = None) -> LabPlan:
    params = FabricParams(
        design=design,
        pods=2,
        segments=1,
        hosts=2,
        gpus=8 if design == "multi-rail-switch" else 2,
        spines=2,
        super_spines=2,
        uplink=UplinkParams(count=1),
        routing=Routing(protocol=protocol, bfd=bfd, bfd_auto=False),
    )
    return plan_lab(generate_fabric(params, name="golden"), k=1000)


def switch(
    node: str, design: str = "rail-optimized", *, protocol: Protocol = Protocol.EBGP, bfd: Bfd | None = None
) -> SwitchPlan:
    return next(entry for entry in plan(design, protocol=protocol, bfd=bfd).switches if entry.node == node)


def of_tenants(node: str, protocol: str, overlay: str = "evpn", external: str = "", prefix6: str = "") -> SwitchPlan:
    """A switch of two tenants on two leaves, one of which they share; or the router outside of one of them."""
    text = f"""
name: golden
fabric:
  design: rail-optimized
  segments: 1
  hosts: 3
  gpus: 2
  spines: 1
  routing: {{protocol: {protocol}, bfd: off}}
  overlay: {overlay}
tenants:
  red:
    {external}
    subnets:
      web: {{prefix: 10.1.0.0/24, {prefix6} nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}
      db: {{prefix: 10.1.1.0/24, vni: 7000000, nics: ["p1-s1-h2:rail1"]}}
  blue:
    route_targets: {{import: ["64999:1", "64999:9"], export: ["64999:1"]}}
    rd: {{p1-s1-rail1: "192.0.2.7:1"}}
    subnets:
      web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h3:rail1"]}}
"""
    plan = plan_lab(load_topology_text(text, file="golden.yml"), k=1000)
    return next(entry for entry in plan.speakers if entry.node == node)


def of_routed_hosts(node: str) -> SwitchPlan:
    """A node of a front end whose hosts speak BGP with two leaves, and whose switches have BFD."""
    text = """
name: golden
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}
networks:
  frontend:
    homing: routed
    nic: {per: host, ports: 2}
    routing: {bfd: {interval: 1s, multiplier: 3}}
"""
    plan = plan_lab(load_topology_text(text, file="golden.yml"), k=1000)
    return next(entry for entry in plan.speakers if entry.node == node)


def of_monitored(node: str) -> SwitchPlan:
    """A switch that reports to a monitoring station on the management network."""
    text = """
name: golden
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}
networks: {management: {design: out-of-band, services: [bmp]}}
"""
    plan = plan_lab(load_topology_text(text, file="golden.yml"), k=1000)
    return next(entry for entry in plan.speakers if entry.node == node)


EXTERNAL = "external: {leaf: p1-s1-rail1, asn: 64999, prefixes: [198.51.100.0/24, 203.0.113.7/32], rate: 10G}"
SWITCHES = {
    "rail-switch": switch("p1-s1-rail1"),
    "spine": switch("p1-spine1"),
    "super-spine": switch("ss1"),
    "rail-switch-bfd": switch("p1-s1-rail1", bfd=SECOND),
    "multi-rail-aggregate": switch("p1-s1-rail1", "multi-rail-switch"),
    "rail-switch-ibgp": switch("p1-s1-rail1", protocol=Protocol.IBGP),
    "spine-ibgp": switch("p1-spine1", protocol=Protocol.IBGP, bfd=SECOND),
    "super-spine-ibgp": switch("ss1", protocol=Protocol.IBGP),
    "evpn-leaf": of_tenants("p1-s1-rail1", "ebgp"),
    "evpn-spine": of_tenants("p1-spine1", "ebgp"),
    "evpn-spine-filtering": of_tenants("p1-spine1", "ebgp", "{evpn: {rt_filter: true}}"),
    "evpn-leaf-dual-stack": of_tenants("p1-s1-rail1", "ibgp", prefix6='prefix6: "fd00:1::/64",'),
    "evpn-leaf-ibgp": of_tenants("p1-s1-rail1", "ibgp"),
    "evpn-border": of_tenants("p1-s1-rail1", "ebgp", external=EXTERNAL),
    "evpn-border-secured": replace(
        of_tenants("p1-s1-rail1", "ebgp", external=EXTERNAL), password=True, ttl_security=True
    ),
    "evpn-external": of_tenants("red-external", "ibgp", external=EXTERNAL),
    "evpn-spine-ibgp": of_tenants("p1-spine1", "ibgp"),
    "rail-switch-secured": replace(switch("p1-s1-rail1"), password=True, ttl_security=True),
    "routed-host": of_routed_hosts("p1-s1-h1"),
    "leaf-of-routed-hosts": of_routed_hosts("fe-leaf1"),
    "spine-of-routed-hosts": of_routed_hosts("fe-spine1"),
    "rail-switch-monitored": of_monitored("p1-s1-rail1"),
    "alone": plan_lab(
        generate_fabric(FabricParams(design="rail-only", hosts=2, gpus=1), name="golden"), k=1000
    ).switches[0],
}
VERSIONS = ("8.4", "10.3")


def render(name: str, version: str) -> SwitchConfig:
    return render_switch(
        SWITCHES[name],
        lab="golden",
        version=FrrVersion.parse(version),
        log_directory="/var/lib/testbed/golden/log",
        password="not-a-secret",
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_the_integrated_configuration(name: str, version: str, golden: Golden) -> None:
    golden(f"frr/{name}-{version}.conf").check(render(name, version).integrated)


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in FILES.iterdir()} == {f"{n}-{v}.conf" for n in SWITCHES for v in VERSIONS}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_each_daemon_has_its_section_and_no_other(name: str, version: str) -> None:
    config = render(name, version)
    bfd = SWITCHES[name].bfd is not None and bool(SWITCHES[name].neighbors)
    managed = version != "8.4"
    assert set(config.daemons) == {"zebra", "bgpd"} | ({"bfdd"} if bfd else set()) | ({"mgmtd"} if managed else set())
    owners = {"interface uplink": "mgmtd" if managed else "zebra", "router bgp": "bgpd", "\nbfd\n": "bfdd"}
    for text, owner in owners.items():
        for daemon, section in config.daemons.items():
            assert (text in section) <= (daemon == owner)
    lines = [line for section in config.daemons.values() for line in section.splitlines()[7:]]
    assert sorted(lines) == sorted(config.integrated.splitlines()[7:])
    for daemon, section in config.daemons.items():
        level = "debugging" if daemon == "bfdd" else "informational"
        assert f"log file /var/lib/testbed/golden/log/{daemon}.log {level}\n" in section


def test_mgmtd_of_frr_10_has_the_interfaces() -> None:
    assert "interface" in render("spine", "9.1").daemons["zebra"]
    assert "interface" not in render("spine", "10.0").daemons["zebra"]
    assert (
        render("spine", "8.4").daemons["zebra"].endswith(render("spine", "10.3").daemons["mgmtd"].partition("!\n")[2])
    )
    assert (
        render("spine", "8.4").daemons["bgpd"].splitlines()[2:]
        == render("spine", "10.3").daemons["bgpd"].splitlines()[2:]
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("8.4.4", FrrVersion(8, 4, 4)),
        ("10.3", FrrVersion(10, 3)),
        ("bgpd version 10.5.1-dev", FrrVersion(10, 5, 1)),
        ("8.4.4-1.1~deb12u1", FrrVersion(8, 4, 4)),
    ],
)
def test_versions_are_read(text: str, version: FrrVersion) -> None:
    assert FrrVersion.parse(text) == version


def test_versions_are_ordered_and_written() -> None:
    assert FrrVersion.parse("8.4.4") < FrrVersion.parse("8.10") < FrrVersion.parse("10.0")
    assert [str(FrrVersion.parse(text)) for text in ("8.4.4", "10.3")] == ["8.4.4", "10.3"]
    with pytest.raises(ValueError, match="not a version"):
        FrrVersion.parse("FRRouting")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="testbed-frr-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.frr
@pytest.mark.skipif(not (DAEMONS / "bgpd").exists(), reason="no FRR on this machine")
@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_the_installed_daemons_accept_every_line(name: str, open_directory: Path) -> None:
    """A daemon in dry-run mode complains of a line it does not know, and still leaves with 0. mgmtd has no such mode:
    vtysh knows the syntax of its lines, and the integration tests that it carries them out.
    """
    shown = subprocess.run([DAEMONS / "bgpd", "--version"], capture_output=True, text=True, check=True, timeout=30)
    config = render(name, shown.stdout)
    integrated = open_directory / "frr.conf"
    integrated.write_text(config.integrated)
    subprocess.run(["vtysh", "--dryrun", "-f", integrated], stdin=subprocess.DEVNULL, check=True, timeout=30)
    for daemon, text in config.daemons.items():
        if daemon == "mgmtd":
            continue
        complaints = dry_run(daemon, text, open_directory, config.modules.get(daemon, ()))
        assert not complaints, complaints


@pytest.mark.frr
@pytest.mark.skipif(not (DAEMONS / "bgpd").exists(), reason="no FRR on this machine")
def test_the_dry_run_does_see_a_wrong_line(open_directory: Path) -> None:
    for daemon in ("zebra", "bgpd", "bfdd"):
        assert dry_run(daemon, "no-such-thing\n", open_directory)


def dry_run(daemon: str, text: str, directory: Path, modules: tuple[str, ...] = ()) -> list[str]:
    """What a daemon says against a configuration. It reads the file as the user frr, from a directory open to all."""
    path = directory / f"{daemon}.conf"
    # Without the log file, which that user could not open here: complaints then go to stderr.
    path.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("log file ")))
    path.chmod(0o644)
    command = [DAEMONS / daemon, "--dryrun", "-f", path, "-i", directory / "pid", "-z", directory / "zserv.api"]
    command += [word for module in modules for word in ("-M", module)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        shutil.rmtree(f"/var/tmp/frr/{daemon}.{process.pid}", ignore_errors=True)
    assert process.returncode == 0, output
    signs = ("No such command", "Unknown command", "config line", "Ambiguous", "Malformed", "% ", "ermission denied")
    return [line for line in output.splitlines() if any(sign in line for sign in signs)]
