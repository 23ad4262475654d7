"""Points of a scenario as the jobs of an array of Slurm's, as the guide to pools has it, and their one record."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.base.linux.processes import clean_environment
from testbed.lab.features.management.client_environment import service_environment
from testbed.lab.features.management.services.launcher import missing_programs
from testbed.record.store import RECORD_FILE
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.thorough,
    pytest.mark.skipif(bool(missing_programs("slurm")), reason="Slurm is not installed: `testbed doctor` says so"),
]

LAB = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}}
networks: {{management: {{design: out-of-band, services: [ssh, slurm]}}}}
"""
SCENARIO = """name: thresholds
topology:
  inline: {name: thresholds, fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}}
transport: {kind: uet}
workload: {kind: permutation, scope: inter-leaf, bytes: 100kB}
matrix: {transport.paths: [oblivious, reps], fabric.hosts: [2, 4]}
expect:
  - {metric: tail_fct_ratio, max: 3, source: ideal serialisation and base RTT}
"""
SERVER = "mgmt1"


def test_an_array_of_slurm_s_makes_the_record_of_one_run(shared_sandbox: Any, tmp_path: Path) -> None:
    lab = shared_sandbox.lab(LAB, "p")
    work = shared_sandbox.work
    (work / "thresholds.yml").write_text(SCENARIO)
    command = [sys.executable, "-m", "testbed", "run", str(work / "thresholds.yml"), "--backend", "simulation"]
    one = f"cd {shlex.quote(str(work))} && {shlex.join([*command, '--no-report', '-o', 'points'])}"
    words = ["sbatch", "--wait", "--array=1-4", "-o", str(work / "job-%a.out")]
    done = subprocess.run(
        [
            *("nsenter", f"--net=/run/netns/{lab.namespace(SERVER)}"),
            *(*words, "--wrap", f"{one} --point $SLURM_ARRAY_TASK_ID"),
        ],
        env=clean_environment(service_environment(lab, SERVER)),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    said = "\n".join(path.read_text() for path in sorted(work.glob("job-*.out")))
    assert done.returncode == 0, done.stderr + said
    merged = shared_sandbox.cli("results", "merge", "points", "-o", "whole", "--no-report", timeout_s=60)
    assert merged.returncode == 0, merged.stderr
    options = RecordOptions(directory=tmp_path, command=("testbed", *command[3:], "--no-report"))
    run_simulated(read_sweep(work / "thresholds.yml"), options)
    assert (work / "whole" / RECORD_FILE).read_bytes() == (tmp_path / RECORD_FILE).read_bytes()
