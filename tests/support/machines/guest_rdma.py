"""Runs perftest between h1 and h2 of the lab `rdma`: TEST [KEY=NUMBER...]. Prints JSON, an error as its text.

`server` and `client` may be named: `server=h3` is one without RDMA. With `traffic_class`, it also says whether a RoCEv2
packet of that type of service came by at the receiver.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.base.errors import CapabilityError, TestbedError
from testbed.base.linux.processes import search_path
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.model import End
from testbed.lab.core.plan.operations import CreateRdma
from testbed.run.programs.perftest import (
    PerftestReport,
    PerftestReportError,
    PerftestTest,
    complaint,
    parse_report,
    run_until_clock_known,
)
from testbed.run.programs.perftest_flows import PerftestJob
from testbed.run.programs.perftest_traffic import listens

WITNESS_TIMEOUT_S = 30.0
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
class Pair:
    """A job, and the NIC ports of its two ends."""

    job: PerftestJob
    client: End
    server: End
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestRun:
    """This is what a run gave. Counters are those of the RDMA devices, by how much they grew."""

    report: PerftestReport
    client_counters: Mapping[str, int]
    server_counters: Mapping[str, int]

    @property
    def retransmissions(self) -> int:
        """Return how often either end sent a request again, or gave it up."""
        both = (self.client_counters, self.server_counters)
        return sum(side.get(name, 0) for side in both for name in rdma.RETRANSMISSIONS)


def run_pair(lab: RunningLab, pair: Pair) -> PerftestRun:
    """Run `pair` to its end, anew where perftest knew no clock (`run_until_clock_known`).

    Raises `PerftestFailed`, `NoSuchNode`, `DriverError`, `CapabilityError`.
    """
    if shutil.which(pair.job.test.value, path=search_path()) is None:
        raise CapabilityError(f"{pair.job.test} is not installed", missing="perftest", hint="apt-get install perftest")
    devices = {end: _device(lab, end) for end in (pair.client, pair.server)}
    return run_until_clock_known(lambda: _measure(lab, pair, devices))


def _measure(lab: RunningLab, pair: Pair, devices: Mapping[End, str]) -> PerftestRun:
    before = {end: rdma.counters(device) for end, device in devices.items()}
    with tempfile.TemporaryDirectory(prefix="testbed-perftest-") as directory:
        report = _run(lab, pair, devices, Path(directory) / "report.json")
    grown = {
        end: {name: value - before[end].get(name, 0) for name, value in rdma.counters(device).items()}
        for end, device in devices.items()
    }
    return PerftestRun(report=report, client_counters=grown[pair.client], server_counters=grown[pair.server])


def _device(lab: RunningLab, end: End) -> str:
    """The RDMA device of a NIC port."""
    lab.port(end.node, end.interface)
    for operation in lab.plan.operations:
        if isinstance(operation, CreateRdma) and (operation.node, operation.name) == (end.node, end.interface):
            return operation.device
    raise PerftestFailed(f"{end} has no RDMA device: its host has no `rdma: rxe`", node=end.node)


def _run(lab: RunningLab, pair: Pair, devices: Mapping[End, str], document: Path) -> PerftestReport:
    server_port, client_port = (lab.port(end.node, end.interface) for end in (pair.server, pair.client))
    assert server_port.address is not None and client_port.address is not None  # an RDMA device's port has one
    server_argv = pair.job.arguments(devices[pair.server], rdma.gid_index(devices[pair.server], server_port.address.ip))
    client_argv = pair.job.arguments(devices[pair.client], rdma.gid_index(devices[pair.client], client_port.address.ip))
    client_argv += [
        f"--bind_source_ip={client_port.address.ip}",
        "--out_json",
        f"--out_json_file={document}",
        str(server_port.address.ip),
    ]
    server = _spawn(lab, pair.server.node, server_argv)
    client: subprocess.Popen[bytes] | None = None
    try:
        _await_listening(server, pair)
        client = _spawn(lab, pair.client.node, client_argv)
        output, errors = _finish(client, pair, pair.client.node, pair.timeout_s)
        _finish(server, pair, pair.server.node, STOP_TIMEOUT_S)
    finally:
        for process in (client, server):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()
    try:
        written = document.read_text(errors="replace") if document.exists() else ""
        return parse_report(pair.job.test, output, written, errors, gigabits=not pair.job.test.is_latency)
    except PerftestReportError as error:
        raise PerftestFailed(f"{pair.client}: {error}", node=pair.client.node) from error


def _spawn(lab: RunningLab, node: str, argv: list[str]) -> subprocess.Popen[bytes]:
    return lab.spawn(
        node, argv, own_sysfs=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    )


def _finish(process: subprocess.Popen[bytes], pair: Pair, node: str, timeout_s: float) -> tuple[str, str]:
    """Return what an end printed, once it has ended well."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        out, err = process.communicate()
        said = complaint(out.decode(errors="replace"), err.decode(errors="replace"))
        raise PerftestFailed(
            f"{pair.job.test} on {node} did not end within {timeout_s:g} s{f': {said}' if said else ''}", node=node
        ) from error
    output, errors = out.decode(errors="replace"), err.decode(errors="replace")
    if process.returncode:
        said = complaint(output, errors) or errors.strip() or "it says nothing"
        raise PerftestFailed(f"{pair.job.test} on {node} ended with status {process.returncode}: {said}", node=node)
    return output, errors


def _await_listening(server: subprocess.Popen[bytes], pair: Pair) -> None:
    deadline = time.monotonic() + LISTEN_TIMEOUT_S
    descriptor = os.pidfd_open(server.pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while not listens(server.pid, pair.job.port):
            if poller.poll(_LOOK_MS):
                _finish(server, pair, pair.server.node, STOP_TIMEOUT_S)
                raise PerftestFailed(
                    f"{pair.job.test} on {pair.server.node} ended before its client came", node=pair.server.node
                )
            if time.monotonic() > deadline:
                raise PerftestFailed(
                    f"{pair.job.test} on {pair.server.node} did not listen within {LISTEN_TIMEOUT_S:g} s",
                    node=pair.server.node,
                )
    finally:
        os.close(descriptor)


def watch(lab: RunningLab, node: str, traffic_class: int) -> subprocess.Popen[bytes]:
    """tcpdump that ends with the first RoCEv2 packet (UDP port 4791) of this type of service. It has begun."""
    argv = ["tcpdump", "-n", "-i", "eth1", "-c", "1", "-Z", "root", f"udp dst port 4791 and ip[1] = {traffic_class}"]
    process = lab.spawn(node, argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    while b"listening on" not in (line := process.stderr.readline()):
        assert line, "tcpdump did not begin"
    return process


def main(test: str, *words: str) -> dict[str, object]:
    settings = dict(word.split("=") for word in words)
    client, server = settings.pop("client", "h1"), settings.pop("server", "h2")
    lab = RunningLab.open("rdma", StateDirectory())
    timeout_s = float(settings.pop("timeout_s", TIMEOUT_S))
    job = PerftestJob(test=PerftestTest(test), **{key: int(value) for key, value in settings.items()})
    pair = Pair(
        job=job,
        client=End(node=client, interface="eth1"),
        server=End(node=server, interface="eth1"),
        timeout_s=timeout_s,
    )
    witness = watch(lab, server, job.traffic_class) if job.traffic_class else None
    try:
        run = run_pair(lab, pair)
    except TestbedError as error:
        return {"error": str(error)}
    finally:
        if witness is not None:
            try:
                seen = witness.wait(WITNESS_TIMEOUT_S) == 0
            except subprocess.TimeoutExpired:
                seen = False
                witness.kill()
                witness.wait()
    return {
        "bandwidths": [asdict(item) for item in run.report.bandwidths],
        "latencies": [asdict(item) for item in run.report.latencies],
        "settings": dict(run.report.settings),
        "retransmissions": run.retransmissions,
        "client": dict(run.client_counters),
        "server": dict(run.server_counters),
        "seen": witness is not None and seen,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
