"""What `transport: {kind: nvme-tcp}` means on a lab whose storage targets are on its back end: where paths may lead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport, TransportKind
from testbed.run.transports.registry import transport_on
from testbed.workload.storage import Checkpoint, generate_checkpoint


def channels(design: str, *, multipath: bool, rails: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Who writes to whom where the first rank writes to the last one, by ranks."""
    text = f"name: x\nfabric: {{design: {design}, hosts: 2, gpus: 2, targets: {{flash: {{}}}}}}\n"
    model = load_topology_text(text, file="x.yml")
    where: Any = SimpleNamespace(name="x", model=model, plan=plan_lab(model, k=1000))
    nics = place_ranks(model, where.plan, Ranks(targets=("*",), rails=rails), seed=1).nics
    subject = transport_on(where, Transport(kind=TransportKind.NVME_TCP, options={"multipath": multipath}))
    workload = generate_checkpoint(Checkpoint(size_bytes=1000, storage=1, writers=(0,)), ranks=len(nics))
    planned = subject.plan_channels(workload, nics, seed=1)
    return [(channel.source, channel.destination) for channel in planned.channels]


def test_paths_to_other_nics_of_a_target_need_rails_that_reach_each_other() -> None:
    assert channels("rail-optimized", multipath=True) == channels("rail-only", multipath=False) == [(0, 5)]
    assert channels("rail-only", multipath=True, rails=(2,)) == [(0, 2)]
    with pytest.raises(ScenarioError, match="flash has NICs on several rails of x, which do not reach each other"):
        channels("rail-only", multipath=True)
