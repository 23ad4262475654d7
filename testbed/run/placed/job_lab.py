"""A lab as a batch job of its Slurm sees it: what is started on one of the job's hosts is a task of the job.

Workers are told what to do, and answer, over their tasks' standard input and output, and so over the management
network; what they move goes over the data networks.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import ScenarioError
from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.base.programs import captured
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.run.placed.lab import LiveLab

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps
    from testbed.daemons.portd.client import PauseAgent

CLIENT_TIMEOUT_S = 10.0
"""Slurm's clients try for many seconds where there is no controller."""


class JobLab:
    """A running lab, whose `spawn` starts tasks of the job that this process is in the batch script of."""

    def __init__(self, lab: LiveLab) -> None:
        self._lab = lab

    @property
    def name(self) -> str:
        return self._lab.name

    @property
    def model(self) -> Lab:
        return self._lab.model

    @property
    def plan(self) -> LabPlan:
        return self._lab.plan

    @property
    def whole(self) -> JobLab:
        """The lab as it is seen in all its networks."""
        return JobLab(self._lab.whole)

    @property
    def pause_agent(self) -> PauseAgent:
        return self._lab.pause_agent

    def of_network(self, *names: str) -> JobLab:
        """The lab as it is seen in some networks."""
        return JobLab(self._lab.of_network(*names))

    def spawn(self, node: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
        """Start a task on a host of the job. Raises `ScenarioError` for one that is to see its own /sys."""
        if popen_kwargs.pop("own_sysfs", False):
            raise ScenarioError("tasks see this machine's RDMA devices, and not their host's alone", hint="roce or tcp")
        return subprocess.Popen([*task_on(node), *argv], **popen_kwargs)

    def namespace_file(self, node: str) -> str | None:
        """Return None: each host of a job has a process of its own."""
        return None

    @property
    def processes_directory(self) -> Path | None:
        return self._lab.processes_directory

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        return self._lab.counters()

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        return self._lab.plain_queues()

    def maps(self, *, writable: bool = False) -> LabMaps:
        return self._lab.maps(writable=writable)


def task_on(node: str) -> list[str]:
    """The beginning of a command line that starts a program as one task on a host, beside others of the job."""
    return ["srun", "--quiet", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--overlap", "--unbuffered"]


def hosts_of_job(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The hosts of the job whose batch script this process is in. Raises `ScenarioError` where it is in none."""
    listed = environment.get("SLURM_JOB_NODELIST", "")
    if not listed:
        raise ScenarioError(
            "this is no batch job: SLURM_JOB_NODELIST is not set",
            hint="testbed exec SERVER -- sbatch -N 2 --wrap 'testbed job all-reduce bytes=16MiB'",
        )
    command = ["scontrol", "show", "hostnames", listed]
    try:
        done = captured(command, CLIENT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ScenarioError(f"scontrol does not say which hosts the job has: {error}") from error
    return tuple(done.stdout.split())
