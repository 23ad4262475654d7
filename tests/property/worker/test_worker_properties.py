"""Any collective that workers execute over sockets gives what the reference in memory gives; patterns lose nothing.

The workers are in this process and share a loop, in an order of turns that is drawn: nothing but their sockets joins
them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from collective_reference import run_reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback_workers import FakeWorkers, loopback_nics

from testbed.endpoints.worker.program import Settings
from testbed.endpoints.worker.transports.roce import RoceSettings
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.endpoints.worker.transports.uet import UetSettings
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.channels import CONNECTIONS, ChannelRules, plan_channels
from testbed.run.placed.placed_workload import PlacedWorkload, choose_checked, compile_programs, datatype_of
from testbed.run.scale_up.domains import DomainLinks, ScaleUpDomains
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.correctness import make_input
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import ALGORITHMS, Algorithm, CollectiveKind, CollectiveOperation
from testbed.workload.patterns import generate_background, generate_permutation
from testbed.workload.steps import Workload

UET = {"link_rate_bps": 10**9, "base_rtt_ns": 20_000_000, "paths": "oblivious"}
ROCE = {"link_rate_bps": 10**9, "base_rtt_ns": 2_000_000, "timeout": 16}
PAIRED = ChannelRules(destination_port=4791, one_for_each_pair=True, keeps_port=True)
MOVERS: dict[str, tuple[ChannelRules, Settings]] = {
    "tcp": (CONNECTIONS, TcpSettings()),
    "uet": (ChannelRules(destination_port=4793, one_for_each_pair=True), UetSettings(config=UET)),
    "roce": (CONNECTIONS, RoceSettings(config=ROCE)),
    "roce-striped": (CONNECTIONS, RoceSettings(config={**ROCE, "ooo": True}, qps=3)),
    "roce-dct": (PAIRED, RoceSettings(config=ROCE, connections="dct", dcis=2)),
    "roce-dct-striped": (PAIRED, RoceSettings(config={**ROCE, "recovery": "selective"}, connections="dct", qps=2)),
}


@contextmanager
def workers_of(
    workload: Workload, nics: list[PortPlan], mover: str, seed: int, domains: ScaleUpDomains | None = None
) -> Iterator[FakeWorkers]:
    rules, transport = MOVERS[mover]
    channels = plan_channels(workload, nics, rules, seed=seed)
    placement = PlacedWorkload(
        workload=workload, ranks=nics, channels=channels, k=1.0, seed=seed, domains=domains or ScaleUpDomains()
    )
    programs = compile_programs(placement, lambda host: transport, checked=choose_checked(workload))
    workers = FakeWorkers(programs, random.Random(seed))
    try:
        workers.execute()
        yield workers
    finally:
        workers.close()


PAIRS = [(kind, algorithm) for kind, algorithms in ALGORITHMS.items() for algorithm in algorithms]


@pytest.mark.parametrize("mover", MOVERS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    pair=st.sampled_from(PAIRS),
    hosts=st.integers(2, 5),
    per_host=st.sampled_from([1, 1, 2]),
    span=st.sampled_from([1, 2]),
    blocks=st.integers(1, 3000),
    datatype=st.sampled_from(DataType),
    chunks=st.integers(1, 3),
    iterations=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_a_collective_is_what_the_reference_gives(
    mover: str,
    pair: tuple[CollectiveKind, Algorithm],
    hosts: int,
    per_host: int,
    span: int,
    blocks: int,
    datatype: DataType,
    chunks: int,
    iterations: int,
    seed: int,
) -> None:
    """A scale-up domain has the ranks of `span` hosts, where that divides them."""
    span = span if hosts % span == 0 else 1
    ranks = hosts * per_host
    workload = generate_collective(
        CollectiveOperation(
            kind=pair[0],
            size_bytes=(blocks + ranks) * datatype.size_bytes,
            datatype=datatype,
            algorithm=pair[1],
            chunks=chunks,
        ),
        ranks=ranks,
        root=seed % ranks if pair[0] in ("broadcast", "reduce", "gather", "scatter") else 0,
        iterations=iterations,
        ranks_per_domain=span * per_host if span * per_host > 1 else 0,
    )
    nics = loopback_nics(hosts, per_host)
    domains = ScaleUpDomains(
        links=DomainLinks(rate_bps=10**10, one_way_ns=10_000),
        domain_of={nic.node: f"domain{rank // (span * per_host)}" for rank, nic in enumerate(nics)},
    )
    with workers_of(workload, nics, mover, seed, domains) as workers:
        reports = workers.reports()
        for index, collective in enumerate(workload.collectives):
            assert datatype_of(collective) is datatype
            inputs = {rank: make_input(collective, rank, datatype, seed=seed) for rank in collective.ranks}
            expected = run_reference(workload, inputs, datatype, collective=index)
            for rank in collective.ranks:
                buffers = workers.workers[nics[rank].node].buffers
                bits = np.dtype(f"u{datatype.size_bytes}")
                np.testing.assert_array_equal(buffers.array(index, rank).view(bits), expected[rank].view(bits))
    assert all(wrong == 0 for report in reports.values() for _, _, wrong in report["wrong"])
    assert all(report["steps_left"] == 0 for report in reports.values())


@pytest.mark.parametrize("mover", MOVERS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    hosts=st.integers(2, 6),
    size_bytes=st.integers(1, 400_000),
    flows=st.integers(1, 3),
    timed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_transfer_of_a_pattern_arrives_once(
    mover: str, hosts: int, size_bytes: int, flows: int, timed: bool, seed: int
) -> None:
    rng = random.Random(seed)
    if timed:
        workload = generate_background(
            ranks=hosts,
            size_bytes=1000 + size_bytes % 4000,
            pairs=3,
            duration_ns=30_000_000,
            rate_bps=10**8,
            load=0.1,
            rng=rng,
        )
    else:
        workload = generate_permutation(ranks=hosts, size_bytes=size_bytes, rng=rng, flows=flows)
    with workers_of(workload, loopback_nics(hosts, 1), mover, seed) as workers:
        reports = workers.reports()
    started = {n: at for report in reports.values() for n, at in zip(*report["started"], strict=True)}
    arrived = {n: at for report in reports.values() for n, at in zip(*report["arrived"], strict=True)}
    steps = {step.number: step for step in workload.transfers}
    assert started.keys() == arrived.keys() == steps.keys()
    assert all(steps[number].start_ns <= started[number] <= arrived[number] for number in steps)
    sent = sum(end["sent_bytes"] or 0 for report in reports.values() for end in report["channels"])
    assert sent == sum(step.size_bytes for step in steps.values())
    if mover == "tcp":
        assert sum(report["arrived_bytes"] for report in reports.values()) == sent


def test_a_byte_that_changes_on_the_way_is_counted() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_gather", size_bytes=3000), ranks=3)
    nics = loopback_nics(3, 1)
    with workers_of(workload, nics, "tcp", 1) as workers:
        buffers = workers.workers[nics[0].node].buffers
        buffers.array(0, 0).view(np.uint8)[1501] ^= 4
        (checked,) = buffers.check()
        assert checked == (0, 0, 1)
        digests = {host: workers.workers[host].buffers.digests()[0][2] for host in workers.workers}  # type: ignore[union-attr]
        assert len(set(digests.values())) == 2
