"""The bytes that transfers carry: slices of a collective's arrays, or traffic alone.

Each collective has arrays of its own, made before the run and checked after it (`workload.correctness`). Adding is done
on whole elements as they arrive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from testbed.endpoints.worker.program import Piece, Program, Step
from testbed.workload.collectives.arithmetic import Array, add, storage
from testbed.workload.collectives.correctness import count_different, expected_output, make_input
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import CollectiveKind
from testbed.workload.steps import Combine, Slice

_Shape = tuple[Hashable, ...]


SAME_EVERYWHERE = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER})
"""Kinds after which all ranks have the same array: one rank checks it, the others tell a digest of theirs."""
_DIGEST_BYTES = 16


class CollectiveBuffers:
    """Holds the arrays of all collectives, for the ranks that this host executes."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._types: list[np.dtype[Any]] = [storage(datatype) for datatype in program.datatypes]
        self._arrays: dict[tuple[int, int], Array] = {}
        self._bytes: dict[tuple[int, int], memoryview] = {}
        made: dict[_Shape, Array] = {}
        for index, collective in enumerate(program.collectives):
            for rank in collective.ranks:
                if rank in program.own:
                    shape = self._shape(index, rank)
                    if shape not in made:  # iterations of one collective begin alike
                        made[shape] = make_input(collective, rank, program.datatypes[index], seed=program.seed)
                    array = self._arrays[index, rank] = made[shape].copy()
                    self._bytes[index, rank] = memoryview(array.data).cast("B")

    def array(self, index: int, rank: int) -> Array:
        """Return the array of a collective (by index) at one of this host's ranks."""
        return self._arrays[index, rank]

    def outgoing(self, step: Step) -> memoryview:
        """Return the bytes that a transfer with a piece sends."""
        piece = _piece(step)
        return self._slice(piece, step.source, piece.offset)

    def landing(self, step: Step) -> memoryview:
        """Return the memory that a transfer with a piece is to be written to."""
        assert step.destination is not None
        piece = _piece(step)
        return self._slice(piece, step.destination, piece.target)

    def add(self, step: Step, done_bytes: int, data: memoryview) -> int:
        """Add what has arrived of a transfer behind `done_bytes`; return how many bytes were whole elements."""
        assert step.destination is not None
        piece = _piece(step)
        kind = self._types[piece.collective]
        count = len(data) // kind.itemsize
        if count:
            start = piece.target + done_bytes // kind.itemsize
            there = self._arrays[piece.collective, step.destination][start : start + count]
            arrived = np.frombuffer(data, dtype=kind, count=count)
            datatype = self._program.datatypes[piece.collective]
            if datatype is DataType.FLOAT32:
                np.add(there, arrived, out=there)
            else:
                there[:] = add(there, arrived, datatype)
        return count * kind.itemsize

    def deliver(self, step: Step, data: memoryview) -> None:
        """Copy or add all bytes of a transfer."""
        if _piece(step).combine is Combine.REDUCE:
            self.add(step, 0, data)
        else:
            self.landing(step)[:] = data

    def digests(self) -> list[tuple[int, int, str]]:
        """Return (collective, rank, digest of its array) for own ranks, where all ranks should have the same."""
        return [
            (index, rank, hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest())
            for (index, rank), data in self._bytes.items()
            if self._program.collectives[index].kind in SAME_EVERYWHERE
        ]

    def check(self) -> list[tuple[int, int, int]]:
        """Return (collective, rank, wrong elements) for own ranks; of arrays that all share, the first rank's alone."""
        collectives = self._program.collectives
        return self.count_wrong(
            (index, rank)
            for index, rank in self._arrays
            if collectives[index].kind not in SAME_EVERYWHERE or collectives[index].ranks[0] == rank
        )

    def count_wrong(self, which: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Return the same for these (collective, rank). Raises `KeyError` for what is not here."""
        program = self._program
        expected: dict[_Shape, tuple[Slice, Array]] = {}
        found = []
        for index, rank in which:
            shape = self._shape(index, rank)
            if shape not in expected:
                collective, datatype = program.collectives[index], program.datatypes[index]
                expected[shape] = expected_output(collective, rank, datatype, seed=program.seed)
            found.append((index, rank, count_different(self._arrays[index, rank], *expected[shape])))
        return found

    def _shape(self, index: int, rank: int) -> _Shape:
        """Return what a rank's input and output follow from."""
        collective = self._program.collectives[index]
        members = (collective.ranks, collective.root, collective.elements, collective.staging)
        return collective.kind, members, self._program.datatypes[index], rank

    def _slice(self, piece: Piece, rank: int, offset: int) -> memoryview:
        size = self._types[piece.collective].itemsize
        return self._bytes[piece.collective, rank][offset * size : (offset + piece.length) * size]


def _piece(step: Step) -> Piece:
    assert step.piece is not None
    return step.piece
