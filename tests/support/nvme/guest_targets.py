"""In the lab VM: the kernel's NVMe/TCP serves the storage targets of a lab, and our hosts use them.

It prints one JSON document of what was found. The lab has one storage switch and nothing that is routed, so that no
daemon runs: an emulated machine is slow.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.lab.core.deploy.lifecycle import DeployOptions, deploy_lab, destroy_lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.emulated.workers import SharedWorkers
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.measuring.measured import Measured
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport, TransportKind
from testbed.workload.storage import Checkpoint, generate_checkpoint

NAME = "kernel-targets"
TEXT = f"""name: {NAME}
scale: {{time: 20000}}
fabric: {{design: rail-optimized, segments: 1, hosts: 1, gpus: 1, spines: 1, routing: {{bfd: off}}}}
networks:
  storage:
    design: single-switch
    nic: {{rate: 200G}}
    mtu: 9000
    routing: {{bfd: off}}
    targets:
      flash: {{count: 2, served_by: kernel, capacity: 4MB, medium: {{latency: 2us, depth: 2}}}}
"""
BYTES = 300_077
PATIENCE_S = 240.0
NODES = ("flash1", "flash2", "p1-s1-h1")


def served(configfs: Path) -> dict[str, Any]:
    """Return the targets in configfs, and the nodes that listen."""
    listening = []
    for node in NODES:
        argv = ("nsenter", f"--net=/run/netns/{NAME}-{node}", "ss", "-Htln", "sport", "=", ":4420")
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        listening += [node] * len(done.stdout.splitlines())
    return {
        "subsystems": sorted(path.name for path in (configfs / "nvmet/subsystems").iterdir()),
        "ports": len(list((configfs / "nvmet/ports").iterdir())),
        "disks": len([path for path in (configfs / "nullb").iterdir() if path.is_dir()]),
        "listening": listening,
    }


@contextmanager
def mounted(directory: str) -> Iterator[Path]:
    """configfs at a place of this test's: nobody else may need it mounted."""
    subprocess.run(["mount", "-t", "configfs", "configfs", directory], check=True)
    try:
        yield Path(directory)
    finally:
        subprocess.run(["umount", directory], check=True)


def run(
    lab: RunningLab,
    shared: SharedWorkers,
    on_progress: Callable[[WorkloadRunner], None] = lambda runner: None,
    *,
    read_back: bool = False,
    **options: Any,
) -> Measured:
    workload = generate_checkpoint(Checkpoint(size_bytes=BYTES, storage=2, stripes=2, read_back=read_back), ranks=3)
    ranks = place_ranks(lab.model, lab.plan, Ranks(networks=("storage",), targets=("*",), count=1), seed=1).nics
    transport = Transport(kind=TransportKind.NVME_TCP, options={"io_bytes": 65536, **options})
    with WorkloadRunner(lab, transport, shared=shared) as runner:
        choice = WorkloadRunOptions(seed=1, limit_s=PATIENCE_S, on_progress=lambda share: on_progress(runner))
        return runner.run(workload, ranks, choice)


def kill(runner: WorkloadRunner) -> None:
    """End the process that has made the targets, so that nobody removes them."""
    pid = runner.pid("flash1")
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def spoil(_: WorkloadRunner) -> None:
    """Write zeroes where the first transfer is on its medium, which is done when a host tells its progress last."""
    for disk in Path("/dev").glob("testbed-*"):
        fd = os.open(disk, os.O_WRONLY | os.O_DSYNC)
        os.pwrite(fd, bytes(512), 0)
        os.close(fd)


def summary(result: Measured) -> dict[str, Any]:
    print(time.strftime("%H:%M:%S"), result.failure, result.elapsed_s, result.counters, file=sys.stderr, flush=True)
    return {
        "failure": str(result.failure or ""),
        "arrived": sum(channel.received_bytes or 0 for channel in result.channels),
        "verified": result.counters.get("nvme_verified_bytes"),
        "associations": result.counters.get("nvme_associations"),
    }


def main() -> None:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as place:
        state = StateDirectory()
        model = load_topology_text(TEXT, file="kernel-targets.yml")
        with SharedWorkers(1) as shared, mounted(place) as configfs:
            try:
                deploy_lab(model, state, DeployOptions(k=20000, routing=False, directory=Path(directory)))
                lab = RunningLab.open(NAME, state)
                found["before"] = served(configfs)
                while_it_runs: list[dict[str, Any]] = []
                result = run(lab, shared, lambda runner: while_it_runs.append(served(configfs)))
                found["written"] = summary(result)
                found["while it runs"] = while_it_runs[-1] if while_it_runs else {}
                found["read"] = summary(run(lab, shared, read_back=True, digests=True))
                found["after"] = served(configfs)
                found["spoilt"] = summary(run(lab, shared, spoil))["failure"]
                found["killed"] = summary(run(lab, shared, kill))["failure"]
                found["left"] = served(configfs)
                found["written again"] = summary(run(lab, shared))
                run(lab, shared, kill)
            finally:
                destroy_lab(NAME, state)
            found["destroyed"] = served(configfs)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
