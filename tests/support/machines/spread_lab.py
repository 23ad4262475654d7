"""A lab over several machines made of namespaces, as tests bring it up from the desk, and look for what is left."""

from __future__ import annotations

import json
from pathlib import Path

from namespace_machine import MachineRoom, NamespaceMachine

TOPOLOGY = """name: {name}
scale: {{time: 20000}}
fabric:
  design: rail-optimized
  segments: 2
  hosts: 2
  gpus: 1
  nic: {{per: gpu, ports: 1, rate: 400G}}
  spines: 2
  uplink: {{rate: 400G, count: 1}}
"""
LOSSLESS = """qos:
  preset: uec
  classes:
    rdma: {dscp: [26], lossless: true, weight: 60, ecn: {kmin: 0.2bdp, kmax: 0.8bdp, pmax: 1.0}, pfc: {xoff: auto}}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40, limit: 4bdp}
  buffer: {shared: 16MB, alpha: 0.5}
  trimming: false
  base_rtt: 12us
"""


def over(*machines: NamespaceMachine) -> str:
    return ",".join(machine.target for machine in machines)


def deployed(room: MachineRoom, work: Path, name: str, machines: tuple[NamespaceMachine, ...]) -> str:
    done = room.run("deploy", "-t", f"{name}.yml", "--over", over(*machines), "-q", directory=work)
    assert done.returncode == 0, done.stderr
    return done.stdout


def destroyed(room: MachineRoom, work: Path, name: str) -> None:
    done = room.run("destroy", "-n", name, directory=work)
    assert done.returncode == 0, done.stderr


def left_on(*machines: NamespaceMachine) -> list[str]:
    """The processes, labs, namespaces and interfaces of ours that are on machines."""
    found: list[str] = []
    for machine in machines:
        found += machine.processes()
        found += machine.run("ls", "/run/netns").stdout.split()
        found += machine.run("find", "/var/lib/testbed/labs", "-mindepth", "1", "-maxdepth", "1").stdout.split()
        found += machine.run("sh", "-c", "ls /sys/class/net | grep -v -e ^lo$ -e ^eth0$").stdout.split()
    return found


def rows(room: MachineRoom, work: Path, *arguments: str) -> list[dict[str, object]]:
    done = room.run(*arguments, "-f", "json", directory=work)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def listed(room: MachineRoom, work: Path, name: str) -> dict[str, object]:
    """The line of a lab in the list, which has the labs of this machine, too."""
    [row] = [row for row in rows(room, work, "list") if row["name"] == name]
    return row
