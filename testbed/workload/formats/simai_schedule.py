"""SimAI's workload files as steps: one or more passes of training over the layers.

Source: aliyun/SimAI, `Workload.cc` (the `iterate_` functions: which phase follows which, which collective is waited
for) and `Layer.cc` (the update time after every collective). Forward: each layer computes, then waits for its
collective. Backward, from the last layer, as the policy's `Order` has it; the weight gradient's collective runs until
the layer's next forward. A layer that initiates recomputes the forward of the layers from the last checkpoint up to it.

Of MICRO SimAI plays the first row alone, as often as there are passes; here all rows are played, one after the other.
"""

from __future__ import annotations

from testbed.base.errors import WorkloadError
from testbed.workload.builder import MAX_STEPS, Frontier, StepBuilder
from testbed.workload.formats.conventions import EMPTY_NOTE
from testbed.workload.formats.expansion import expand_collective
from testbed.workload.formats.simai import (
    Order,
    ParallelGroup,
    SimaiLayer,
    SimaiPhase,
    TrainingJob,
    parse_simai_workload,
)
from testbed.workload.formats.source import Faults
from testbed.workload.steps import Workload


def decode_simai_workload(
    text: str,
    *,
    file: str,
    name: str,
    passes: int = 1,
    ranks_per_domain: int = 0,
    ranks: int | None = None,
) -> Workload:
    """The workload of a SimAI text, `passes` times over its layers; `ranks` where it has no `all_gpus`.

    Raises `SpecError`.
    """
    job = parse_simai_workload(text, file=file, ranks=ranks)
    layers = (len(job.layers) + job.recomputed) * passes
    if layers * job.all_gpus > MAX_STEPS:
        message = f"{layers} layers, recomputed ones included, on {job.all_gpus} GPUs make more than {MAX_STEPS} steps"
        Faults(file).stop("too-large", message, hint="fewer layers, GPUs or passes")
    try:
        return _Schedule(job, ranks_per_domain).build(name, passes)
    except WorkloadError as error:
        Faults(file).stop("cannot-expand", error.message, hint=error.hint)


class _Schedule:
    def __init__(self, job: TrainingJob, ranks_per_domain: int) -> None:
        self.job = job
        self.builder = StepBuilder(job.all_gpus, ranks_per_domain=ranks_per_domain)
        self.ranks_per_host = max(1, ranks_per_domain)
        self.groups: dict[ParallelGroup, list[tuple[int, ...]]] = {}
        self.tail: Frontier = {}
        """The steps that each rank's next computing waits for."""
        self.weights: dict[int, Frontier] = {}
        """For a layer, the end of its weight gradient's collective."""
        self.embeddings: Frontier = {}
        """The end of DLRM's latest collective of layer 0 that is not of weights."""
        self.empty = 0
        """Collectives of 0 bytes."""

    def build(self, name: str, passes: int) -> Workload:
        for number in range(passes):
            if self.job.order is Order.MICRO:
                self._collectives(f"pass{number}")
            else:
                self._train(f"pass{number}")
        self._note()
        return self.builder.build(name)

    def _note(self) -> None:
        job = self.job
        if job.order is Order.MICRO and len(job.layers) > 1:
            self.builder.note("all rows of MICRO are played, one after the other; SimAI plays the first alone")
        if job.pipeline > 1:
            self.builder.note(
                f"all {job.pipeline} pipeline stages run the file's layers at once; what they send each other"
                f" ({job.pipeline_bytes} bytes) is left out, as in SimAI's simulation"
            )
        for note in job.notes:
            self.builder.note(note)
        if self.empty:
            self.builder.note(EMPTY_NOTE.format(count=self.empty))

    def _train(self, what: str) -> None:
        order = self.job.order
        layers = range(len(self.job.layers))
        for index in layers:
            self._forward(index, f"{what}.forward")
        if order is Order.FORWARD:
            return
        for index in reversed(layers):
            for again in self.job.recomputes.get(index, ()):
                self._forward(again, f"{what}.recompute")
            if order in {Order.INPUT_FIRST, Order.BESIDE}:
                self._backward(index, what)
            else:
                self._backward_weights_first(index, what)

    def _collectives(self, what: str) -> None:
        for index, layer in enumerate(self.job.layers):
            label = f"{what}.{index}.{layer.name}"
            self.tail = self._collective(layer, layer.weight_gradient, self.tail, label)

    def _forward(self, index: int, what: str) -> None:
        layer = self.job.layers[index]
        label = f"{what}.{index}.{layer.name}"
        computed = self._compute(layer.forward, _union(self.tail, self.weights.get(index, {})), label)
        if self.job.order not in {Order.DLRM, Order.DLRM_ENHANCED}:
            self.tail = self._collective(layer, layer.forward, computed, label)
            return
        if layer.forward.kind == "all_to_all":
            self.embeddings = self._collective(layer, layer.forward, computed, label)
        elif index == self.job.last_bottom_layer:
            computed = _union(computed, self.embeddings)
        self.tail = computed

    def _backward(self, index: int, what: str) -> None:
        layer = self.job.layers[index]
        label = f"{what}.input-gradient.{index}.{layer.name}"
        computed = self._compute(layer.input_gradient, self.tail, label)
        inputs = computed
        if index > 0 or self.job.order is Order.INPUT_FIRST:
            inputs = self._collective(layer, layer.input_gradient, computed, label)
        label = f"{what}.weight-gradient.{index}.{layer.name}"
        before = inputs if self.job.order is Order.INPUT_FIRST else computed
        computed = self._compute(layer.weight_gradient, before, label)
        self.weights[index] = self._collective(layer, layer.weight_gradient, computed, label)
        self.tail = _union(computed, inputs)

    def _backward_weights_first(self, index: int, what: str) -> None:
        layer = self.job.layers[index]
        label = f"{what}.weight-gradient.{index}.{layer.name}"
        self.tail = self._compute(layer.weight_gradient, self.tail, label)
        self.weights[index] = self._collective(layer, layer.weight_gradient, self.tail, label)
        if index == 0:
            if self.job.order is Order.DLRM:
                self.tail = _union(self.tail, self.embeddings)
            return
        label = f"{what}.input-gradient.{index}.{layer.name}"
        self.tail = self._compute(layer.input_gradient, self.tail, label)
        if self.job.order is not Order.WEIGHT_FIRST and index == self.job.last_bottom_layer + 1:
            first = self.job.layers[0]
            label = f"{what}.input-gradient.0.{first.name}"
            self.embeddings = self._collective(first, first.input_gradient, self.tail, label)

    def _compute(self, phase: SimaiPhase, before: Frontier, label: str) -> Frontier:
        return before if phase.compute_ns == 0 else self._busy(phase.compute_ns, before, label)

    def _busy(self, duration_ns: int, before: Frontier, label: str) -> Frontier:
        return {
            rank: (self.builder.compute(rank, duration_ns, after=before.get(rank, ()), label=label),)
            for rank in range(self.job.all_gpus)
        }

    def _collective(self, layer: SimaiLayer, phase: SimaiPhase, before: Frontier, label: str) -> Frontier:
        """The phase's collective in every one of its groups, and the update time behind it."""
        if phase.kind is None:
            return before
        if phase.size_bytes == 0:
            self.empty += 1
            return before
        if phase.group not in self.groups:
            self.groups[phase.group] = self.job.ranks_of(phase.group, self.ranks_per_host)
        groups = self.groups[phase.group]
        if len(groups[0]) == 1:
            return before
        ends: Frontier = {}
        for ranks in groups:
            after = {rank: before.get(rank, ()) for rank in ranks}
            ends |= expand_collective(self.builder, phase.kind, ranks, phase.size_bytes, after=after, label=label)
        return ends if layer.update_ns == 0 else self._busy(layer.update_ns, ends, f"{label}.update")


def _union(a: Frontier, b: Frontier) -> Frontier:
    return {rank: tuple(sorted({*a.get(rank, ()), *b.get(rank, ())})) for rank in a.keys() | b.keys()}
