"""The machine for runs against labs that are not there."""

from pathlib import Path

import pytest

from testbed.lab.core.drivers.netlink import rdma
from testbed.run.machine.cpu import CpuTimes
from testbed.run.programs.perftest import PerftestTest

TRAFFIC = "testbed.run.programs.perftest_traffic"


@pytest.fixture
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict must not depend on how busy the machine that tests is."""
    readings = iter(CpuTimes(total=1000 * n, idle=600 * n, steal=0, softirq=0) for n in range(1, 100))
    monkeypatch.setattr("testbed.run.measuring.observation.read_cpu_times", lambda: next(readings))
    monkeypatch.setattr("testbed.run.trust.machine.MAX_START_SKEW", 100.0)
    monkeypatch.setattr("testbed.run.trust.machine.MAX_WAKE_NS", 10**12)


@pytest.fixture
def perftest_machine(idle_machine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One with perftest, whose servers listen at once, and that is not busy."""
    for test in PerftestTest:
        program = tmp_path / "bin" / test.value
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setattr(f"{TRAFFIC}.search_path", lambda: str(tmp_path / "bin"))
    monkeypatch.setattr(f"{TRAFFIC}.listens", lambda pid, port: True)
    monkeypatch.setattr(rdma, "gid_index", lambda device, address: 1)
