"""htsim connection matrices (`.cm`): flows with start times or triggers.

Source: Broadcom csg-htsim and uet-htsim, `sim/datacenter/connection_matrix.cpp` (the rows), `sim/trigger.cpp` (what
triggers do). `start` is in picoseconds.

* `oneshot`: its one activation starts all of its flows;
* `multishot`: the k-th activation starts the k-th of its flows. Which flow ends k-th is decided by the network; here
  the k-th in the file stands for it, which is what a window of flows amounts to;
* `barrier count n`: the n-th activation starts all of its flows.

That a sender saw its last acknowledgement (`send_done_trigger`) and that the receiver has the last byte
(`recv_done_trigger`) are one event here: the end of the transfer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from testbed.base.errors import Position
from testbed.workload.builder import MAX_STEPS
from testbed.workload.formats.conventions import FROM_1_NOTE, first_number
from testbed.workload.formats.ordering import CycleError, cycle_text, stable_order
from testbed.workload.formats.source import MAX_NUMBER, MAX_RANKS, MAX_WAITS, Faults, Word, shown, word_lines
from testbed.workload.steps import Transfer, Workload

MAX_FLOW_ID = (1 << 32) - 1
_ENDS = re.compile(r"([0-9]{1,10})->([0-9]{1,10})\Z")
_HEADER = ("Nodes", "Connections", "Triggers", "Failures")
_WITHOUT_BLANKS = "write source and destination as 0->1, without blanks"
_OTHER_WORDS = {
    "bytes": "write size <bytes>",
    "flow_size": "write size <bytes>",
    "flowsize": "write size <bytes>",
    "start_time": "write start <picoseconds>",
    "time": "write start <picoseconds>",
    "flow_id": "write id <number>",
    "priority": "write prio <number>",
}
"""Hints for words of a row that are none of htsim's keys."""
_ROW_KEYS = ("id", "msg", "start", "trigger", "size", "send_done_trigger", "recv_done_trigger", "prio")


class TriggerKind(StrEnum):
    ONESHOT = "oneshot"
    MULTISHOT = "multishot"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFlow:
    """A row `src->dst ...`. `start_ps` or `trigger`, never both. `size_bytes` 0 is a flow without end."""

    source: int
    destination: int
    size_bytes: int
    flow_id: int | None
    message: int | None
    start_ps: int | None
    trigger: int | None
    send_done_trigger: int | None
    recv_done_trigger: int | None
    priority: int | None
    position: Position

    @property
    def name(self) -> str:
        return f"flow {self.flow_id}" if self.flow_id is not None else f"the flow of line {self.position.line}"

    @property
    def fires(self) -> tuple[int, ...]:
        """The triggers that its end activates; one that stands in both places is activated twice."""
        return tuple(one for one in (self.send_done_trigger, self.recv_done_trigger) if one is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    number: int
    kind: TriggerKind
    count: int
    """Activations that a barrier waits for."""
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionMatrix:
    """The file as written."""

    nodes: int
    connections: tuple[MatrixFlow, ...]
    """With nodes from 0, whatever the file counts from."""
    from_1: bool = False
    """The file counts its nodes from 1."""
    triggers: tuple[Trigger, ...] = ()
    failures: int = 0
    """The number of links of switches that htsim degrades."""


def parse_connection_matrix(text: str, *, file: str) -> ConnectionMatrix:
    """Read a `.cm` text. Raises `SpecError` with every fault and its place."""
    return _Reader(text, Faults(file)).read()


def decode_connection_matrix(text: str, *, file: str, name: str, unbounded_bytes: int | None = None) -> Workload:
    """The workload of a `.cm` text: one transfer a flow, `flow <id>` its label, triggers turned into waits.

    `unbounded_bytes` is the size given to flows of size 0, which never end in htsim. Failures are not part of a
    workload: `parse_connection_matrix` gives them; the notes say so. Raises `SpecError`.
    """
    faults = Faults(file)
    matrix = parse_connection_matrix(text, file=file)
    after = _waits(matrix, faults)
    if unbounded_bytes is None:
        for one in matrix.connections:
            if one.size_bytes == 0:
                faults.add(
                    "unbounded-flow",
                    f"{one.name} has size 0: it never ends",
                    at=one.position,
                    hint="write a size in bytes, or give such flows one: workload.unbounded_bytes, such as 1MB",
                )
    faults.check()
    try:
        order = stable_order(after)
    except CycleError as error:
        rows = [matrix.connections[number] for number in error.cycle]
        faults.stop(
            "cycle",
            f"flows wait for each other: {cycle_text([row.name for row in rows])}",
            at=min(row.position for row in rows),
            hint="one of them must have a start time",
        )
    place = {number: index for index, number in enumerate(order)}
    steps = tuple(
        Transfer(
            number=index,
            source=(one := matrix.connections[number]).source,
            destination=one.destination,
            size_bytes=one.size_bytes or unbounded_bytes or 0,
            after=tuple(sorted({place[before] for before in after[number]})),
            start_ns=(one.start_ps or 0) // 1000,
            label=f"flow {one.flow_id}" if one.flow_id is not None else "",
        )
        for index, number in enumerate(order)
    )
    return Workload(name=name, ranks=matrix.nodes, steps=steps, notes=_notes(matrix, after, unbounded_bytes))


def _waits(matrix: ConnectionMatrix, faults: Faults) -> list[Sequence[int]]:
    """Return what every connection waits for, as places in the file."""
    activations: dict[int, list[int]] = {trigger.number: [] for trigger in matrix.triggers}
    targets: dict[int, list[int]] = {trigger.number: [] for trigger in matrix.triggers}
    for number, one in enumerate(matrix.connections):
        for fired in one.fires:
            activations[fired].append(number)
        if one.trigger is not None:
            targets[one.trigger].append(number)
    after: list[Sequence[int]] = [()] * len(matrix.connections)
    waits = 0
    for trigger in matrix.triggers:
        fired_by, started = activations[trigger.number], targets[trigger.number]
        if not started or not _fires(trigger, len(fired_by), len(started), faults):
            continue
        if trigger.kind is TriggerKind.MULTISHOT:
            for target, before in zip(started, fired_by, strict=False):
                after[target] = (before,)
            waits += len(started)
            continue
        before_all = tuple(dict.fromkeys(fired_by))
        waits += len(before_all) * len(started)
        if waits > MAX_WAITS:
            faults.stop("too-large", f"the triggers make more than {MAX_WAITS} waits", at=trigger.position)
        for target in started:
            after[target] = before_all
    return after


def _fires(trigger: Trigger, activations: int, targets: int, faults: Faults) -> bool:
    """Tell whether every target of a trigger starts, and htsim would not stop with an assertion."""
    match trigger.kind:
        case TriggerKind.ONESHOT:
            needed, right = "once", activations == 1
        case TriggerKind.BARRIER:
            needed, right = f"{trigger.count} times, its count", activations == trigger.count
        case TriggerKind.MULTISHOT:
            needed, right = f"{targets} times or more, once for each flow that it starts", activations >= targets
    if not right:
        faults.add(
            "trigger-activations",
            f"{trigger.kind} trigger {trigger.number} must be activated {needed}; flows do it {activations} times",
            at=trigger.position,
            hint="look at send_done_trigger and recv_done_trigger of the flows",
        )
    return right


def _notes(matrix: ConnectionMatrix, after: Sequence[Sequence[int]], unbounded_bytes: int | None) -> tuple[str, ...]:
    notes = [FROM_1_NOTE] if matrix.from_1 else []
    rows = matrix.connections
    if any((one.start_ps or 0) % 1000 for one in rows):
        notes.append("start times in picoseconds were cut to nanoseconds")
    if any(one.size_bytes == 0 for one in rows):
        notes.append(f"flows without end were given {unbounded_bytes} bytes")
    if any(trigger.kind is TriggerKind.MULTISHOT for trigger in matrix.triggers):
        notes.append("a multishot trigger's k-th activation was taken to be that of the k-th flow in the file")
    if any(one.priority is not None for one in rows):
        notes.append("priorities of flows were left out")
    if any(one.message is not None for one in rows):
        notes.append("messages of one flow run as transfers of their own, side by side")
    across = sum(
        any(one.source not in {rows[before].source, rows[before].destination} for before in waits)
        for one, waits in zip(rows, after, strict=True)
    )
    if across:
        notes.append(f"flows that wait for flows in which their sender takes no part: {across}")
    if matrix.failures:
        notes.append(f"failures of links ({matrix.failures}) are not part of the workload")
    return tuple(notes)


class _Reader:
    """One pass over the lines; `read` gives the matrix or raises all faults."""

    def __init__(self, text: str, faults: Faults) -> None:
        self.text = text
        self.faults = faults
        self.header: dict[str, tuple[int, Word]] = {}
        self.connections: list[MatrixFlow] = []
        self.triggers: dict[int, Trigger] = {}
        self.rows = dict.fromkeys(_HEADER[1:], 0)

    def read(self) -> ConnectionMatrix:
        for words in word_lines(self.text):
            first = words[0].text
            if first in _HEADER:
                self._header(words)
            elif "->" in first:
                self._count("Connections", words[0])
                self._connection(words)
            elif first == "trigger":
                self._count("Triggers", words[0])
                self._trigger(words)
            elif first == "failure":
                self._count("Failures", words[0])
                self._failure(words)
            else:
                hint = "lines are Nodes, Connections, Triggers, Failures, <src>-><dst>, trigger or failure"
                if len(words) > 1 and words[1].text.startswith("->"):
                    hint = _WITHOUT_BLANKS
                self.faults.add("unknown-row", f"a line begins with {shown(first)}", at=words[0], hint=hint)
        self._check()
        self.faults.check()
        nodes = self.header["Nodes"][0]
        number = self._first(nodes)
        return ConnectionMatrix(
            nodes=nodes,
            connections=tuple(
                replace(one, source=one.source - number, destination=one.destination - number) if number else one
                for one in self.connections
            ),
            from_1=bool(number),
            triggers=tuple(self.triggers.values()),
            failures=self.rows["Failures"],
        )

    def _first(self, nodes: int) -> int:
        return first_number((end for one in self.connections for end in (one.source, one.destination)), nodes)

    def _count(self, kind: str, word: Word) -> None:
        self.rows[kind] += 1
        if sum(self.rows.values()) > MAX_STEPS:
            self.faults.stop("too-large", f"the file has more than {MAX_STEPS} rows", at=word)

    def _header(self, words: list[Word]) -> None:
        key = words[0]
        if len(words) != 2:
            self.faults.add("bad-header", f"{key.text} needs one number after it", at=key)
            return
        if any(self.rows.values()):
            self.faults.add(
                "late-header", f"{key.text} stands after the first row", at=key, hint="htsim ends the header there"
            )
        high = MAX_RANKS if key.text == "Nodes" else MAX_STEPS
        value = self.faults.integer(words[1], key.text, low=1 if key.text == "Nodes" else 0, high=high)
        if key.text in self.header:
            line = self.header[key.text][1].line
            self.faults.add("duplicate-key", f"{key.text} was given in line {line} already", at=key)
        else:
            self.header[key.text] = (1 if value is None else value, words[1])

    def _values(self, words: list[Word], keys: Sequence[str]) -> dict[str, Word] | None:
        """`key value` pairs; `msg` may stand without a value, and is then its own."""
        values: dict[str, Word] = {}
        index, right = 1, True
        while index < len(words):
            key = words[index]
            index += 1
            if key.text not in keys:
                message = f"{shown(key.text)} is none of {', '.join(keys)}"
                self.faults.add("unknown-key", message, at=key, hint=_OTHER_WORDS.get(key.text.lower()))
                return None
            if key.text in values:
                self.faults.add("duplicate-key", f"{key.text} stands twice in one row", at=key)
                right = False
            if key.text in {"msg", "oneshot", "multishot", "barrier"} and not (
                key.text == "msg" and index < len(words) and words[index].text.isdigit()
            ):
                values[key.text] = key
                continue
            if index == len(words):
                self.faults.add("missing-value", f"{key.text} has no value after it", at=key)
                return None
            values[key.text] = words[index]
            index += 1
        return values if right else None

    def _connection(self, words: list[Word]) -> None:
        match = _ENDS.match(words[0].text)
        if match is None:
            message = f"{shown(words[0].text)} is not <src>-><dst>"
            self.faults.add("bad-ends", message, at=words[0], hint=_WITHOUT_BLANKS)
            return
        values = self._values(words, _ROW_KEYS)
        if values is None:
            return
        source, destination = int(match[1]), int(match[2])
        if source == destination:
            self.faults.add("self-flow", f"the flow goes from {source} to itself", at=words[0], hint="remove the row")
        if "size" not in values:
            self.faults.add("missing-key", "the flow has no size", at=words[0], hint="add: size <bytes>")
        if ("start" in values) == ("trigger" in values):
            both = "a start time and a trigger" if "start" in values else "neither a start time nor a trigger"
            hint = "give exactly one of them: start <picoseconds> or trigger <id>"
            self.faults.add("start-or-trigger", f"the flow has {both}", at=words[0], hint=hint)
        if "trigger" in values and "id" not in values:
            self.faults.add("missing-key", "a flow that waits for a trigger needs an id", at=words[0])
        by_bytes = "write bytes as a whole number, such as 2000000"
        size = self.faults.integer(values["size"], "size", hint=by_bytes) if "size" in values else None
        picoseconds = self._picoseconds(values["start"]) if "start" in values else None
        self.connections.append(
            MatrixFlow(
                source=source,
                destination=destination,
                size_bytes=size or 0,
                flow_id=self._number(values, "id"),
                message=0 if "msg" in values and values["msg"].text == "msg" else self._number(values, "msg"),
                start_ps=picoseconds,
                trigger=self._number(values, "trigger"),
                send_done_trigger=self._number(values, "send_done_trigger"),
                recv_done_trigger=self._number(values, "recv_done_trigger"),
                priority=self._number(values, "prio", low=0),
                position=words[0].position,
            )
        )

    def _number(self, values: dict[str, Word], key: str, *, low: int = 1) -> int | None:
        return self.faults.integer(values[key], key, low=low, high=MAX_FLOW_ID) if key in values else None

    def _picoseconds(self, word: Word) -> int | None:
        value = self.faults.decimal(word, "start", hint="write picoseconds as a number: 1 us is 1000000")
        if value is not None and value > MAX_NUMBER:
            self.faults.add("out-of-range", f"start is more than {MAX_NUMBER} picoseconds", at=word)
            return None
        return None if value is None else int(value)

    def _trigger(self, words: list[Word]) -> None:
        values = self._values(words, ("id", "count", *TriggerKind))
        if values is None:
            return
        kinds = [kind for kind in TriggerKind if kind in values]
        if "id" not in values or len(kinds) != 1:
            hint = "write: trigger id <n> oneshot, or multishot, or barrier count <n>"
            self.faults.add("bad-trigger", "a trigger needs an id and one kind", at=words[0], hint=hint)
            return
        count = self.faults.integer(values["count"], "count", high=MAX_STEPS) if "count" in values else 0
        if (kinds[0] is TriggerKind.BARRIER) != ("count" in values) or (count == 0 and "count" in values):
            message = "a barrier needs a count of 1 or more, the other kinds none"
            self.faults.add("bad-trigger", message, at=values.get("count", words[0]))
        number = self._number(values, "id")
        if number is None or count is None:
            return
        if number in self.triggers:
            line = self.triggers[number].position.line
            self.faults.add("duplicate-id", f"trigger {number} was declared in line {line} already", at=words[0])
            return
        self.triggers[number] = Trigger(number=number, kind=kinds[0], count=count, position=words[0].position)

    def _failure(self, words: list[Word]) -> None:
        values = self._values(words, ("switch_type", "switch_id", "link_id"))
        if values is None:
            return
        if len(values) < 3:
            hint = "write: failure switch_type AGG switch_id <n> link_id <n>"
            self.faults.add("bad-failure", "a failure needs switch_type, switch_id and link_id", at=words[0], hint=hint)
            return
        kind = values["switch_type"]
        if kind.text not in {"TOR", "AGG", "CORE"}:
            self.faults.add("bad-failure", f"switch_type is {shown(kind.text)}: TOR, AGG or CORE", at=kind)
            return
        for key in ("switch_id", "link_id"):
            self._number(values, key, low=0)

    def _check(self) -> None:
        """Check what only the whole file can tell: counts, node numbers, ids, triggers that are named."""
        for key in ("Nodes", "Connections"):
            if key not in self.header:
                top = next((words[0] for words in word_lines(self.text)), None)
                missing, write = f"the file has no line {key} <number>", f"write {key} <number> above the first row"
                self.faults.add("missing-header", missing, at=top, hint=write)
        for key, rows in self.rows.items():
            said = self.header.get(key)
            if said is not None and said[0] != rows:
                hint = "the file may be cut short" if said[0] > rows else None
                self.faults.add("count-mismatch", f"{key} says {said[0]}, the file has {rows}", at=said[1], hint=hint)
            elif said is None and rows and key != "Connections":
                self.faults.add("missing-header", f"the file has {rows} rows of {key} and no line {key} {rows}")
        nodes = self.header["Nodes"][0] if "Nodes" in self.header else MAX_NUMBER
        seen: dict[int, MatrixFlow] = {}
        beyond = nodes + self._first(nodes)
        for one in self.connections:
            if max(one.source, one.destination) >= beyond:
                message = f"node {max(one.source, one.destination)} is not among the {nodes} nodes, from 0"
                self.faults.add(
                    "unknown-node", message, at=one.position, hint=f"a larger number in the line Nodes {nodes}"
                )
            for number in {*one.fires, *(() if one.trigger is None else (one.trigger,))} - self.triggers.keys():
                hint = f"add: trigger id {number} oneshot"
                self.faults.add("unknown-trigger", f"trigger {number} is not declared", at=one.position, hint=hint)
            if one.flow_id is None:
                continue
            first = seen.setdefault(one.flow_id, one)
            if first is not one and (one.message is None or first.message is None):
                message = f"id {one.flow_id} was used in line {first.position.line} already"
                self.faults.add("duplicate-id", message, at=one.position)
