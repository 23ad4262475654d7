"""Changing labs that are up, by the command line, against promised seconds; and the kernel's part of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from figures import Figure, judge

from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.steps import StepEvent
from testbed.lab.core.schema.load import load_topology

ROOT = Path(__file__).parents[2]
TESTBED = [sys.executable, "-m", "testbed"]
KERNEL_STEPS = ("nodes", "links", "ports", "removals")
"""The steps of a change in which nothing but the kernel is worked on."""
KERNEL_MS = 50

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(900)]

Document = dict[str, Any]


class BenchLab:
    """A lab that is deployed, and what its file says of it."""

    def __init__(self, name: str, topology: str, directory: Path, changes: Callable[[Document], None]) -> None:
        self.name = name
        self._directory = directory
        self._document: Document = yaml.safe_load((ROOT / topology).read_text()) | {"name": name}
        changes(self._document)
        self._write(self._document)
        self._run("deploy")

    def _write(self, document: Document) -> None:
        self.file.write_text(yaml.safe_dump(document))

    @property
    def file(self) -> Path:
        return self._directory / f"{self.name}.yml"

    def _run(self, verb: str) -> float:
        started = time.monotonic()
        done = subprocess.run(
            [*TESTBED, verb, "-q", "-t", str(self.file)],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        elapsed_s = time.monotonic() - started
        assert done.returncode == 0, done.stderr
        return elapsed_s

    def apply(self, change: Callable[[Document], None] | None = None) -> float:
        """Seconds that the command takes to change the lab, None: to find that there is nothing to do."""
        document = yaml.safe_load(yaml.safe_dump(self._document))
        if change is not None:
            change(document)
        self._write(document)
        return self._run("apply")

    def back(self) -> float:
        """Milliseconds of CPU that the kernel's part takes of bringing the lab back to what it was at first.

        CPU, and not the clock: netlink is worked on in the process that asks, however busy others are.
        """
        self._write(self._document)
        lab = load_topology(self.file)
        begun: dict[str, float] = {}
        spent_s: list[float] = []

        def note(event: StepEvent) -> None:
            if event.phase == "start":
                begun[event.step] = time.process_time()
            elif event.phase == "stop" and event.step in KERNEL_STEPS:
                spent_s.append(time.process_time() - begun[event.step])

        apply_lab(lab, StateDirectory(), ApplyOptions(k=lab.scale.time), note)
        return 1000 * sum(spent_s)


@contextmanager
def bench_lab(name: str, topology: str, directory: Path, changes: Callable[[Document], None]) -> Iterator[BenchLab]:
    try:
        yield BenchLab(name, topology, directory, changes)
    finally:
        subprocess.run([*TESTBED, "destroy", "-q", "-n", name], cwd=directory, capture_output=True, check=False)


def link_more(document: Document) -> None:
    """A second link between a rail switch and a spine, with a session of BGP."""
    ends = ["p1-s1-rail1:extra1", "p1-spine1:extra1"]
    document["topology"] = {"links": [{"endpoints": ends, "rate": "400G"}]}


def test_a_link_of_306_nodes(tmp_path: Path) -> None:
    with bench_lab("benchapply300", "topologies/bench-300.yml", tmp_path, lambda _: None) as lab:
        nothing_s = lab.apply()
        link_s = lab.apply(link_more)
        kernel_ms = lab.back()
    judge(
        Figure("306 nodes: nothing to change", nothing_s, at_most=0.8, unit="s"),
        Figure("306 nodes: a link added", link_s, at_most=1.0, unit="s"),
        Figure("306 nodes: the kernel's part of a link", kernel_ms, at_most=KERNEL_MS, unit="ms"),
    )


def with_qos(document: Document) -> None:
    document["qos"] = {"preset": "uec", "buffer": {"shared": "100MB"}}


def host_more(document: Document) -> None:
    """One host more in each of the two pods, with eight NICs each."""
    document["fabric"]["hosts"] += 1


def threshold(document: Document) -> None:
    document["qos"]["buffer"]["alpha"] = 0.4


def test_changes_of_1024_nics(tmp_path: Path) -> None:
    with bench_lab("benchapply1024", "topologies/rail-optimized-1024.yml", tmp_path, with_qos) as lab:
        nothing_s = min(lab.apply() for _ in range(2))
        threshold_s = lab.apply(threshold)
        thresholds_ms = lab.back()
        link_s = lab.apply(link_more)
        link_ms = lab.back()
        host_s = lab.apply(host_more)
        host_ms = lab.back()
    judge(
        Figure("1,024 NICs: nothing to change", nothing_s, at_most=0.8, unit="s"),
        Figure("1,024 NICs: a threshold on all ports", threshold_s, at_most=1.0, unit="s"),
        Figure("1,024 NICs: a link added", link_s, at_most=1.5, unit="s"),
        Figure("1,024 NICs: the kernel's part of a link", link_ms, at_most=KERNEL_MS, unit="ms"),
        Figure("1,024 NICs: 2 hosts with 8 NICs each added, converged", host_s, at_most=1.5, unit="s"),
    )
    print(f"the kernel's part of a threshold on all ports: {thresholds_ms:.0f} ms, of two hosts: {host_ms:.0f} ms")
