"""Whatever is asked of a scale-up domain: a link carries one transfer at a time, and none stands idle without need."""

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from testbed.endpoints.worker.copies import InsideCopies
from testbed.endpoints.worker.program import Step

ONE_WAY_NS = 50


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 40), st.integers(0, 100)).filter(
            lambda one: one[0] != one[1]
        ),
        min_size=1,
        max_size=40,
    ),
    st.lists(st.integers(0, 300), max_size=5),
)
def test_links_carry_one_transfer_at_a_time_and_never_wait_without_need(
    asked: list[tuple[int, int, int, int]], looks: list[int]
) -> None:
    arrived: dict[int, int] = {}
    copies = InsideCopies(8 * 10**9, lambda step, now: arrived.update({step.number: now}), one_way_ns=ONE_WAY_NS)
    pending = sorted((at, number) for number, (*_, at) in enumerate(asked))
    for now in sorted({*looks, *(at for at, _ in pending)}):
        copies.turn(now)
        while pending and pending[0][0] <= now:
            at, number = pending.pop(0)
            source, destination, size, _ = asked[number]
            copies.send(Step(number=number, source=source, destination=destination, size_bytes=size), at)
    copies.turn(1 << 60)
    assert len(arrived) == len(asked)

    uses: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    begins = {}
    for number, (source, destination, size, at) in enumerate(asked):
        end = arrived[number] - ONE_WAY_NS
        begins[number] = end - size
        assert begins[number] >= at
        uses["out", source].append((end - size, end))
        uses["in", destination].append((end - size, end))
    for spans in uses.values():
        spans.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
    for number, (source, destination, _, at) in enumerate(asked):
        busy = sorted(uses["out", source] + uses["in", destination])
        until = at
        for begin, end in busy:
            if begin <= until < begins[number]:
                until = max(until, end)
        assert until >= begins[number], "both links were free while it waited"
    # What it waits for at most: everything else on its own two links.
    for number, (source, destination, size, at) in enumerate(asked):
        load = sum(end - begin for begin, end in uses["out", source] + uses["in", destination]) - 2 * size
        assert begins[number] <= at + load
