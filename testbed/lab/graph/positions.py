"""Positions that a person gave to nodes of a picture, kept beside the topology file, which they are not a part of.

`demo.yml` has its positions in `demo.positions.json`: an object of `[x, y]` by node, how far the node stands from where
it is laid out, in pixels of the unzoomed picture. Nodes that a lab no longer has are left in it.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testbed.base.errors import TestbedError

Positions = dict[str, tuple[float, float]]

MOST_NODES = 20_000
FARTHEST = 100_000.0
"""Pixels: more is no place in a picture."""


def positions_file(topology: Path) -> Path:
    """Return the file that has the positions of a topology file's nodes."""
    return topology.with_name(f"{topology.stem}.positions.json")


def read_positions(topology: Path) -> Positions:
    """Read the positions of a topology file's nodes: none, where nobody moved one.

    Raises `TestbedError` for a file that has something else in it.
    """
    path = positions_file(topology)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise TestbedError(f"{path} cannot be read: {error}") from error
    try:
        return check_positions(json.loads(text))
    except (ValueError, RecursionError, TestbedError) as error:
        raise TestbedError(
            f"{path} has no positions of nodes: {error}", hint="remove the file: it is written anew"
        ) from error


def check_positions(value: object) -> Positions:
    """Return what came as JSON as positions. Raises `TestbedError` for anything else."""
    if not isinstance(value, Mapping) or len(value) > MOST_NODES:
        raise TestbedError(f"positions are an object of at most {MOST_NODES} nodes")
    found: Positions = {}
    for name, place in value.items():
        if not isinstance(name, str) or not isinstance(place, list | tuple) or len(place) != 2:
            raise TestbedError(f"the position of {name!r} is not [x, y]")
        if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in place):
            raise TestbedError(f"the position of {name!r} is not two numbers")
        x, y = float(place[0]), float(place[1])
        if not (math.isfinite(x) and math.isfinite(y) and max(abs(x), abs(y)) <= FARTHEST):
            raise TestbedError(f"the position of {name!r} is outside of every picture")
        found[name] = (round(x, 1), round(y, 1))
    return found


def write_positions(topology: Path, positions: Mapping[str, tuple[float, float]]) -> None:
    """Keep the positions of a topology file's nodes, all at once; none removes the file.

    Raises `TestbedError` where the file cannot be written.
    """
    path = positions_file(topology)
    try:
        if not positions:
            path.unlink(missing_ok=True)
            return
        lines = ",\n".join(f"  {json.dumps(name)}: [{x:g}, {y:g}]" for name, (x, y) in sorted(positions.items()))
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{{\n{lines}\n}}\n")
            Path(draft).chmod(0o644)
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise TestbedError(f"{path} cannot be written: {error}") from error
