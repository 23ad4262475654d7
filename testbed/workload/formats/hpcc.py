"""HPCC's ns-3 files: `flow.txt` read and written, `fct.txt` written.

Source: alibaba-edu/High-Precision-Congestion-Control, `simulation/mix/flow.txt` and `simulation/scratch/third.cc`
(`ReadFlowInput`, `qp_finish`, `node_id_to_ip`). Start times are seconds, ascending; theirs begin at 2 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from testbed.workload.builder import MAX_STEPS
from testbed.workload.formats.export import Exported, ExportError, description_left_out, transfers_alone
from testbed.workload.formats.source import MAX_NUMBER, MAX_RANKS, Faults, Word, word_lines
from testbed.workload.steps import Transfer, Workload

FORMAT = "an HPCC flow file"
FIRST_START_NS = 2_000_000_000
PRIORITY_GROUP = 3
DESTINATION_PORT = 100
_COLUMNS = "src dst pg dport size start"


def decode_hpcc_flows(text: str, *, file: str, name: str, ranks: int | None = None) -> Workload:
    """The workload of a `flow.txt`: independent transfers; the earliest begins at 0.

    A node number is the rank; `ranks` is how many there are (otherwise the largest number and one). Lines behind the
    counted ones are not read, as the simulator does. Raises `SpecError`.
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
    flows: list[tuple[int, int, int, int, bool]] = []
    groups: set[int] = set()
    latest = rows = 0
    for words in islice(lines, count):
        rows += 1
        flow = _flow(words, faults, high=MAX_RANKS if ranks is None else ranks)
        if flow is None:
            continue
        source, destination, group, size, start_ns, exact = flow
        if start_ns < latest:
            faults.add(
                "not-ascending", "the flow starts before the one above it", at=words[5], hint="sort the rows by start"
            )
        latest = max(latest, start_ns)
        groups.add(group)
        flows.append((source, destination, size, start_ns, exact))
    if rows < count:
        message = f"the first line says {count} flows, the file has {rows}"
        faults.add("count-mismatch", message, at=head[0], hint="the file may be cut short")
    faults.check()
    first = min((start for *_, start, _ in flows), default=0)
    steps = tuple(
        Transfer(number=number, source=source, destination=destination, size_bytes=size, start_ns=start - first)
        for number, (source, destination, size, start, _) in enumerate(flows)
    )
    notes = []
    if first:
        notes.append(f"start times count from the first flow's, {seconds_text(first)} s in the file")
    if not all(exact for *_, exact in flows):
        notes.append("start times were cut to nanoseconds")
    if len(groups) > 1:
        notes.append(f"priority groups {', '.join(map(str, sorted(groups)))} are treated alike")
    if behind := sum(1 for _ in lines):
        notes.append(f"lines behind the {count} counted flows were not read: {behind}")
    largest = max((max(source, destination) for source, destination, *_ in flows), default=0)
    return Workload(name=name, ranks=ranks or largest + 1, steps=steps, notes=tuple(notes))


def _flow(words: list[Word], faults: Faults, *, high: int) -> tuple[int, int, int, int, int, bool] | None:
    if len(words) != 6:
        hint = f"the columns are {_COLUMNS}"
        faults.add("bad-row", f"the row has {len(words)} columns instead of 6", at=words[0], hint=hint)
        return None
    source = faults.integer(words[0], "src", high=high - 1)
    destination = faults.integer(words[1], "dst", high=high - 1)
    group = faults.integer(words[2], "pg", high=7)
    port = faults.integer(words[3], "dport", high=65535)
    size = faults.integer(words[4], "size", low=1)
    start = faults.decimal(words[5], "start")
    if source is not None and source == destination:
        faults.add("self-flow", f"the flow goes from {source} to itself", at=words[0])
    if start is not None and start * 10**9 > MAX_NUMBER:
        faults.add("out-of-range", f"start is more than {MAX_NUMBER} ns", at=words[5])
        return None
    if source is None or destination is None or group is None or port is None or size is None or start is None:
        return None
    nanoseconds = start * 10**9
    return source, destination, group, size, int(nanoseconds), nanoseconds.denominator == 1


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
