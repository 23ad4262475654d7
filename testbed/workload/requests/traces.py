"""Traces of requests in the two public formats of comma-separated values, told apart by their headers.

* Azure LLM inference (Azure/AzurePublicDataset, 2023 and 2024): `TIMESTAMP,ContextTokens,GeneratedTokens`, with times
  such as `2023-11-16 18:15:46.6805900`.
* BurstGPT (HPMLL/BurstGPT, arXiv 2401.17644): `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`,
  with times in seconds. A response of 0 tokens is a failure of the service and left out, as the paper does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from testbed.workload.formats.source import Faults, Word, decode_text, read_bytes, shown
from testbed.workload.requests.token_lengths import MOST_TOKENS

MOST_REQUESTS = 1_000_000
"""A trace with more rows than this is cut into smaller files by whoever uses it."""
LATEST_S = 4_000_000_000
"""No time stamp is later; as a Unix time it is in the year 2096."""
_AZURE_HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURST_HEADER = ("Timestamp", "Model", "Request tokens", "Response tokens")
_AZURE_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(?:Z|\+00:00)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """One request of a trace; `at_ns` counts from the first one's arrival."""

    at_ns: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """A trace in the order of its arrivals. `failed` rows had no answer and are left out."""

    requests: tuple[TracedRequest, ...]
    failed: int = 0


def load_request_trace(path: str) -> RequestTrace:
    """Read a trace. Raises `SpecError` with file, line and column of everything that is wrong with it."""
    return decode_request_trace(decode_text(read_bytes(Path(path)), path), file=path)


def decode_request_trace(text: str, *, file: str) -> RequestTrace:
    """Read a trace of either format. Raises `SpecError`."""
    faults = Faults(file)
    rows = _rows(text)
    header = next(rows, None)
    if header is None:
        faults.stop("empty", "the file has no lines", hint=_known())
    names = tuple(cell.text for cell in header)
    if names[: len(_AZURE_HEADER)] == _AZURE_HEADER:
        columns, read_time = (0, 1, 2), _azure_time
    elif names[: len(_BURST_HEADER)] == _BURST_HEADER:
        columns, read_time = (0, 2, 3), _seconds
    else:
        faults.stop("unknown-format", f"the header is {shown(','.join(names))}", at=header[0], hint=_known())
    found: list[tuple[int, int, int]] = []
    failed = 0
    for number, row in enumerate(rows):
        if number == MOST_REQUESTS:
            faults.stop("too-large", f"there are more than {MOST_REQUESTS} requests", at=row[0], hint="cut the file")
        if len(row) != len(names):
            faults.add("bad-row", f"the line has {len(row)} values; the header has {len(names)}", at=row[0])
            continue
        at_ns, prompt, output = _request([row[column] for column in columns], read_time, faults)
        if at_ns is None or prompt is None or output is None:
            continue
        if output == 0:
            failed += 1
            continue
        found.append((at_ns, prompt, output))
    faults.check()
    if not found:
        faults.stop("empty", "the trace has no request that was answered", at=header[0])
    found.sort()
    first_ns = found[0][0]
    return RequestTrace(
        requests=tuple(
            TracedRequest(at_ns=at_ns - first_ns, prompt_tokens=prompt, output_tokens=output)
            for at_ns, prompt, output in found
        ),
        failed=failed,
    )


_ReadTime = Callable[[Word, Faults], "int | None"]


def _request(cells: list[Word], read_time: _ReadTime, faults: Faults) -> tuple[int | None, int | None, int | None]:
    at, prompt, output = cells
    return (
        read_time(at, faults),
        faults.integer(prompt, "the number of tokens of the prompt", low=1, high=MOST_TOKENS),
        faults.integer(output, "the number of tokens of the answer", high=MOST_TOKENS),
    )


def _azure_time(cell: Word, faults: Faults) -> int | None:
    match = _AZURE_TIME.fullmatch(cell.text)
    try:
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:
        faults.add("not-a-time", f"{shown(cell.text)} is no time such as 2023-11-16 18:15:46.6805900", at=cell)
        return None
    return int(moment.timestamp()) * 1_000_000_000 + int((match[2] or "").ljust(9, "0"))


def _seconds(cell: Word, faults: Faults) -> int | None:
    value = faults.decimal(cell, "the time stamp")
    if value is not None and value > LATEST_S:
        faults.add("out-of-range", f"the time stamp is {shown(cell.text)}: more than {LATEST_S} s", at=cell)
        return None
    return None if value is None else int(value * 1_000_000_000)


def _rows(text: str) -> Iterator[list[Word]]:
    """Yield the cells of every line that is not blank. Neither format quotes values or has commas in them."""
    for line, content in enumerate(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").split("\n"), start=1):
        if not content.strip():
            continue
        cells, column = [], 1
        for part in content.removesuffix("\r").split(","):
            stripped = part.strip()
            cells.append(Word(stripped, line, column + len(part) - len(part.lstrip())))
            column += len(part) + 1
        yield cells


def _known() -> str:
    return f"the header of Azure's traces, {','.join(_AZURE_HEADER)}, or of BurstGPT's, {','.join(_BURST_HEADER)},..."
