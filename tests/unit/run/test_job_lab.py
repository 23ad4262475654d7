"""A lab as a batch job sees it: which hosts it has, and what starts a task on one."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.base.errors import ScenarioError
from testbed.run.placed.job_lab import JobLab, hosts_of_job
from testbed.run.placed.lab import LiveLab


def client(path: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program of this name before all others."""
    (path / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")


@pytest.mark.process
def test_the_hosts_of_a_job_are_those_that_scontrol_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(tmp_path, "scontrol", '[ "$1 $2 $3" = "show hostnames h[1-2]" ] && printf "h1\\nh2\\n"', monkeypatch)
    assert hosts_of_job({"SLURM_JOB_NODELIST": "h[1-2]"}) == ("h1", "h2")
    with pytest.raises(ScenarioError, match="does not say which hosts the job has"):
        hosts_of_job({"SLURM_JOB_NODELIST": "h[1-3]"})


def test_what_is_no_job_is_told_how_to_be_one() -> None:
    with pytest.raises(ScenarioError, match="this is no batch job") as caught:
        hosts_of_job({})
    assert "sbatch -N 2" in str(caught.value.hint)


@pytest.mark.process
def test_a_program_on_a_host_is_a_task_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(tmp_path, "srun", 'echo "$@"; cat', monkeypatch)
    lab = JobLab(cast(LiveLab, None))
    process = lab.spawn("h2", ["worker", "--transport"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said, _ = process.communicate(b"a line", timeout=10)
    words: Sequence[Any] = said.decode().splitlines()[0].split()
    assert {"--nodes=1", "--ntasks=1", "--nodelist=h2", "--overlap"} < set(words)
    assert words[-2:] == ["worker", "--transport"] and said.endswith(b"a line")
    assert lab.namespace_file("h2") is None
    with pytest.raises(ScenarioError, match="see this machine's RDMA devices"):
        lab.spawn("h2", ["worker"], own_sysfs=True)
