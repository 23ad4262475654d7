"""A subnet without a lab: OpenSM sets it up over an ibsim of its own, and both end once its tables have been read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from testbed.lab.core.model import InfinibandFabric
from testbed.lab.features.infiniband.configuration import plan_subnet
from testbed.lab.features.infiniband.plane import Plane, require_programs
from testbed.lab.features.infiniband.reading import SubnetReader
from testbed.lab.features.infiniband.running import START_TIMEOUT_S, start_plane
from testbed.protocols.infiniband.subnet import Subnet


def compute_subnet(
    fabric: InfinibandFabric, *, down: Collection[tuple[str, int]] = (), timeout_s: float = START_TIMEOUT_S
) -> Subnet:
    """Have OpenSM compute the subnet of a fabric, and return it. Needs no privileges and no lab.

    The links at the ports `down`, by the name of their node and their number, are cut before. Raises `CapabilityError`
    where packages are missing, `ConvergenceError` where OpenSM does not bring the subnet up, and `DriverError`.
    """
    require_programs()
    directory = Path(tempfile.mkdtemp(prefix="testbed-subnet-"))
    try:
        directory.chmod(0o755)
        plane = Plane(directory=directory, socket=f"testbed-{os.getpid()}-{directory.name[-8:]}")
        started = start_plane(plane, plan_subnet(fabric), cut=sorted(down))
        try:
            started.start_managers(timeout_s, most=1)
            return SubnetReader(plane=plane, planned=started.subnet).read()
        finally:
            started.end()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
