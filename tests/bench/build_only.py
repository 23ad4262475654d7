"""Build and remove SPINES x LEAVES x HOSTS without routing, as `deploy` and `destroy` do. Prints "BUILD_S STOP_S".

The peer of `mininet_peer.py`: the same nodes and links, and besides addresses and shaped ports.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pydantic_core  # noqa: F401 - `deploy` has it from reading the file: to load a library is not to build

import testbed.lab.assembly.planner  # noqa: F401 - the same
from testbed.lab.core.deploy.lifecycle import DeployOptions, deploy_lab, destroy_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams

IN_MEMORY = "/dev/shm"
"""As /run is, where labs have their files."""


def main() -> None:
    spines, leaves, hosts = (int(argument) for argument in sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="testbed-bench-", dir=IN_MEMORY) as name:
        state = StateDirectory(Path(name) / "state", Path(name) / "run")
        started = time.monotonic()
        params = FabricParams(design="rail-optimized", pods=1, segments=leaves, hosts=hosts, gpus=1, spines=spines)
        lab = generate_fabric(params, name="benchbuild")
        options = DeployOptions(k=100_000, routing=False, directory=Path(name))
        deploy_lab(lab, state, options)
        built = time.monotonic()
        destroy_lab(lab.name, state)
        print(f"{built - started:.3f} {time.monotonic() - built:.3f}")


if __name__ == "__main__":
    main()
