"""Data for collectives and whether it came out right: `#wrong` of nccl-tests.

Inputs of sums are chosen as nccl-tests does (verifiable.cu): small integers times one power of two per element, so
bounded that every partial sum is exact in the datatype whatever the order of the additions. The right result is then
one bit pattern, and an element is wrong if it has another. Every rank makes its input, and its expected output, from
the seed by itself.
"""

from __future__ import annotations

import numpy as np

from testbed.workload.collectives.arithmetic import Array, encode, storage
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import OUT_OF_PLACE, CollectiveKind
from testbed.workload.steps import Collective, Slice

_SUMS = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE})
PERIOD = 65_521
"""Elements after which data repeats, so that megabytes are made and checked in milliseconds. It is prime: blocks and
chunks that change places do not look alike."""

_EXPONENTS = 16
"""Elements are scaled by 2^-8 to 2^7, to differ in size."""


def make_input(collective: Collective, rank: int, datatype: DataType, *, seed: int) -> Array:
    """The array with which `rank` begins: what it contributes, and NaN wherever it must not matter.

    Shape (`collective.elements + collective.staging`,); sums have no staging. NaN shows up in the result if a stale
    element is ever sent or added.
    """
    kind, index = CollectiveKind(collective.kind), collective.ranks.index(rank)
    if kind in _SUMS:
        whole = Slice(offset=0, length=collective.elements)
        return _repeated(encode(_summand(collective, index, datatype, seed, whole), datatype), whole)
    array = np.repeat(encode(np.array([np.nan]), datatype), collective.elements + collective.staging)
    for piece in _contributes(collective, index):
        array[piece.offset : piece.end] = _pattern(piece, index, datatype, seed)
    if kind is CollectiveKind.ALL_TO_ALL:
        # a rank's block for itself is copied by no transfer
        own = _blocks(collective)[index]
        array[own.end - own.length + collective.elements // 2 :][: own.length] = array[own.offset : own.end]
    return array


def expected_output(collective: Collective, rank: int, datatype: DataType, *, seed: int) -> tuple[Slice, Array]:
    """Return where in `rank`'s array the collective leaves a result (a slice of length 0: nowhere), and the result."""
    kind, index, n = CollectiveKind(collective.kind), collective.ranks.index(rank), len(collective.ranks)
    whole = Slice(offset=0, length=collective.elements)
    blocks = _blocks(collective)
    root = None if collective.root is None else collective.ranks.index(collective.root)
    nowhere = Slice(offset=0, length=0)
    match kind:
        case CollectiveKind.ALL_REDUCE | CollectiveKind.REDUCE | CollectiveKind.REDUCE_SCATTER:
            if kind is CollectiveKind.REDUCE and index != root:
                return nowhere, np.empty(0, dtype=storage(datatype))
            where = blocks[index] if kind is CollectiveKind.REDUCE_SCATTER else whole
            total = sum(_summand(collective, other, datatype, seed, where) for other in range(n))
            return where, _repeated(encode(np.asarray(total), datatype), where)
        case CollectiveKind.ALL_GATHER | CollectiveKind.GATHER:
            if kind is CollectiveKind.GATHER and index != root:
                return nowhere, np.empty(0, dtype=storage(datatype))
            parts = [_pattern(block, other, datatype, seed) for other, block in enumerate(blocks)]
            return whole, np.concatenate(parts)
        case CollectiveKind.BROADCAST | CollectiveKind.SCATTER:
            assert root is not None
            where = whole if kind is CollectiveKind.BROADCAST else blocks[index]
            return where, _pattern(where, root, datatype, seed)
        case CollectiveKind.ALL_TO_ALL:
            half = collective.elements // 2
            parts = [_pattern(blocks[index], other, datatype, seed) for other in range(n)]
            return Slice(offset=half, length=half), np.concatenate(parts)
        case CollectiveKind.SEND_RECV:
            half = collective.elements // 2
            if n == 1:
                return nowhere, np.empty(0, dtype=storage(datatype))
            sent = _pattern(Slice(offset=0, length=half), (index - 1) % n, datatype, seed)
            return Slice(offset=half, length=half), sent


def count_wrong(collective: Collective, rank: int, array: Array, datatype: DataType, *, seed: int) -> int:
    """Return how many elements of `rank`'s result differ, in any bit, from what they should be."""
    where, expected = expected_output(collective, rank, datatype, seed=seed)
    return count_different(array, where, expected)


def count_different(array: Array, where: Slice, expected: Array) -> int:
    """Return how many elements of a slice of `array` differ, in any bit, from `expected`."""
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    result = np.ascontiguousarray(array[where.offset : where.end])
    return int(np.count_nonzero(result.view(bits) != expected.view(bits)))


def _blocks(collective: Collective) -> tuple[Slice, ...]:
    halves = 2 if CollectiveKind(collective.kind) in OUT_OF_PLACE else 1
    return Slice(offset=0, length=collective.elements // halves).split(len(collective.ranks))


def _contributes(collective: Collective, index: int) -> tuple[Slice, ...]:
    is_root = collective.root is not None and collective.ranks.index(collective.root) == index
    match CollectiveKind(collective.kind):
        case CollectiveKind.ALL_GATHER | CollectiveKind.GATHER:
            return (_blocks(collective)[index],)
        case CollectiveKind.BROADCAST | CollectiveKind.SCATTER:
            return (Slice(offset=0, length=collective.elements),) if is_root else ()
        case CollectiveKind.ALL_TO_ALL | CollectiveKind.SEND_RECV:
            return (Slice(offset=0, length=collective.elements // 2),)
        case CollectiveKind.ALL_REDUCE | CollectiveKind.REDUCE_SCATTER | CollectiveKind.REDUCE:
            return (Slice(offset=0, length=collective.elements),)


def _summand(collective: Collective, index: int, datatype: DataType, seed: int, piece: Slice) -> Array:
    """float64 values of one rank, exact in `datatype`; magnitudes over all ranks sum to 2^significand at most.

    Those of the first `PERIOD` elements of `piece`.
    """
    n = len(collective.ranks)
    elements = _period(piece)
    shared = _mixed(elements, seed, 0)
    own = _mixed(elements, seed, index + 1)
    most = 1 << datatype.significand_bits
    share = max(1, most // n)
    # with more ranks than units, only some contribute to an element, others to the next
    turn = (np.uint64(index) + shared % np.uint64(n)) % np.uint64(n)
    magnitude = np.where(turn < np.uint64(most // share), own % np.uint64(share + 1), np.uint64(0)).astype(np.float64)
    sign = np.where(own >> np.uint64(63), -1.0, 1.0)
    exponent = (shared >> np.uint64(32)) % np.uint64(_EXPONENTS)
    # + 0.0 turns -0 into 0, which keeps the sign of a zero sum independent of the order
    values: Array = np.ldexp(magnitude * sign, exponent.astype(np.int32) - _EXPONENTS // 2) + 0.0
    return values


def _pattern(piece: Slice, index: int, datatype: DataType, seed: int) -> Array:
    """Finite numbers of many sizes in `piece` of the rank with `index`, as nccl-tests' copies (`ReduceNil`)."""
    bits = _mixed(_period(piece), seed, index + 1)
    width = 8 * datatype.size_bytes
    fraction = datatype.significand_bits - 1
    sign = bits >> np.uint64(63) << np.uint64(width - 1)
    exponent = (np.uint64(64) + (bits >> np.uint64(40)) % np.uint64(128)) << np.uint64(fraction)
    significand = bits & np.uint64((1 << fraction) - 1)
    words = (sign | exponent | significand).astype(np.dtype(f"u{datatype.size_bytes}"))
    return _repeated(words.view(storage(datatype)), piece)


def _period(piece: Slice) -> Array:
    """The elements of `piece` up to where its data repeats, by their place in the first period of the array."""
    return np.arange(piece.offset, piece.offset + min(PERIOD, piece.length), dtype=np.uint64) % np.uint64(PERIOD)


def _repeated(period: Array, piece: Slice) -> Array:
    """Return all of `piece`, given the data of its `_period`."""
    return period if len(period) == piece.length else np.resize(period, piece.length)


def _mixed(elements: Array, seed: int, stream: int) -> Array:
    """64 random bits per element: splitmix64 (Steele, Lea and Flood, OOPSLA 2014) of seed, stream and element."""
    start = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1342543DE82EF95) % 2**64
    x = elements * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
