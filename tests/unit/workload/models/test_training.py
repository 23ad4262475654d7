"""Training steps: volumes from a model's size against published figures, pipeline schedules, what waits for what."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.workload.models.language_models import MODELS, TrainingVolumes, language_model, training_volumes
from testbed.workload.models.layout import ParallelLayout
from testbed.workload.models.training import (
    Pass,
    PipelineSchedule,
    Training,
    generate_pipeline,
    generate_training,
    schedule_of,
)
from testbed.workload.steps import Compute, Transfer, Workload

GPT3 = ParallelLayout(tensor=8, pipeline=8, data=16)


def ideal_ns(workload: Workload, *, ns_per_byte: float = 0.0) -> float:
    """When the last step ends where every transfer has a network to itself."""
    ends: list[float] = []
    for step in workload.steps:
        begin = max((ends[before] for before in step.after), default=0.0)
        lasts = step.duration_ns if isinstance(step, Compute) else step.size_bytes * ns_per_byte
        ends.append(begin + lasts)
    return max(ends)


def test_volumes_of_gpt3_are_those_published() -> None:
    """Alibaba HPN (SIGCOMM 2024), table 3: 5.5 GB of gradients, 6 MB between stages, at TP 8 and PP 8."""
    volumes = training_volumes(MODELS["175B"], GPT3)
    assert volumes.gradient_bytes == pytest.approx(5.5e9, rel=0.01)
    assert volumes.activation_bytes == pytest.approx(6e6, rel=0.05)
    assert volumes.backward_ns == pytest.approx(2 * volumes.forward_ns, abs=1)
    flops = 2 * 175e9 * 2048 / 64
    assert volumes.forward_ns == pytest.approx(flops / (989.4e12 * 0.4) * 1e9, rel=1e-6)
    assert training_volumes(MODELS["175B"], GPT3, recompute=True).backward_ns == pytest.approx(
        3 * volumes.forward_ns, abs=2
    )
    assert volumes.tensor_forward_bytes == 2 * 12 * 2048 * 12288 * 2


@pytest.mark.parametrize("name", MODELS)
def test_dimensions_agree_with_the_number_of_parameters(name: str) -> None:
    """12 h^2 per layer for GPT-3; Llama 3 has fewer in attention and more in its feed-forward part."""
    model = MODELS[name]
    assert model.parameters == pytest.approx(12 * model.layers * model.hidden**2, rel=0.25)
    assert model.kv_cache_bytes(1) == 2 * model.layers * model.key_value_heads * 128 * 2


def test_scaling_keeps_whole_elements_and_zeroes() -> None:
    scaled = TrainingVolumes(activation_bytes=10, gradient_bytes=10**9, forward_ns=100).scaled(
        bytes_factor=1e-3, time_factor=0.5
    )
    assert scaled == TrainingVolumes(activation_bytes=2, gradient_bytes=10**6, forward_ns=50)
    assert TrainingVolumes(forward_ns=100).scaled(time_factor=0) == TrainingVolumes()


def test_schedules_of_the_papers() -> None:
    def names(passes: list[Pass]) -> str:
        return " ".join(f"{'B' if one.backward else 'F'}{one.micro_batch}" for one in passes)

    assert names(schedule_of("gpipe", stage=0, stages=4, micro_batches=3)) == "F0 F1 F2 B2 B1 B0"
    assert names(schedule_of("1f1b", stage=0, stages=2, micro_batches=4)) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert names(schedule_of("1f1b", stage=1, stages=2, micro_batches=3)) == "F0 B0 F1 B1 F2 B2"
    assert names(schedule_of("1f1b", stage=0, stages=4, micro_batches=2)) == "F0 F1 B0 B1"


@given(stages=st.integers(1, 6), micro_batches=st.integers(1, 8), schedule=st.sampled_from(list(PipelineSchedule)))
@settings(max_examples=50, deadline=None)
def test_the_bubble_is_that_of_the_formula(stages: int, micro_batches: int, schedule: PipelineSchedule) -> None:
    """(m + p - 1) (t_f + t_b) with transfers that take no time; Narayanan et al., section 2.2."""
    workload = generate_pipeline(
        stages=stages, micro_batches=micro_batches, size_bytes=64, forward_ns=10, backward_ns=20, schedule=schedule
    )
    check_local(workload)
    assert ideal_ns(workload) == (micro_batches + stages - 1) * 30
    assert len(workload.transfers) == 2 * micro_batches * (stages - 1)


def test_one_forward_one_backward_holds_few_activations() -> None:
    for stage in range(4):
        held = most = 0
        for one in schedule_of("1f1b", stage=stage, stages=4, micro_batches=16):
            held += -1 if one.backward else 1
            most = max(most, held)
        assert most == 4 - stage


@given(
    tensor=st.integers(1, 3),
    pipeline=st.integers(1, 3),
    data=st.integers(1, 3),
    micro_batches=st.integers(1, 3),
    buckets=st.integers(1, 3),
    sharded=st.booleans(),
    steps=st.integers(1, 2),
)
@settings(max_examples=40, deadline=None)
def test_a_step_moves_what_the_formulas_say(
    tensor: int, pipeline: int, data: int, micro_batches: int, buckets: int, sharded: bool, steps: int
) -> None:
    layout = ParallelLayout(tensor=tensor, pipeline=pipeline, data=data)
    volumes = TrainingVolumes(
        tensor_forward_bytes=120,
        tensor_backward_bytes=240,
        activation_bytes=50,
        gradient_bytes=720,
        forward_ns=9,
        backward_ns=18,
    )
    training = Training(
        layout=layout, volumes=volumes, micro_batches=micro_batches, buckets=buckets, sharded=sharded, steps=steps
    )
    workload = generate_training(training, ranks_per_domain=tensor)
    check_local(workload)
    sent: Counter[str] = Counter()
    for step in workload.transfers:
        dimension = next(name for name in ("tensor", "pipeline", "gradients") if f".{name}" in step.label)
        sent[dimension] += step.size_bytes
        assert step.scale_up == (dimension == "tensor")
    groups = pipeline * data
    assert sent["tensor"] == steps * groups * micro_batches * 2 * (tensor - 1) * 360
    assert sent["pipeline"] == steps * (pipeline - 1) * tensor * data * micro_batches * 2 * 50
    assert sent["gradients"] == steps * tensor * pipeline * 2 * (data - 1) * 720
    busy = Counter[int]()
    for one in workload.steps:
        if isinstance(one, Compute):
            busy[one.rank] += one.duration_ns
    assert set(busy.values()) == {steps * micro_batches * 27}


def test_buckets_overlap_the_gradients_with_the_last_backward_pass() -> None:
    layout = ParallelLayout(data=4)
    volumes = TrainingVolumes(gradient_bytes=8000, forward_ns=0, backward_ns=12_000)
    times = [
        ideal_ns(
            generate_training(Training(layout=layout, volumes=volumes, micro_batches=1, buckets=buckets)),
            ns_per_byte=1.0,
        )
        for buckets in (1, 4)
    ]
    # all of 2 (n - 1) / n of the bytes, or that of the last bucket
    assert times == [12_000 + 12_000, 12_000 + 3_000]


def test_the_next_step_waits_for_the_gradients() -> None:
    volumes = TrainingVolumes(gradient_bytes=8, forward_ns=5)
    training = Training(layout=ParallelLayout(data=2), volumes=volumes, micro_batches=1, steps=2)
    workload = generate_training(training)
    second = [s for s in workload.steps if isinstance(s, Compute) and s.label == "step1.forward.mb0.stage0"]
    for step in second:
        waits = [workload.steps[number] for number in step.after]
        joined = [workload.steps[number] for wait in waits for number in wait.after]
        assert any(isinstance(one, Transfer) and "gradients" in one.label for one in waits + joined)


def test_a_model_on_a_small_fabric() -> None:
    layout = ParallelLayout(tensor=2, pipeline=2, data=2)
    volumes = training_volumes(language_model("8B"), layout).scaled(bytes_factor=1e-5, time_factor=1e-3)
    workload = generate_training(Training(layout=layout, volumes=volumes, micro_batches=2), ranks_per_domain=2)
    check_local(workload)
    assert workload.ranks == 8
    assert "tensor-parallel" in workload.notes[0]


def test_wrong_training() -> None:
    with pytest.raises(WorkloadError, match="9B"):
        language_model("9B")
    with pytest.raises(WorkloadError, match="32 layers"):
        training_volumes(MODELS["8B"], ParallelLayout(pipeline=33))
