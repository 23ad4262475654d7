"""Runs perftest between h1 and h2 of the lab `rdma`: TEST [KEY=NUMBER...]. Prints JSON, an error as its text.

`server` and `client` may be named: `server=h3` is one without RDMA. With `traffic_class`, it also says whether a RoCEv2
packet of that type of service came by at the receiver.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
LOOK_S = 0.02


class PerftestFailed(TestbedError):
    """A run that gave no result."""


def run_pair(lab: RunningLab, job: PerftestJob, ends: Sequence[End], timeout_s: float) -> dict[str, Any]:
    """Run a job from a NIC port to another, anew where perftest knew no clock. Return what it reported, and by how much
    the counters of the client's and of the server's device grew.

    Raises `PerftestFailed`, `NoSuchNode`, `DriverError`, `CapabilityError`.
    """
    if shutil.which(job.test.value, path=search_path()) is None:
        raise CapabilityError(f"{job.test} is not installed", missing="perftest", hint="apt-get install perftest")
    devices = [device_of(lab, end) for end in ends]

    def measured() -> dict[str, Any]:
        before = [rdma.counters(device) for device in devices]
        with tempfile.TemporaryDirectory(prefix="testbed-perftest-") as directory:
            report = report_of(lab, job, ends, devices, timeout_s, Path(directory) / "report.json")
        client, server = (
            {name: value - old.get(name, 0) for name, value in rdma.counters(device).items()}
            for device, old in zip(devices, before, strict=True)
        )
        return {
            "bandwidths": [asdict(item) for item in report.bandwidths],
            "latencies": [asdict(item) for item in report.latencies],
            "settings": dict(report.settings),
            "retransmissions": sum(side.get(name, 0) for side in (client, server) for name in rdma.RETRANSMISSIONS),
            "client": client,
            "server": server,
        }

    return run_until_clock_known(measured)


def device_of(lab: RunningLab, end: End) -> str:
    """The RDMA device of a NIC port."""
    lab.port(end.node, end.interface)
    for operation in lab.plan.operations:
        if isinstance(operation, CreateRdma) and (operation.node, operation.name) == (end.node, end.interface):
            return operation.device
    raise PerftestFailed(f"{end} has no RDMA device: its host has no `rdma: rxe`")


def report_of(
    lab: RunningLab, job: PerftestJob, ends: Sequence[End], devices: Sequence[str], timeout_s: float, document: Path
) -> PerftestReport:
    client, server = ends
    addresses = []
    for end in ends:
        port = lab.port(end.node, end.interface)
        assert port.address is not None  # an RDMA device's port has one
        addresses.append(port.address.ip)
    argvs = [
        job.arguments(device, rdma.gid_index(device, address))
        for device, address in zip(devices, addresses, strict=True)
    ]
    argvs[0] += [f"--bind_source_ip={addresses[0]}", "--out_json", f"--out_json_file={document}", str(addresses[1])]
    with started(lab, server.node, argvs[1]) as listening:
        await_listening(listening, job.port, f"{job.test} on {server.node}")
        with started(lab, client.node, argvs[0]) as asking:
            output, errors = finish(asking, f"{job.test} on {client.node}", timeout_s)
            finish(listening, f"{job.test} on {server.node}", STOP_TIMEOUT_S)
    written = document.read_text(errors="replace") if document.exists() else ""
    try:
        return parse_report(job.test, output, written, errors, gigabits=not job.test.is_latency)
    except PerftestReportError as error:
        raise PerftestFailed(f"{client}: {error}") from error


@contextmanager
def started(lab: RunningLab, node: str, argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = lab.spawn(
        node, argv, own_sysfs=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def finish(process: subprocess.Popen[bytes], what: str, timeout_s: float) -> tuple[str, str]:
    """Return what an end printed, once it has ended well."""
    late: subprocess.TimeoutExpired | None = None
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        late = error
        process.kill()
        out, err = process.communicate()
    output, errors = out.decode(errors="replace"), err.decode(errors="replace")
    said = complaint(output, errors)
    if late is not None:
        raise PerftestFailed(f"{what} did not end within {timeout_s:g} s{f': {said}' if said else ''}") from late
    if process.returncode:
        said = said or errors.strip() or "it says nothing"
        raise PerftestFailed(f"{what} ended with status {process.returncode}: {said}")
    return output, errors


def await_listening(server: subprocess.Popen[bytes], port: int, what: str) -> None:
    deadline = time.monotonic() + LISTEN_TIMEOUT_S
    while not listens(server.pid, port):
        if server.poll() is not None:
            finish(server, what, STOP_TIMEOUT_S)
            raise PerftestFailed(f"{what} ended before its client came")
        if time.monotonic() > deadline:
            raise PerftestFailed(f"{what} did not listen within {LISTEN_TIMEOUT_S:g} s")
        time.sleep(LOOK_S)


def watch(lab: RunningLab, node: str, traffic_class: int) -> subprocess.Popen[bytes]:
    """tcpdump that ends with the first RoCEv2 packet (UDP port 4791) of this type of service. It has begun."""
    argv = ["tcpdump", "-n", "-i", "eth1", "-c", "1", "-Z", "root", f"udp dst port 4791 and ip[1] = {traffic_class}"]
    process = lab.spawn(node, argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while b"listening on" not in (line := process.stderr.readline()):
        assert line, "tcpdump did not begin"
    return process


def main(test: str, *words: str) -> dict[str, Any]:
    settings = dict(word.split("=") for word in words)
    client, server = settings.pop("client", "h1"), settings.pop("server", "h2")
    lab = RunningLab.open("rdma", StateDirectory())
    timeout_s = float(settings.pop("timeout_s", TIMEOUT_S))
    job = PerftestJob(test=PerftestTest(test), **{key: int(value) for key, value in settings.items()})
    ends = [End(node=node, interface="eth1") for node in (client, server)]
    witness = watch(lab, server, job.traffic_class) if job.traffic_class else None
    seen = False
    try:
        found = run_pair(lab, job, ends, timeout_s)
    except TestbedError as error:
        return {"error": str(error)}
    finally:
        if witness is not None:
            try:
                seen = witness.wait(WITNESS_TIMEOUT_S) == 0
            except subprocess.TimeoutExpired:
                witness.kill()
                witness.wait()
    return found | {"seen": seen}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
