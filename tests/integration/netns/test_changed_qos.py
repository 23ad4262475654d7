"""QoS comes to a lab that is up, and goes from it: ports have other queues, and all else stays as it is."""

import contextlib
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from cut_short import Bench
from sandbox import Sandbox
from waiting import until

from testbed.base.datapath import pins
from testbed.base.datapath.abi import class_handle
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import check_lab

pytestmark = [pytest.mark.netns, pytest.mark.frr]

PLAIN = """
name: {name}
scale: {{time: 10000}}
fabric:
  {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1, nic: {{rate: 400G}}, uplink: {{delay: 1us}}}}
"""
WITH_QOS = PLAIN + "qos: {{preset: nvidia}}\n"
MANY_PORTS = """
name: {name}
scale: {{time: 10000}}
fabric:
  {{design: rail-optimized, hosts: 5, gpus: 1, segments: 2, spines: 1, nic: {{rate: 400G}}, routing: {{bfd: off}}}}
qos: {{preset: nvidia, classes: {{{classes}}}}}
"""
HOSTS = "p1-s1-h1", "p1-s1-h2"


def address(lab: RunningLab, host: str) -> str:
    found = lab.port(host, "rail1").address
    return str(found.ip)


@contextlib.contextmanager
def pings(lab: RunningLab) -> Iterator[None]:
    """Hosts send to each other all the time."""
    running = [
        subprocess.Popen(
            ["ip", "netns", "exec", lab.namespace(host), "ping", "-q", "-i", "0.002", address(lab, peer)],
            stdout=subprocess.DEVNULL,
        )
        for host, peer in (HOSTS, HOSTS[::-1])
    ]
    try:
        yield
        assert all(process.poll() is None for process in running)
    finally:
        for process in running:
            process.kill()
            process.wait()


def waiting(lab: RunningLab) -> int:
    with contextlib.closing(lab.maps()) as maps:
        return int(maps.by_port("queues")["bytes"].sum())


def priorities(lab: RunningLab) -> set[int]:
    """The priorities of all classes that ports have."""
    assert lab.plan.tables is not None
    profiles = {lab.plan.tables.profiles[item.profile] for item in lab.plan.installs}
    return {item.priority for profile in profiles for item in profile.classes}


def test_no_packet_stays_in_the_account_of_a_queue(sandbox: Any) -> None:
    """One that was counted in a queue that came leaves it, wherever it was: what stays would take buffer for ever."""
    plain, qos = (sandbox.load(text) for text in (PLAIN, WITH_QOS))
    lab = sandbox.deploy(plain).lab
    nodes, sessions = lab.identities, {(item.node, item.interface): item.uptime_s for item in lab.sessions()}
    for wanted in (qos, plain, qos, plain, qos):
        with pings(lab):
            changes = apply_lab(wanted, sandbox.state, ApplyOptions(k=10_000.0))
        assert {row.at_stake for row in changes.rows if row.kind == "port"} == {"what waits in its queues"}
        lab = sandbox.running()
        if wanted is qos:
            until(lambda lab=lab: waiting(lab) == 0, "all queues are empty")
        else:
            assert not pins.lab_directory(lab.processes_directory).exists()
    assert lab.identities == nodes and check_lab(lab).exit_code == 0
    for item in lab.sessions():
        assert item.uptime_s >= sessions[item.node, item.interface], "no session was reset"


def test_a_class_goes_from_ports_of_all_numbers(sandbox: Any) -> None:
    """A filter has its port's number as a class ID, and the kernel keeps a class that a filter names."""
    extra = ", ".join(f"extra{dscp}: {{strict: true, ecn: false, dscp: [{dscp}]}}" for dscp in (10, 12))
    more, fewer = (sandbox.load(MANY_PORTS, classes=classes) for classes in (extra, ""))
    lab = sandbox.deploy(more).lab
    before, ports = priorities(lab), set(lab.plan.port_numbers.values())
    apply_lab(fewer, sandbox.state, ApplyOptions(k=10_000.0))
    lab = sandbox.running()
    gone = before - priorities(lab)
    assert len(gone) == 2 and {class_handle(priority) & 0xFFFF for priority in gone} <= ports, (gone, ports)
    assert check_lab(lab).exit_code == 0


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "points", [pytest.param(2, marks=pytest.mark.thorough), pytest.param(30, marks=pytest.mark.soak)]
)
def test_qos_that_was_killed_on_its_way_comes_or_goes_whole(sandbox: Sandbox, points: int) -> None:
    for before, after in ((PLAIN, WITH_QOS), (WITH_QOS, PLAIN)):
        texts = (text.format(name=sandbox.name()) for text in (before, after))
        Bench(sandbox, *texts).kill_at(points, random.Random(f"{before} {points}"))
        sandbox.destroy()
