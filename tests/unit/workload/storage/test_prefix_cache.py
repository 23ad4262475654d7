"""A cache of prefixes: who writes it, who reads what of it, and who is told."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.workload.steps import Transfer, Workload
from testbed.workload.storage import PrefixCache, generate_prefix_cache
from testbed.workload.storage.prefix_cache import NEWS_BYTES


def make(ranks: int = 4, seed: int = 1, **choice: object) -> Workload:
    cache = PrefixCache(**({"storage": 1} | choice))  # type: ignore[arg-type]
    return generate_prefix_cache(cache, ranks=ranks, rng=random.Random(seed))


@given(
    shared=st.booleans(),
    prefixes=st.integers(1, 5),
    blocks=st.integers(1, 5),
    storage=st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=50, deadline=None)
def test_a_prompt_reads_one_whole_prefix_that_was_kept(
    shared: bool, prefixes: int, blocks: int, storage: int, seed: int
) -> None:
    workload = make(
        5, seed, shared=shared, prefixes=prefixes, blocks=blocks, storage=storage, requests=10, bytes_factor=1.0
    )
    check_local(workload)
    hosts = range(5 - storage)
    kept = {step.number: step for step in workload.transfers if step.label.startswith("keep.")}
    owners = [0] if shared else list(hosts)
    assert len(kept) == len(owners) * prefixes * blocks
    assert {step.size_bytes for step in kept.values()} == {64 << 20}
    for index, prompt in enumerate(workload.first_tokens):
        reads = [step for step in workload.transfers if step.label.startswith(f"prompt[{index}].read")]
        assert len(reads) == blocks
        places = [step.restores for step in reads]
        assert places == list(range(places[0] or 0, (places[0] or 0) + blocks)) and (places[0] or 0) % blocks == 0
        for step in reads:
            written = kept[step.restores if step.restores is not None else -1]
            assert step.pulled and step.source == written.destination
            assert written.source == (0 if shared else step.destination)
            assert step.start_ns == prompt.due_ns


def test_readers_are_told_and_the_owner_need_not_be() -> None:
    workload = make()
    told = [step for step in workload.transfers if step.label.startswith("told.")]
    assert [(step.source, step.destination, step.size_bytes) for step in told] == [
        (0, 1, NEWS_BYTES),
        (0, 2, NEWS_BYTES),
    ]
    assert not [step for step in make(shared=False).transfers if step.label.startswith("told.")]


def test_a_lease_ends_with_a_transfer_of_the_owner() -> None:
    workload = make(lease_ns=2_000_000_000, bytes_factor=0.5, storage=2)
    ends = [step for step in workload.steps if isinstance(step, Transfer) and step.withdraws]
    assert [(step.source, step.destination, step.start_ns) for step in ends] == [
        (0, 2, 1_000_000_000),
        (0, 3, 1_000_000_000),
    ]


@pytest.mark.parametrize(
    ("choice", "field"), [({"lease_ns": 1, "shared": False}, "lease"), ({"hosts": (3,), "storage": (3,)}, "storage")]
)
def test_what_makes_no_sense_is_refused(choice: dict[str, object], field: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        make(**choice)
    assert caught.value.field == field
