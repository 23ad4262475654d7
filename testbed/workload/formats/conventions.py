"""Conventions for the files of every tool: which format a file has, how its ranks are numbered, what 0 bytes mean.

* **Recognition.** A file's content tells its format, whatever it is called; a name helps where content cannot.
* **Numbering.** Ranks count from 0. They count from 1 where no 0 occurs and the largest number is that of the ranks,
  which would be one too many from 0. Numbers that do not occur are ranks that send nothing.
* **How many.** A file may have fewer ranks than the lab, whose others stay idle; one with more is refused, but for a
  matrix of nccl-tests, which is cut to the first ranks, as nccl-tests does. What a file does not say (SimAI without
  `all_gpus`, HPCC) is the lab's number.
* **Nothing.** What has 0 bytes, a flow, a collective or a cell of a matrix, moves nothing and is left out; what waits
  for it waits for what it waited for itself. A message with a receive that waits for it is one byte, since its packet
  goes in any case. The exception is htsim, where 0 bytes are a flow without end.
* **Text.** Lines without words, and from a word that begins with `#` to the end of the line, are comments
  (`source.word_lines`).

Whatever a rule does to a file is a note of the workload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from testbed.base.errors import WorkloadError
from testbed.workload.formats.chakra import GZIP_MAGIC
from testbed.workload.formats.simai import POLICIES
from testbed.workload.formats.source import Faults, word_lines
from testbed.workload.steps import Workload

HEAD_BYTES = 1 << 16
EMPTY_NOTE = "what has 0 bytes moves nothing and is left out: {count}"
MESSAGE_BYTES = 1
"""Stand for a message of 0 bytes that a receive waits for."""
MESSAGE_NOTE = f"messages of 0 bytes are sent as {MESSAGE_BYTES} byte"
FROM_1_NOTE = "ranks are numbered from 1"


class FileFormat(StrEnum):
    HTSIM = "htsim"
    """A connection matrix, `.cm`."""
    HPCC = "hpcc"
    """A flow file, `flow.txt`."""
    CHAKRA = "chakra"
    """Execution traces, `<name>.<rank>.et`."""
    SIMAI = "simai"
    ALLTOALLV = "alltoallv"
    """The matrix of nccl-tests."""


def first_number(numbers: Iterable[int], ranks: int | None) -> int:
    """The number of the first of `ranks` ranks, 0 or 1, where `numbers` are those that occur."""
    found = set(numbers)
    return int(0 not in found and ranks is not None and bool(found) and max(found) == ranks)


def on_ranks(workload: Workload, ranks: int) -> Workload:
    """`workload` on a lab of `ranks` ranks. Raises `WorkloadError` where it has more."""
    if workload.ranks > ranks:
        raise WorkloadError(
            f"the trace has {workload.ranks} ranks; there are {ranks}",
            field="file",
            hint="a larger topology, or more of its NICs as ranks",
        )
    if workload.ranks == ranks:
        return workload
    note = f"the trace has {workload.ranks} of the lab's {ranks} ranks: the others stay idle"
    return replace(workload, ranks=ranks, notes=(*workload.notes, note))


def recognise(data: bytes, *, file: str) -> FileFormat:
    """The format of a file's bytes, by its first lines, or its ending. Raises `SpecError` if none fits."""
    head = data[:HEAD_BYTES]
    if data.startswith(_UTF_16):
        hint = f"iconv -f UTF-16 -t UTF-8 {Path(file).name} makes text of it that is read"
        Faults(file).stop("not-text", "the file is UTF-16, as PowerShell and Excel write it", hint=hint)
    if data.startswith(GZIP_MAGIC) or b"\0" in head:
        return FileFormat.CHAKRA
    if head.lstrip().startswith((b"{", b"[")):
        hint = (
            "Chakra's converter makes .et files of PyTorch's traces; a matrix has a row on each line, and no brackets"
        )
        Faults(file).stop("unknown-format", "the file is JSON, and no trace is read from that", hint=hint)
    lines = [words for words, _ in zip(word_lines(head.decode("utf-8-sig", errors="replace")), range(3), strict=False)]
    first, second, third = [[word.text for word in words] for words in lines] + [[]] * (3 - len(lines))
    if file.endswith(".cm") or "->" in "".join(first[:1]) or first[:1] in _HTSIM_KEYS:
        return FileFormat.HTSIM
    if first and (first[0] in POLICIES or (_counts(second) and len(third) in (12, 13) and third[3].isupper())):
        return FileFormat.SIMAI
    if _counts(first) and len(second) in (5, 6):
        return FileFormat.HPCC
    if not first:
        Faults(file).stop("empty", "the file has no rows", hint=f"a trace is one of {_FORMATS}")
    if not all(re.fullmatch(r"[0-9.eE+,]+", word) for word in first):
        message = "neither the file's name nor its beginning tells its format"
        hint = f"begin as one of them does, with the number of flows or a row of numbers, or write format: {_FORMATS}"
        Faults(file).stop("unknown-format", message, at=lines[0][0], hint=hint)
    return FileFormat.ALLTOALLV if len(first) > 1 or "," in first[0] else FileFormat.HPCC


_FORMATS = ", ".join(FileFormat)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks."""
_HTSIM_KEYS = (["Nodes"], ["Connections"], ["Triggers"], ["Failures"])


def _counts(row: list[str]) -> bool:
    """Tell whether a line has one whole number alone, which counts the lines below."""
    return len(row) == 1 and row[0].isdigit()
