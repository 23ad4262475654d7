"""Link groups of hosts by the kernel's bonding, in the lab VM: the smallest lab with a pair of leaves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_vm import LabVm

pytestmark = [pytest.mark.vm, pytest.mark.netns, pytest.mark.thorough, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])
TESTBED = ".venv/bin/testbed"
HOSTS, LEAVES = ("p1-s1-h1", "p1-s1-h2"), ("fe-leaf1", "fe-leaf2")
BROADCAST = "192.168.1.255"
ATTEMPTS = 3
LIMIT_S, INTERVAL_S = 0.3, 0.05
"""Of the time without service by link state, and between two pings."""
_OUTAGE = f"""
import json, re, signal, subprocess, sys, time
from testbed.lab.features.mlag.apply import missing_members
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory

lab = RunningLab.open("bonds", StateDirectory())
run = lab.state.run_directory(lab.name)
addresses = {{nic.node: str(nic.address.ip) for host in lab.plan.hosts for nic in host.nics if nic.name == "fe0"}}
spine = next(str(switch.loopback.ip) for switch in lab.plan.switches if switch.node == "fe-spine1")
first, second = addresses
pairs = ((first, addresses[second]), (second, addresses[first]), (first, spine), (second, spine))

def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, missing_members(lab.plan, run)
        time.sleep(0.1)

pings = []
lost = []
for node, address in pairs:
    ping = ["ip", "netns", "exec", "bonds-" + node, "timeout", "300", "ping", "-n", "-i", "{INTERVAL_S}", address]
    pings.append(subprocess.Popen(ping, stdout=subprocess.PIPE, text=True))
link = ["ip", "-n", "bonds-" + sys.argv[1], "link", "set", sys.argv[2]]
try:
    texts = [[next(ping.stdout) for _ in range(20)] for ping in pings]
    subprocess.run([*link, "down"], check=True)
    until(lambda: len(missing_members(lab.plan, run)) == int(sys.argv[3]))
    for text, ping in zip(texts, pings):
        text += [next(ping.stdout) for _ in range(40)]
    subprocess.run([*link, "up"], check=True)
    until(lambda: not missing_members(lab.plan, run))
finally:
    subprocess.run([*link, "up"], check=True)
    for ping in pings:
        ping.send_signal(signal.SIGINT)
for text, ping in zip(texts, pings):
    text += ping.stdout.readlines()
    heard = [int(number) for number in re.findall(r"icmp_seq=([0-9]+) ttl", "".join(text))]
    lost.append(max(after - before - 1 for before, after in zip(heard, heard[1:])))
print(json.dumps(lost))
"""


@pytest.fixture(scope="module")
def machine(lab_vm: LabVm) -> Iterator[LabVm]:
    lab_vm.check(TESTBED, "deploy", "-t", f"{HERE}/bonds.yml")
    yield lab_vm
    lab_vm.run(TESTBED, "destroy", "-n", "bonds")


def _show(machine: LabVm, *arguments: str) -> Any:
    return json.loads(machine.check(TESTBED, *arguments, "-n", "bonds", "-f", "json"))


def test_the_doctor_says_which(machine: LabVm) -> None:
    assert machine.feature("link groups of hosts") == ("ok", "bonds of the kernel")


def test_nics_are_bonds_and_leaves_alone_have_a_process(machine: LabVm) -> None:
    for host in HOSTS:
        (bond,) = json.loads(machine.check("ip", "-n", f"bonds-{host}", "-d", "-j", "link", "show", "type", "bond"))
        data = bond["linkinfo"]["info_data"]
        assert (bond["ifname"], bond["operstate"], bond["mtu"]) == ("fe0", "UP", 1500)
        assert (data["mode"], data["ad_lacp_rate"], data["xmit_hash_policy"]) == ("802.3ad", "fast", "layer3+4")
        assert machine.run("ip", "netns", "exec", f"bonds-{host}", "ip", "link", "show", "fe0-lag").returncode
        assert machine.check("ip", "netns", "pids", f"bonds-{host}") == ""
    assert machine.check("pgrep", "-c", "-x", "testbed-lag").strip() == str(len(LEAVES))
    assert json.loads(machine.check("ip", "-j", "link", "show", "type", "bond") or "[]") == []


def test_both_members_serve_with_one_partner(machine: LabVm) -> None:
    report = _show(machine, "check")
    assert {result["status"] for result in report["tests"]} == {"pass"}, report
    assert "link groups" in {result["name"] for result in report["tests"]}
    rows = [row for row in _show(machine, "inspect", "link-groups") if row["node"] in HOSTS]
    assert [(row["node"], row["member"], row["in_sync"], row["lacp"]) for row in rows] == [
        (host, member, True, "current") for host in HOSTS for member in ("fe1", "fe2")
    ]
    assert len({row["partner"] for row in rows}) == 1


def _echoes(machine: LabVm, host: str) -> int:
    """How many echo requests a host has heard, its own broadcasts included, answered or not."""
    lines = machine.check("ip", "netns", "exec", f"bonds-{host}", "cat", "/proc/net/snmp").splitlines()
    names, values = (line.split() for line in lines if line.startswith("Icmp:"))
    return int(values[names.index("InEchos")])


def test_a_broadcast_arrives_once_and_never_comes_back(machine: LabVm) -> None:
    """Both leaves flood, and the peer link joins them: split horizon keeps a host from hearing twice."""
    before = {host: _echoes(machine, host) for host in HOSTS}
    asked = 20
    ping = ("ping", "-b", "-q", "-c", str(asked), "-i", "0.05", "-W", "1", BROADCAST)
    machine.run("ip", "netns", "exec", f"bonds-{HOSTS[0]}", *ping)
    assert {host: _echoes(machine, host) - before[host] for host in HOSTS} == dict.fromkeys(HOSTS, asked)


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize(
    ("port", "members"), [pytest.param("down1", 2, id="member"), pytest.param("uplink1", 4, id="uplink")]
)
def test_what_goes_down_costs_what_it_takes_to_notice(machine: LabVm, leaf: str, port: str, members: int) -> None:
    """One host loses a member, or a leaf its way to the fabric, and it leaves all groups; both ends of a member say so.

    Of each host to the other and to the spine, the longest run of pings without an answer counts. The machine is
    emulated, and what else runs on this one can only lengthen it: the best of three.
    """
    for _ in range(ATTEMPTS):
        lost = json.loads(machine.check(".venv/bin/python", "-c", _OUTAGE, leaf, port, str(members)))
        print(f"{leaf}:{port}: {max(lost) * INTERVAL_S * 1000:.0f} ms; pings lost in a row: {lost}")
        if max(lost) * INTERVAL_S <= LIMIT_S:
            return
    pytest.fail(f"more than {LIMIT_S} s without service, {ATTEMPTS} times")


def test_destroy_leaves_nothing(machine: LabVm) -> None:
    machine.check(TESTBED, "destroy", "-n", "bonds")
    assert machine.check("sh", "-c", "ls -d /run/netns/* /run/testbed/* /var/lib/testbed/labs/* 2>&-; true") == ""
    assert machine.run("pgrep", "-x", "testbed-lag|zebra|bgpd|mgmtd").returncode == 1
    assert json.loads(machine.check("ip", "-j", "link", "show", "type", "bond") or "[]") == []
