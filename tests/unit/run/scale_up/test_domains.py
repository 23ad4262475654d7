"""The scale-up domains of a lab as runs see them: rates over k, times by k, hosts of one segment in one domain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.base.errors import ScenarioError
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.model import SCALE_UP_PRESETS, Lab
from testbed.run.scale_up.domains import check_in_switch, scale_up_domains
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.steps import Workload


def lab(preset: str = "") -> Lab:
    model = generate_fabric(FabricParams(design="rail-optimized", segments=2, hosts=2, gpus=2, spines=1), name="lab")
    return replace(model, scale_up=SCALE_UP_PRESETS[preset]) if preset else model


def all_reduce(algorithm: str) -> Workload:
    operation = CollectiveOperation(kind="all_reduce", size_bytes=1 << 12, algorithm=algorithm)
    return generate_collective(operation, ranks=4, ranks_per_domain=4)


def test_rates_and_times_are_those_of_the_lab() -> None:
    found = scale_up_domains(lab("nvl72"), k=1000.0)
    assert found.links.rate_bps == 7_200_000_000 and found.links.one_way_ns == 500_000
    assert found.links.in_switch_bps == 5_328_000_000  # 0.74: Blackwell
    assert found.latency_s == pytest.approx(500e-6)
    assert found.of("p1-s1-h1") == found.of("p1-s1-h2") == "lab/p1-s1" != found.of("p1-s2-h1")


def test_without_a_word_of_it_a_host_is_a_domain_at_the_rate_of_an_h100_without_latency() -> None:
    found = scale_up_domains(lab(), k=1000.0)
    assert found.links.rate_bps == 3_600_000_000 and found.links.one_way_ns == 0
    assert found.of("p1-s1-h1") == "p1-s1-h1" and found.of("elsewhere") == "elsewhere"


def test_switches_that_do_not_compute_are_no_place_to_add_up() -> None:
    check_in_switch(lab("nvl72"), all_reduce("nvls"))
    check_in_switch(lab("ualink"), all_reduce("ring"))
    with pytest.raises(ScenarioError, match="switches of ualink add nothing up"):
        check_in_switch(lab("ualink"), all_reduce("nvls"))
