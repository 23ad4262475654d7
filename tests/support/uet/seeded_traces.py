"""Prints, for a seed, all that the endpoints of a simulated incast did: a JSON line for each event of their traces.

A program of its own, so that the same is asked of compiled modules and of interpreted ones.
"""

import sys
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("uet", "simulation"))

from simulated_fabric import Fabric, config, port_settings

from testbed.protocols import is_compiled

HOSTS = 6
SIZE = 500_000


def main(seed: int, congestion_control: str) -> None:
    """Say how the modules run, then what happened."""
    print("compiled" if is_compiled() else "interpreted")
    fabric = Fabric(HOSTS, config(trimming=True, cc=congestion_control, paths="reps"), seed=seed, traced=True)
    fabric.leaf_spine(2, 2, port_settings(trimming=True))
    fabric.incast(SIZE)
    fabric.run()
    for trace in fabric.traces:
        assert trace is not None
        for line in trace.json_lines():
            print(line)
    print(fabric.network.now)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
