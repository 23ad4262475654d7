"""The lab VM against promised figures: until it answers over SSH, and soft RDMA across its switches."""

from __future__ import annotations

import os

import pytest
from figures import Figure, judge
from lab_vm import LabVm
from rdma_lab import RdmaLab

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.timeout(2400)]

SSH_WITHIN_S = {"kvm": 10.0, "emulation": 60.0}
RUNS = 3


@pytest.mark.thorough
def test_up_and_ib_write_bw_through_two_switches() -> None:
    """The rate is that of 500 messages of 64 kB, nothing of which may be sent twice."""
    with LabVm(f"bench-{os.getpid()}") as machine:
        record = machine.machine.record
        assert record is not None
        up = Figure(
            f"lab VM: until it answers over SSH, {record.accelerator}",
            machine.up_s,
            at_most=SSH_WITHIN_S[record.accelerator],
            unit="s",
        )
        lab = RdmaLab(machine)
        runs = [lab.run("ib_write_bw", size_bytes=65536, iterations=500) for _ in range(RUNS)]
    assert [run["retransmissions"] for run in runs] == [0] * RUNS
    best = max(run["bandwidths"][0]["average_bps"] for run in runs)
    judge(up, Figure("rxe: ib_write_bw through two switches in the lab VM", best / 1e9, at_least=0.2, unit="Gbit/s"))
