"""Storage targets that the kernel serves: what a run on them cannot have is refused before it begins."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport, TransportKind
from testbed.run.transports import nvme_tcp
from testbed.run.transports.registry import transport_on
from testbed.workload.builder import StepBuilder
from testbed.workload.steps import Workload

TEXT = """name: dc
scale: {{time: 1000}}
fabric: {{design: single-switch, hosts: 1, gpus: 1}}
networks: {{storage: {{leaves: 1, targets: {{flash: {{{}}}}}}}}}
"""
MIB = 1 << 20


def written(size_bytes: int = MIB, *, computes: bool = False) -> Workload:
    builder = StepBuilder(2)
    builder.transfer(0, 1, size_bytes)
    if computes:
        builder.compute(1, 1000)
    return builder.build("writes")


def plan(target: str, workload: Workload, **transport: Any) -> Any:
    model = load_topology_text(TEXT.format(target), file="dc.yml")
    lab: Any = SimpleNamespace(name="dc", model=model, plan=plan_lab(model, slot=0, k=1000))
    ranks = place_ranks(model, lab.plan, Ranks(networks=("storage",), targets=("*",)), seed=1).nics
    found = transport_on(lab, Transport(kind=TransportKind.NVME_TCP, **transport))
    found.plan_channels(workload, ranks, seed=1)
    placement: Any = SimpleNamespace(ranks=ranks, workload=workload)
    return found.worker_settings(placement)("flash")


def test_the_kernel_is_told_a_name_of_this_lab() -> None:
    assert plan("served_by: kernel", written()).kernel == {"flash": "nqn.2026-01.testbed:dc:flash"}
    assert plan("", written()).kernel == {}


@pytest.mark.parametrize(
    ("target", "workload", "options", "words"),
    [
        ("", written(), {"cc": "reno"}, "the machine's congestion control"),
        ("", written(computes=True), {}, "rank 1 computes on flash"),
        (", capacity: 1MB", written(), {}, "its capacity is 1 MB"),
        (", medium: {rate: 12G}", written(), {}, "1.43 MiB/s in lab time"),
    ],
)
def test_what_only_our_own_target_does_is_refused(
    target: str, workload: Workload, options: dict[str, Any], words: str
) -> None:
    plan(target.removeprefix(", "), workload, **options)
    with pytest.raises(ScenarioError, match=words):
        plan(f"served_by: kernel{target}", workload, **options)


def test_what_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvme_tcp, "_available_bytes", lambda: 2 * MIB)
    plan("served_by: kernel", written(MIB))
    with pytest.raises(ScenarioError, match="there is room for 1048576"):
        plan("served_by: kernel", written(MIB + 1))


def test_a_rate_near_whole_mebibytes_is_taken() -> None:
    plan("served_by: kernel, medium: {rate: 400G}", written())
