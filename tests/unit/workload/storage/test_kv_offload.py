"""KV caches on storage: sizes of blocks, what is read and what is written, when prompts arrive, and their deadlines."""

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.workload.steps import Compute, Transfer, Workload, with_requests
from testbed.workload.storage import KvOffload, generate_kv_offload
from testbed.workload.tenants import Tenant, mix_tenants


def make(ranks: int = 5, seed: int = 1, **choice: object) -> Workload:
    offload = KvOffload(**({"storage": 2} | choice))  # type: ignore[arg-type]
    return generate_kv_offload(offload, ranks=ranks, rng=random.Random(seed))


@pytest.mark.parametrize(("model", "mebibytes"), [("8B", 64), ("70B", 160), ("405B", 252)])
def test_a_block_of_512_tokens(model: str, mebibytes: int) -> None:
    workload = make(model=model, bytes_factor=1.0)
    assert {step.size_bytes for step in workload.transfers} == {mebibytes << 20}


@given(
    hit_ratio=st.sampled_from([0.0, 0.3, 1.0]),
    shortest=st.integers(1, 3000),
    more=st.integers(0, 3000),
    in_flight=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_what_was_seen_is_read_and_the_rest_is_computed_and_written(
    hit_ratio: float, shortest: int, more: int, in_flight: int, seed: int
) -> None:
    workload = make(
        seed=seed,
        hit_ratio=hit_ratio,
        prompt_tokens=(shortest, shortest + more),
        in_flight=in_flight,
        accelerators=1,
        bytes_factor=1.0,
    )
    check_local(workload)
    parts: dict[str, list[Transfer | Compute]] = defaultdict(list)
    for step in workload.steps:
        parts[step.label.partition(".")[0]].append(step)
    token_ns = 2 * 8e9 / (989.4e12 * 0.4) * 1e9
    for index, prompt in enumerate(workload.first_tokens):
        steps = parts[f"prompt[{index}]"]
        reads = [step for step in steps if isinstance(step, Transfer) and step.pulled]
        writes = [step for step in steps if isinstance(step, Transfer) and not step.pulled]
        [computed] = [step for step in steps if isinstance(step, Compute)]
        assert prompt.step == computed.number and prompt.service_ns == computed.duration_ns
        assert {read.number for read in reads} <= set(computed.after)
        assert all(computed.number in write.after for write in writes)
        assert {computed.start_ns, *(read.start_ns for read in reads)} == {prompt.due_ns}
        blocks = len(reads) + len(writes)
        tokens = len(reads) * 512 + round(computed.duration_ns / token_ns)
        assert blocks == tokens // 512 and shortest <= tokens <= shortest + more
        assert not (writes if hit_ratio == 1 else reads if hit_ratio == 0 else [])


def test_prompts_arrive_as_a_poisson_process_and_times_are_scaled_with_bytes() -> None:
    workload, whole = make(requests=2000, bytes_factor=0.001), make(requests=2000, bytes_factor=1.0)
    due = [prompt.due_ns for prompt in workload.first_tokens]
    gaps = [b - a for a, b in zip([0, *due], due, strict=False)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(1e9 / 20 / 1000, rel=0.1)
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.37, abs=0.05)
    assert {prompt.limit_ns for prompt in workload.first_tokens} == {2_000_000}
    assert [prompt.due_ns for prompt in whole.first_tokens] == pytest.approx([1000 * at for at in due], abs=1000)
    share = sum(step.pulled for step in workload.transfers) / len(workload.transfers)
    assert share == pytest.approx(0.5, abs=0.02)
    assert make() == make() != make(seed=2)


def test_first_tokens_go_along_with_their_steps() -> None:
    workload = make(requests=3)
    mixed = mix_tenants(
        [Tenant(name=name, workload=workload, ranks=ranks, start_ns=start) for name, ranks, start in TENANTS], ranks=10
    )
    found = with_requests(mixed)
    check_local(found)
    assert len(found.first_tokens) == 6
    for prompt, tenant in zip(found.first_tokens, "aaabbb", strict=True):
        step = found.steps[prompt.step]
        assert isinstance(step, Compute) and step.label.startswith(f"{tenant}/prompt[") and step.duration_ns
        assert step.start_ns == prompt.due_ns
    assert [prompt.due_ns - 77 for prompt in found.first_tokens[3:]] == [one.due_ns for one in workload.first_tokens]


TENANTS = (("a", (0, 1, 2, 3, 4), 0), ("b", (5, 6, 7, 8, 9), 77))


def test_what_does_not_fit_names_its_parameter() -> None:
    for choice, field in (({"prompt_tokens": (5, 4)}, "prompt_tokens"), ({"hosts": (4,)}, "storage")):
        with pytest.raises(WorkloadError) as caught:
            make(**choice)
        assert caught.value.field == field
