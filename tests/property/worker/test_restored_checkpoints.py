"""Workers over NVMe/TCP: what was written and kept is what is read back, and a medium that lost any of it is found out.

The workers are in this process and share a loop; nothing but their sockets joins them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback_workers import FakeWorkers, loopback_nics

from testbed.endpoints.worker.nvme.settings import STEP_BYTES, NvmeTcpSettings
from testbed.endpoints.worker.transports import nvme_tcp
from testbed.run.placed.channels import ChannelRules, plan_channels
from testbed.run.placed.placed_workload import PlacedWorkload, compile_programs
from testbed.workload.steps import Workload
from testbed.workload.storage import Checkpoint, generate_checkpoint

RULES = ChannelRules(destination_port=4420, one_for_each_pair=True, own_ports=True)
HOSTS, TARGETS = 2, 2


@contextmanager
def workers_of(workload: Workload, io_bytes: int, seed: int = 1) -> Iterator[FakeWorkers]:
    nics = loopback_nics(HOSTS + TARGETS, 1)
    addresses = {nic.node: str(nic.address.ip) for nic in nics[HOSTS:] if nic.address is not None}
    medium = {"rate": 0, "latency_us": 0, "depth": 4, "capacity": 1 << 30}
    transport = NvmeTcpSettings(
        targets=dict.fromkeys(addresses.values(), medium),
        ports={name: (address,) for name, address in addresses.items()},
        io_bytes=io_bytes,
        depth=4,
    )
    placement = PlacedWorkload(
        workload=workload, ranks=nics, channels=plan_channels(workload, nics, RULES, seed=seed), k=1.0, seed=seed
    )
    programs = compile_programs(
        placement, lambda host: transport, pulled=lambda step: nics[step.source].node in addresses
    )
    workers = FakeWorkers(programs, random.Random(seed))
    try:
        yield workers
    finally:
        workers.close()


def reasons(workers: FakeWorkers) -> list[str]:
    """Why workers could not go on."""
    told = [event for events in workers.events.values() for event in events]
    return [event["reason"] for event in told if event["event"] == "failed"]


def checkpoint(**choice: Any) -> Workload:
    return generate_checkpoint(Checkpoint(storage=TARGETS, restore=True, **choice), ranks=HOSTS + TARGETS)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    size_bytes=st.integers(1, 300_000),
    stripes=st.integers(1, 5),
    checkpoints=st.integers(1, 2),
    io_blocks=st.sampled_from([1, 8, 100]),
    seed=st.integers(0, 100),
)
def test_a_checkpoint_is_restored(size_bytes: int, stripes: int, checkpoints: int, io_blocks: int, seed: int) -> None:
    workload = checkpoint(size_bytes=size_bytes, stripes=stripes, checkpoints=checkpoints)
    with workers_of(workload, 512 * io_blocks * (1 if size_bytes < 20_000 else 8), seed) as workers:
        workers.execute()
        reports = workers.reports()
    assert all(report["steps_left"] == 0 for report in reports.values())
    assert sum(report["arrived_bytes"] for report in reports.values()) == HOSTS * size_bytes * (checkpoints + 1)


@pytest.mark.parametrize("lost", ["a bit", "a block", "all of a stripe"])
def test_what_a_medium_loses_between_fails_the_run(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """Each write is good when it arrives; afterwards one of the kept stripes changes where it is."""
    write = nvme_tcp._Served.write

    def write_and_lose(served: nvme_tcp._Served, offset: int, data: memoryview) -> None:
        write(served, offset, data)
        number, at = divmod(offset, STEP_BYTES)
        medium = served.kept.get(number)
        if medium is None or number % 2 or at + len(data) < medium.size:
            return
        if lost == "a bit":
            medium.place(70_000, 1)[0] ^= 4
        else:
            medium.zero(*((8192, 512) if lost == "a block" else (0, medium.size)))

    monkeypatch.setattr(nvme_tcp._Served, "write", write_and_lose)
    with workers_of(checkpoint(size_bytes=400_000, stripes=2), 32768) as workers:
        with pytest.raises(AssertionError):
            workers.execute()
        failed = reasons(workers)
    assert failed and all("are not those that were written" in reason for reason in failed)


def test_what_nobody_wrote_cannot_be_restored() -> None:
    workload = checkpoint(size_bytes=1000, stripes=1)
    reads = [step for step in workload.transfers if step.restores is not None]
    assert [(step.destination, step.source) for step in reads] == [(0, 2), (1, 3)]
    crossed = [replace(step, restores=1 - step.number % 2) if step in reads else step for step in workload.steps]
    with workers_of(replace(workload, steps=tuple(crossed)), 4096) as workers:
        with pytest.raises(AssertionError):
            workers.execute()
        failed = reasons(workers)
    assert failed and all("which does not write as much here" in reason for reason in failed)
