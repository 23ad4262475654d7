"""A job scheduler over the management network: jobs that move data between hosts, and what becomes of dead nodes."""

import contextlib
import importlib.util
import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filters import in_node
from rank_programs import ALL_REDUCE
from sandbox import Sandbox
from waiting import until

from testbed.base.linux.processes import clean_environment
from testbed.lab.core.deploy.power import power_off, power_on
from testbed.lab.core.deploy.watch.events import EventStream
from testbed.lab.features.management.client_environment import service_environment
from testbed.lab.features.management.services.launcher import missing_programs
from testbed.lab.features.management.services.slurm import munge_directory
from testbed.lab.features.management.services_apply import (
    missing_services,
    read_services,
    restart_services,
    service_places,
)

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.skipif(bool(missing_programs("slurm")), reason="Slurm is not installed: `testbed doctor` says so"),
]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}}
networks: {{management: {{design: out-of-band, services: [ssh, slurm]}}}}
"""
SERVER, H1, H2, SWITCH = "mgmt1", "p1-s1-h1", "p1-s1-h2", "p1-s1-rail1"
SIZE = 4 << 20
NOBODY = pwd.getpwnam("nobody")


def model(sandbox: Any, suffix: str) -> Any:
    return sandbox.load(TEXT, suffix)


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> Any:
    return shared_sandbox.deploy(model(shared_sandbox, "a")).lab


@pytest.fixture
def jobs(shared_sandbox: Any, lab: Any) -> Iterator[Any]:
    """Jobs of the lab; those that are left at the end are cancelled."""
    yield (found := Jobs(shared_sandbox, lab))
    found.client("scancel", "--quiet", "--user=root")


class Jobs:
    """What a user at the server does with jobs."""

    def __init__(self, sandbox: Any, lab: Any) -> None:
        self._sandbox = sandbox
        self._lab = lab

    def client(self, *command: str) -> str:
        """Run a client at the server, and return what it prints."""
        environment = clean_environment(service_environment(self._lab, SERVER))
        words = ["nsenter", f"--net=/run/netns/{self._lab.namespace(SERVER)}", *command]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *words: str, by: tuple[str, ...] = ()) -> str:
        """Submit a job as a user does, and return its number."""
        command = (*by, "sbatch", "--parsable", *words)
        done = self._sandbox.cli("exec", SERVER, "-n", self._lab.name, "--", *command, timeout_s=30)
        assert done.returncode == 0, done.stderr
        return str(done.stdout).strip()

    def state(self, job: str) -> str:
        found = self.client("scontrol", "--oneliner", "show", "job", job)
        return next(word.partition("=")[2] for word in found.split() if word.startswith("JobState="))

    def wait(self, job: str) -> None:
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        until(lambda: self.state(job) in ended, f"job {job} ends", timeout_s=60)


def moved(lab: Any, interface: str) -> dict[str, int]:
    """The bytes that a port of each host has sent and received."""
    counters = lab.counters()
    return {host: counters[host, interface].tx_bytes + counters[host, interface].rx_bytes for host in (H1, H2)}


def states(lab: Any) -> str:
    return next(item.detail for item in read_services(lab) if (item.service, item.node) == ("slurm", SERVER))


def test_a_batch_job_moves_its_data_over_the_back_end(shared_sandbox: Any, lab: Any, jobs: Jobs) -> None:
    assert states(lab) == "2 idle"
    script, output = shared_sandbox.work / "job.sh", shared_sandbox.work / "job.out"
    run = f"timeout 50 {sys.executable} -m testbed job all-reduce bytes={SIZE} -f json"
    script.write_text("\n".join(["#!/bin/sh", "timeout 10 srun hostname", run, ""]))
    before = moved(lab, "rail1"), moved(lab, "mgmt0")
    job = jobs.submit("-N", "2", "-o", str(output), str(script))
    jobs.wait(job)
    said = output.read_text()
    assert jobs.state(job) == "COMPLETED", said
    assert {H1, H2} <= set(said.splitlines()), "each host has its name"
    assert '"wrong": 0' in said and f'"bytes": {SIZE}' in said
    for host in (H1, H2):  # of two ranks, each sends and receives as many bytes as the array has
        assert moved(lab, "rail1")[host] - before[0][host] >= 2 * SIZE
        assert moved(lab, "mgmt0")[host] - before[1][host] < SIZE / 4


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py: pip install 'testbed[programs]'")
@pytest.mark.parametrize("at_server", [True, False], ids=["srun at the server", "srun in a batch job"])
def test_ranks_of_mpi_find_each_other_by_pmi2(shared_sandbox: Any, lab: Any, jobs: Jobs, at_server: bool) -> None:
    """Tasks connect to srun at a port of the kernel's choice, wherever it is, and to each other over the back end."""
    program = shared_sandbox.work / "reduce.py"
    program.write_text(ALL_REDUCE)
    tcp = ["env", "MPIR_CVAR_CH4_NETMOD=ofi", "FI_PROVIDER=tcp", "FI_TCP_IFACE=rail1"]
    srun = [*("srun", "-N", "2", "--mpi=pmi2"), *tcp, sys.executable, str(program), str(SIZE // 16), "3"]
    before = moved(lab, "rail1")
    if at_server:
        said = shared_sandbox.cli("exec", SERVER, "-n", lab.name, "--", "timeout", "60", *srun, timeout_s=80).stdout
    else:
        output = shared_sandbox.work / "reduce.out"
        jobs.wait(jobs.submit("-N", "2", "-o", str(output), "--wrap", f"timeout 60 {shlex.join(srun)}"))
        said = output.read_text()
    assert said.startswith("all-reduce 2 "), said
    assert moved(lab, "rail1")[H1] - before[H1] > 3 * SIZE // 16


def test_a_task_is_its_users_and_has_no_rights(lab: Any, jobs: Jobs) -> None:
    by = ("setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups")
    output = Path(f"/tmp/{lab.name}-user.out")
    output.touch()
    try:
        os.chown(output, NOBODY.pw_uid, NOBODY.pw_gid)
        job = jobs.submit("-N1", "-D/tmp", "-o", str(output), "--wrap", "id -un; grep CapEff /proc/self/status", by=by)
        jobs.wait(job)
        assert output.read_text().split() == ["nobody", "CapEff:", "0" * 16]
    finally:
        output.unlink()


def test_hosts_reach_each_other_at_the_ports_of_slurm_alone(lab: Any) -> None:
    addresses = {node: str(lab.plan.management.addresses[node].ip) for node in (H1, H2, SWITCH)}

    def reaches(source: str, target: str, port: int, source_port: int = 0) -> bool:
        def connect() -> bool:
            with socket.socket() as trying:
                trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trying.settimeout(0.5)
                trying.bind((addresses[source], source_port))
                try:
                    trying.connect((addresses[target], port))
                except ConnectionRefusedError:
                    return True
                except OSError:
                    return False
                return True

        return bool(in_node(lab, source, connect))

    assert reaches(H1, H2, 6818) and reaches(H2, H1, 60420), "slurmd, and a port at which srun waits"
    assert reaches(H1, H2, 33000), "and one that the kernel may give it for PMI-2"
    assert not reaches(H1, H2, 8080), "no other"
    assert not reaches(H1, H2, 22), "sshd is there, and not for its neighbour"
    assert not reaches(H1, H2, 22, source_port=60420), "whatever port it is asked from"
    assert not reaches(H1, SWITCH, 22)
    assert not reaches(SWITCH, H2, 6818)


@pytest.mark.thorough
def test_a_host_without_power_is_down_and_comes_back(lab: Any) -> None:
    power_off(lab, H2)
    try:
        until(lambda: states(lab) == "1 down, 1 idle", "the controller misses a host", timeout_s=40)
    finally:
        power_on(lab, H2)
    until(lambda: states(lab) == "2 idle", "the host takes jobs again", timeout_s=40)


def test_a_controller_that_dies_is_told_and_its_jobs_go_on(lab: Any, jobs: Jobs, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    job = jobs.submit("-N2", "-o/dev/null", "--wrap", f"cat {go}")
    until(lambda: states(lab) == "2 allocated", "the job runs", timeout_s=20)
    running_ns = time.time_ns()
    place = next(item for item in service_places(lab.model, lab.plan, lab.state) if item.service == "slurm")
    saved = place.own / "job_state"
    until(lambda: saved.exists() and saved.stat().st_mtime_ns > running_ns, "the controller has written that down")
    status = next(item for item in read_services(lab) if (item.service, item.node) == ("slurm", SERVER))
    with contextlib.closing(EventStream(lab)) as stream:
        os.kill(status.pids["slurmctld"], signal.SIGKILL)
        ended = next(event for event in stream if event.kind == "service-ended")
        assert (ended.node, ended.subject) == (SERVER, "slurm")
    assert any(line.startswith(f"slurm of {SERVER} is dead") for line in missing_services(lab))
    assert sorted(restart_services(lab, "slurm")) == sorted([SERVER, H1, H2])
    assert jobs.state(job) == "RUNNING"
    go.write_text("")
    jobs.wait(job)
    assert jobs.state(job) == "COMPLETED"


def test_two_labs_have_each_their_own_key_which_goes_with_them(shared_sandbox: Any, lab: Any, jobs: Jobs) -> None:
    other = shared_sandbox.deploy(model(shared_sandbox, "b"), routing=False).lab
    keys = {}
    for each in (lab, other):
        known = service_places(each.model, each.plan, each.state)[0].lab
        key = munge_directory(known) / "key"
        assert key.stat().st_mode & 0o777 == 0o600 and key.owner() == "munge"
        data = keys[key] = key.read_bytes()
        for root in (each.directory, each.state_directory, known.run):
            files = (path for path in root.rglob("*") if path.is_file() and not os.path.ismount(path))  # no namespaces
            for path in (path for path in files if path != key):
                assert data[:16] not in path.read_bytes(), path
        users = {name: Path(f"/proc/{pid}").owner() for item in read_services(each) for name, pid in item.pids.items()}
        assert {name: users[name] for name in ("munged", "slurmctld", "slurmd")} == {
            "munged": "munge",
            "slurmctld": "slurm",
            "slurmd": "root",
        }
    assert len(set(keys.values())) == 2
    assert states(other) == states(lab) == "2 idle"
    job = Jobs(shared_sandbox, other).submit("-N2", "-Jother", "-o/dev/null", "--wrap", "srun true")
    Jobs(shared_sandbox, other).wait(job)
    assert Jobs(shared_sandbox, other).state(job) == "COMPLETED"
    assert "JobName=other" not in jobs.client("scontrol", "--oneliner", "show", "job"), "the other lab's"
    shared_sandbox.destroy("b")
    assert [key.exists() for key in keys] == [True, False]
    assert missing_services(lab) == []
