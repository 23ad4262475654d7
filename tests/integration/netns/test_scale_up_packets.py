"""Labs whose scale-up domains have packets: deployed, broken, brought back and gone, over real wires and switches."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from waiting import until

from testbed.base.descriptors import wait_readable
from testbed.base.linux.counters import read_counters
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.lab.core.deploy.lifecycle import LabExists
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.power import power_off, power_on
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.model import SCALE_UP_PRESETS, Lab, ScaleUpBy
from testbed.lab.features.scale_up.apply import gpu_settings, start_domain_switches
from testbed.lab.features.scale_up.watch_switches import dead_domains, domain_switch
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Endpoints

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 20_000.0
"""GPUs of 180 Mbit/s each way, and a round trip of 20 ms."""
SIZE = 1 << 18
TOPOLOGY = """
name: {name}
scale: {{time: 20000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 1
  gpus: 2
  spines: 1
  scale_up: {{preset: h100, by: packets}}
"""


def with_packets(model: Lab, preset: str = "h100", **changes: Any) -> Lab:
    return replace(model, scale_up=replace(SCALE_UP_PRESETS[preset], by=ScaleUpBy.PACKETS, **changes))


@contextmanager
def gpus(lab: RunningLab, *places: tuple[str, int]) -> Iterator[tuple[Endpoints, list[Endpoint]]]:
    """Endpoints of GPUs of hosts, each with its sockets in the namespace of its host."""
    with Endpoints(scale_up_domain.build()) as endpoints:
        settings = [(host, gpu_settings(lab.plan, host, number)) for host, number in places]
        yield endpoints, [in_namespace(lab.namespace(host), partial(endpoints.add, one)) for host, one in settings]


def up_interfaces(lab: RunningLab, host: str) -> set[str]:
    """The interfaces of a host that are up and have carrier."""
    with closing(in_namespace(lab.namespace(host), RouteSocket)) as socket:
        return {name for name, counters in read_counters(socket).items() if counters.up}


def copies(lab: RunningLab, *places: tuple[str, int]) -> None:
    """Each of these GPUs writes to the next one, and what is there then is what was written."""
    with gpus(lab, *places) as (endpoints, opened):
        memory = [bytearray(SIZE) for _ in opened]
        windows = [gpu.export(part) for gpu, part in zip(opened, memory, strict=True)]
        data = [os.urandom(SIZE) for _ in opened]
        for number, gpu in enumerate(opened):
            window = windows[(number + 1) % len(opened)]
            window.authorise(gpu.gpu)
        handles = [
            gpu.write(windows[(number + 1) % len(opened)].reference(), data[number])
            for number, gpu in enumerate(opened)
        ]
        for gpu, handle in zip(opened, handles, strict=True):
            endpoints.wait(gpu, handle, 20.0)
        assert [bytes(part) for part in memory] == [data[number - 1] for number in range(len(opened))]


def test_gpus_of_one_domain_reach_each_other_over_all_planes(sandbox: Any) -> None:
    """A domain of two hosts: what one host's GPU writes is in the other's memory, and every plane has carried of it."""
    model = with_packets(sandbox.model(segments=1, hosts=2, gpus=2, spines=1), "nvl72", shares=(5, 5, 4, 4))
    lab = RunningLab(sandbox.deploy(model, k=K).lab.record, sandbox.state)
    (domain,) = lab.plan.scale_up_domains
    hosts = lab.hosts
    copies(lab, *((host, number) for host in hosts for number in (1, 2)))
    status = domain_switch(sandbox.state.run_directory(lab.name), domain.name).status()
    assert status["socket_drops"] == 0
    carried = [0] * domain.planes
    for port in status["ports"]:
        carried[port["plane"]] += sum(vc["rx_frames"] for vc in port["vcs"])
    assert all(carried), carried


def kill_switch(sandbox: Any, lab: RunningLab) -> None:
    """SIGKILL for the switch of the lab's first domain; returns when it has ended."""
    name = lab.plan.scale_up_domains[0].name
    pid = domain_switch(sandbox.state.run_directory(lab.name), name).status()["pid"]
    process = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        assert wait_readable(process, 10.0)
    finally:
        os.close(process)


def test_a_dead_switch_is_told_and_brought_back(sandbox: Any) -> None:
    model = with_packets(sandbox.tiny(), shares=(9, 9))
    lab = RunningLab(sandbox.deploy(model, k=K).lab.record, sandbox.state)
    first, second = (domain.name for domain in lab.plan.scale_up_domains)
    run = sandbox.state.run_directory(lab.name)
    kill_switch(sandbox, lab)
    assert dead_domains(lab.plan, run) == [first]
    (result,) = (item for item in check_lab(lab).results if item.name == "scale-up")
    assert result.status is CheckStatus.FAIL
    assert result.failures == (
        f"scale-up domain {first}: its switch does not run; `testbed link up {first}:planes` starts it again",
    )
    with pytest.raises(LabExists, match=f"not whole: scale-up domain {first}: its switch does not run"):
        sandbox.deploy(model, k=K)
    other = domain_switch(run, second).status()["pid"]
    start_domain_switches(lab.plan, run)
    assert dead_domains(lab.plan, run) == []
    assert domain_switch(run, second).status()["pid"] == other, "one that runs is left alone"
    assert not sandbox.deploy(model, k=K).changed


def test_two_labs_side_by_side(sandbox: Any) -> None:
    """Each has a domain of the same name, which is its own."""
    labs = []
    for suffix in ("a", "b"):
        model = with_packets(sandbox.model(suffix, segments=1, hosts=1, gpus=2, spines=1), shares=(9, 9))
        labs.append(RunningLab(sandbox.deploy(model, k=K).lab.record, sandbox.state))
    macs = [{mac for wire in lab.plan.scale_up_domains[0].wires for mac in (wire.mac, wire.switch_mac)} for lab in labs]
    assert not macs[0] & macs[1]
    host = labs[0].hosts[0]
    for lab in labs:
        copies(lab, (host, 1), (host, 2))
    sandbox.destroy("a")
    copies(labs[1], (host, 1), (host, 2))


def test_a_host_without_power_is_not_in_its_domain(sandbox: Any) -> None:
    """Its GPUs' interfaces go down with it, and come back with it."""
    model = with_packets(sandbox.model(segments=1, hosts=2, gpus=1, spines=1), "nvl72", shares=(9, 9))
    lab = RunningLab(sandbox.deploy(model, k=K).lab.record, sandbox.state)
    first, second = lab.hosts
    copies(lab, (first, 1), (second, 1))
    assert power_off(lab, second)
    wires = {wire.interface for wire in lab.plan.scale_up_domains[0].wires if wire.host == second}
    assert not wires & up_interfaces(lab, second)
    assert power_on(lab, second)
    until(lambda: wires <= up_interfaces(lab, second), "the wires of its GPUs are up")
    copies(lab, (first, 1), (second, 1))


def test_destroy_after_a_deploy_that_was_killed_while_the_switch_started(sandbox: Any) -> None:
    path = sandbox.root / "topology.yml"
    path.write_text(TOPOLOGY.format(name=sandbox.name()))
    process = sandbox.start("deploy", "-q", "-t", str(path))
    told = sandbox.state.run_directory(sandbox.name()) / ".scale-up" / "p1-s1-h1" / "switch.json"
    deadline = time.monotonic() + 60
    while not told.exists():
        assert process.poll() is None and time.monotonic() < deadline, (sandbox.root / "out").read_text()
        os.sched_yield()
    process.kill()
    process.wait()
    sandbox.note_daemons()
    assert sandbox.cli("destroy", "-n", sandbox.name()).returncode == 0
    assert sandbox.leftovers() == []
