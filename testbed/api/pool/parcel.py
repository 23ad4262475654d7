"""The files of a sweep for other machines, and how a sweep is read from them there.

A parcel is a tar archive with the scenario's file and every file that it names, by their absolute names, as `--on`
sends them. It is unpacked in a directory of its own, which stands for our root.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.errors import ScenarioError
from testbed.run.sweep.points import Sweep
from testbed.run.sweeps import read_sweep
from testbed.vm.archives import extract_member
from testbed.vm.remote import workplace


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrder:
    """An order to another machine to read a sweep: the parcel with its files, and what to read from there.

    `moved` are the overrides that name a file by an absolute name, which is another one there. `points` is the number
    of points, and `digest` that of their names: a machine that reads other points than we do says so.
    """

    parcel: str
    file: str
    overrides: Mapping[str, object] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    only: Mapping[str, object] = field(default_factory=dict)
    points: int = 1
    digest: str = ""


def pack_sweep(sweep: Sweep) -> tuple[bytes, SweepOrder]:
    """Return the archive of a sweep's files, and what is told with it.

    Raises `ScenarioError` for a sweep that was not read from a file.
    """
    source = sweep.source
    if source is None:
        raise ScenarioError("a pool runs scenarios from their files, and this one is text", hint="write it into a file")
    directory = source.file.parent
    words = [f"{key}={value}" for key, value in source.overrides.items() if isinstance(value, str)]
    files = workplace.files_to_send(["run", str(source.file), *words], directory, beside=False)
    archive = workplace.pack(files, directory)
    moved = [
        key
        for key, value in source.overrides.items()
        if isinstance(value, str) and workplace.far_arguments([value], "/moved") != [value]
    ]
    return archive, SweepOrder(
        parcel=hashlib.sha256(archive).hexdigest()[:16],
        file=str(source.file),
        overrides=dict(source.overrides),
        moved=moved,
        only=dict(source.only),
        points=len(sweep.points),
        digest=digest_of(sweep),
    )


def unpack_parcel(archive: bytes, directory: Path) -> None:
    """Unpack an archive in a directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            extract_member(tar, member, directory)


def read_order(order: SweepOrder, parcels: Path) -> Sweep:
    """Read the sweep that was sent to this machine, below `parcels`.

    Raises `ScenarioError` where its points are others than they were where it comes from, and as `read_sweep` does.
    """
    base = f"{parcels / order.parcel}"
    overrides = {key: f"{base}{value}" if key in order.moved else value for key, value in order.overrides.items()}
    sweep = read_sweep(Path(f"{base}{order.file}"), overrides, order.only)
    if len(sweep.points) != order.points or digest_of(sweep) != order.digest:
        raise ScenarioError(
            f"this machine reads {len(sweep.points)} points in {order.file}, and not the same {order.points}",
            hint="are both checkouts in the same state?",
        )
    return sweep


def digest_of(sweep: Sweep) -> str:
    """Return the digest of the names of a sweep's points, in their order."""
    names = "\n".join(point.name for point in sweep.points)
    return hashlib.sha256(names.encode()).hexdigest()[:16]
