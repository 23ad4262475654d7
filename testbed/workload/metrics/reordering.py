"""Metrics of reordering: how many packets came late, how far, and what a receiver must hold for them.

`sequence` is the packet sequence numbers in the order of arrival. A number that came before is a duplicate and is not
counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from testbed.base.metric import Better, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import LateArrivals

REORDERING = MetricFamily()


@REORDERING.metric(
    title="Out-of-order degree",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    formula="packets whose number is below the highest seen / packets received, duplicates left out",
    source="RFC 4737 section 4.1",
    takes=lambda run: (run[LateArrivals].late, run[LateArrivals].packets),
)
def reordered_ratio(late: int, packets: int) -> float | None:
    """Reordered over received packets: reordered is one whose number is below the highest seen (RFC 4737 4.1)."""
    return late / packets if packets else None


@REORDERING.metric(
    title="Reordering extent",
    unit=MetricUnit.PACKETS,
    better=Better.LESS,
    formula="max over late packets i of i - j, j the earliest arrival with a higher number",
    source="RFC 4737 section 4.2",
)
def reordering_extent(sequence: Sequence[int]) -> float | None:
    """The largest extent of a reordered packet: how many arrivals ago the first that should have followed it came.

    RFC 4737 section 4.2: e = i - j for the smallest j < i with s[j] > s[i]. 0 where nothing was reordered.
    """
    largest, position = 0, -1
    records: list[int] = []  # numbers higher than all before them, rising
    places: list[int] = []
    for position, number in enumerate(_without_duplicates(sequence)):
        if not records or number > records[-1]:
            records.append(number)
            places.append(position)
        else:
            largest = max(largest, position - places[bisect_right(records, number)])
    return float(largest) if position >= 0 else None


@REORDERING.metric(
    title="Reordering distance",
    unit=MetricUnit.PACKETS,
    better=Better.LESS,
    formula="max over packets of highest number seen - its number",
    source="REPS, EuroSys 2026, for the out-of-order distance",
)
def reordering_distance(sequence: Sequence[int]) -> float | None:
    """max(highest number seen - number of a late packet): what a window of sequence numbers must span. 0 in order."""
    highest, largest = None, 0
    for number in sequence:
        if highest is None or number > highest:
            highest = number
        largest = max(largest, highest - number)
    return None if highest is None else float(largest)


@REORDERING.metric(
    title="Reorder buffer",
    unit=MetricUnit.BYTES,
    better=Better.LESS,
    formula="most bytes held at once to deliver in order; numbers that never arrive are not waited for",
    source="RFC 5236 (reorder buffer-occupancy)",
)
def reorder_buffer(sequence: Sequence[int], sizes_bytes: Sequence[int]) -> float | None:
    """Bytes a receiver must hold at most to deliver in order: the buffer occupancy of RFC 5236, in bytes.

    Numbers that never arrive are not waited for.
    """
    if len(sequence) != len(sizes_bytes):
        raise ValueError(f"{len(sequence)} packets with {len(sizes_bytes)} sizes")
    expected = iter(sorted(set(sequence)))
    due = next(expected, None)
    held: dict[int, int] = {}
    occupied = largest = 0
    seen: set[int] = set()
    for number, size in zip(sequence, sizes_bytes, strict=True):
        if number in seen:
            continue
        seen.add(number)
        held[number] = size
        occupied += size
        while due is not None and due in held:
            occupied -= held.pop(due)
            due = next(expected, None)
        largest = max(largest, occupied)
    return float(largest) if sequence else None


def _without_duplicates(sequence: Sequence[int]) -> Iterator[int]:
    return iter(dict.fromkeys(sequence))
