"""One perftest run between two hosts of a lab: a server and a client on their RDMA devices, and what they report.

The client starts once the server listens, which is read from the kernel's table of sockets. Both end with the call.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.collect.perftest import PerftestError, PerftestReport, complaint, parse_report
from testbed.collect.perftest_pair import PerftestJob, listens
from testbed.deploy.live import RunningLab
from testbed.drivers.netlink import rdma
from testbed.drivers.nodes.processes import search_path
from testbed.errors import CapabilityError, TestbedError
from testbed.model import End
from testbed.plan.operations import CreateRdma

LISTEN_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
_LOOK_MS = 20


class PerftestFailed(TestbedError):
    """A run that gave no result. `node` is where it failed."""

    def __init__(self, message: str, *, node: str) -> None:
        super().__init__(message)
        self.node = node


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestRun:
    """What a run gave. Counters are those of the RDMA devices, by how much they grew."""

    job: PerftestJob
    report: PerftestReport
    client_counters: Mapping[str, int]
    server_counters: Mapping[str, int]

    @property
    def retransmissions(self) -> int:
        """How often either end sent a request again, or gave it up."""
        both = (self.client_counters, self.server_counters)
        return sum(side.get(name, 0) for side in both for name in rdma.RETRANSMISSIONS)


def run_pair(lab: RunningLab, job: PerftestJob) -> PerftestRun:
    """Run `job` to its end. Raises `PerftestFailed`, `NoSuchNode`, `DriverError`, `CapabilityError`."""
    if shutil.which(job.test.value, path=search_path()) is None:
        raise CapabilityError(f"{job.test} is not installed", missing="perftest", hint="apt-get install perftest")
    devices = {end: _device(lab, end) for end in (job.client, job.server)}
    before = {end: rdma.counters(device) for end, device in devices.items()}
    with tempfile.TemporaryDirectory(prefix="testbed-perftest-") as directory:
        report = _run(lab, job, devices, Path(directory) / "report.json")
    grown = {
        end: {name: value - before[end].get(name, 0) for name, value in rdma.counters(device).items()}
        for end, device in devices.items()
    }
    return PerftestRun(job=job, report=report, client_counters=grown[job.client], server_counters=grown[job.server])


def _device(lab: RunningLab, end: End) -> str:
    """The RDMA device of a NIC port."""
    lab.port(end.node, end.interface)
    for operation in lab.plan.operations:
        if isinstance(operation, CreateRdma) and (operation.node, operation.name) == (end.node, end.interface):
            return operation.device
    raise PerftestFailed(f"{end} has no RDMA device: its host has no `rdma: rxe`", node=end.node)


def _run(lab: RunningLab, job: PerftestJob, devices: Mapping[End, str], document: Path) -> PerftestReport:
    server_port, client_port = (lab.port(end.node, end.interface) for end in (job.server, job.client))
    assert server_port.address is not None and client_port.address is not None  # an RDMA device's port has one
    server_argv = job.arguments(devices[job.server], rdma.gid_index(devices[job.server], server_port.address.ip))
    client_argv = job.arguments(devices[job.client], rdma.gid_index(devices[job.client], client_port.address.ip))
    client_argv += [
        f"--bind_source_ip={client_port.address.ip}",
        "--out_json",
        f"--out_json_file={document}",
        str(server_port.address.ip),
    ]
    server = _spawn(lab, job.server.node, server_argv)
    client: subprocess.Popen[bytes] | None = None
    try:
        _await_listening(server, job)
        client = _spawn(lab, job.client.node, client_argv)
        output, errors = _finish(client, job, job.client.node, job.timeout_s)
        _finish(server, job, job.server.node, STOP_TIMEOUT_S)
    finally:
        for process in (client, server):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()
    try:
        written = document.read_text(errors="replace") if document.exists() else ""
        return parse_report(job.test, output, written, errors, gigabits=not job.test.is_latency)
    except PerftestError as error:
        raise PerftestFailed(f"{job.client}: {error}", node=job.client.node) from error


def _spawn(lab: RunningLab, node: str, argv: list[str]) -> subprocess.Popen[bytes]:
    return lab.spawn(
        node, argv, own_sysfs=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    )


def _finish(process: subprocess.Popen[bytes], job: PerftestJob, node: str, timeout_s: float) -> tuple[str, str]:
    """What an end printed, once it has ended well."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        out, err = process.communicate()
        said = complaint(out.decode(errors="replace"), err.decode(errors="replace"))
        raise PerftestFailed(
            f"{job.test} on {node} did not end within {timeout_s:g} s{f': {said}' if said else ''}", node=node
        ) from error
    output, errors = out.decode(errors="replace"), err.decode(errors="replace")
    if process.returncode:
        said = complaint(output, errors) or errors.strip() or "it says nothing"
        raise PerftestFailed(f"{job.test} on {node} ended with status {process.returncode}: {said}", node=node)
    return output, errors


def _await_listening(server: subprocess.Popen[bytes], job: PerftestJob) -> None:
    deadline = time.monotonic() + LISTEN_TIMEOUT_S
    descriptor = os.pidfd_open(server.pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while not listens(server.pid, job.port):
            if poller.poll(_LOOK_MS):
                _finish(server, job, job.server.node, STOP_TIMEOUT_S)
                raise PerftestFailed(
                    f"{job.test} on {job.server.node} ended before its client came", node=job.server.node
                )
            if time.monotonic() > deadline:
                raise PerftestFailed(
                    f"{job.test} on {job.server.node} did not listen within {LISTEN_TIMEOUT_S:g} s",
                    node=job.server.node,
                )
    finally:
        os.close(descriptor)
