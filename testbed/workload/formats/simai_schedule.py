"""SimAI's workload files as steps: one or more passes of training over the layers.

Source: aliyun/SimAI, `Workload.cc`, `iterate_hybrid_parallel_Transformer_fwd_in_bckwd`, and `Layer.cc` (the update time
after every collective). Forward: each layer computes, then waits for its collective. Backward, from the last layer: the
input gradient's collective runs beside the computing of the weight gradient, and ends before the next layer begins; the
weight gradient's runs until the layer's next forward. A layer that initiates recomputes the forward of the layers from
the last checkpoint up to it.
"""

from __future__ import annotations

from testbed.errors import WorkloadError
from testbed.workload.builder import MAX_STEPS, Frontier, StepBuilder
from testbed.workload.formats.expansion import CollectiveExpander, CollectiveRequest, expand_collective
from testbed.workload.formats.simai import Layer, ParallelGroup, Phase, TrainingJob, parse_simai_workload
from testbed.workload.formats.source import Faults
from testbed.workload.steps import Workload


def decode_simai_workload(
    text: str,
    *,
    file: str,
    name: str,
    expand: CollectiveExpander = expand_collective,
    passes: int = 1,
    ranks_per_domain: int = 0,
) -> Workload:
    """The workload of a SimAI text, `passes` times over its layers. Raises `SpecError`."""
    job = parse_simai_workload(text, file=file)
    layers = (len(job.layers) + job.recomputed) * passes
    if layers * job.all_gpus > MAX_STEPS:
        message = f"{layers} layers, recomputed ones included, on {job.all_gpus} GPUs make more than {MAX_STEPS} steps"
        Faults(file).stop("too-large", message, hint="fewer layers, GPUs or passes")
    try:
        return _Schedule(job, expand, ranks_per_domain).build(name, passes)
    except WorkloadError as error:
        Faults(file).stop("cannot-expand", error.message, hint=error.hint)


class _Schedule:
    def __init__(self, job: TrainingJob, expand: CollectiveExpander, ranks_per_domain: int) -> None:
        self.job = job
        self.expand = expand
        self.builder = StepBuilder(job.all_gpus, ranks_per_domain=ranks_per_domain)
        self.groups = {group: job.ranks_of(group) for group in ParallelGroup}
        self.tail: Frontier = {}
        """What each rank's next computing waits for."""
        self.weights: dict[int, Frontier] = {}
        """For a layer, the end of its weight gradient's collective."""

    def build(self, name: str, passes: int) -> Workload:
        self._note()
        for number in range(passes):
            for index in range(len(self.job.layers)):
                self._forward(index, f"pass{number}.forward")
            for index in reversed(range(len(self.job.layers))):
                for again in self.job.recomputes.get(index, ()):
                    self._forward(again, f"pass{number}.recompute")
                self._backward(index, f"pass{number}")
        return self.builder.build(name)

    def _note(self) -> None:
        job = self.job
        if job.pipeline > 1:
            self.builder.note(
                f"all {job.pipeline} pipeline stages run the file's layers at once; what they send each other"
                f" ({job.pipeline_bytes} bytes) is left out, as in SimAI's simulation"
            )

    def _forward(self, index: int, what: str) -> None:
        layer = self.job.layers[index]
        before = _union(self.tail, self.weights.get(index, {}))
        self.tail = self._phase(layer, layer.forward, before, f"{what}.{index}.{layer.name}")

    def _backward(self, index: int, what: str) -> None:
        layer = self.job.layers[index]
        computed = self._compute(layer.input_gradient, self.tail, f"{what}.input-gradient.{index}.{layer.name}")
        label = f"{what}.input-gradient.{index}.{layer.name}"
        inputs = self._collective(layer, layer.input_gradient, computed, label)
        label = f"{what}.weight-gradient.{index}.{layer.name}"
        computed = self._compute(layer.weight_gradient, computed, label)
        self.weights[index] = self._collective(layer, layer.weight_gradient, computed, label)
        self.tail = _union(computed, inputs)

    def _phase(self, layer: Layer, phase: Phase, before: Frontier, label: str) -> Frontier:
        return self._collective(layer, phase, self._compute(phase, before, label), label)

    def _compute(self, phase: Phase, before: Frontier, label: str) -> Frontier:
        return before if phase.compute_ns == 0 else self._busy(phase.compute_ns, before, label)

    def _busy(self, duration_ns: int, before: Frontier, label: str) -> Frontier:
        return {
            rank: (self.builder.compute(rank, duration_ns, after=before.get(rank, ()), label=label),)
            for rank in range(self.job.all_gpus)
        }

    def _collective(self, layer: Layer, phase: Phase, before: Frontier, label: str) -> Frontier:
        """The phase's collective in every one of its groups, and the update time behind it."""
        groups = self.groups[phase.group]
        if phase.kind is None or phase.size_bytes == 0 or len(groups[0]) == 1:
            return before
        ends: Frontier = {}
        for ranks in groups:
            after = {rank: before.get(rank, ()) for rank in ranks}
            request = CollectiveRequest(
                kind=phase.kind, ranks=ranks, size_bytes=phase.size_bytes, after=after, label=label
            )
            ends |= self.expand(self.builder, request)
        return ends if layer.update_ns == 0 else self._busy(layer.update_ns, ends, f"{label}.update")


def _union(a: Frontier, b: Frontier) -> Frontier:
    return {rank: tuple(sorted({*a.get(rank, ()), *b.get(rank, ())})) for rank in a.keys() | b.keys()}
