"""VRF devices of the kernel in place of namespaces, in the lab VM: all is there, apart, guarded, and gone afterwards.

One small lab has all that tenants can have: guards, others that they talk to, a router outside. That of namespaces the
same is seen takes a second deploy, and is a long test; labs out here have namespaces (`netns/test_tenants.py`).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_vm import LabVm

pytestmark = [pytest.mark.vm, pytest.mark.netns, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])
TESTBED = ".venv/bin/testbed"
LEAF, FAR, RED_HOST = "p1-s1-rail1", "p1-s1-rail2", "p1-s1-h3"
OURS = "192.0.2.1"
"""An address of a leaf that no guard knows (TEST-NET-1)."""
_RESTART = f"""
import time
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.routing import start_routing, stop_routing
from testbed.lab.features.overlay.watch import missing_lines
lab = RunningLab.open("tenants", StateDirectory())
run = lab.state.run_directory(lab.name)
stop_routing(lab, "{LEAF}")
assert start_routing(lab, "{LEAF}")
end = time.monotonic() + 180
while (missing := missing_lines(lab.plan, run)) and time.monotonic() < end:
    time.sleep(0.2)
print(*missing, sep="\\n")
"""


class Seen:
    """What verbs show of the lab while it is deployed one way."""

    def __init__(self, machine: LabVm, *settings: str) -> None:
        machine.check(TESTBED, "deploy", "-t", f"{HERE}/tenants.yml", "--reconfigure", *settings)

        def show(*arguments: str) -> Any:
            return json.loads(machine.check(TESTBED, *arguments, "-n", "tenants", "-f", "json"))

        self.tenants = show("inspect", "tenants")
        self.vteps = show("inspect", "vteps")["rows"]
        self.isolation = show("check", "--isolation")
        self.dropped = {
            (row["switch"], row["port"], row["host"], row["guard"])
            for row in show("inspect", "guards")
            if row["dropped"]
        }


@pytest.fixture(scope="module")
def machine(lab_vm: LabVm) -> Iterator[LabVm]:
    yield lab_vm
    lab_vm.run(TESTBED, "destroy", "-n", "tenants")


@pytest.fixture(scope="module")
def devices(machine: LabVm) -> Seen:
    """Of what is left to the machine."""
    return Seen(machine)


def test_the_doctor_says_which(machine: LabVm) -> None:
    assert machine.feature("VRFs of tenants") == ("ok", "VRF devices of the kernel")


def test_the_vrfs_are_devices_and_no_namespaces(machine: LabVm, devices: Seen) -> None:
    assert {row["by"] for row in devices.vteps} == {"device"}
    assert all(row["entries"] == row["planned"] for row in devices.vteps)
    links = json.loads(machine.check("ip", "-n", f"tenants-{LEAF}", "-j", "link", "show", "type", "vrf"))
    assert {link["ifname"] for link in links} == {"hub", "red", "blue", "green"}
    names = {entry["name"] for entry in json.loads(machine.check("ip", "-j", "netns"))}
    assert names == {f"tenants-p1-{name}" for name in ("s1-rail1", "s1-rail2", "spine1")} | {
        "tenants-red-external",
        *(f"tenants-p1-s1-h{number}" for number in range(1, 6)),
    }
    main = json.loads(machine.check("ip", "-n", f"tenants-{LEAF}", "-j", "route"))
    assert not [route for route in main if route["dst"].startswith(("10.21", "198.51"))]


def test_everything_of_the_overlay_is_there(machine: LabVm, devices: Seen) -> None:
    assert devices.vteps
    report = json.loads(machine.check(TESTBED, "check", "-n", "tenants", "-f", "json"))
    assert {result["status"] for result in report["tests"]} == {"pass"}, report
    assert {"overlay", "tenants", "isolation"} <= {result["name"] for result in report["tests"]}


def test_tenants_reach_whom_they_may_and_all_attacks_are_stopped(devices: Seen) -> None:
    assert {result["status"] for result in devices.isolation["tests"]} == {"pass"}, devices.isolation
    assert devices.isolation["attacks"]


@pytest.mark.thorough
def test_the_same_is_seen_of_namespaces(machine: LabVm, devices: Seen) -> None:
    namespaces = Seen(machine, "--set", "fabric.overlay.evpn.vrf_by=namespace")
    try:
        assert devices.tenants == namespaces.tenants
        assert {row["by"] for row in namespaces.vteps} == {"namespace"}
        assert [{**row, "by": "", "namespace": ""} for row in devices.vteps] == [
            {**row, "by": "", "namespace": ""} for row in namespaces.vteps
        ]
        found, same = (
            [(result["name"], result["status"], result["count"]) for result in seen.isolation["tests"]]
            for seen in (devices, namespaces)
        )
        assert found == same
        attacks, same_attacks = (
            [{key: value for key, value in attack.items() if key != "dropped"} for attack in seen.isolation["attacks"]]
            for seen in (devices, namespaces)
        )
        assert attacks == same_attacks
        assert devices.dropped == namespaces.dropped
    finally:
        Seen(machine)


def test_a_tenant_does_not_reach_its_switch_and_it_is_the_order_of_tables_that_stops_it(
    machine: LabVm, devices: Seen
) -> None:
    """Where the local table is looked up first, as Linux has it, an address of the switch answers the tenant."""
    leaf = ("ip", "-n", f"tenants-{LEAF}")
    (address,) = {row["addresses"][f"{RED_HOST}:rail1"] for row in devices.tenants["rows"] if row["tenant"] == "red"}
    source = address.partition("/")[0]
    machine.check("ip", "-n", f"tenants-{RED_HOST}", "route", "add", f"{OURS}/32", "via", "10.211.0.1", "src", source)
    machine.check(*leaf, "address", "add", f"{OURS}/32", "dev", "lo")

    def reached() -> bool:
        ping = ("ping", "-c", "1", "-W", "2", "-I", source, OURS)
        return machine.run("ip", "netns", "exec", f"tenants-{RED_HOST}", *ping).returncode == 0

    try:
        assert not reached()
        machine.check(*leaf, "rule", "add", "pref", "0", "lookup", "local")
        assert reached()
        machine.check(*leaf, "rule", "delete", "pref", "0")
        assert not reached()
    finally:
        machine.run(*leaf, "address", "delete", f"{OURS}/32", "dev", "lo")
        machine.run("ip", "-n", f"tenants-{RED_HOST}", "route", "delete", f"{OURS}/32")


def test_daemons_that_are_started_anew_bring_everything_back(machine: LabVm, devices: Seen) -> None:
    assert devices.vteps
    assert machine.check("sh", "-c", 'exec .venv/bin/python -c "$0"', _RESTART).strip() == ""


def test_destroy_leaves_nothing(machine: LabVm, devices: Seen) -> None:
    assert devices.vteps
    machine.check(TESTBED, "destroy", "-n", "tenants")
    assert machine.check("sh", "-c", "ls -d /run/netns/* /run/testbed/* /var/lib/testbed/labs/* 2>&-; true") == ""
    assert machine.run("pgrep", "-x", "zebra|bgpd|mgmtd").returncode == 1


@pytest.mark.thorough
def test_ipv6_of_a_tenant_is_in_the_table_of_its_device(machine: LabVm) -> None:
    """Without guards, which let no IPv6 of hosts pass."""
    machine.check(TESTBED, "deploy", "-t", "topologies/two-tenants.yml")
    try:
        report = json.loads(machine.check(TESTBED, "check", "-n", "two-tenants", "-f", "json"))
        assert {result["status"] for result in report["tests"]} == {"pass"}, report
        leaf = ("ip", "-n", f"two-tenants-{FAR}", "-6", "-j")
        routes = json.loads(machine.check(*leaf, "route", "show", "vrf", "red"))
        assert "fd00:1::2" in {route["dst"] for route in routes}
        assert [route["type"] for route in routes if route["dst"] == "default"] == ["unreachable"]
        preferences = {
            rule["priority"] for rule in json.loads(machine.check(*leaf, "rule")) if rule.get("table") == "local"
        }
        assert preferences == {32765}
    finally:
        machine.run(TESTBED, "destroy", "-n", "two-tenants")
