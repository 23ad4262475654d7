"""The lab of a record's point, found again without anything being deployed.

It lies beside the record, where the run kept it. For a record without, it is read from the topology that the record
names, among the shipped ones and below the console's directories, and taken where it has the ports that were measured.
Records come from strangers: a name with a path in it is none, and links are not followed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.api.console.answers import RefusedRequest
from testbed.api.shipped_files import shipped_directory
from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.records.lab_record import decode_lab, state_of
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.record.record import PointResult, Record
from testbed.run.sweep.beside_record import LABS

MOST_BYTES = 64 << 20
"""The largest file of a lab that is read."""
MOST_LABS = 200


def find_lab(record: Record, point: PointResult, directory: Path, topologies: Sequence[Path]) -> Lab:
    """Return the lab that a point was measured on. `topologies` are directories that may have its file.

    Raises `RefusedRequest` where none is found whose ports are those that were measured.
    """
    for lab in _candidates(record, point, directory, topologies):
        if _has_ports(lab, point):
            return lab
    named = record.scenario.topology.get("file", "an inline topology")
    raise RefusedRequest(
        404,
        f"the lab of this record is not found: neither beside it, nor as {named} with the ports that were measured",
        hint="run the scenario again, or start the console where its topology is",
        code="no-lab",
    )


def _candidates(record: Record, point: PointResult, directory: Path, topologies: Sequence[Path]) -> Iterator[Lab]:
    yield from _kept(directory / LABS, point.lab.state)
    overrides = _overrides(record, point)
    written = dict(record.scenario.topology)
    if isinstance(inline := written.get("inline"), dict):
        text = json.dumps(inline)
        yield from _loaded(lambda: load_topology_text(text, file="<inline topology>", overrides=overrides))
    name = str(overrides.pop(_FILE, written.get("file") or ""))
    if name and Path(name).name == name:
        for root in _directories(topologies):
            path = root / name
            if path.is_file() and not path.is_symlink():
                yield from _loaded(lambda path=path: load_topology(path, overrides=overrides))


def _directories(roots: Sequence[Path]) -> Iterator[Path]:
    """The directories in which a topology may lie: these, their `topologies`, and what is shipped."""
    for root in roots:
        yield from (root, root / "topologies")
    yield shipped_directory() / "topologies"


def _kept(root: Path, state: str) -> Iterator[Lab]:
    """The labs beside a record; that of the state that the point had is first."""
    if root.is_symlink() or not root.is_dir():
        return
    paths = sorted(root.glob("*.json"), key=lambda path: (path.stem != state, path.name))
    for path in paths[:MOST_LABS]:
        try:
            if path.is_symlink() or path.stat().st_size > MOST_BYTES:
                continue
            document = json.loads(path.read_bytes())
            if isinstance(document, dict) and (not state or state_of(document) == state):
                yield decode_lab(document)
        except (OSError, ValueError, TypeError, RecursionError):
            continue


_FILE = "topology.file"


def _overrides(record: Record, point: PointResult) -> dict[str, object]:
    """Return what the scenario and the point set of the topology, and its file as `_FILE`."""
    from testbed.run.schema.matrix import locate_key

    found: dict[str, object] = {}
    settings = record.scenario.topology.get("set")
    if isinstance(settings, Mapping):
        found |= {str(key): value for key, value in settings.items()}
    for key, value in point.values.items():
        try:
            place = locate_key(key)
        except ValueError:
            continue
        if place[:2] == ("topology", "set") and len(place) > 2:
            found[str(place[2])] = value
        elif place == ("topology", "file"):
            found[_FILE] = Path(str(value)).name
    return found


def _loaded(load: Any) -> Iterator[Lab]:
    try:
        yield load()
    except (TestbedError, OSError):
        return


def _has_ports(lab: Lab, point: PointResult) -> bool:
    """Tell whether a lab has the links that a run of the point has measured."""
    ends = {frozenset((str(link.a), str(link.b))) for link in lab.links}
    measured = {frozenset((f"{port.node}:{port.interface}", port.peer)) for run in point.runs for port in run.ports}
    return measured <= ends if measured else lab.name == point.lab.name
