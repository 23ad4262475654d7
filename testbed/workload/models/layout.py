"""Which rank does which part of a model: tensor, data and pipeline parallelism."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLayout:
    """`tensor` x `data` x `pipeline` ranks, tensor-parallel ones next to each other, pipeline stages farthest apart.

    Source: Megatron-LM, megatron/core/parallel_state.py (order "tp-cp-ep-dp-pp").
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline * self.data

    def rank(self, *, tensor: int, pipeline: int, data: int) -> int:
        return tensor + self.tensor * (data + self.data * pipeline)

    def tensor_group(self, *, pipeline: int, data: int) -> list[int]:
        return [self.rank(tensor=t, pipeline=pipeline, data=data) for t in range(self.tensor)]

    def data_group(self, *, tensor: int, pipeline: int) -> list[int]:
        return [self.rank(tensor=tensor, pipeline=pipeline, data=d) for d in range(self.data)]

    def stage(self, pipeline: int) -> list[int]:
        """Return all ranks of a pipeline stage."""
        return [rank for d in range(self.data) for rank in self.tensor_group(pipeline=pipeline, data=d)]
