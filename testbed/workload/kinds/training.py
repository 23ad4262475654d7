"""Kinds of training: a step in three dimensions, its pipeline alone, and mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from testbed.base.errors import WorkloadError
from testbed.workload.kinds.collectives import algorithm_of
from testbed.workload.kinds.kind import FabricView, WorkloadKind, built_by
from testbed.workload.models.language_models import (
    H100_BF16_FLOPS,
    UTILISATION,
    TrainingVolumes,
    language_model,
    model_choice,
    training_volumes,
)
from testbed.workload.models.layout import ParallelLayout
from testbed.workload.models.moe import MixtureOfExperts, generate_moe
from testbed.workload.models.training import SCHEDULE, STEPS, Training, generate_pipeline, generate_training
from testbed.workload.parameters import Values, duration, flag, number, parameters_of, size, whole
from testbed.workload.steps import Workload

MODEL_BYTES_FACTOR = 0.001
"""A step of an 8B model on 8 ranks sums gradients of gigabytes: at a time scale of thousands, hours."""

_VOLUMES = (
    size("tensor_forward_bytes", "0B", "Gives S of a forward pass's tensor-parallel AllReduce.", low=0),
    size("tensor_backward_bytes", "0B", "Gives S of a backward pass's tensor-parallel AllReduce.", low=0),
    size("activation_bytes", "6MB", "Gives what goes to the next pipeline stage, and as gradient back.", low=0),
    size(
        "gradient_bytes",
        "16MB",
        "Gives the gradients of each rank, which are summed over the data-parallel ones.",
        low=0,
    ),
    duration("forward", "100us", "Says how long a micro-batch's forward pass computes."),
    duration("backward", "200us", "Says how long a micro-batch's backward pass computes."),
)
_OF_MODELS = (
    whole("micro_batch", 1, "Says, with a model, how many sequences a micro-batch has.", high=4096),
    whole(
        "sequence",
        None,
        "Says, with a model, how many tokens a sequence has; by default as many as it was trained with.",
    ),
    number(
        "peak_flops",
        H100_BF16_FLOPS,
        "Gives, with a model, the FLOP/s of a GPU; the default is an H100's in bf16.",
        low=1e9,
        high=1e18,
    ),
    number(
        "utilisation",
        UTILISATION,
        "Gives, with a model, the share of the GPU's peak that computing reaches.",
        low=0.01,
        high=1,
    ),
    flag("recompute", "Says, with a model, whether backward passes compute the forward pass again."),
    number("bytes_factor", MODEL_BYTES_FACTOR, "Multiplies, with a model, its bytes.", low=1e-9, high=1000),
    number("time_factor", MODEL_BYTES_FACTOR, "Multiplies, with a model, its computing times.", low=0, high=1000),
)


def _layout(values: Values, ranks: int) -> ParallelLayout:
    tensor, pipeline = values.whole("tensor"), values.whole("pipeline")
    data = values.optional_whole("data")
    if data is None:
        data, over = divmod(ranks, tensor * pipeline)
        if over or not data:
            raise WorkloadError(
                f"{ranks} ranks are no multiple of {tensor} tensor-parallel times {pipeline} pipelined ones",
                field="tensor",
            )
    layout = ParallelLayout(tensor=tensor, pipeline=pipeline, data=data)
    if layout.ranks > ranks:
        raise WorkloadError(
            f"tensor {tensor} x pipeline {pipeline} x data {data} are {layout.ranks} ranks; there are {ranks}",
            field="data",
        )
    return layout


def _training_volumes(values: Values, layout: ParallelLayout) -> tuple[TrainingVolumes, str]:
    """Return what a step moves, and a note on how it was scaled."""
    if not values.given("model"):
        for parameter in _OF_MODELS:
            if values.given(parameter.name):
                raise WorkloadError(f"{parameter.name} has a meaning only with a model", field=parameter.name)
        return TrainingVolumes(
            tensor_forward_bytes=values.bytes("tensor_forward_bytes", unit=2),
            tensor_backward_bytes=values.bytes("tensor_backward_bytes", unit=2),
            activation_bytes=values.bytes("activation_bytes"),
            gradient_bytes=values.bytes("gradient_bytes", unit=2),
            forward_ns=values.ns("forward"),
            backward_ns=values.ns("backward"),
        ), ""
    for parameter in _VOLUMES:
        if values.given(parameter.name):
            raise WorkloadError(f"{parameter.name} follows from the model", field=parameter.name)
    model = language_model(values.text("model"))
    bytes_factor, time_factor = values.number("bytes_factor"), values.number("time_factor")
    volumes = training_volumes(
        model,
        layout,
        micro_batch=values.whole("micro_batch"),
        sequence=values.optional_whole("sequence"),
        peak_flops=values.number("peak_flops"),
        utilisation=values.number("utilisation"),
        recompute=values.flag("recompute"),
    )
    note = f"Of the bytes of {model.name} {bytes_factor:g} and of its computing times {time_factor:g} are modelled."
    return volumes.scaled(bytes_factor=bytes_factor, time_factor=time_factor), note


def _training_step(values: Values, fabric: FabricView) -> Workload:
    layout = _layout(values, fabric.ranks)
    volumes, note = _training_volumes(values, layout)
    algorithm = algorithm_of(values, "data_algorithm")
    training = values.make(Training, layout=layout, volumes=volumes, data_algorithm=algorithm)
    workload = generate_training(training, ranks_per_domain=fabric.ranks_per_domain, folds=fabric.folds)
    return replace(workload, notes=(*workload.notes, *([note] if note else [])))


def _stages(values: Values, fabric: FabricView) -> int:
    stages = values.optional_whole("stages")
    return fabric.ranks if stages is None else stages


KINDS = (
    WorkloadKind(
        name="training-step",
        description="A training step has tensor, pipeline and data parallelism, micro-batches and computing.",
        parameters=(
            whole("tensor", 1, "Says how many ranks, next to each other, are tensor-parallel.", high=100_000),
            whole("pipeline", 1, "Says how many pipeline stages there are.", high=1024),
            whole(
                "data",
                None,
                "Says how many ranks are data-parallel; by default as many as there are ranks for.",
                high=100_000,
            ),
            *parameters_of(Training),
            *_VOLUMES,
            model_choice("Takes volumes and times from this model, instead of those given here."),
            *_OF_MODELS,
        ),
        build=_training_step,
        knows_hosts=True,
    ),
    WorkloadKind(
        name="pipeline",
        description="Activations go from stage to stage of a pipeline, and their gradients back.",
        parameters=(
            size("bytes", "6MB", "Gives the activations of a micro-batch."),
            whole(
                "stages",
                None,
                "Says how many stages, of one rank each, there are; by default as many as ranks.",
                high=1024,
            ),
            whole("micro_batches", 8, "Says how many micro-batches a step has.", high=10_000),
            duration("forward", "100us", "Says how long a forward pass computes."),
            duration("backward", "200us", "Says how long a backward pass computes."),
            SCHEDULE,
            STEPS,
        ),
        build=built_by(generate_pipeline, stages=_stages),
    ),
    WorkloadKind(
        name="moe",
        description="Tokens go to the ranks of their experts and come back, layer by layer (mixture of experts).",
        parameters=parameters_of(MixtureOfExperts),
        build=built_by(generate_moe, MixtureOfExperts),
        knows_hosts=True,
    ),
)
