"""Rooflines of the steps of collectives over scale-up domains agree with the formulas that are in print."""

from __future__ import annotations

import random

import pytest
from scale_up_bounds import (
    all_to_all,
    domains_of_a_token,
    hierarchical_all_reduce,
    nvls_all_reduce,
    nvls_gain,
    relay_all_to_all,
    ring_all_reduce,
)

from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import Algorithm, CollectiveOperation, Kind
from testbed.workload.models.moe import MixtureOfExperts, generate_moe
from testbed.workload.oracles.roofline import workload_roofline_s
from testbed.workload.steps import Workload, payload_bytes

NIC_BPS = 8e9
"""A byte a ns."""
RHO = 9.0
GPUS, DOMAINS = 8, 4
S = 4 * GPUS * DOMAINS * 64


def build(kind: Kind, algorithm: Algorithm, *, domains: int = DOMAINS, size: int = S, chunks: int = 1) -> Workload:
    operation = CollectiveOperation(kind=kind, size_bytes=size, algorithm=algorithm, chunks=chunks)
    return generate_collective(operation, ranks=domains * GPUS, ranks_per_domain=GPUS)


def roofline(workload: Workload, *, in_switch: float = 1.0) -> float:
    """In units of S / B."""
    seconds = workload_roofline_s(
        workload, rate_bps=lambda _: NIC_BPS, scale_up_bps=RHO * NIC_BPS, in_switch_bps=RHO * NIC_BPS * in_switch
    )
    return seconds * 1e9 / S


def test_all_reduce() -> None:
    flat = generate_collective(CollectiveOperation(kind=Kind.ALL_REDUCE, size_bytes=S), ranks=GPUS * DOMAINS)
    assert roofline(flat) == pytest.approx(ring_all_reduce(ranks=GPUS * DOMAINS))
    # The chain of a rank's pieces is no longer than one of each kind: the links' sum is the bound.
    rails = hierarchical_all_reduce(domains=DOMAINS, gpus=GPUS, rho=RHO, pipelined=True)
    serial = hierarchical_all_reduce(domains=DOMAINS, gpus=GPUS, rho=RHO)
    assert rails <= roofline(build(Kind.ALL_REDUCE, Algorithm.HIERARCHICAL)) <= serial


def test_the_switch_does_each_piece_once() -> None:
    found = roofline(build(Kind.ALL_REDUCE, Algorithm.NVLS, domains=1), in_switch=0.85)
    assert found == pytest.approx(nvls_all_reduce(gpus=GPUS, efficiency=0.85) / RHO)
    assert nvls_gain(gpus=8) == pytest.approx(1.556, abs=0.001)
    assert nvls_gain(gpus=8, efficiency=0.85) == pytest.approx(1.32, abs=0.01)


def test_all_to_all_with_and_without_a_relay() -> None:
    assert roofline(build(Kind.ALL_TO_ALL, Algorithm.DIRECT)) == pytest.approx(
        all_to_all(domains=DOMAINS, gpus=GPUS, rho=RHO)
    )
    relayed = roofline(build(Kind.ALL_TO_ALL, Algorithm.PXN))
    assert relayed == pytest.approx(
        relay_all_to_all(domains=DOMAINS, gpus=GPUS, rho=RHO, pipelined=True), rel=0.01
    )  # the last block arrives from the relay


def test_figures_in_print() -> None:
    def gradient(gpus: int, *, pipelined: bool = False) -> float:
        return hierarchical_all_reduce(domains=576 // gpus, gpus=gpus, rho=9, pipelined=pipelined)

    assert [round(gradient(gpus), 3) for gpus in (4, 8, 72)] == [0.663, 0.441, 0.243]
    assert gradient(8) / gradient(72) == pytest.approx(1.81, abs=0.01)
    assert gradient(8, pipelined=True) / gradient(72, pipelined=True) == pytest.approx(1.13, abs=0.01)
    fabric = all_to_all(domains=32, gpus=8, rho=9)
    assert relay_all_to_all(domains=32, gpus=8, rho=9) / fabric == pytest.approx(1.097, abs=0.001)
    assert all_to_all(domains=8, gpus=8, rho=9) / all_to_all(domains=1, gpus=64, rho=9) == pytest.approx(8.0)
    assert [round(domains_of_a_token(domains=m, top_k=8, experts=256), 2) for m in (2, 4, 8)] == [1.99, 3.61, 5.29]


def test_a_relay_brings_a_token_once_to_each_domain() -> None:
    def over_fabric(moe: MixtureOfExperts) -> int:
        workload = generate_moe(moe, ranks=32, rng=random.Random(1), ranks_per_domain=8)
        assert not moe.relay or all(
            step.source % 8 == step.destination % 8 for step in workload.transfers if not step.scale_up
        )
        return payload_bytes(workload) - sum(step.size_bytes for step in workload.transfers if step.scale_up)

    plain = MixtureOfExperts(experts=256, top_k=8, tokens=200, hidden=64)
    relayed = MixtureOfExperts(experts=256, top_k=8, tokens=200, hidden=64, relay=True)
    limited = MixtureOfExperts(experts=256, top_k=8, tokens=200, hidden=64, relay=True, domains_per_token=2)
    share = over_fabric(relayed) / over_fabric(plain)
    assert share == pytest.approx(domains_of_a_token(domains=4, top_k=8, experts=256) / 8, abs=0.01)
    assert over_fabric(limited) / over_fabric(plain) == pytest.approx(2 / 8, abs=0.01)
