"""The traffic matrix of nccl-tests' alltoallv: bytes from rank i to rank j in row i, column j.

Source: NVIDIA/nccl-tests, `src/alltoallv.cu` (`NCCL_TESTS_ALLTOALLV_MATRIX_FILE`): numbers separated by white space,
square, each value scaled and then cut down to a multiple of 16 bytes. Commas, which spreadsheets write, may separate
them, too.
"""

from __future__ import annotations

import re
from fractions import Fraction

from testbed.workload.builder import MAX_STEPS
from testbed.workload.formats.source import MAX_NUMBER, Faults, Word, shown, word_lines
from testbed.workload.steps import Transfer, Workload

ALIGNMENT_BYTES = 16
_COLUMNS_OF_FLOWS = (5, 6)
"""Numbers of values in a row of HPCC's files."""
_COMMAS = re.compile(r"^[ \t]*[^\s,#]+(?:[ \t]*,[ \t]*[^\s,#]+)+(?=[ \t\r]*(?:#|$))", re.MULTILINE)
"""A row whose values commas separate. Where white space does, too, commas may be those of thousands."""


def decode_alltoallv_matrix(
    text: str, *, file: str, name: str, ranks: int | None = None, scale: Fraction | int = 1
) -> Workload:
    """The workload of a matrix: a transfer for each pair with 16 bytes or more, all at once.

    `ranks`, if fewer, keeps the first rows and columns alone, as nccl-tests does; `scale` multiplies every value, as
    `NCCL_TESTS_ALLTOALLV_MATRIX_SCALE` does. Transfers stand by distance: first all to the next rank, then all to the
    one after it. What a rank keeps (the diagonal) is no traffic. Raises `SpecError`.
    """
    faults = Faults(file)
    rows: list[list[int]] = []
    cut = False
    columns = 0
    last: Word | None = None
    for words in word_lines(_COMMAS.sub(lambda line: line[0].replace(",", " "), text)):
        if not rows:
            columns = len(words)
            if columns * columns > MAX_STEPS:
                faults.stop("too-large", f"a matrix of {columns} columns has more than {MAX_STEPS} values", at=words[0])
        if len(words) != columns or len(rows) == columns:
            message = f"row {len(rows) + 1} has {len(words)} values; the first row has {columns}"
            if len(rows) == columns:
                message = f"the matrix has more rows than its {columns} columns"
            faults.stop("not-square", message, at=words[0], hint="a row has a value for each rank, its own too")
        values = [_bytes(word, faults, Fraction(scale)) for word in words]
        cut = cut or any(value % ALIGNMENT_BYTES for value in values)
        last = words[0]
        rows.append([int(value) // ALIGNMENT_BYTES * ALIGNMENT_BYTES for value in values])
    if not rows:
        faults.add("empty", "the file has no values", hint="write a square matrix of bytes, one row for each sender")
    elif len(rows) < columns:
        message = f"the matrix has {len(rows)} rows and {columns} columns"
        hint = "the file may be cut short"
        if columns in _COLUMNS_OF_FLOWS:
            hint += ", or is one of flows: it begins with their number, in a line by itself"
        faults.add("not-square", message, at=last, hint=hint)
    if cut and not any(map(any, rows)):
        message = f"no value times the scale {float(scale):g} is as much as {ALIGNMENT_BYTES} bytes: nothing would move"
        faults.add("out-of-range", message, at=last, hint="values are bytes; scale: 1M multiplies them")
    faults.check()
    used = len(rows) if ranks is None else min(ranks, len(rows))
    pairs = [
        (source, (source + distance) % used, rows[source][(source + distance) % used])
        for distance in range(1, used)
        for source in range(used)
    ]
    steps = tuple(
        Transfer(number=number, source=source, destination=destination, size_bytes=size, label="alltoallv")
        for number, (source, destination, size) in enumerate(pair for pair in pairs if pair[2])
    )
    notes = []
    if cut:
        notes.append(f"sizes were cut down to multiples of {ALIGNMENT_BYTES} bytes, as nccl-tests does")
    if any(rows[rank][rank] for rank in range(used)):
        notes.append("what a rank sends to itself stays in the rank")
    if used < len(rows):
        notes.append(f"the first {used} of {len(rows)} rows and columns are used")
    return Workload(name=name, ranks=used, steps=steps, notes=tuple(notes))


def _bytes(word: Word, faults: Faults, scale: Fraction) -> Fraction:
    hint = "write bytes as a number, without a unit; scale: 1M multiplies all of them"
    value = faults.decimal(word, "the number of bytes", hint=hint)
    if value is None:
        return Fraction(0)
    if value * scale > MAX_NUMBER:
        faults.add("out-of-range", f"{shown(word.text)} is more than {MAX_NUMBER} bytes", at=word)
        return Fraction(0)
    return value * scale
