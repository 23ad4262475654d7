"""Language models by their dimensions, and the bytes and times that training and serving them gives.

Every formula names its source. Times are those of a GPU at a given utilisation; the network's part is not in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from testbed.base.errors import WorkloadError
from testbed.workload.models.layout import ParallelLayout
from testbed.workload.parameters import Parameter, choice

H100_BF16_FLOPS = 989.4e12
"""Peak of a GPU in FLOP/s, dense. Source: NVIDIA H100 SXM data sheet."""

UTILISATION = 0.4
"""Model FLOPs utilisation: 38 % to 43 % for Llama 3 405B (Llama Team, "The Llama 3 herd of models", 2024, table 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """A dense decoder-only transformer. `sequence` is the length, in tokens, with which it was trained."""

    name: str
    parameters: int
    layers: int
    hidden: int
    key_value_heads: int
    head_dimension: int
    sequence: int

    def kv_cache_bytes(self, tokens: int, *, value_bytes: int = 2) -> int:
        """Keys and values of `tokens` tokens in all layers: 2 L H_kv D C P.

        Source: draft-calabria-bmwg-ai-fabric-inference-bench (individual Internet-Draft, 2026-08-12).
        """
        return 2 * self.layers * self.key_value_heads * self.head_dimension * tokens * value_bytes

    def forward_flops(self, tokens: int) -> float:
        """2 per parameter and token (Kaplan et al., "Scaling laws for neural language models", 2020, section 2.1)."""
        return 2.0 * self.parameters * tokens


_llama = partial(LanguageModel, key_value_heads=8, head_dimension=128, sequence=8192)

MODELS: Mapping[str, LanguageModel] = {
    "8B": _llama(name="Llama 3 8B", parameters=8_000_000_000, layers=32, hidden=4096),
    "70B": _llama(name="Llama 3 70B", parameters=70_000_000_000, layers=80, hidden=8192),
    "405B": _llama(name="Llama 3 405B", parameters=405_000_000_000, layers=126, hidden=16384),
    "175B": LanguageModel(
        name="GPT-3 175B",
        parameters=175_000_000_000,
        layers=96,
        hidden=12288,
        key_value_heads=96,
        head_dimension=128,
        sequence=2048,
    ),
}
"""By size. Parameters are the nominal ones.

Sources: Llama Team, "The Llama 3 herd of models", 2024, table 3; Brown et al., "Language models are few-shot learners",
NeurIPS 2020, table 2.1.
"""


def language_model(name: str) -> LanguageModel:
    """The model of that size. Raises `WorkloadError` with those that there are."""
    if name not in MODELS:
        raise WorkloadError(f"no model of size {name!r} is known (one of {', '.join(MODELS)})", field="model")
    return MODELS[name]


def model_choice(description: str) -> Parameter:
    """The parameter that names a model, where there need not be one."""
    return choice("model", None, tuple(MODELS), description)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingVolumes:
    """Bytes that one micro-batch moves and ns that it computes on each rank, and the bytes of one step's gradients.

    The tensor-parallel bytes are S of one AllReduce that stands for all of a pass through a stage.
    """

    tensor_forward_bytes: int = 0
    tensor_backward_bytes: int = 0
    activation_bytes: int = 0
    """To the next pipeline stage and, as its gradient, back."""
    gradient_bytes: int = 0
    forward_ns: int = 0
    backward_ns: int = 0

    def scaled(self, *, bytes_factor: float = 1.0, time_factor: float = 1.0) -> TrainingVolumes:
        """Fewer bytes and shorter times, to fit an emulated link; what is not 0 stays a whole bf16 element at least."""
        return TrainingVolumes(
            tensor_forward_bytes=_even(self.tensor_forward_bytes * bytes_factor, self.tensor_forward_bytes),
            tensor_backward_bytes=_even(self.tensor_backward_bytes * bytes_factor, self.tensor_backward_bytes),
            activation_bytes=_even(self.activation_bytes * bytes_factor, self.activation_bytes),
            gradient_bytes=_even(self.gradient_bytes * bytes_factor, self.gradient_bytes),
            forward_ns=round(self.forward_ns * time_factor),
            backward_ns=round(self.backward_ns * time_factor),
        )


def training_volumes(
    model: LanguageModel,
    layout: ParallelLayout,
    *,
    micro_batch: int = 1,
    sequence: int | None = None,
    peak_flops: float = H100_BF16_FLOPS,
    utilisation: float = UTILISATION,
    recompute: bool = False,
) -> TrainingVolumes:
    """Volumes of mixed-precision training (2 bytes a value and a gradient) with `micro_batch` sequences at a time.

    - gradients: 2 P / (TP PP) bytes per rank (175e9 on 8 x 8: 5.47 GB; 5.5 GB in Alibaba HPN, SIGCOMM 2024, table 3);
    - activations 2 b s h; between stages each of TP ranks sends its part of them (Narayanan et al., "Efficient
      large-scale language model training on GPU clusters using Megatron-LM", SC 2021, section 4.1; GPT-3 with TP 8:
      6.3 MB);
    - tensor parallelism: two AllReduces of 2 b s h per layer forward, two backward (ibid., section 3.2);
    - computing: 2 P / (TP PP) FLOP per token forward, twice that backward, and forward again with `recompute`.
    """
    if layout.pipeline > model.layers:
        raise WorkloadError(f"{model.name} has only {model.layers} layers to cut into stages", field="pipeline")
    tokens = micro_batch * (model.sequence if sequence is None else sequence)
    shards = layout.tensor * layout.pipeline
    activations = tokens * model.hidden * 2
    per_stage = 2 * activations * model.layers / layout.pipeline if layout.tensor > 1 else 0
    forward_s = model.forward_flops(tokens) / shards / (peak_flops * utilisation)
    return TrainingVolumes(
        tensor_forward_bytes=_even(per_stage, per_stage),
        tensor_backward_bytes=_even(per_stage, per_stage),
        activation_bytes=_even(activations / layout.tensor, 1) if layout.pipeline > 1 else 0,
        gradient_bytes=_even(2 * model.parameters / shards, 1) if layout.data > 1 else 0,
        forward_ns=round(forward_s * 1e9),
        backward_ns=round(forward_s * 1e9 * (3 if recompute else 2)),
    )


def _even(size: float, unscaled: float) -> int:
    return max(2, 2 * round(size / 2)) if unscaled else 0
