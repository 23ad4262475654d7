"""The bytes that transfers carry: slices of a collective's arrays, or traffic alone.

Each collective has arrays of its own, made before the run and checked after it (`workload.correctness`). Adding is done
on whole elements as they arrive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.worker.program import Piece, Program, Step
from testbed.workload.arithmetic import Array, add, storage
from testbed.workload.correctness import count_wrong, make_input
from testbed.workload.datatype import DataType
from testbed.workload.steps import Combine


class CollectiveBuffers:
    """The arrays of all own ranks of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._types: list[np.dtype[Any]] = [storage(datatype) for datatype in program.datatypes]
        self._arrays: dict[tuple[int, int], Array] = {}
        self._bytes: dict[tuple[int, int], memoryview] = {}
        for index, collective in enumerate(program.collectives):
            for rank in collective.ranks:
                if rank in program.own:
                    array = make_input(collective, rank, program.datatypes[index], seed=program.seed)
                    self._arrays[index, rank] = array
                    self._bytes[index, rank] = memoryview(array.data).cast("B")

    def outgoing(self, step: Step) -> memoryview:
        """What a transfer with a piece sends."""
        piece = _piece(step)
        return self._slice(piece, step.source, piece.offset)

    def landing(self, step: Step) -> memoryview:
        """Where what a transfer with a piece brings belongs."""
        assert step.destination is not None
        piece = _piece(step)
        return self._slice(piece, step.destination, piece.target)

    def add(self, step: Step, done_bytes: int, data: memoryview) -> int:
        """Add what has arrived of a transfer, behind `done_bytes`; how many bytes were whole elements, and used."""
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
        """Copy or add all of a transfer."""
        if _piece(step).combine is Combine.REDUCE:
            self.add(step, 0, data)
        else:
            self.landing(step)[:] = data

    def wrong(self) -> list[list[int]]:
        """For each collective of the program and own rank in it: [index, rank, elements that are wrong]."""
        program = self._program
        return [
            [
                index,
                rank,
                count_wrong(program.collectives[index], rank, array, program.datatypes[index], seed=program.seed),
            ]
            for (index, rank), array in self._arrays.items()
        ]

    def _slice(self, piece: Piece, rank: int, offset: int) -> memoryview:
        size = self._types[piece.collective].itemsize
        return self._bytes[piece.collective, rank][offset * size : (offset + piece.length) * size]


def _piece(step: Step) -> Piece:
    assert step.piece is not None
    return step.piece
