"""Packages that programs of the user's own need, looked for before any lab is brought up for them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from testbed.base.errors import CapabilityError
from testbed.lab.core.model import NETNS
from testbed.run.sweep.points import Sweep

EXTRA = ("mpich", "mpi4py")
"""The packages of the extra `programs` of `pyproject.toml`."""


def check_needs(sweep: Sweep) -> None:
    """Raise `CapabilityError` for the first package that a program of a scenario needs and this interpreter lacks.

    Hosts that are containers have an interpreter of their own, which nobody asks before they are there.
    """
    for point in sweep.points:
        needs = point.scenario.workload.parameters.get("needs") if point.scenario.workload.is_program else None
        if not isinstance(needs, tuple) or any(host.runtime != NETNS for host in sweep.lab_of(point).hosts):
            continue
        for name in map(str, needs):
            try:
                version(name)
            except PackageNotFoundError as error:
                how = "pip install 'testbed[programs]'" if name in EXTRA else f"pip install {name}"
                raise CapabilityError(
                    f"the program of {point.scenario.name} needs the Python package {name}", missing=name, hint=how
                ) from error
