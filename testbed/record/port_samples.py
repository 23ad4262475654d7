"""The samples of all ports of a run, kept beside its record: what a console plays back.

A record has totals for every port, and curves for the fullest queues alone. A file of samples has each port at each
moment, as whole numbers in columns of the shape (times, ports). It is an archive of numpy (`numpy.savez_compressed`)
and, like a record, may come from a stranger: nothing in it is unpickled, and what it holds is bounded.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.errors import RecordError, disk_error
from testbed.record.store import write_result

DIRECTORY = "samples"
"""The directory beside the record that samples of ports are kept in."""
METRICS = ("use", "queue", "marks", "pauses", "losses")
"""The columns of a file, of what each port sends: thousandths of its rate, bytes that wait, thousandths of its packets
that were marked, thousandths of the time in which it was paused, and packets lost in a second."""
SCHEMA = 1
MOST_TIMES, MOST_PORTS = 2_000, 100_000
MAX_BYTES = 64 * 2**20
"""The most bytes of a file, and of what it holds."""
_NAME_BYTES = 80
"""The longest name of a port, "node:interface"."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PortSamples:
    """`at_s` are seconds from the begin of the run's workload, and `ports` the names of the columns' ports; -1 in a
    column is unknown."""

    at_s: NDArray[np.float64]
    ports: tuple[str, ...]
    columns: Mapping[str, NDArray[np.int32]]


def samples_path(record_path: Path, point: str, run: int) -> Path:
    """Return where the samples of a run lie: of the point of this name, and the run of this number."""
    name = hashlib.sha256(point.encode()).hexdigest()[:12]
    return record_path.parent / DIRECTORY / f"{name}-{run}.npz"


def write_port_samples(samples: PortSamples, path: Path) -> None:
    """Write samples to a file. Raises `RecordError` where the disk does not take it."""
    stream = io.BytesIO()
    names = np.array([name.encode() for name in samples.ports], f"S{_NAME_BYTES}")
    columns: dict[str, Any] = {name: samples.columns[name].astype(np.int32) for name in METRICS}
    np.savez_compressed(stream, schema=np.array([SCHEMA]), at_s=samples.at_s, ports=names, **columns)
    with disk_error(f"create {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_result(stream.getvalue(), path)


def read_port_samples(path: Path) -> PortSamples | None:
    """Read a file of samples; None where there is none. Raises `RecordError` for one that is damaged or too large."""
    if path.is_symlink():
        raise RecordError(f"{path} is a link: it is not followed")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RecordError(f"{path} is larger than any file of samples ({MAX_BYTES >> 20} MiB)")
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    try:
        return _decoded(content)
    except (ValueError, KeyError, TypeError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path} is no file of samples: {error}") from error


def _decoded(content: bytes) -> PortSamples:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(item.file_size for item in archive.infolist()) > MAX_BYTES:
            raise ValueError("it holds more than any run has")
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        if int(held["schema"][0]) != SCHEMA:
            raise ValueError(f"schema {int(held['schema'][0])} is not {SCHEMA}")
        at_s = np.asarray(held["at_s"], np.float64)
        ports = tuple(bytes(name).decode() for name in held["ports"].astype(f"S{_NAME_BYTES}").tolist())
        columns = {name: np.asarray(held[name], np.int32) for name in METRICS}
    if at_s.ndim != 1 or len(at_s) > MOST_TIMES or len(ports) > MOST_PORTS:
        raise ValueError("its times or ports are too many")
    if not np.isfinite(at_s).all() or bool((np.diff(at_s) < 0).any()):
        raise ValueError("its times are not in order")
    if any(column.shape != (len(at_s), len(ports)) for column in columns.values()):
        raise ValueError("its columns are not of one shape")
    return PortSamples(at_s=at_s, ports=ports, columns=columns)
