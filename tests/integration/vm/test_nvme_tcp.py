"""Our NVMe/TCP and the kernel's, which no one here wrote, serve and use each other, with digests and without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab_vm import LabVm
from storage_sides import NQN

pytestmark = [pytest.mark.vm, pytest.mark.netns, pytest.mark.timeout(1200)]

PROGRAM = "tests/support/nvme/guest_interop.py"
MIB = 1 << 20


def run(machine: LabVm, *words: str) -> dict[str, Any]:
    """Run `guest_interop.py`, which fails where a step does, from outside of the namespaces."""
    found: dict[str, Any] = json.loads(machine.check(".venv/bin/python", PROGRAM, *words))
    return found


@pytest.mark.parametrize("digests", [(), ("--digests",)])
def test_linux_uses_our_target(lab_vm: LabVm, digests: tuple[str, ...]) -> None:
    found = run(lab_vm, "kernel-host", *digests)
    counts = found.pop("counts")
    assert found == {
        "discovered": True,
        "bytes": 64 * MIB,
        "read back in 4k": True,
        "read back in 1M": True,
        "zeroes": True,
        "written units": True,
        "model": "testbed NVMe/TCP",
        "still there": True,
    }
    assert not any("terminated" in name or "time-out" in name for name in counts), counts


@pytest.mark.parametrize("digests", [(), ("--digests",)])
def test_we_use_the_target_of_linux(lab_vm: LabVm, digests: tuple[str, ...]) -> None:
    found = run(lab_vm, "kernel-target", *digests)
    assert {"nqn": NQN, "address": "10.86.0.1", "port": 4420} in found.pop("discovered")
    assert found == {
        "write of 4M": [0, 32 * MIB],
        "verify of 4M": [0, 32 * MIB],
        "write of 4K": [0, 2 * MIB],
        "verify of 64K": [0, 32 * MIB],
    }
