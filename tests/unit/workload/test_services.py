"""Mixture of experts, serving, checkpoints and several tenants on one fabric."""

import random
from collections import Counter

import pytest
from collective_reference import run_reference
from hypothesis import given, settings
from hypothesis import strategies as st
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.correctness import count_wrong, make_input
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.models.inference import Serving, generate_kv_cache_incast, generate_serving
from testbed.workload.models.language_models import MODELS
from testbed.workload.models.moe import MixtureOfExperts, draw_tokens, generate_moe
from testbed.workload.models.training import generate_pipeline
from testbed.workload.patterns import generate_incast
from testbed.workload.steps import Compute, Transfer
from testbed.workload.storage import Checkpoint, checkpoint_bytes_per_rank, generate_checkpoint
from testbed.workload.tenants import Tenant, TenantPlacement, mix_tenants, place_tenants


@given(
    ranks=st.integers(1, 4),
    per_rank=st.integers(1, 4),
    tokens=st.integers(1, 20),
    skew=st.floats(0, 3),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_dispatch_and_combine_are_each_others_mirror(
    ranks: int, per_rank: int, tokens: int, skew: float, seed: int, data: st.DataObject
) -> None:
    experts = ranks * per_rank
    top_k = data.draw(st.integers(1, experts))
    moe = MixtureOfExperts(
        experts=experts,
        top_k=top_k,
        tokens=tokens,
        hidden=10,
        skew=skew,
        layers=2,
        dispatch_value_bytes=1,
        combine_value_bytes=2,
        compute_ns_per_token=5,
    )
    workload = generate_moe(moe, ranks=ranks, rng=random.Random(seed))
    check_local(workload)
    for layer in ("layer0", "layer1"):
        out = {(s.source, s.destination): s.size_bytes for s in workload.transfers if s.label == f"{layer}.dispatch"}
        back = {(s.destination, s.source): s.size_bytes for s in workload.transfers if s.label == f"{layer}.combine"}
        assert {pair: 2 * size for pair, size in out.items()} == back
        busy = [s.duration_ns for s in workload.steps if isinstance(s, Compute) and s.label == f"{layer}.experts"]
        assert sum(busy) == ranks * tokens * top_k * 5
    # a token goes to different experts: never more than its rank has of them
    assert all(size <= tokens * min(top_k, per_rank) * 10 for size in out.values())


def test_popularity_without_skew_is_the_drafts_formula() -> None:
    moe = MixtureOfExperts(top_k=2, tokens=2000)
    counts = draw_tokens(moe, [1.0] * 8, ranks=8, ranks_per_domain=1, rng=random.Random(1)).experts
    assert all(sum(row) == 4000 for row in counts)
    assert all(count == pytest.approx(2000 * 2 / 8, rel=0.2) for row in counts for count in row)


def test_skew_makes_hot_experts() -> None:
    def busiest(skew: float) -> float:
        moe = MixtureOfExperts(experts=16, top_k=2, tokens=200, hidden=4, skew=skew, compute_ns_per_token=1)
        workload = generate_moe(moe, ranks=8, rng=random.Random(2))
        busy = [s.duration_ns for s in workload.steps if isinstance(s, Compute) and s.label == "layer0.experts"]
        return max(busy) / (sum(busy) / len(busy))

    assert busiest(0) < 1.3
    assert busiest(1.5) > 2
    small = MixtureOfExperts(experts=2, top_k=1, tokens=3, hidden=1)
    one, other = (generate_moe(small, ranks=2, rng=random.Random(4)) for _ in range(2))
    assert one == other


def test_wrong_experts() -> None:
    def make(**options: int) -> None:
        moe = MixtureOfExperts(**{"experts": 8, "top_k": 2, "tokens": 4, "hidden": 2} | options)
        generate_moe(moe, ranks=4, rng=random.Random(0))

    for options, message in (({"experts": 6}, "evenly"), ({"top_k": 9}, "9 of 8"), ({"tokens": 10**7}, "choices")):
        with pytest.raises(WorkloadError, match=message):
            make(**options)


def test_serving_sends_each_kv_cache_once() -> None:
    model = MODELS["8B"]
    serving = Serving(
        model="8B",
        requests=12,
        requests_per_s=1000,
        prompt_tokens=(100, 200),
        frontend=5,
        prefill=(0, 1),
        decode=(2, 3),
        prefill_ns_per_token=1000,
        decode_ns=5000,
        pieces=4,
        bytes_factor=1.0,
    )
    workload = generate_serving(serving, ranks=6, rng=random.Random(7))
    assert workload.notes == ()
    check_local(workload)
    for request in range(12):
        mine = {
            name: [s for s in workload.steps if s.label.startswith(f"request[{request}].{name}")]
            for name in ("prompt", "prefill", "kv-cache", "decode", "first-token")
        }
        prompt = mine["prompt"][0]
        assert isinstance(prompt, Transfer)
        tokens = prompt.size_bytes // 4
        assert 100 <= tokens <= 200
        caches = [s for s in mine["kv-cache"] if isinstance(s, Transfer)]
        assert sum(s.size_bytes for s in caches) == model.kv_cache_bytes(tokens)
        assert sum(s.duration_ns for s in mine["prefill"] if isinstance(s, Compute)) == tokens * 1000
        assert mine["decode"][0].after == tuple(s.number for s in caches)
        assert {(s.source in (0, 1), s.destination in (2, 3)) for s in caches} == {(True, True)}
    starts = [s.start_ns for s in workload.transfers if s.label.endswith(".prompt")]
    assert starts == sorted(starts)
    assert starts[-1] == pytest.approx(12e6, rel=0.9)


def test_kv_cache_sizes() -> None:
    """Llama 3 70B: 80 layers of 8 heads of 128, keys and values of 2 bytes: 327,680 bytes per token."""
    assert MODELS["70B"].kv_cache_bytes(1) == 327_680
    incast = generate_kv_cache_incast(ranks=4, prefill=[0, 1, 2], decode=3, size_bytes=16)
    assert [(s.source, s.destination) for s in incast.transfers] == [(0, 3), (1, 3), (2, 3)]


def test_serving_needs_different_ranks() -> None:
    with pytest.raises(WorkloadError, match="different ranks"):
        generate_serving(Serving(frontend=0, prefill=(0,), decode=(1,)), ranks=2, rng=random.Random(0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Serving(prompt_tokens=(2, 1)), "the shortest and the longest prompt"),
        (Serving(model="9B"), "no model of size '9B' is known"),
    ],
)
def test_wrong_serving(wrong: Serving, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        generate_serving(wrong, ranks=4, rng=random.Random(0))


@pytest.mark.parametrize("read_back", [False, True])
def test_a_checkpoint_writes_everything_to_all_storage_ranks(read_back: bool) -> None:
    checkpoint = Checkpoint(
        size_bytes=1001, storage=(4, 5), stripes=4, in_flight=2, checkpoints=2, period_ns=1000, read_back=read_back
    )
    workload = generate_checkpoint(checkpoint, ranks=6)
    check_local(workload)
    moved = Counter[int]()
    stored = Counter[int]()
    for step in workload.transfers:
        writer, target = (step.destination, step.source) if read_back else (step.source, step.destination)
        moved[writer] += step.size_bytes
        stored[target] += step.size_bytes
    assert moved == Counter(dict.fromkeys(range(4), 2002))
    assert set(stored) == {4, 5}
    assert {step.start_ns for step in workload.transfers} == {0, 1000}


def test_a_restored_checkpoint_is_read_from_where_it_was_written() -> None:
    checkpoint = Checkpoint(size_bytes=1001, storage=(4, 5), stripes=4, checkpoints=3, restore=True)
    workload = generate_checkpoint(checkpoint, ranks=6)
    check_local(workload)
    written = [step for step in workload.transfers if step.restores is None]
    read = [step for step in workload.transfers if step.restores is not None]
    assert len(written) == 3 * 16 and len(read) == 16
    for step in read:
        origin = workload.steps[step.restores or 0]
        assert isinstance(origin, Transfer) and origin.label.startswith("checkpoint[2].")
        assert (origin.destination, origin.source, origin.size_bytes) == (
            step.source,
            step.destination,
            step.size_bytes,
        )
        last = [one for one in written if one.source == step.destination][-2:]
        assert {one.number for one in last} <= set(step.after), "each begins when all of its rank is written"
    assert len({step.restores for step in read}) == 16
    with pytest.raises(WorkloadError, match="nothing is written"):
        generate_checkpoint(Checkpoint(size_bytes=1, read_back=True, restore=True), ranks=3)


def test_checkpoint_sizes_and_wrong_storage() -> None:
    assert checkpoint_bytes_per_rank(175_000_000_000, 1024) == 2_392_578_125
    for storage in ((), (0, 1, 2)):
        with pytest.raises(WorkloadError, match="storage"):
            generate_checkpoint(Checkpoint(storage=storage, size_bytes=1), ranks=3)


def test_tenants_keep_their_traffic_and_their_data() -> None:
    first = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=64, algorithm="tree"), ranks=4)
    second = generate_collective(CollectiveOperation(kind="reduce", size_bytes=32), ranks=3, root=2)
    third = generate_pipeline(stages=2, micro_batches=2, size_bytes=8, forward_ns=5, backward_ns=5)
    places = place_tenants([4, 3, 2], ranks=10, placement="random", rng=random.Random(3))
    assert len({rank for place in places for rank in place}) == 9
    mixed = mix_tenants(
        [
            Tenant(name="a", workload=first, ranks=places[0]),
            Tenant(name="b", workload=second, ranks=places[1], start_ns=700),
            Tenant(name="c", workload=third, ranks=places[2], start_ns=900),
        ],
        ranks=10,
    )
    check_local(mixed)
    for index in range(2):
        collective = mixed.collectives[index]
        arrays = {r: make_input(collective, r, DataType.FLOAT32, seed=5) for r in collective.ranks}
        results = run_reference(mixed, arrays, DataType.FLOAT32, collective=index, rng=random.Random(1))
        assert all(count_wrong(collective, r, results[r], DataType.FLOAT32, seed=5) == 0 for r in collective.ranks)
    assert mixed.collectives[1].root == places[1][2]
    by_tenant = Counter(step.label.split("/")[0] for step in mixed.transfers)
    assert by_tenant == {"a": len(first.transfers), "b": len(second.transfers), "c": len(third.transfers)}
    assert all(s.start_ns == {"a": 0, "b": 700, "c": 900}[s.label[0]] for s in mixed.transfers)
    # a rank that begins by computing does so no earlier than its tenant
    for step in mixed.steps:
        if isinstance(step, Compute) and step.label == "c/step0.forward.mb0.stage0":
            delay = mixed.steps[step.after[0]]
            assert isinstance(delay, Compute)
            assert (delay.duration_ns, delay.rank) == (900, step.rank)


def test_placements() -> None:
    assert place_tenants([2, 3], ranks=6, placement=TenantPlacement.PACKED) == [(0, 1), (2, 3, 4)]
    assert place_tenants([2, 3], ranks=6, placement=TenantPlacement.ROUND_ROBIN) == [(0, 2), (1, 3, 4)]
    for arguments in ({"sizes": [4, 3]}, {"sizes": [0]}, {"placement": "random"}):
        with pytest.raises(WorkloadError):
            place_tenants(**({"sizes": [1], "ranks": 6, "placement": "packed"} | arguments))  # type: ignore[arg-type]


def test_tenants_that_do_not_fit() -> None:
    incast = generate_incast(ranks=3, size_bytes=1)
    for ranks, name in (((0, 1), "b"), ((0, 1, 1), "b"), ((0, 1, 9), "b"), ((0, 1, 2), "a")):
        with pytest.raises(WorkloadError):
            mix_tenants(
                [Tenant(name="a", workload=incast, ranks=(3, 4, 5)), Tenant(name=name, workload=incast, ranks=ranks)],
                ranks=6,
            )
