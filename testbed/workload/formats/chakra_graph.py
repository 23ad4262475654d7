"""Chakra execution traces of all ranks, put together: sends matched with receives, collectives across ranks.

Source: mlcommons/chakra, `et_def.proto` (what nodes mean); ASTRA-sim 2.0, `astra-sim/workload/Workload.cc` (how they
are played) and `system/astraccl/native_collectives/collective_algorithm/Ring.cc` (what `comm_size` means: of an
all-gather what each rank gives, otherwise a rank's whole buffer).

A send begins when what it waits for has ended, whether or not its receive was reached (an eager protocol); a receive
ends when its message has come and what it waits for has ended. The k-th send of a (source, destination, tag) goes with
the k-th receive, the k-th collective of a group with the k-th of that group on its other ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.base.errors import Problem, SpecError, WorkloadError
from testbed.workload.builder import Frontier, StepBuilder
from testbed.workload.formats.chakra import ChakraNode, ChakraTrace, NodeType
from testbed.workload.formats.conventions import EMPTY_NOTE, FROM_1_NOTE, MESSAGE_BYTES, MESSAGE_NOTE, first_number
from testbed.workload.formats.expansion import expand_collective
from testbed.workload.formats.ordering import CycleError, cycle_text, stable_order
from testbed.workload.formats.source import MAX_NUMBER, Faults, shown
from testbed.workload.steps import Workload

KINDS = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
    "reduce_scatter", "all_reduce",
)  # fmt: skip
"""By `CollectiveCommType`; REDUCE_SCATTER_BLOCK is a reduce-scatter, BARRIER the smallest all-reduce (as NCCL's)."""
BARRIER = 9
BARRIER_BYTES = 4
ROOTED = frozenset({"reduce", "gather", "scatter", "broadcast"})
_PEERS = ("comm_src", "comm_dst")
MAX_WAITS_OF_A_NODE = 8
"""More are joined into one step, so that chains of nodes that take no time cannot multiply what is waited for."""


@dataclass(slots=True)
class _Operation:
    """A node of one rank, or a collective's nodes on all of its ranks."""

    parts: list[tuple[int, ChakraNode]]
    kind: NodeType
    sender: int | None = None
    """The operation that sends, for a receive."""

    @property
    def title(self) -> str:
        rank, node = self.parts[0]
        others = f" and {len(self.parts) - 1} other ranks" if len(self.parts) > 1 else ""
        return f"{node.title} of rank {rank}{others}"


def parse_comm_groups(text: str, *, file: str) -> dict[str, tuple[int, ...]]:
    """ASTRA-sim's communicator groups: a JSON object of group names and the ranks of each. Raises `SpecError`."""
    faults = Faults(file)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        faults.stop("bad-json", f"the file is no JSON: {shown(str(error))}")
    hint = 'write {"0": [0, 1, 2, 3]}'
    if not isinstance(document, dict):
        faults.stop("not-groups", "the file is no object of groups", hint=hint)
    for name, ranks in document.items():
        if not isinstance(ranks, list) or not all(type(rank) is int and rank >= 0 for rank in ranks):
            faults.add("not-groups", f"group {shown(name)} is no list of ranks", hint=hint)
        elif len(set(ranks)) != len(ranks):
            faults.add("not-groups", f"group {shown(name)} names a rank twice")
    faults.check()
    return {name: tuple(ranks) for name, ranks in document.items()}


def combine_traces(
    traces: Sequence[ChakraTrace],
    *,
    name: str,
    groups: Mapping[str, Sequence[int]] | None = None,
    peak_ops_per_s: int | None = None,
    ranks_per_domain: int = 0,
    first: int = 0,
) -> Workload:
    """The workload of one trace a rank, from rank 0; `first` is what the first one's file is called, 0 or 1.

    A group's ranks are those of `groups`, otherwise those whose traces name it; a collective without a group is of all
    ranks. `peak_ops_per_s` turns a computation's `num_ops` into time where the trace has no duration. Raises
    `SpecError`: unmatched sends, receives and collectives, and cycles, also those across ranks, with the nodes named.
    """
    return _Combiner(traces, groups, peak_ops_per_s, first).combine(name, ranks_per_domain)


class _Combiner:
    def __init__(
        self,
        traces: Sequence[ChakraTrace],
        groups: Mapping[str, Sequence[int]] | None,
        peak_ops_per_s: int | None,
        first: int,
    ) -> None:
        self.traces = traces
        peers = {
            node.integers[key] for trace in traces for node in trace.nodes for key in _PEERS if key in node.integers
        }
        peers |= {rank for ranks in (groups or {}).values() for rank in ranks}
        counted = first_number(peers, len(traces)) if len(traces) > 1 else 0  # of one alone, its file says it
        self.first = counted or (first if 0 not in peers else 0)
        """The number of the first rank among peers and in groups."""
        self.groups = {name: [rank - self.first for rank in ranks] for name, ranks in (groups or {}).items()}
        self.peak_ops_per_s = peak_ops_per_s
        self.faults = [Faults(trace.file) for trace in traces]
        self.operations: list[_Operation] = []
        self.places: list[dict[int, int]] = [{} for _ in traces]
        """For each rank, a node's identifier and its operation."""
        self.notes: dict[str, None] = dict.fromkeys([FROM_1_NOTE] if first or self.first else [])
        if rootless := sum(trace.rootless for trace in traces):
            self.notes[f"waits for nodes before the first one of a trace are over: {rootless}"] = None
        self.empty = 0
        """Collectives of 0 bytes."""

    def combine(self, name: str, ranks_per_domain: int) -> Workload:
        programs = [self._program(rank) for rank in range(len(self.traces))]
        self._check()
        self._collect(programs)
        self._check()
        after = [self._after(operation) for operation in self.operations]
        try:
            order = stable_order(after)
        except CycleError as error:
            titles = [self.operations[number].title for number in error.cycle]
            rank, node = self.operations[error.cycle[0]].parts[0]
            message = f"nodes of several ranks wait for each other: {cycle_text(titles)}"
            self.faults[rank].stop("cycle", message, path=f"byte {node.offset}")
        builder = StepBuilder(len(self.traces), ranks_per_domain=ranks_per_domain)
        ends: list[Frontier] = [{} for _ in self.operations]
        try:
            for number in order:
                ends[number] = self._play(builder, self.operations[number], ends)
        except WorkloadError as error:
            self.faults[0].stop("cannot-expand", error.message, hint=error.hint)
        if self.empty:
            self.notes[EMPTY_NOTE.format(count=self.empty)] = None
        for note in self.notes:
            builder.note(note)
        return builder.build(name)

    def _check(self) -> None:
        """Raise what was found in all traces together."""
        problems: list[Problem] = []
        for faults in self.faults:
            try:
                faults.check()
            except SpecError as error:
                problems += error.problems
        if problems:
            raise SpecError(problems)

    def _fault(self, rank: int, node: ChakraNode, code: str, message: str, hint: str | None = None) -> None:
        self.faults[rank].add(code, f"{node.title} {message}", path=f"byte {node.offset}", hint=hint)

    def _program(self, rank: int) -> list[ChakraNode]:
        """A rank's nodes in an order in which it can issue them: that of the file wherever that is one."""
        nodes = self.traces[rank].nodes
        place = {node.identifier: number for number, node in enumerate(nodes)}
        try:
            order = stable_order([[place[before] for before in node.waits_for] for node in nodes])
        except CycleError as error:
            cycle = [nodes[number] for number in error.cycle]
            message = f"waits for itself: {cycle_text([node.title for node in cycle])}"
            self._fault(rank, cycle[0], "cycle", message)
            return []
        return [nodes[number] for number in order]

    def _collect(self, programs: Sequence[Sequence[ChakraNode]]) -> None:
        """Make the operations, in the order of the programs, ranks in turn."""
        sends: dict[tuple[int, int, int], list[int]] = {}
        receives: dict[tuple[int, int, int], list[int]] = {}
        collectives: dict[str, dict[int, list[ChakraNode]]] = {}
        for step, rank in sorted((step, rank) for rank, nodes in enumerate(programs) for step in range(len(nodes))):
            node = programs[rank][step]
            if node.kind is NodeType.COMM_COLL:
                collectives.setdefault(node.group, {}).setdefault(rank, []).append(node)
                continue
            number = len(self.operations)
            self.places[rank][node.identifier] = number
            self.operations.append(_Operation([(rank, node)], node.kind))
            if node.kind in {NodeType.COMM_SEND, NodeType.COMM_RECV}:
                key = self._channel(rank, node)
                if key is not None:
                    (sends if node.kind is NodeType.COMM_SEND else receives).setdefault(key, []).append(number)
            elif node.kind is NodeType.COMP:
                self._check_duration(rank, node)
        self._match_messages(sends, receives)
        for group, nodes in collectives.items():
            self._match_collectives(group, nodes)

    def _check_duration(self, rank: int, node: ChakraNode) -> None:
        if node.duration_us * 1000 > MAX_NUMBER:
            self._fault(rank, node, "out-of-range", f"takes {node.duration_us} microseconds")
        elif node.duration_us == 0 and node.integers.get("num_ops", 0) > 0 and not self.peak_ops_per_s:
            hint = "give the operations per second of a rank"
            self._fault(rank, node, "no-duration", "has operations and no duration", hint)

    def _channel(self, rank: int, node: ChakraNode) -> tuple[int, int, int] | None:
        """(source, destination, tag) of a send or receive."""
        sends = node.kind is NodeType.COMM_SEND
        own, other = ("comm_src", "comm_dst") if sends else ("comm_dst", "comm_src")
        peer = node.integers.get(other)
        if peer is None:
            self._fault(rank, node, "missing-attribute", f"has no attribute {other}")
            return None
        if node.integers.get(own, rank + self.first) != rank + self.first:
            self._fault(rank, node, "wrong-rank", f"has {own} {node.integers[own]} in the trace of rank {rank}")
            return None
        peer -= self.first
        if peer >= len(self.traces):
            last, are = (
                len(self.traces) - 1 + self.first,
                "is 1" if len(self.traces) == 1 else f"are {len(self.traces)}",
            )
            message = f"has {other} {peer + self.first}, whose trace is missing: there {are}, up to rank {last}"
            self._fault(rank, node, "missing-rank", message)
            return None
        if not 0 <= peer < len(self.traces) or peer == rank:
            message = f"has {other} {peer + self.first}: it must be another of the {len(self.traces)} ranks"
            self._fault(rank, node, "unknown-rank", message)
            return None
        if sends and not self._has_size(rank, node, MAX_NUMBER):
            return None
        return (
            (rank, peer, node.integers.get("comm_tag", 0)) if sends else (peer, rank, node.integers.get("comm_tag", 0))
        )

    def _has_size(self, rank: int, node: ChakraNode, most: int) -> bool:
        if not 0 <= node.integers.get("comm_size", -1) <= most:
            self._fault(rank, node, "missing-attribute", f"has no comm_size from 0 to {most} bytes")
            return False
        return True

    def _match_messages(
        self, sends: Mapping[tuple[int, int, int], list[int]], receives: Mapping[tuple[int, int, int], list[int]]
    ) -> None:
        for key in dict.fromkeys([*sends, *receives]):
            sent, received = sends.get(key, []), receives.get(key, [])
            for send, receive in zip(sent, received, strict=False):
                self.operations[receive].sender = send
                rank, node = self.operations[receive].parts[0]
                size = self.operations[send].parts[0][1].integers["comm_size"]
                if node.integers.get("comm_size", size) != size:
                    message = f"expects {node.integers['comm_size']} bytes, its send has {size}"
                    self._fault(rank, node, "size-mismatch", message)
            for number in [*sent[len(received) :], *received[len(sent) :]]:
                rank, node = self.operations[number].parts[0]
                other = "receive" if node.kind is NodeType.COMM_SEND else "send"
                message = f"has no {other} on the other side (source {key[0]}, destination {key[1]}, tag {key[2]})"
                self._fault(rank, node, "unmatched", message)

    def _match_collectives(self, group: str, nodes: Mapping[int, Sequence[ChakraNode]]) -> None:
        if group in self.groups:
            members: Iterable[int] = self.groups[group]
        else:
            members = range(len(self.traces)) if not group else sorted(nodes)
        members = tuple(members)
        known = frozenset(members)
        what = f"group {shown(group)}" if group else "the group of all ranks"
        rank, first = next((rank, one[0]) for rank, one in nodes.items())
        if strangers := [one for one in (*nodes, *members) if one not in known or one >= len(self.traces)]:
            self._fault(rank, first, "wrong-rank", f"is of {what}, to which rank {strangers[0]} does not belong")
            return
        counts = {member: len(nodes.get(member, ())) for member in members}
        if len(set(counts.values())) > 1:
            most, least = max(members, key=counts.__getitem__), min(members, key=counts.__getitem__)
            message = f"of {what}: rank {most} has {counts[most]}, rank {least} has {counts[least]}"
            self._fault(most, nodes[most][counts[least]], "unmatched", f"has no partner in the collectives {message}")
            return
        for place in range(counts[members[0]]):
            parts = [(member, nodes[member][place]) for member in members]
            self._check_collective(parts)
            for member, node in parts:
                self.places[member][node.identifier] = len(self.operations)
            self.operations.append(_Operation(parts, NodeType.COMM_COLL))

    def _check_collective(self, parts: Sequence[tuple[int, ChakraNode]]) -> None:
        rank, first = parts[0]
        kind = first.integers.get("comm_type", -1)
        if not 0 <= kind < len(KINDS):
            self._fault(rank, first, "missing-attribute", "has no comm_type that is known")
        elif kind != BARRIER:
            self._has_size(rank, first, MAX_NUMBER // len(parts))
        for other, node in parts[1:]:
            for key in ("comm_type", "comm_size"):
                mine, theirs = node.integers.get(key), first.integers.get(key)
                if mine != theirs:
                    message = f"has {key} {mine}, {first.title} of rank {rank} has {theirs}"
                    self._fault(other, node, "mismatch", message)

    def _after(self, operation: _Operation) -> list[int]:
        before = {self.places[rank][one] for rank, node in operation.parts for one in node.waits_for}
        if operation.sender is not None:
            before.add(operation.sender)
        return sorted(before)

    def _waits(self, builder: StepBuilder, rank: int, node: ChakraNode, ends: Sequence[Frontier]) -> tuple[int, ...]:
        """The steps that a node of `rank` waits for."""
        steps = {step for one in node.waits_for for step in ends[self.places[rank][one]].get(rank, ())}
        return self._few(builder, rank, steps)

    @staticmethod
    def _few(builder: StepBuilder, rank: int, steps: Iterable[int]) -> tuple[int, ...]:
        found = tuple(sorted(steps))
        return found if len(found) <= MAX_WAITS_OF_A_NODE else builder.join(rank, found)

    def _play(self, builder: StepBuilder, operation: _Operation, ends: Sequence[Frontier]) -> Frontier:
        """Add an operation's steps; what ends it, for each of its ranks."""
        if operation.kind is NodeType.COMM_COLL and len(operation.parts) > 1:
            return self._play_collective(builder, operation, ends)
        rank, node = operation.parts[0]
        after = self._waits(builder, rank, node, ends)
        match operation.kind:
            case NodeType.COMM_SEND:
                size, peer = node.integers["comm_size"], node.integers["comm_dst"] - self.first
                if not size:
                    size = MESSAGE_BYTES
                    self.notes[MESSAGE_NOTE] = None
                number = builder.transfer(rank, peer, size, after=after, label=node.name)
                return {rank: (number,), peer: (number,)}
            case NodeType.COMM_RECV:
                came = ends[operation.sender].get(rank, ()) if operation.sender is not None else ()
                return {rank: self._few(builder, rank, {*after, *came})}
            case NodeType.COMM_COLL | NodeType.METADATA | NodeType.INVALID:
                return {rank: after}
        duration_ns = self._duration_ns(node)
        if duration_ns == 0:
            return {rank: after}
        return {rank: (builder.compute(rank, duration_ns, after=after, label=node.name),)}

    def _duration_ns(self, node: ChakraNode) -> int:
        if node.duration_us == 0 and node.kind is NodeType.COMP and self.peak_ops_per_s:
            operations = node.integers.get("num_ops", 0)
            if operations:
                self.notes[f"computing without a duration takes its operations at {self.peak_ops_per_s} a second"] = (
                    None
                )
            return min(operations * 10**9 // self.peak_ops_per_s, MAX_NUMBER)
        if node.duration_us == 0 and node.kind is not NodeType.COMP:
            self.notes["accesses of memory and storage without a duration take no time"] = None
        return min(node.duration_us * 1000, MAX_NUMBER)

    def _play_collective(self, builder: StepBuilder, operation: _Operation, ends: Sequence[Frontier]) -> Frontier:
        ranks = tuple(rank for rank, _ in operation.parts)
        node = operation.parts[0][1]
        code = node.integers["comm_type"]
        kind = KINDS[code]
        size = node.integers.get("comm_size", 0) * (len(ranks) if kind == "all_gather" else 1)
        if code == BARRIER:
            size = BARRIER_BYTES
            self.notes[f"a barrier is an all-reduce of {BARRIER_BYTES} bytes"] = None
        root: int | None = None
        if kind in ROOTED:
            root = node.integers.get("comm_src", ranks[0] + self.first) - self.first
            root = root if root in ranks else ranks[0]
            if "comm_src" not in node.integers:
                self.notes["collectives with a root that is not named have the first rank of their group as root"] = (
                    None
                )
        after = {rank: self._waits(builder, rank, one, ends) for rank, one in operation.parts}
        if not size:
            self.empty += 1
            return after
        return expand_collective(builder, kind, ranks, size, after=after, root=root, label=node.name or kind)
