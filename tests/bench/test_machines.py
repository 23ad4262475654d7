"""What a cut costs: the same traffic on one machine, and on the same fabric with a pod on each of two machines.

Both are measured in turn, with the same time scale; the two machines have a core each, and the one has both.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from figures import Figure, judge
from namespace_machine import MachineRoom, NamespaceMachine, machines_lack
from spread_lab import LOSSLESS, deployed, destroyed

pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(machines_lack()), reason=f"machines of namespaces: {machines_lack()}"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two machines need a core each"),
]
TOPOLOGY = """name: pods
scale: {time: 20000}
fabric:
  design: multi-pod
  pods: 2
  segments: 1
  hosts: 2
  gpus: 1
  nic: {per: gpu, ports: 1, rate: 400G}
  rails: {per_switch: 1}
  spines: 1
  super_spines: 1
  uplink: {rate: 800G, count: 1}
"""
SCENARIO = """name: across-pods
topology: {file: pods.yml}
transport: {kind: roce}
workload: {kind: tornado, bytes: 2MB}
matrix: {workload.kind: [tornado, incast]}
repeat: {runs: 1, seed: 1}
expect:
  - {metric: drops, max: 0, source: "a lossless class"}
"""
SHAPES = ("tornado", "incast")
ROUNDS = 2


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    with MachineRoom(tmp_path_factory.mktemp("room"), mtu=9000) as found:
        yield found


@pytest.fixture(scope="module")
def machines(room: MachineRoom) -> list[NamespaceMachine]:
    """One with both cores, and two with one each."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    return [room.start("one", cpus=cpus), room.start("two-a", cpus=cpus[:1]), room.start("two-b", cpus=cpus[1:])]


@pytest.fixture
def work(room: MachineRoom, tmp_path: Path) -> Path:
    shutil.rmtree(Path(room.environment["HOME"], ".local"), ignore_errors=True)
    (tmp_path / "pods.yml").write_text(TOPOLOGY + LOSSLESS)
    (tmp_path / "across.yml").write_text(SCENARIO)
    return tmp_path


def points(directory: Path) -> list[dict[str, Any]]:
    """The one run of each point of the record in a directory."""
    [path] = directory.glob("*/record.json")
    return [point["runs"][0] for point in json.loads(path.read_text())["points"]]


def whole(room: MachineRoom, work: Path, machine: NamespaceMachine, name: str) -> list[dict[str, Any]]:
    words = ("--on", machine.target, "run", "across.yml", "-q", "--no-report", "-o", name)
    done = room.run(*words, directory=work, timeout_s=600)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    return points(work / name)


def cut(
    room: MachineRoom, work: Path, machines: tuple[NamespaceMachine, NamespaceMachine], name: str
) -> list[dict[str, Any]]:
    deployed(room, work, "pods", machines)
    done = room.run("run", "across.yml", "-q", "--no-report", "-o", name, directory=work, timeout_s=600)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    found = points(work / name)
    destroyed(room, work, "pods")
    return found


def off(ours: float, theirs: float) -> float:
    """By how many percent one figure is off another."""
    return 100 * abs(ours / theirs - 1)


def unequal_cuts(run: dict[str, Any]) -> float:
    """The ends of links between machines at which packets, or pause frames, left that did not come in at the other."""
    [check] = [check for check in run["checks"] if check["name"] == "cut-links"]
    return float(check["value"])


def test_a_pod_on_another_machine_changes_no_figure(
    room: MachineRoom, machines: list[NamespaceMachine], work: Path
) -> None:
    one, *two = machines
    pairs = [
        (whole(room, work, one, f"whole-{number}"), cut(room, work, (two[0], two[1]), f"cut-{number}"))
        for number in range(ROUNDS)
    ]
    for place, shape in enumerate(SHAPES):
        runs = [(wholes[place], cuts[place]) for wholes, cuts in pairs]
        figures = [
            {name: (a["metrics"][name], b["metrics"][name]) for name in ("goodput_share", "tail_fct_ratio")}
            for a, b in runs
        ]
        print(f"{shape}: whole and cut: {figures}")
        judge(
            *(
                Figure(
                    f"Machines: {what} of {shape}, off that of one machine",
                    min(off(*reversed(each[name])) for each in figures),
                    at_most=limit,
                    unit="%",
                    ratio=True,
                )
                for name, what, limit in (("goodput_share", "goodput", 1), ("tail_fct_ratio", "tail FCT", 2))
            ),
            Figure(
                f"Machines: drops of {shape} on two machines",
                max(cuts["metrics"]["drops"] for _, cuts in runs),
                at_most=0,
                ratio=True,
            ),
            Figure(
                f"Machines: ends of cut links that differ in {shape}",
                max(unequal_cuts(cuts) for _, cuts in runs),
                at_most=0,
                ratio=True,
            ),
        )
