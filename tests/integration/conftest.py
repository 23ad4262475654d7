"""Sandboxes for labs on the real kernel, for one test or for all tests of a file."""

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sandbox import MEASURED, Sandbox

from testbed.base.errors import CapabilityError
from testbed.lab.core.deploy.lifecycle import destroy_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import machine_profile
from testbed.lab.core.drivers.probing.machine import find_frr, require_root

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip where this machine cannot carry a lab, saying why."""
    try:
        require_root()
        find_frr()
    except CapabilityError as error:
        pytest.skip(error.message)


@pytest.fixture(scope="session")
def calibration(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's calibration, measured once for all tests."""
    state = StateDirectory(tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("run"))
    machine_profile(state)
    return state.state / "calibration.json"


@contextmanager
def _sandboxed(calibration: Path) -> Iterator[Sandbox]:
    """A sandbox that must be empty at the end."""
    number = next(_numbers)
    prefix = f"tb{os.getpid()}x{number}"
    box = Sandbox(Path(f"/run/testbed-test-{os.getpid()}-{number}"), prefix)
    box.state.state.mkdir()
    _copy_measured(calibration.parent, box.state.state)
    try:
        yield box
        for lab in box.state.names():
            destroy_lab(lab, box.state)
        assert box.leftovers() == []
        _copy_measured(box.state.state, calibration.parent)
    finally:
        for lab in box.state.names():
            destroy_lab(lab, box.state)
        shutil.rmtree(box.root, ignore_errors=True)


def _copy_measured(source: Path, destination: Path) -> None:
    for name in MEASURED:
        if (source / name).exists():
            shutil.copy(source / name, destination / name)


@pytest.fixture
def sandbox(machine: None, calibration: Path) -> Iterator[Sandbox]:
    """A sandbox of one test."""
    with _sandboxed(calibration) as box:
        yield box


@pytest.fixture(scope="module")
def shared_sandbox(machine: None, calibration: Path) -> Iterator[Sandbox]:
    """A sandbox of all tests of a file, which share its labs."""
    with _sandboxed(calibration) as box:
        yield box
