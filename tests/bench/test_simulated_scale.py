"""What thousands of NICs take, as the whole command: CPU time, memory, and how near its dry run says both.

CPU time is judged beside the floor of the same run: as many packets on lines between hosts that do nothing, on a small
fabric that the CPU's caches hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from figures import Figure, judge
from hop_floor import COMPILED, plain_hops_per_s

from testbed.record.record import Outcome
from testbed.record.store import load_record

pytestmark = [
    pytest.mark.bench,
    pytest.mark.thorough,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not COMPILED, reason="figures are of a build: python -m testbed.base.compiled makes one"),
]

FABRIC = """
name: scale
topology:
  inline:
    name: scale
    scale: {time: auto}
    fabric:
      design: rail-optimized
      segments: SEGMENTS
      hosts: 64
      gpus: 1
      nic: {per: gpu, ports: 1, rate: 400G}
      rails: {per_switch: 1}
      spines: 64
      uplink: {rate: 400G, count: 1}
    qos: {preset: uec, base_rtt: 12us, load_balancing: {mode: spray}}
transport: {kind: uet, cc: nscc}
workload: {kind: permutation, bytes: BYTES}
repeat: {runs: 1, seed: 1}
"""
NEAR = 1.3
"""By what factor a dry run may be off, in memory."""
NEAR_IN_TIME = 2.5
"""The same in CPU time, which other work on the host changes from one minute to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a command took: CPU seconds, and bytes of memory at most."""

    cpu_s: float
    memory_bytes: int
    output: str


def take(argv: Sequence[str]) -> Taken:
    """Run the command line to its end, and say what it took, with all its processes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, output
    return Taken(cpu_s=used.ru_utime + used.ru_stime, memory_bytes=1024 * used.ru_maxrss, output=output)


@pytest.mark.parametrize(
    ("nics", "size", "most_s", "most_bytes", "of_floor"),
    [(4096, "256kB", 25.0, 1_200_000_000, 55.0), (8192, "64kB", 40.0, 2_200_000_000, 120.0)],
)
def test_a_permutation_of_thousands_of_nics(
    nics: int, size: str, most_s: float, most_bytes: int, of_floor: float, tmp_path: Path
) -> None:
    """`of_floor` is CPU time over that of the hops alone: most of it is setting up as many endpoints, ports and routes,
    and the rest are endpoints at both ends in a fabric that no cache holds."""
    file = tmp_path / "scale.yml"
    file.write_text(FABRIC.replace("SEGMENTS", str(nics // 64)).replace("BYTES", size))
    run = ["run", str(file), "--backend", "simulation", "-f", "json", "-q"]
    [foreseen] = json.loads(take([*run, "--dry-run"]).output)[0]["points"]
    before = plain_hops_per_s()
    taken = take([*run, "--no-report", "-o", str(tmp_path / "out")])
    floor_s = foreseen["hops"] / max(before, plain_hops_per_s())
    record = load_record(next((tmp_path / "out").iterdir()))
    assert record.verdict.outcome is Outcome.PASS and len(record.points[0].runs[0].transfers.end_s) == nics
    name = f"Simulation: {nics:,} NICs, {size} each"
    off = taken.memory_bytes / foreseen["memory_bytes"]
    off_in_time = taken.cpu_s / foreseen["estimated_s"]
    judge(
        Figure(f"{name}, CPU", taken.cpu_s, at_most=most_s, unit="s"),
        Figure(f"{name}, CPU over that of its hops alone", taken.cpu_s / floor_s, at_most=of_floor, ratio=True),
        Figure(f"{name}, memory", taken.memory_bytes / 1e6, at_most=most_bytes / 1e6, unit="MB", ratio=True),
        Figure(f"{name}, memory beside its dry run's", max(off, 1 / off), at_most=NEAR, ratio=True),
        Figure(
            f"{name}, CPU beside its dry run's", max(off_in_time, 1 / off_in_time), at_most=NEAR_IN_TIME, ratio=True
        ),
    )
