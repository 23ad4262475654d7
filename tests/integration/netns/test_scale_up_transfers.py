"""Traffic inside a scale-up domain as packets: a lab's own switch process carries it, and data is right."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model import SCALE_UP_PRESETS, ScaleUpBy
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.features.scale_up.apply import start_domain_switches
from testbed.lab.features.scale_up.watch_switches import domain_switch
from testbed.run.emulated.workers import SharedWorkers, WorkerFailed, Workers
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.measuring.measured import Measured
from testbed.run.schema.model import Transport
from testbed.run.schema.transports import TransportKind
from testbed.workload.builder import StepBuilder
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.patterns import generate_incast
from testbed.workload.steps import Workload

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 50_000.0
"""A GPU has 72 Mbit/s to its planes together, and a round trip takes 50 ms."""
GPUS = 4
SIZE = 4 << 20


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    """One host with four GPUs and four planes."""
    model = shared_sandbox.model(segments=1, hosts=1, gpus=GPUS, spines=1)
    scale_up = replace(SCALE_UP_PRESETS["h100"], by=ScaleUpBy.PACKETS)
    shared_sandbox.deploy(replace(model, scale_up=scale_up), k=K)
    return RunningLab.open(model.name, shared_sandbox.state)


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedWorkers]:
    with SharedWorkers(1) as found:
        yield found


def nics(lab: RunningLab) -> list[PortPlan]:
    return [nic for host in lab.plan.hosts for nic in host.nics]


def all_reduce(algorithm: str = "ring") -> Workload:
    operation = CollectiveOperation(kind="all_reduce", size_bytes=SIZE, algorithm=algorithm)
    return generate_collective(operation, ranks=GPUS, ranks_per_domain=GPUS)


def run(lab: RunningLab, shared: SharedWorkers, workload: Workload, **transport: Any) -> Measured:
    with WorkloadRunner(lab, Transport(kind=TransportKind.UET, **transport), shared=shared) as runner:
        return runner.run(workload, nics(lab), WorkloadRunOptions(seed=3))


def test_an_all_reduce_is_right_and_takes_the_time_of_its_links(lab: RunningLab, shared: SharedWorkers) -> None:
    by_packets, by_time = (run(lab, shared, all_reduce(), scale_up=by) for by in ("packets", "time"))
    for result in (by_packets, by_time):
        assert result.complete, result.failure
        assert result.collectives[0].wrong == 0
        (collective,) = result.collectives
        assert collective.line_bps == pytest.approx(3.6e12 / K), "a GPU's links, not its NIC"
        assert collective.ideal_busbw_bps is not None
        assert 0.6 < collective.busbw_bps / collective.ideal_busbw_bps <= 1
    assert by_packets.collectives[0].ideal_busbw_bps == pytest.approx(3.6e12 / K * 4096 / 4134)
    assert not by_time.scale_up
    (report,) = by_packets.scale_up
    assert report["ended"] == len(all_reduce().transfers), "also those of which the senders do not know yet"
    assert by_packets.collectives[0].seconds == pytest.approx(by_time.collectives[0].seconds, rel=0.12)


def test_a_switch_adds_up_and_copies(lab: RunningLab, shared: SharedWorkers) -> None:
    """Each GPU sends S (1 + 1/g): all of its array to be added up, and its share of the sums once."""
    result = run(lab, shared, all_reduce("nvls"), scale_up="packets")
    assert result.complete, result.failure
    assert result.collectives[0].wrong == 0
    (report,) = result.scale_up
    assert report["failed"] == 0
    for gpu in report["gpus"].values():
        sent = sum(vc["tx_bytes"] for plane in gpu["planes"] for vc in plane["vcs"])
        assert sent == pytest.approx(SIZE * (1 + 1 / GPUS), rel=0.06)


def test_what_a_gpu_reads_is_there(lab: RunningLab, shared: SharedWorkers) -> None:
    """All GPUs read from one, which answers over the planes of its own links: it sends at their rate."""
    builder = StepBuilder(GPUS, ranks_per_domain=GPUS)
    for reader in range(1, GPUS):
        builder.transfer(0, reader, SIZE // 4, pulled=True)
    result = run(lab, shared, builder.build("reads"), scale_up="packets")
    assert result.complete, result.failure
    (report,) = result.scale_up
    assert report["ended"] == GPUS - 1 and report["failed"] == 0
    sent = [sum(vc["tx_bytes"] for plane in gpu["planes"] for vc in plane["vcs"]) for gpu in report["gpus"].values()]
    assert sent[0] > (GPUS - 1) * SIZE // 4 > 10 * max(sent[1:])
    assert all(channel.inside for channel in result.channels) and len(result.channels) == GPUS - 1


@pytest.mark.parametrize("errors", ["end", "count"])
def test_a_switch_that_dies_ends_transfers_in_errors(lab: RunningLab, shared: SharedWorkers, errors: str) -> None:
    """The error names the domain and both GPUs; or failures are counted, and the run ends. Then it works again."""
    (domain,) = lab.plan.scale_up_domains
    directory = lab.state.run_directory(lab.name)

    @contextlib.contextmanager
    def killing() -> Iterator[None]:
        os.kill(domain_switch(directory, domain.name).status()["pid"], signal.SIGKILL)
        yield

    options = WorkloadRunOptions(seed=3, limit_s=20.0, around=killing)
    transport = Transport(kind=TransportKind.UET, scale_up="packets", scale_up_errors=errors, scale_up_timeout_ms=1_000)
    try:
        with WorkloadRunner(lab, transport, shared=shared) as runner:
            result = runner.run(generate_incast(ranks=GPUS, size_bytes=SIZE), nics(lab), options)
    finally:
        start_domain_switches(lab.plan, directory)
    if errors == "count":
        assert result.complete, result.failure
        assert result.scale_up[0]["failed"] == GPUS - 1
    else:
        assert isinstance(result.failure, WorkerFailed)
        host = domain.wires[0].host
        assert re.search(rf"scale-up domain {domain.name}: .*{host}:gpu\d to {host}:gpu1", result.failure.reason)
    again = run(lab, shared, generate_incast(ranks=GPUS, size_bytes=SIZE // 8), scale_up="packets")
    assert again.complete, again.failure


def connect_one_by_one(lab: RunningLab, patch: pytest.MonkeyPatch) -> None:
    """Have each host of a domain told to connect only when the switch has heard of all GPUs of the one before."""
    tell = Workers.tell
    directory = lab.state.run_directory(lab.name)

    def heard(host: str) -> list[int]:
        return [
            domain_switch(directory, domain.name).status()["ports"][number]["control_rx"]
            for domain in lab.plan.scale_up_domains
            for number, wire in enumerate(domain.wires)
            if wire.host == host
        ]

    def tell_one_by_one(self: Workers, commands: Mapping[str, Mapping[str, Any]]) -> None:
        for host, command in commands.items():
            before = heard(host)
            tell(self, {host: command})
            deadline = time.monotonic() + 10
            while command["do"] == "connect" and not all(a < b for a, b in zip(before, heard(host), strict=True)):
                assert time.monotonic() < deadline, f"the switch hears nothing of {host}"
                time.sleep(0.005)

    patch.setattr(Workers, "tell", tell_one_by_one)


def test_a_domain_of_two_hosts_has_one_switch(shared_sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What crosses hosts goes by the domain's switch and not over rails, and is right; rails carry the rest."""
    model = shared_sandbox.model("b", segments=2, hosts=2, gpus=2, spines=1)
    scale_up = replace(SCALE_UP_PRESETS["nvl72"], by=ScaleUpBy.PACKETS, shares=(1, 1))
    shared_sandbox.deploy(replace(model, scale_up=scale_up), k=K)
    lab = RunningLab.open(model.name, shared_sandbox.state)
    operation = CollectiveOperation(kind="all_reduce", size_bytes=SIZE // 8, algorithm="hierarchical")
    workload = generate_collective(operation, ranks=8, ranks_per_domain=4)
    connect_one_by_one(lab, monkeypatch)
    with SharedWorkers(2) as shared:
        result = run(lab, shared, workload)
    assert result.complete, result.failure
    assert result.collectives[0].wrong == 0
    assert {report["domain"] for report in result.scale_up} == {"p1-s1", "p1-s2"}
    inside = sum(one.scale_up for one in workload.transfers)
    assert sum({report["domain"]: report["ended"] for report in result.scale_up}.values()) == inside
    assert result.channels and not any(channel.inside for channel in result.channels)
