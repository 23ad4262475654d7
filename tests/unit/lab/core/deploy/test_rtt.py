"""Which NIC pairs stand for the paths of a fabric, and what is said about their round trips."""

from typing import Any

import pytest

from testbed.base.units import Duration
from testbed.lab.core.deploy.watch.check import CheckStatus
from testbed.lab.core.deploy.watch.rtt import FRAME_BYTES, PathRtt, RttReport, choose_pairs, judge_rtt
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams, UplinkParams
from testbed.lab.core.model import Delay, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.link_delays import PathModel, WirePaths


def classes_of(**params: Any) -> tuple[Lab, list[PathModel], list[list[tuple[str, str]]]]:
    chosen: dict[str, Any] = {"design": "rail-optimized", "segments": 2, "hosts": 3, "gpus": 2, "spines": 2}
    lab = generate_fabric(FabricParams(**(chosen | params)), name="x")
    plan = plan_lab(lab, k=1000)
    nics = [nic for host in plan.hosts for nic in host.nics]
    paths = WirePaths(plan.ports, [host.node for host in plan.hosts])
    pairs = [
        [(f"{a.node}:{a.name}", f"{b.node}:{b.name}") for a, b in group] for group in choose_pairs(lab, nics, paths)
    ]
    return lab, [paths.path(*group[0]) for group in pairs], pairs


def test_one_class_for_each_length_of_path() -> None:
    _, models, pairs = classes_of()
    assert sorted(model.switches for model in models) == [1, 3]
    assert all(len(group) == 2 for group in pairs)
    assert all(a.partition(":")[0] != b.partition(":")[0] for group in pairs for a, b in group)


def test_other_delays_are_other_classes() -> None:
    delay = Delay(value=Duration.parse("1us"))
    _, models, _ = classes_of(pods=2, core_uplink=UplinkParams(delay=delay), super_spines=2)
    assert {(model.switches, model.delay_ns) for model in models} == {(1, 0), (3, 0), (5, 2_000_000)}


def test_isolated_rails_are_not_crossed() -> None:
    _, models, pairs = classes_of(design="rail-only", segments=1, spines=None)
    assert [model.switches for model in models] == [1]
    assert all(a.partition(":")[2] == b.partition(":")[2] for group in pairs for a, b in group)


def model(*, kernel_ns: int = 0, endpoint_ns: int = 0, least_ns: int | None = None) -> PathModel:
    return PathModel(
        switches=1,
        rates_bps=(100_000_000, 100_000_000),
        kernel_ns=kernel_ns,
        endpoint_ns=endpoint_ns,
        least_ns=kernel_ns + endpoint_ns if least_ns is None else least_ns,
    )


MS = 1_000_000
MACHINE = 200_000
"""What four links may cost: 50 us each."""


@pytest.mark.parametrize(
    ("path", "achieved_ns", "status"),
    [
        (model(), 60_000, CheckStatus.PASS),
        (model(), None, CheckStatus.FAIL),
        (model(), MACHINE + 2 * model().serialisation_ns(FRAME_BYTES), CheckStatus.PASS),
        (model(), MACHINE + 2 * model().serialisation_ns(FRAME_BYTES) + 1, CheckStatus.UNKNOWN),
        (model(kernel_ns=5 * MS), 10 * MS + 60_000, CheckStatus.PASS),
        (model(kernel_ns=5 * MS), 60_000, CheckStatus.FAIL),
        (model(kernel_ns=5 * MS), 10 * MS + MS, CheckStatus.UNKNOWN),
        (model(kernel_ns=5 * MS, least_ns=MS), 2 * MS, CheckStatus.PASS),
        (model(endpoint_ns=5 * MS), 60_000, CheckStatus.PASS),
        (model(endpoint_ns=5 * MS), 2 * MS, CheckStatus.UNKNOWN),
        (model(endpoint_ns=5 * MS, kernel_ns=MS), 2 * MS + 60_000, CheckStatus.PASS),
        (model(endpoint_ns=5 * MS, kernel_ns=MS), MS, CheckStatus.FAIL),
    ],
)
def test_judgement(path: PathModel, achieved_ns: int | None, status: CheckStatus) -> None:
    found, detail = judge_rtt(path, achieved_ns)
    assert found is status
    assert bool(detail) == (status is not CheckStatus.PASS)


def path_rtt(status: CheckStatus) -> PathRtt:
    return PathRtt(
        a="a:x",
        b="b:y",
        switches=1,
        delay_by="endpoint",
        modelled_ns=10,
        endpoint_ns=6,
        achieved_ns=5,
        probes=1,
        lost=0,
        status=status,
        detail="",
    )


def test_the_worst_path_decides() -> None:
    ok, unknown, fail = (path_rtt(status) for status in (CheckStatus.PASS, CheckStatus.UNKNOWN, CheckStatus.FAIL))
    assert ok.compared_ns == 11
    assert RttReport(lab="x", k=1, paths=(ok, ok)).exit_code == 0
    assert RttReport(lab="x", k=1, paths=(ok, unknown)).exit_code == 2
    assert RttReport(lab="x", k=1, paths=(unknown, fail)).exit_code == 1
    assert RttReport(lab="x", k=1, paths=()).exit_code == 2
