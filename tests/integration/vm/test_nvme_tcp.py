"""Our NVMe/TCP and the kernel's, which no one here wrote, serve and use each other, with digests and without."""

import json
from typing import Any

import pytest
from lab_vm import LabVm
from storage_sides import NQN

pytestmark = [pytest.mark.vm, pytest.mark.thorough, pytest.mark.netns, pytest.mark.timeout(1200)]

DIGESTS = [("--digests",), ()]

PROGRAM = "tests/support/nvme/guest_interop.py"
MIB = 1 << 20


def run(machine: LabVm, *words: str) -> dict[str, Any]:
    """Run `guest_interop.py`, which fails where a step does, from outside of the namespaces."""
    found: dict[str, Any] = json.loads(machine.check(".venv/bin/python", PROGRAM, *words))
    return found


@pytest.mark.parametrize("digests", DIGESTS)
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
        "abort": "0x00000001",
        "model": "testbed NVMe/TCP",
        "still there": True,
    }
    assert not any("terminated" in name or "time-out" in name for name in counts), counts


@pytest.mark.parametrize("digests", DIGESTS)
def test_we_use_the_target_of_linux(lab_vm: LabVm, digests: tuple[str, ...]) -> None:
    found = run(lab_vm, "kernel-target", *digests)
    assert {"nqn": NQN, "address": "10.86.0.1", "port": 4420} in found.pop("discovered")
    assert found == {
        "write of 4M": [0, 32 * MIB],
        "verify of 4M": [0, 32 * MIB],
        "write of 4K": [0, 2 * MIB],
        "verify of 64K": [0, 32 * MIB],
    }


def test_we_keep_two_paths_to_the_target_of_linux(lab_vm: LabVm) -> None:
    """Two controllers of one namespace; aborts are answered, paths are kept alive, cut and come back, and all that was
    said to be written is on the medium."""
    assert run(lab_vm, "kernel-paths") == {
        "controllers": 2,
        "abort": [0, 1],
        "kept alive": [True, True],
        "one path left": [True, False],
        "resent": True,
        "wrong": 0,
        "came back": [True, True],
    }


def test_linux_serves_the_targets_of_a_lab(lab_vm: LabVm) -> None:
    """From the topology file: each in the namespace of its node, checked on its medium, and nothing of it stays."""
    status, uses = lab_vm.feature("NVMe/TCP targets")
    assert (status, "by the kernel (nvmet-tcp)" in uses) == ("ok", True)
    found: dict[str, Any] = json.loads(lab_vm.check(".venv/bin/python", "tests/support/nvme/guest_targets.py"))
    size = 300_077
    nothing = {"subsystems": [], "ports": 0, "disks": 0, "listening": []}
    both = {
        "subsystems": [f"nqn.2026-01.testbed:kernel-targets:flash{number}" for number in (1, 2)],
        "ports": 2,
        "disks": 2,
        "listening": ["flash1", "flash2"],
    }
    written = {"failure": "", "arrived": size, "verified": size, "associations": 2}
    assert "step 0: 4096 bytes on flash1 are not those that were sent" in found.pop("spoilt")
    assert "its worker was killed by signal SIGKILL" in found.pop("killed")
    assert found == {
        "before": nothing,
        "while it runs": both,
        "written": written,
        "read": written | {"verified": 0},
        "after": nothing,
        "left": both,
        "written again": written,
        "destroyed": nothing,
    }


def test_nvme_over_rdma_listens_in_the_machines_namespace_alone(lab_vm: LabVm) -> None:
    """Which is why nodes, which are namespaces, have no NVMe/RDMA: what listens outside of one is refused inside."""
    found: dict[str, str] = json.loads(lab_vm.check(".venv/bin/python", "tests/support/nvme/guest_rdma.py"))
    assert found == {"in the machine's namespace": "", "in a node's": "Cannot assign requested address"}
