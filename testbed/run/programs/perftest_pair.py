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

from testbed.base.errors import CapabilityError, TestbedError
from testbed.base.linux.processes import search_path
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.model import End
from testbed.lab.core.plan.operations import CreateRdma
from testbed.run.programs.perftest import (
    PerftestError,
    PerftestReport,
    PerftestTest,
    complaint,
    parse_report,
    run_until_clock_known,
)

PORT = 18515
"""perftest's own TCP port for what the two ends tell each other first."""
QP_TIMEOUT = 18
LISTEN_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
TIMEOUT_S = 120.0
_LOOK_MS = 20


class PerftestFailed(TestbedError):
    """A run that gave no result. `node` is where it failed."""

    def __init__(self, message: str, *, node: str) -> None:
        super().__init__(message)
        self.node = node


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestJob:
    """This is what is run. `client` and `server` are NIC ports with an RDMA device.

    `iterations` counts messages of each queue pair; `traffic_class` is the IPv4 type of service of every packet
    (DSCP << 2 | ECN, RFC 2474 and RFC 3168); a queue pair waits 4.096 us * 2^`qp_timeout` for an acknowledgement
    (InfiniBand 9.7.6.1.3; the default is 1.07 s: labs are slow). Latency tests have one queue pair, atomics 8 bytes.

    With `duration_s` messages are sent for so long instead, after `margin_s` and before another that are not measured.
    `flow_labels` decide the packets' UDP source ports, one for each queue pair (`udp_source_port`). `path_mtu` and
    `tx_depth` (messages under way) are perftest's and the port's where they are None. `atomic_type` is FETCH_AND_ADD or
    CMP_AND_SWAP.
    """

    test: PerftestTest
    client: End
    server: End
    size_bytes: int = 65536
    iterations: int = 1000
    queue_pairs: int = 1
    traffic_class: int = 0
    qp_timeout: int = QP_TIMEOUT
    port: int = PORT
    timeout_s: float = TIMEOUT_S
    duration_s: int | None = None
    margin_s: int = 1
    flow_labels: tuple[int, ...] = ()
    path_mtu: int | None = None
    tx_depth: int | None = None
    atomic_type: str | None = None

    def __post_init__(self) -> None:
        if self.test.is_latency and self.queue_pairs != 1:
            raise ValueError(f"{self.test} has one queue pair, not {self.queue_pairs}")
        if not 0 <= self.traffic_class <= 255:
            raise ValueError(f"a traffic class is 0 to 255, not {self.traffic_class}")
        if min(self.size_bytes, self.iterations, self.queue_pairs) < 1:
            raise ValueError("sizes, iterations and queue pairs are at least 1")

    def arguments(self, device: str, gid_index: int) -> list[str]:
        """The command line that both ends share."""
        argv = [self.test.value, "-F", "-d", device, "-x", str(gid_index)]
        if self.duration_s is None:
            argv += ["-n", str(self.iterations)]
        else:
            argv += ["-D", str(self.duration_s + 2 * self.margin_s), "-f", str(self.margin_s)]
        argv += ["-p", str(self.port), "-u", str(self.qp_timeout)]
        if not self.test.is_atomic:
            argv += ["-s", str(self.size_bytes)]
        elif self.atomic_type is not None:
            argv += ["-A", self.atomic_type]
        if not self.test.is_latency:
            argv += ["-q", str(self.queue_pairs), "--report_gbits"]
        if self.path_mtu is not None:
            argv += ["-m", str(self.path_mtu)]
        if self.tx_depth is not None and not self.test.is_latency:
            argv += ["-t", str(self.tx_depth)]
        if self.flow_labels:
            argv.append("--flow_label=" + ",".join(map(str, self.flow_labels)))
        return [*argv, f"--tclass={self.traffic_class}"] if self.traffic_class else argv


ROCE_PORT = 4791
"""UDP destination port of RoCEv2 (IANA)."""
SOURCE_PORTS = (0xC000, 0x10000)
"""What flow labels become (include/rdma/ib_verbs.h, IB_ROCE_UDP_ENCAP_VALID_PORT_MIN)."""


def udp_source_port(flow_label: int) -> int:
    """Return the port of packets of a queue pair with this flow label, which is not 0 (ib_verbs.h,
    rdma_flow_label_to_udp_sport).
    """
    low, high = flow_label & 0x03FFF, flow_label & 0xFC000
    return SOURCE_PORTS[0] | (low ^ high >> 14)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestRun:
    """This is what a run gave. Counters are those of the RDMA devices, by how much they grew."""

    job: PerftestJob
    report: PerftestReport
    client_counters: Mapping[str, int]
    server_counters: Mapping[str, int]

    @property
    def retransmissions(self) -> int:
        """Return how often either end sent a request again, or gave it up."""
        both = (self.client_counters, self.server_counters)
        return sum(side.get(name, 0) for side in both for name in rdma.RETRANSMISSIONS)


def run_pair(lab: RunningLab, job: PerftestJob) -> PerftestRun:
    """Run `job` to its end, anew where perftest knew no clock (`run_until_clock_known`).

    Raises `PerftestFailed`, `NoSuchNode`, `DriverError`, `CapabilityError`.
    """
    if shutil.which(job.test.value, path=search_path()) is None:
        raise CapabilityError(f"{job.test} is not installed", missing="perftest", hint="apt-get install perftest")
    devices = {end: _device(lab, end) for end in (job.client, job.server)}
    return run_until_clock_known(lambda: _measure(lab, job, devices))


def _measure(lab: RunningLab, job: PerftestJob, devices: Mapping[End, str]) -> PerftestRun:
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
    """Return what an end printed, once it has ended well."""
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


_LISTEN = "0A"
"""TCP_LISTEN in /proc/net/tcp (proc(5))."""


def listens(pid: int, port: int) -> bool:
    """Tell whether something in the process's namespace listens on the TCP port."""
    for family in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
