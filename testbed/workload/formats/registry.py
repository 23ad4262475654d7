"""Which format a file has, and its workload: `load_workload` for every format that is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import assert_never

from testbed.workload.builder import MAX_STEPS
from testbed.workload.formats.alltoallv import decode_alltoallv_matrix
from testbed.workload.formats.chakra import GZIP_MAGIC, MAX_TRACE_BYTES, Trace, decode_trace
from testbed.workload.formats.chakra_graph import combine_traces
from testbed.workload.formats.connection_matrix import decode_connection_matrix
from testbed.workload.formats.expansion import CollectiveExpander, expand_collective
from testbed.workload.formats.hpcc import decode_hpcc_flows
from testbed.workload.formats.simai import POLICIES
from testbed.workload.formats.simai_schedule import decode_simai_workload
from testbed.workload.formats.source import MAX_RANKS, MAX_WAITS, Faults, decode_text, read_bytes, shown
from testbed.workload.steps import Workload

_RANK_FILE = re.compile(r"(?P<name>.*)\.(?P<rank>[0-9]{1,6})\.et(\.gz)?\Z", re.DOTALL)
_HEAD_BYTES = 1 << 16


class Format(StrEnum):
    HTSIM = "htsim"
    """A connection matrix, `.cm`."""
    HPCC = "hpcc"
    """A flow file, `flow.txt`."""
    CHAKRA = "chakra"
    """Execution traces, `<name>.<rank>.et`."""
    SIMAI = "simai"
    ALLTOALLV = "alltoallv"
    """The matrix of nccl-tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """This is what a file cannot say itself; each format uses its own part."""

    expand: CollectiveExpander = expand_collective
    """Chakra and SimAI: what turns a collective into steps."""
    ranks_per_domain: int = 0
    """Chakra and SimAI: consecutive ranks that share a host, and so the scale-up network. 0: none do."""
    ranks: int | None = None
    """HPCC and alltoallv: how many there are."""
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
    path: Path | str, format: Format | str | None = None, *, options: ImportOptions | None = None
) -> Workload:
    """The workload of a file, its name that of the file without its ending.

    Of Chakra traces `path` is any rank's file, or what their names have in common: `dir/name` for `dir/name.0.et`.
    Without `format`, ending and content tell. Raises `SpecError`.
    """
    path = Path(path)
    options = options or ImportOptions()
    if format is not None and format not in list(Format):
        hint = f"one of {', '.join(Format)}"
        Faults(str(path)).stop("unknown-format", f"no format is called {shown(str(format))}", hint=hint)
    if format == Format.CHAKRA or (format is None and _names_traces(path)):
        return _load_chakra(path, options)
    data = read_bytes(path)
    known = recognise(data, file=str(path)) if format is None else Format(format)
    if known is Format.CHAKRA:
        return _load_chakra(path, options)
    return decode_workload(decode_text(data, str(path)), known, file=str(path), name=path.stem, options=options)


def decode_workload(
    text: str, format: Format, *, file: str, name: str, options: ImportOptions | None = None
) -> Workload:
    """The workload of a text. Chakra traces are no text: `ValueError`. Raises `SpecError`."""
    options = options or ImportOptions()
    match format:
        case Format.HTSIM:
            return decode_connection_matrix(text, file=file, name=name, unbounded_bytes=options.unbounded_bytes)
        case Format.HPCC:
            return decode_hpcc_flows(text, file=file, name=name, ranks=options.ranks)
        case Format.ALLTOALLV:
            return decode_alltoallv_matrix(text, file=file, name=name, ranks=options.ranks, scale=options.scale)
        case Format.SIMAI:
            return decode_simai_workload(
                text,
                file=file,
                name=name,
                expand=options.expand,
                passes=options.passes,
                ranks_per_domain=options.ranks_per_domain,
            )
        case Format.CHAKRA:
            raise ValueError("a Chakra execution trace is no text")
    assert_never(format)


def recognise(data: bytes, *, file: str) -> Format:
    """The format of a file's bytes, by its ending and its first lines. Raises `SpecError` if none fits."""
    if file.endswith(".cm"):
        return Format.HTSIM
    head = data[:_HEAD_BYTES]
    if data.startswith(GZIP_MAGIC) or b"\0" in head:
        return Format.CHAKRA
    rows = [line.split() for line in head.split(b"\n") if line.strip() and not line.lstrip().startswith(b"#")]
    first = rows[0] if rows else [b""]
    if first[0].decode(errors="replace") in POLICIES:
        return Format.SIMAI
    if first[0] in {b"Nodes", b"Connections", b"Triggers", b"Failures"}:
        return Format.HTSIM
    if len(first) == 1 and first[0].isdigit() and len(rows) > 1 and len(rows[1]) == 6:
        return Format.HPCC
    if len(first) < 2 or not all(re.fullmatch(rb"[0-9.eE+]+", word) for word in first):
        message = "neither the file's name nor its beginning tells its format"
        Faults(file).stop("unknown-format", message, hint=f"name it: one of {', '.join(Format)}")
    return Format.ALLTOALLV


def _names_traces(path: Path) -> bool:
    """Tell whether `path` is called as a trace is, or is no file but what the names of traces begin with."""
    try:
        return _RANK_FILE.match(path.name) is not None or (not path.exists() and bool(trace_files(path)))
    except (OSError, ValueError):
        return False


def trace_files(path: Path) -> dict[int, Path]:
    """The Chakra traces by rank of which `path` is one, or what their names have in common."""
    common = _common(path)
    try:
        names = sorted(one for one in path.parent.iterdir() if one.name.startswith(f"{common}."))
    except (OSError, ValueError):
        return {}
    matches = [(match, one) for one in names if (match := _RANK_FILE.match(one.name))]
    return {int(match["rank"]): one for match, one in matches if match["name"] == common}


def _common(path: Path) -> str:
    match = _RANK_FILE.match(path.name)
    return match["name"] if match and match["name"] else path.name


def _load_chakra(path: Path, options: ImportOptions) -> Workload:
    common, files = _common(path), trace_files(path)
    faults = Faults(str(path))
    if not files:
        hint = "traces are called <name>.<rank>.et, ranks from 0"
        faults.stop("no-traces", f"there is no trace {common}.0.et", hint=hint)
    if max(files) >= MAX_RANKS or len(files) <= max(files):
        missing = next(rank for rank in range(len(files) + 1) if rank not in files)
        message = f"the trace of rank {missing} is missing: there are {len(files)}, up to rank {max(files)}"
        faults.stop("missing-rank", message, hint=f"it would be {common}.{missing}.et")
    traces: list[Trace] = []
    left, nodes, waits = MAX_TRACE_BYTES, 0, 0
    for rank in range(len(files)):
        data = read_bytes(files[rank], limit=left)
        trace = decode_trace(data, file=str(files[rank]), limit=left)
        left -= trace.size_bytes
        nodes += len(trace.nodes)
        waits += sum(len(node.waits_for) for node in trace.nodes)
        if nodes > MAX_STEPS or waits > MAX_WAITS:
            faults.stop("too-large", f"the traces have more than {MAX_STEPS} nodes or {MAX_WAITS} dependencies")
        traces.append(trace)
    return combine_traces(
        traces,
        name=common,
        expand=options.expand,
        groups=options.groups,
        peak_ops_per_s=options.peak_ops_per_s,
        ranks_per_domain=options.ranks_per_domain,
    )
