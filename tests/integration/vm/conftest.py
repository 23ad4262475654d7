"""Tests that run in another system than this machine's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign_root import CACHE, DEBIAN, ForeignRoot, build_root
from lab_vm import LabVm

SUITE = "trixie"
PACKAGES = (
    "ca-certificates",
    "frr",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "procps",
    "python3",
    "python3-venv",
    "tcpdump",
)
"""What `./lab` would install first."""
CHECKOUT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def debian() -> Iterator[ForeignRoot]:
    """A minimal Debian 13 with our checkout, in which `./lab` has installed what it needs."""
    if why := DEBIAN.lacks(SUITE):
        pytest.skip(why)
    with build_root(SUITE, PACKAGES, CACHE) as root:
        with ForeignRoot(root, CHECKOUT) as machine:
            machine.check("./lab", "--version", timeout_s=600)  # installs
            try:
                yield machine
            finally:
                machine.run("./lab", "destroy", "--all")
        assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(root) in line]


@pytest.fixture(scope="session")
def lab_vm() -> Iterator[LabVm]:
    """The lab VM, booted once for all tests."""
    with LabVm(f"test-{os.getpid()}") as machine:
        yield machine
