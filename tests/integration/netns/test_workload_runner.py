"""Workloads on a real lab, over TCP, UET and RoCE: right data, patterns, deaths, refusals, interrupts, limits."""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from testbed.base.errors import CapabilityError
from testbed.base.interrupt import Interrupt
from testbed.lab.core.deploy.congestion_control import read_congestion_controls
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.emulated.workers import WorkerFailed
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.measuring.measured import Measured, TimeLimitReached
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.transports.registry import transport_on
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.patterns import generate_incast, generate_permutation, generate_point_to_point

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 4000.0
"""100 Mbit/s."""
KINDS = [TransportKind.TCP, TransportKind.UET, TransportKind.ROCE]
ONE_OF_KINDS = [kind if kind is TransportKind.UET else pytest.param(kind, marks=pytest.mark.thorough) for kind in KINDS]
"""What takes long; scenarios have the others."""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    """16 hosts with a NIC each under two leaves."""
    model = shared_sandbox.model(segments=2, hosts=8, gpus=1, spines=2)
    shared_sandbox.deploy(model, k=K)
    return RunningLab.open(model.name, shared_sandbox.state)


def nics(lab: RunningLab, count: int) -> list[PortPlan]:
    """Consecutive ranks hang off different leaves."""
    found = [host.nics[0] for host in lab.plan.hosts]
    half = len(found) // 2
    return [nic for pair in zip(found[:half], found[half:], strict=True) for nic in pair][:count]


@contextmanager
def running(lab: RunningLab, kind: TransportKind = TransportKind.TCP, **options: Any) -> Iterator[WorkloadRunner]:
    with WorkloadRunner(lab, Transport(kind=kind, **options)) as found:
        yield found


def all_ended(result: Measured) -> bool:
    return result.complete and None not in result.transfers.end_s and None not in result.transfers.start_s


@pytest.mark.parametrize("kind", ONE_OF_KINDS)
def test_a_ring_all_reduce_is_right_in_both_datatypes(lab: RunningLab, kind: TransportKind) -> None:
    with running(lab, kind) as runner:
        for datatype in DataType:
            workload = generate_collective(
                CollectiveOperation(kind="all_reduce", size_bytes=1 << 20, datatype=datatype), ranks=8
            )
            result = runner.run(workload, nics(lab, 8), WorkloadRunOptions(seed=3))
            assert all_ended(result), result.failure
            (collective,) = result.collectives
            assert (collective.wrong, collective.datatype, collective.redop) == (0, datatype.value, "sum")
            assert collective.elements * datatype.size_bytes == 1 << 20
            assert 0 < collective.busbw_bps < collective.ideal_busbw_bps
            assert len(result.channels) == 8
            assert all(channel.received_bytes == channel.sent_bytes == 14 << 17 for channel in result.channels)


@pytest.mark.parametrize("kind", ONE_OF_KINDS)
def test_a_permutation_on_all_hosts(lab: RunningLab, kind: TransportKind) -> None:
    shares: list[float] = []
    workload = generate_permutation(ranks=16, size_bytes=1 << 18, rng=random.Random(1), flows=2)
    with running(lab, kind) as runner:
        result = runner.run(workload, nics(lab, 16), WorkloadRunOptions(on_progress=shares.append))
    assert all_ended(result), result.failure
    columns = result.transfers
    assert len(columns.number) == 32
    # nothing is faster than the wire
    took = [end - start for start, end in zip(columns.start_s, columns.end_s, strict=True)]  # type: ignore[operator]
    assert all(time > ideal * 0.98 for time, ideal in zip(took, columns.ideal_s, strict=True))
    assert shares[-1] == 1.0 and shares == sorted(shares)
    if kind is TransportKind.TCP:
        assert len({(c.source_rank, c.source_port) for c in result.channels}) == 32
        assert all(channel.samples.at_s for channel in result.channels)
    assert all(channel.min_rtt_us is not None and channel.packets for channel in result.channels)


def test_what_uet_counts_by_channel_adds_up_to_what_it_counts(lab: RunningLab) -> None:
    workload = generate_incast(ranks=16, senders=15, size_bytes=1 << 20)
    with running(lab, TransportKind.UET) as runner:
        result = runner.run(workload, nics(lab, 16))
    assert all_ended(result), result.failure
    of_channels = Counter[str]()
    for channel in result.channels:
        of_channels.update(channel.counters)
    assert of_channels.pop("contexts") == 15
    assert of_channels == {name: result.counters.get(name, 0) for name in of_channels}
    resent = sum(channel.retransmits for channel in result.channels)
    # fifteen windows of 1.5 BDP are more than a queue of this lab holds
    assert 0 < resent <= of_channels["timeout"] + of_channels["inferred_loss"]


def test_the_ports_are_the_planned_ones(lab: RunningLab) -> None:
    workload = generate_permutation(ranks=4, size_bytes=1000, rng=random.Random(1))
    with running(lab) as runner:
        first, again, other = (runner.run(workload, nics(lab, 4), WorkloadRunOptions(seed=seed)) for seed in (1, 1, 2))
        planned = runner.plan_channels(workload, nics(lab, 4), seed=1)
    ports = [[channel.source_port for channel in result.channels] for result in (first, again, other)]
    assert ports[0] == ports[1] == [channel.source_port for channel in planned.channels] != ports[2]


def test_a_corrupted_byte_is_found(lab: RunningLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker has another seed for its input, as memory with a fault would."""
    from testbed.run.emulated import workload_runner as module

    real = module.encode_program

    def encode(program: Any) -> dict[str, Any]:
        document = real(program)
        if 2 in program.own:
            document["seed"] += 1
        return document

    monkeypatch.setattr(module, "encode_program", encode)
    workload = generate_collective(CollectiveOperation(kind="all_gather", size_bytes=1 << 16), ranks=4)
    with running(lab) as runner:
        result = runner.run(workload, nics(lab, 4))
    assert all_ended(result)
    assert result.collectives[0].wrong is not None and result.collectives[0].wrong > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_killed_is_named_and_the_next_run_works(lab: RunningLab, kind: TransportKind) -> None:
    workload = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=8 << 20), ranks=6)
    ranks = nics(lab, 6)
    victim = ranks[2].node
    with running(lab, kind) as runner:

        def kill(share: float) -> None:
            pid = runner.pid(victim)
            if share > 0.02 and pid is not None:
                os.kill(pid, signal.SIGKILL)

        result = runner.run(workload, ranks, WorkloadRunOptions(on_progress=kill))
        assert isinstance(result.failure, WorkerFailed)
        assert result.failure.host == victim and "SIGKILL" in result.failure.reason
        assert result.transfers.start_s[0] is not None  # what the others have measured is kept
        small = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=1 << 16), ranks=6)
        again = runner.run(small, ranks)
        assert all_ended(again) and again.collectives[0].wrong == 0


def test_a_worker_that_never_starts_is_named(lab: RunningLab) -> None:
    class Broken:
        """A lab on one of whose hosts programs end at once."""

        def __init__(self, victim: str) -> None:
            self.victim = victim
            self.name, self.model, self.plan = lab.name, lab.model, lab.plan
            self.processes_directory = lab.processes_directory

        def spawn(self, node: str, argv: Sequence[str], **options: Any) -> Any:
            return lab.spawn(node, ["false"] if node == self.victim else argv, **options)

    ranks = nics(lab, 3)
    workload = generate_permutation(ranks=3, size_bytes=1000, rng=random.Random(1))
    with WorkloadRunner(Broken(ranks[1].node), Transport()) as runner:  # type: ignore[arg-type]
        result = runner.run(workload, ranks)
    assert isinstance(result.failure, WorkerFailed)
    assert result.failure.host == ranks[1].node and "status 1" in result.failure.reason


def test_a_congestion_control_that_the_kernel_lacks(lab: RunningLab) -> None:
    with pytest.raises(CapabilityError, match="no congestion control 'no-such-thing'"):
        WorkloadRunner(lab, Transport(cc="no-such-thing"))


def test_tcp_has_the_labs_congestion_control_and_not_the_machines(lab: RunningLab) -> None:
    assert set(read_congestion_controls(lab, lab.hosts).values()) == {"cubic"}
    found = lab.run(lab.hosts[0], ["sysctl", "-n", "net.ipv4.tcp_congestion_control"])
    assert found.stdout.strip() == "cubic"
    assert transport_on(lab, Transport()).as_run() == {"kind": "tcp", "cc": "cubic"}
    assert transport_on(lab, Transport(cc="reno")).as_run()["cc"] == "reno"


def interrupted_after(share: float, interrupt: Interrupt) -> Callable[[float], None]:
    return lambda done: interrupt.request() if done > share else None


@pytest.mark.parametrize("kind", ONE_OF_KINDS)
def test_an_interrupt_keeps_what_was_measured(lab: RunningLab, kind: TransportKind) -> None:
    workload = generate_point_to_point(ranks=2, size_bytes=1 << 18, rounds=100)
    entered = left = 0

    @contextmanager
    def around() -> Iterator[None]:
        nonlocal entered, left
        entered += 1
        yield
        left += 1

    with Interrupt() as interrupt, running(lab, kind) as runner:
        result = runner.run(
            workload,
            nics(lab, 2),
            WorkloadRunOptions(interrupt=interrupt, around=around, on_progress=interrupted_after(0.05, interrupt)),
        )
    assert result.interrupted and not result.complete and result.failure is None
    ended = [end for end in result.transfers.end_s if end is not None]
    assert 0 < len(ended) < 100
    assert (entered, left) == (1, 1)


@pytest.mark.parametrize("kind", ONE_OF_KINDS)
def test_the_time_limit_names_who_was_not_done(lab: RunningLab, kind: TransportKind) -> None:
    workload = generate_point_to_point(ranks=2, size_bytes=100 << 20)
    ranks = nics(lab, 2)
    with running(lab, kind) as runner:
        result = runner.run(workload, ranks, WorkloadRunOptions(limit_s=0.5))
        assert isinstance(result.failure, TimeLimitReached)
        assert ranks[1].node in result.failure.hosts
        small = generate_point_to_point(ranks=2, size_bytes=1000)
        assert all_ended(runner.run(small, ranks))


def test_the_workers_end_with_their_starter(lab: RunningLab) -> None:
    with running(lab) as runner:
        ranks = nics(lab, 2)
        runner.run(generate_point_to_point(ranks=2, size_bytes=1000), ranks)
        descriptors = [os.pidfd_open(runner.pid(nic.node) or 0) for nic in ranks]
    for descriptor in descriptors:
        with pytest.raises(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, 0)
        os.close(descriptor)


def test_uet_on_one_path_and_under_tss(lab: RunningLab) -> None:
    workload = generate_collective(CollectiveOperation(kind="all_to_all", size_bytes=1 << 18), ranks=4)
    for options in ({"paths": "single"}, {"options": {"tss": True}}, {"options": {"mode": "ROD"}}):
        with running(lab, TransportKind.UET, **options) as runner:
            result = runner.run(workload, nics(lab, 4))
        assert all_ended(result), result.failure
        assert result.collectives[0].wrong == 0
        varies = "tss" in options.get("options", {})
        assert all((channel.source_port is None) == varies for channel in result.channels)


def test_two_runners_on_one_lab_do_not_meet(lab: RunningLab) -> None:
    """Hosts apart: each runner has its own workers."""
    ranks = nics(lab, 4)
    workload = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=1 << 18), ranks=2)
    results: list[Measured] = []

    def run(some: list[PortPlan]) -> None:
        with running(lab) as runner:
            results.append(runner.run(workload, some))

    threads = [threading.Thread(target=run, args=(some,)) for some in (ranks[:2], ranks[2:])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(all_ended(result) and result.collectives[0].wrong == 0 for result in results) and len(results) == 2
