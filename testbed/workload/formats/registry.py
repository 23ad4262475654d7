"""Which format a file has, and its workload: `load_workload` for every format that is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import assert_never

from testbed.workload.builder import MAX_STEPS
from testbed.workload.formats.alltoallv import decode_alltoallv_matrix
from testbed.workload.formats.chakra import MAX_TRACE_BYTES, ChakraTrace, decode_trace
from testbed.workload.formats.chakra_graph import combine_traces
from testbed.workload.formats.connection_matrix import decode_connection_matrix
from testbed.workload.formats.conventions import FileFormat, recognise
from testbed.workload.formats.hpcc import decode_hpcc_flows
from testbed.workload.formats.simai_schedule import decode_simai_workload
from testbed.workload.formats.source import MAX_RANKS, MAX_WAITS, Faults, decode_text, read_bytes, shown
from testbed.workload.steps import Workload

TRACE_SUFFIXES = (".et", ".et.gz")
TRACE_SEPARATORS = (".", "", "_", "-")
"""Separators between the common name of traces and a rank's number."""
_RANK_FILE = re.compile(r"(?P<name>(?:.*[^0-9])?)(?P<rank>[0-9]{1,6})\.et(\.gz)?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options that a file cannot say itself; each format uses its own part."""

    ranks_per_domain: int = 0
    """Chakra and SimAI: consecutive ranks that share a host, and so the scale-up network. 0: none do."""
    ranks: int | None = None
    """HPCC, alltoallv, and SimAI where the file has no `all_gpus`: how many there are."""
    unbounded_bytes: int | None = None
    """htsim: the size of flows that never end."""
    groups: Mapping[str, Sequence[int]] | None = None
    """Chakra: the ranks of each process group."""
    peak_ops_per_s: int | None = None
    """Chakra: operations per second of a rank, for computing without a duration."""
    scale: Fraction | int = 1
    """alltoallv: what every value is multiplied with."""
    passes: int = 1
    """SimAI: passes over the layers."""


def load_workload(
    path: Path | str, format: FileFormat | str | None = None, *, options: ImportOptions | None = None
) -> Workload:
    """The workload of a file, its name that of the file without its ending.

    Of Chakra traces `path` is any rank's file, or what their names have in common: `dir/name` for `dir/name.0.et`.
    Without `format`, ending and content tell. Raises `SpecError`.
    """
    path = Path(path)
    options = options or ImportOptions()
    if format is not None and format not in list(FileFormat):
        hint = f"one of {', '.join(FileFormat)}"
        Faults(str(path)).stop("unknown-format", f"no format is called {shown(str(format))}", hint=hint)
    if format == FileFormat.CHAKRA or (format is None and names_traces(path)):
        return _load_chakra(path, options)
    data = read_bytes(path)
    known = recognise(data, file=str(path)) if format is None else FileFormat(format)
    if known is FileFormat.CHAKRA:
        return _load_chakra(path, options)
    return decode_workload(decode_text(data, str(path)), known, file=str(path), name=path.stem, options=options)


def decode_workload(
    text: str, format: FileFormat, *, file: str, name: str, options: ImportOptions | None = None
) -> Workload:
    """The workload of a text. Chakra traces are no text: `ValueError`. Raises `SpecError`."""
    options = options or ImportOptions()
    match format:
        case FileFormat.HTSIM:
            return decode_connection_matrix(text, file=file, name=name, unbounded_bytes=options.unbounded_bytes)
        case FileFormat.HPCC:
            return decode_hpcc_flows(text, file=file, name=name, ranks=options.ranks)
        case FileFormat.ALLTOALLV:
            return decode_alltoallv_matrix(text, file=file, name=name, ranks=options.ranks, scale=options.scale)
        case FileFormat.SIMAI:
            return decode_simai_workload(
                text,
                file=file,
                name=name,
                passes=options.passes,
                ranks_per_domain=options.ranks_per_domain,
                ranks=options.ranks,
            )
        case FileFormat.CHAKRA:
            raise ValueError("a Chakra execution trace is no text")
    assert_never(format)


def names_traces(path: Path) -> bool:
    """Tell whether `path` is called as a trace is, or is no file but what the names of traces begin with."""
    try:
        return path.name.endswith(TRACE_SUFFIXES) or (not path.exists() and bool(trace_files(path)))
    except (OSError, ValueError):
        return False


def trace_files(path: Path) -> dict[int, Path]:
    """The Chakra traces by number of which `path` is one, or what their names have in common.

    A number ends the name (`llama.0.et`, `rank0.et`, `trace_0.et.gz`); a trace without one is alone, and has number 0.
    """
    own = _RANK_FILE.match(path.name)
    try:
        names = sorted(path.parent.iterdir())
    except (OSError, ValueError):
        return {}
    series: dict[str, dict[int, Path]] = {}
    for one in names:
        if match := _RANK_FILE.match(one.name):
            series.setdefault(match["name"], {})[int(match["rank"])] = one
    for name in [own["name"]] if own else [path.name + between for between in TRACE_SEPARATORS]:
        if name in series:
            return series[name]
    return {0: path} if path in names and path.name.endswith(TRACE_SUFFIXES) else {}


def _load_chakra(path: Path, options: ImportOptions) -> Workload:
    files = trace_files(path)
    faults = Faults(str(path))
    if not files:
        hint = "traces are called <name>.<rank>.et, ranks from 0 or 1"
        faults.stop("no-traces", f"there is no trace {path.name}.0.et", hint=hint)
    first = 0 if 0 in files else 1
    numbers = range(first, first + len(files))
    if max(files) >= MAX_RANKS or max(files) not in numbers:
        missing = next(number for number in numbers if number not in files)
        message = f"the trace of rank {missing} is missing: there are {len(files)}, up to rank {max(files)}"
        one = files[max(files)].name
        place = one.rindex(str(max(files)))
        hint = f"it would be {one[:place]}{missing}{one[place + len(str(max(files))) :]}"
        faults.stop("missing-rank", message, hint=hint)
    traces: list[ChakraTrace] = []
    left, nodes, waits = MAX_TRACE_BYTES, 0, 0
    for number in numbers:
        data = read_bytes(files[number], limit=left)
        trace = decode_trace(data, file=str(files[number]), limit=left)
        left -= trace.size_bytes
        nodes += len(trace.nodes)
        waits += sum(len(node.waits_for) for node in trace.nodes)
        if nodes > MAX_STEPS or waits > MAX_WAITS:
            faults.stop("too-large", f"the traces have more than {MAX_STEPS} nodes or {MAX_WAITS} dependencies")
        traces.append(trace)
    return combine_traces(
        traces,
        name=_common(path),
        groups=options.groups,
        peak_ops_per_s=options.peak_ops_per_s,
        ranks_per_domain=options.ranks_per_domain,
        first=first,
    )


def _common(path: Path) -> str:
    """Return the part that the names of a trace and of those of the other ranks share."""
    match = _RANK_FILE.match(path.name)
    return (match["name"].rstrip("._-") if match else "") or path.name
