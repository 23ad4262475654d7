"""HPCC's ns-3 files of flows, `flow.txt`.

Source: alibaba-edu/High-Precision-Congestion-Control, `simulation/mix/flow.txt` and `simulation/scratch/third.cc`
(`ReadFlowInput`). Start times are seconds, ascending; theirs begin at 2 s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from testbed.workload.builder import MAX_STEPS
from testbed.workload.formats.conventions import EMPTY_NOTE, FROM_1_NOTE, first_number
from testbed.workload.formats.source import MAX_NUMBER, MAX_RANKS, Faults, Word, word_lines
from testbed.workload.steps import Transfer, Workload

_COLUMNS = ("src", "dst", "pg", "dport", "size", "start")
_ROW = f"{' '.join(_COLUMNS)}, in bytes and seconds without units"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """A row: its ends as words, its size and start."""

    ends: tuple[Word, Word]
    source: int
    destination: int
    group: int
    size_bytes: int
    start_ns: int
    exact: bool
    """The start is whole nanoseconds."""


def decode_hpcc_flows(text: str, *, file: str, name: str, ranks: int | None = None) -> Workload:
    """The workload of a `flow.txt`: independent transfers; the earliest begins at 0.

    A node number is the rank; `ranks` is how many there are (otherwise the largest number and one). Rows without
    `dport`, as descendants of the simulator have them (ConWeave), are read too. Lines behind the counted ones are not
    read, as the simulator does. Raises `SpecError`.
    """
    faults = Faults(file)
    lines = word_lines(text)
    head = next(lines, None)
    if head is None:
        faults.stop("empty", "the file is empty", hint="its first line is the number of flows")
    count = faults.integer(head[0], "the number of flows", high=MAX_STEPS, hint=f"rows below it are {_ROW}") or 0
    if len(head) > 1:
        faults.add("bad-header", "the first line is the number of flows alone", at=head[1])
    faults.check()
    flows: list[_Flow] = []
    rows = 0
    for words in islice(lines, count):
        rows += 1
        flow = _flow(words, faults)
        if flow is None:
            continue
        if flows and flow.start_ns < flows[-1].start_ns:
            message = "the flow starts before the one above it"
            faults.add("not-ascending", message, at=words[-1], hint="sort the rows by start")
        flows.append(flow)
    if rows < count:
        message = f"the first line says {count} flows, the file has {rows}"
        faults.add("count-mismatch", message, at=head[0], hint="the file may be cut short")
    first_rank = first_number((end for flow in flows for end in (flow.source, flow.destination)), ranks)
    used = _used(flows, first_rank, faults, ranks)
    faults.check()
    first = min((flow.start_ns for flow in flows), default=0)
    sent = [flow for flow in flows if flow.size_bytes]
    steps = tuple(
        Transfer(
            number=number,
            source=flow.source - first_rank,
            destination=flow.destination - first_rank,
            size_bytes=flow.size_bytes,
            start_ns=flow.start_ns - first,
        )
        for number, flow in enumerate(sent)
    )
    notes = [FROM_1_NOTE] if first_rank else []
    if first:
        notes.append(f"start times count from the first flow's, {seconds_text(first)} s in the file")
    if not all(flow.exact for flow in flows):
        notes.append("start times were cut to nanoseconds")
    if len(groups := {flow.group for flow in flows}) > 1:
        notes.append(f"priority groups {', '.join(map(str, sorted(groups)))} are treated alike")
    if len(sent) < len(flows):
        notes.append(EMPTY_NOTE.format(count=len(flows) - len(sent)))
    if behind := sum(1 for _ in lines):
        notes.append(f"lines behind the {count} counted flows were not read: {behind}")
    return Workload(name=name, ranks=ranks or used, steps=steps, notes=tuple(notes))


def _used(flows: Iterable[_Flow], first_rank: int, faults: Faults, ranks: int | None) -> int:
    """Return how many ranks the numbers of `flows` need; those beyond `ranks` are faults."""
    used = 1
    for flow in flows:
        for word, end in zip(flow.ends, (flow.source, flow.destination), strict=True):
            used = max(used, end - first_rank + 1)
            if ranks is not None and end - first_rank >= ranks:
                message = f"node {end} is not among the {ranks} ranks, from 0"
                faults.add("out-of-range", message, at=word, hint="a larger topology, or more of its NICs as ranks")
    return used


def _flow(words: list[Word], faults: Faults) -> _Flow | None:
    if len(words) not in (5, 6):
        hint = f"the columns are {' '.join(_COLUMNS)}, or these without dport; spaces are between them"
        faults.add("bad-row", f"the row has {len(words)} columns instead of 6", at=words[0], hint=hint)
        return None
    source = faults.integer(words[0], "src", high=MAX_RANKS)
    destination = faults.integer(words[1], "dst", high=MAX_RANKS)
    group = faults.integer(words[2], "pg", high=7)
    port = faults.integer(words[3], "dport", high=65535) if len(words) == 6 else 0
    size = faults.integer(words[-2], "size", hint="write bytes as a whole number, such as 1000000")
    start = faults.decimal(words[-1], "start", hint="write seconds as a number, such as 2.0005")
    if source is not None and source == destination:
        faults.add("self-flow", f"the flow goes from {source} to itself", at=words[0], hint="remove the row")
    if start is not None and start * 10**9 > MAX_NUMBER:
        faults.add("out-of-range", f"start is more than {MAX_NUMBER} ns", at=words[-1])
        return None
    if source is None or destination is None or group is None or port is None or size is None or start is None:
        return None
    nanoseconds = start * 10**9
    return _Flow(
        ends=(words[0], words[1]),
        source=source,
        destination=destination,
        group=group,
        size_bytes=size,
        start_ns=int(nanoseconds),
        exact=nanoseconds.denominator == 1,
    )


def seconds_text(nanoseconds: int) -> str:
    """Exact decimal seconds, without trailing zeros: `2`, `2.00015`."""
    whole, rest = divmod(nanoseconds, 10**9)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")
