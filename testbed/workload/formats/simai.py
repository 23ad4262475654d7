"""SimAI's workload files, read: how a training job is cut into parallel parts, and its layers.

Source: aliyun/SimAI, `astra-sim-alibabacloud/astra-sim/workload/Workload.cc` (`initialize_workload`) and `example/`.
Line 1 is the policy and `key: value` pairs, line 2 the number of layers; a layer is a row of twelve columns. Times are
nanoseconds, sizes bytes: of an all-gather and a reduce-scatter the whole array.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from testbed.errors import Position
from testbed.workload.formats.source import MAX_NUMBER, MAX_RANKS, Faults, Word, shown, word_lines

MAX_LAYERS = 100_000
MAX_DURATION_NS = 10**15
POLICIES = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
COLUMNS = 12

_KINDS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
}
_KEYS = ("model_parallel_NPU_group", "ep", "pp", "vpp", "ga", "all_gpus", "pp_comm")
_LISTS = ("checkpoints", "checkpoint_initiates")


class ParallelGroup(StrEnum):
    """Which ranks a collective joins."""

    TENSOR = "tp"
    DATA = "dp"
    EXPERT = "ep"
    DATA_OF_EXPERT = "dp_ep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a layer's work: computing, then perhaps a collective."""

    compute_ns: int
    kind: str | None
    group: ParallelGroup
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase
    update_ns: int
    """After each of the layer's collectives."""
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """The file as written. The data-parallel size is what remains of `all_gpus`."""

    tensor: int
    expert: int
    pipeline: int
    virtual_pipeline: int
    accumulation: int
    all_gpus: int
    pipeline_bytes: int
    recomputes: dict[int, range]
    """For a layer that initiates: the layers whose forward runs again before its backward."""
    layers: tuple[Layer, ...]

    @property
    def data(self) -> int:
        return self.all_gpus // (self.tensor * self.pipeline)

    @property
    def recomputed(self) -> int:
        """Layers that run forward again, in one pass."""
        return sum(map(len, self.recomputes.values()))

    def ranks_of(self, group: ParallelGroup) -> list[tuple[int, ...]]:
        """Return every rank's group, each once. Source: SimAI, `system/MockNcclGroup.cc`.

        Tensor groups are consecutive ranks, expert groups the same place in consecutive tensor groups.
        """
        gpus, tensor, expert = self.all_gpus, self.tensor, self.expert
        match group:
            case ParallelGroup.TENSOR:
                return [tuple(range(first, first + tensor)) for first in range(0, gpus, tensor)]
            case ParallelGroup.DATA:
                stride = gpus // self.data
                return [tuple(range(first, gpus, stride)) for first in range(stride)]
            case ParallelGroup.EXPERT:
                size, block, stride = expert, tensor * expert, tensor
            case ParallelGroup.DATA_OF_EXPERT:
                size, block, stride = self.data // expert, tensor * self.data, tensor * expert
        return [
            tuple(range(start + inside, start + inside + size * stride, stride))
            for start in range(0, gpus, block)
            for inside in range(stride)
        ]


def parse_simai_workload(text: str, *, file: str) -> TrainingJob:
    """Read a SimAI workload. Raises `SpecError` with every fault and its place."""
    faults = Faults(file)
    lines = word_lines(text)
    head, second = next(lines, None), next(lines, None)
    if head is None:
        faults.stop("empty", "the file is empty", hint=f"its first line begins with {POLICIES[1]}")
    values, lists = _header(head, faults)
    if second is None:
        faults.stop("no-layers", "the file has no second line", hint="it is the number of layers")
    if len(second) > 1:
        faults.add("bad-header", "the second line is the number of layers alone", at=second[1])
    count = faults.integer(second[0], "the number of layers", low=1, high=MAX_LAYERS)
    layers = [_layer(words, faults) for words in islice(lines, MAX_LAYERS)]
    rows = len(layers) + sum(1 for _ in lines)
    if count is not None and count != rows:
        hint = "the file may be cut short" if rows < count else None
        message = f"the second line says {count} layers, the file has {rows}"
        faults.add("count-mismatch", message, at=second[0], hint=hint)
    for key in _LISTS:
        for word, number in lists[key]:
            if number >= rows:
                faults.add("unknown-layer", f"{key} names layer {number} of {rows}, from 0", at=word)
    recomputes: dict[int, range] = {}
    checkpoints = sorted(number for _, number in lists["checkpoints"])
    for word, number in lists["checkpoint_initiates"]:
        before = bisect_right(checkpoints, number)
        if before == 0:
            faults.add("no-checkpoint", f"layer {number} is recomputed from no checkpoint before it", at=word)
        else:
            recomputes[number] = range(checkpoints[before - 1], number)
    faults.check()
    return TrainingJob(
        tensor=values["model_parallel_NPU_group"],
        expert=values["ep"],
        pipeline=values["pp"],
        virtual_pipeline=values["vpp"],
        accumulation=values["ga"],
        all_gpus=values["all_gpus"],
        pipeline_bytes=values["pp_comm"],
        recomputes=recomputes,
        layers=tuple(layer for layer in layers if layer is not None),
    )


def _header(words: list[Word], faults: Faults) -> tuple[dict[str, int], dict[str, list[tuple[Word, int]]]]:
    policy = words[0]
    if policy.text not in POLICIES:
        hint = f"the first word is one of {', '.join(POLICIES)}"
        faults.stop("unknown-policy", f"the parallelism {shown(policy.text)} is not supported", at=policy, hint=hint)
    values: dict[str, int] = {}
    places: dict[str, Word] = {}
    lists: dict[str, list[tuple[Word, int]]] = {key: [] for key in _LISTS}
    index = 1
    while index < len(words):
        word = words[index]
        key = word.text.removesuffix(":")
        index += 1
        if key not in (*_KEYS, *_LISTS):
            faults.add("unknown-key", f"{shown(word.text)} is none of {', '.join((*_KEYS, *_LISTS))}", at=word)
            continue
        if key in places:
            faults.add("duplicate-key", f"{key} stands twice", at=word)
        places[key] = word
        if index == len(words):
            faults.add("missing-value", f"{key} has no value after it", at=word)
            break
        high = MAX_LAYERS if key in _LISTS else MAX_NUMBER if key == "pp_comm" else MAX_RANKS
        value = faults.integer(words[index], key, low=0 if key in (*_LISTS, "pp_comm") else 1, high=high)
        index += 1
        if key in _LISTS:
            listed = words[index : index + (value or 0)]
            index += len(listed)
            if len(listed) < (value or 0):
                faults.add("missing-value", f"{key} says {value} layers and names {len(listed)}", at=word)
            for one in listed:
                number = faults.integer(one, f"a layer of {key}", high=MAX_LAYERS)
                if number is not None:
                    lists[key].append((one, number))
        elif value is not None:
            values[key] = value
    for key in ("model_parallel_NPU_group", "all_gpus"):
        if key not in places:
            faults.add("missing-key", f"the first line has no {key}:", at=policy)
    faults.check()
    for key in ("ep", "pp", "vpp", "ga"):
        values.setdefault(key, 1)
    values.setdefault("pp_comm", 0)
    gpus, stage = values["all_gpus"], values["model_parallel_NPU_group"] * values["pp"]
    if gpus % stage:
        message = f"{gpus} GPUs cannot be cut into parts of {stage} (tensor times pipeline parallelism)"
        faults.stop("bad-parallelism", message, at=places["all_gpus"])
    if (gpus // stage) % values["ep"]:
        message = f"expert parallelism {values['ep']} does not divide data parallelism {gpus // stage}"
        faults.stop("bad-parallelism", message, at=places["ep"])
    return values, lists


def _layer(words: list[Word], faults: Faults) -> Layer | None:
    if len(words) != COLUMNS:
        message = f"the row has {len(words)} columns instead of {COLUMNS}"
        hint = "name, -1, then time, collective and bytes of forward, input gradient and weight gradient, update time"
        faults.add("bad-row", message, at=words[0], hint=hint)
        return None
    if not words[1].text.removeprefix("-").isdigit():
        faults.add("not-a-number", f"the dependency is {shown(words[1].text)}, not -1", at=words[1])
    forward = _phase(words[2:5], ParallelGroup.TENSOR, faults)
    input_gradient = _phase(words[5:8], ParallelGroup.TENSOR, faults)
    weight_gradient = _phase(words[8:11], ParallelGroup.DATA, faults)
    update = faults.integer(words[11], "the update time", high=MAX_DURATION_NS)
    if forward is None or input_gradient is None or weight_gradient is None or update is None:
        return None
    return Layer(
        name=words[0].text[:100],
        forward=forward,
        input_gradient=input_gradient,
        weight_gradient=weight_gradient,
        update_ns=update,
        position=words[0].position,
    )


def _phase(words: list[Word], default: ParallelGroup, faults: Faults) -> Phase | None:
    compute = faults.integer(words[0], "the time", high=MAX_DURATION_NS)
    size = faults.integer(words[2], "the size")
    text, group = words[1].text, default
    for suffix, meant in (("_DP_EP", ParallelGroup.DATA_OF_EXPERT), ("_EP", ParallelGroup.EXPERT)):
        if text.endswith(suffix):
            text, group = text.removesuffix(suffix), meant
            break
    kind = _KINDS.get(text)
    if kind is None and words[1].text != "NONE":
        hint = f"NONE, or one of {', '.join(_KINDS)}, perhaps with _EP or _DP_EP behind it"
        faults.add("unknown-collective", f"{shown(words[1].text)} is not supported", at=words[1], hint=hint)
        return None
    if compute is None or size is None:
        return None
    return Phase(compute_ns=compute, kind=kind, group=group, size_bytes=size)
