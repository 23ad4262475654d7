"""HPCC's ns-3 files: `flow.txt` read and written, `fct.txt` written.

Source: alibaba-edu/High-Precision-Congestion-Control, `simulation/mix/flow.txt` and `simulation/scratch/third.cc`
(`ReadFlowInput`, `qp_finish`, `node_id_to_ip`). Start times are seconds, ascending; theirs begin at 2 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from testbed.workload.builder import MAX_STEPS
from testbed.workload.formats.conventions import EMPTY_NOTE, FROM_1_NOTE, first_number
from testbed.workload.formats.export import Exported, ExportError, description_left_out, transfers_alone
from testbed.workload.formats.source import MAX_NUMBER, MAX_RANKS, Faults, Word, word_lines
from testbed.workload.steps import Transfer, Workload

FORMAT = "an HPCC flow file"
FIRST_START_NS = 2_000_000_000
PRIORITY_GROUP = 3
DESTINATION_PORT = 100
_COLUMNS = ("src", "dst", "pg", "dport", "size", "start")


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
    count = faults.integer(head[0], "the number of flows", high=MAX_STEPS) or 0
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
        hint = f"the columns are {' '.join(_COLUMNS)}, or these without dport"
        faults.add("bad-row", f"the row has {len(words)} columns instead of 6", at=words[0], hint=hint)
        return None
    source = faults.integer(words[0], "src", high=MAX_RANKS)
    destination = faults.integer(words[1], "dst", high=MAX_RANKS)
    group = faults.integer(words[2], "pg", high=7)
    port = faults.integer(words[3], "dport", high=65535) if len(words) == 6 else 0
    size = faults.integer(words[-2], "size")
    start = faults.decimal(words[-1], "start")
    if source is not None and source == destination:
        faults.add("self-flow", f"the flow goes from {source} to itself", at=words[0])
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


def encode_hpcc_flows(
    workload: Workload,
    *,
    first_start_ns: int = FIRST_START_NS,
    priority_group: int = PRIORITY_GROUP,
    destination_port: int = DESTINATION_PORT,
) -> Exported:
    """`workload` as a `flow.txt`, sorted by start time, `first_start_ns` added to each.

    Raises `ExportError` for computing, waits and scale-up transfers: flows have start times alone.
    """
    transfers, reasons = transfers_alone(workload)
    reasons += [f"step {step.number} waits for others" for step in transfers if step.after]
    if reasons:
        raise ExportError(FORMAT, reasons, hint="a flow has a start time and nothing else; a .cm file has triggers")
    ordered = sorted(transfers, key=lambda step: step.start_ns)
    lines = [str(len(ordered))]
    lines += [
        f"{step.source} {step.destination} {priority_group} {destination_port} {step.size_bytes}"
        f" {seconds_text(step.start_ns + first_start_ns)}"
        for step in ordered
    ]
    left_out = description_left_out(workload)
    if any(step.label for step in transfers):
        left_out.append("labels")
    if ordered != transfers:
        left_out.append("the order of steps: flows are sorted by start time")
    if ordered and ordered[0].start_ns:
        left_out.append("the time before the first flow, when read again: it counts from that flow")
    used = max((max(step.source, step.destination) for step in transfers), default=-1) + 1
    if used < workload.ranks:
        left_out.append(f"that there are {workload.ranks} ranks: {used} of them are seen")
    return Exported(text="\n".join([*lines, ""]), left_out=tuple(left_out))


def seconds_text(nanoseconds: int) -> str:
    """Exact decimal seconds, without trailing zeros: `2`, `2.00015`."""
    whole, rest = divmod(nanoseconds, 10**9)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCompletion:
    """A row of `fct.txt`: a finished flow, its completion time, and what it would have taken alone."""

    source: int
    destination: int
    source_port: int
    destination_port: int
    size_bytes: int
    start_ns: int
    fct_ns: int
    standalone_ns: int


def node_address(node: int) -> int:
    """The IPv4 address that HPCC gives node `node`: 11.x.y.1. Raises `ValueError` beyond 65,535."""
    if not 0 <= node < 1 << 16:
        raise ValueError(f"HPCC's addresses end at node 65535: {node}")
    return 0x0B000001 + (node // 256) * 0x00010000 + (node % 256) * 0x00000100


def encode_fct(flows: Iterable[FlowCompletion]) -> str:
    """Flows as `fct.txt` has them: `sip dip sport dport size start fct standalone`, addresses in hexadecimal."""
    return "".join(_fct_line(flow) for flow in flows)


def _fct_line(flow: FlowCompletion) -> str:
    numbers: Sequence[int] = (
        flow.source_port, flow.destination_port, flow.size_bytes, flow.start_ns, flow.fct_ns, flow.standalone_ns
    )  # fmt: skip
    addresses = f"{node_address(flow.source):08x} {node_address(flow.destination):08x}"
    return f"{addresses} {' '.join(map(str, numbers))}\n"
