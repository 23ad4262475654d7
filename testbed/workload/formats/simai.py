"""SimAI's workload files, read: how a training job is cut into parallel parts, and its layers.

Source: aliyun/SimAI, `astra-sim-alibabacloud/astra-sim/workload/Workload.cc` (`initialize_workload`,
`decode_parallelsim`, `decode_involved_dimensions`) and `example/`; aliyun/aicb, `workload/simAI`. Line 1 is the policy
and `key: value` pairs, line 2 the number of layers; a layer is a row of twelve columns, and with HYBRID_CUSTOMIZED its
own policy. Times are nanoseconds, sizes bytes: of an all-gather and a reduce-scatter the whole array.

Without `all_gpus`, which most of AICB's files lack, the job has as many ranks as the lab, as in SimAI as many as its
topology. A key of value 0 is as good as none.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from testbed.base.errors import Position, WorkloadError
from testbed.base.names import choice_hint
from testbed.workload.formats.source import MAX_NUMBER, MAX_RANKS, Faults, Word, shown, word_lines

MAX_LAYERS = 100_000
MAX_DURATION_NS = 10**15
COLUMNS = 12

_KINDS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
}
_IGNORED = "BROADCAST"
"""AICB writes it; SimAI does not know it, and sends nothing."""
_KEYS = ("model_parallel_NPU_group", "ep", "pp", "vpp", "ga", "all_gpus", "pp_comm", "DLRM_LAST_BOTTOM_LAYER")
_LISTS = ("checkpoints", "checkpoint_initiates")


class ParallelGroup(StrEnum):
    """The ranks that a collective joins."""

    TENSOR = "tp"
    DATA = "dp"
    EXPERT = "ep"
    DATA_OF_EXPERT = "dp_ep"
    ALL = "all"
    HOST = "host"
    """The ranks of one host: the first dimension of SimAI's topology."""
    RAIL = "rail"
    """Ranks with the same place in every host: its other dimensions."""


class Order(StrEnum):
    """In which order a policy's layers compute and communicate: the `iterate_` functions of `Workload.cc`."""

    INPUT_FIRST = "input-first"
    """Backward, the input gradient's collective ends before the weight gradient is computed."""
    BESIDE = "beside"
    """It travels beside that, and ends before the next layer."""
    WEIGHT_FIRST = "weight-first"
    """Backward, weight gradients come first; no collective is waited for before the layer's next forward."""
    DLRM = "dlrm"
    """As that, but layer 0 exchanges embeddings: forward and back, and both are waited for."""
    DLRM_ENHANCED = "dlrm-enhanced"
    """As that, but the way back is not waited for."""
    FORWARD = "forward"
    """Forward passes alone, as in inference."""
    MICRO = "micro"
    """The collectives of weight gradients alone, row by row; no computing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy of a file's first word: the ranks of a phase's collectives (None: it has none), and their order."""

    order: Order
    forward: ParallelGroup | None = None
    """Also of input gradients."""
    weights: ParallelGroup | None = None


POLICIES = {
    "HYBRID_TRANSFORMER": Policy(order=Order.INPUT_FIRST, forward=ParallelGroup.TENSOR, weights=ParallelGroup.DATA),
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": Policy(
        order=Order.INPUT_FIRST, forward=ParallelGroup.TENSOR, weights=ParallelGroup.DATA
    ),
    "DATA": Policy(order=Order.WEIGHT_FIRST, weights=ParallelGroup.ALL),
    "MODEL": Policy(order=Order.BESIDE, forward=ParallelGroup.ALL),
    "HYBRID_DATA_MODEL": Policy(order=Order.BESIDE, forward=ParallelGroup.HOST, weights=ParallelGroup.RAIL),
    "HYBRID_MODEL_DATA": Policy(order=Order.BESIDE, forward=ParallelGroup.RAIL, weights=ParallelGroup.HOST),
    "HYBRID_CUSTOMIZED": Policy(order=Order.BESIDE),
    "HYBRID_DLRM": Policy(order=Order.DLRM, weights=ParallelGroup.ALL),
    "HYBRID_DLRM_ENHANCED": Policy(order=Order.DLRM_ENHANCED, weights=ParallelGroup.ALL),
    "DISTRIBUTED_INFERENCE": Policy(order=Order.FORWARD, forward=ParallelGroup.ALL),
    "MICRO": Policy(order=Order.MICRO, weights=ParallelGroup.ALL),
}
_TRANSFORMERS = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
_EVERYWHERE = Policy(order=Order.DLRM, forward=ParallelGroup.ALL, weights=ParallelGroup.ALL)
"""The policy of the first layer of DLRM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimaiPhase:
    """A part of a layer's work: computing, then perhaps a collective."""

    compute_ns: int
    kind: str | None
    group: ParallelGroup
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimaiLayer:
    name: str
    forward: SimaiPhase
    input_gradient: SimaiPhase
    weight_gradient: SimaiPhase
    update_ns: int
    """After each of the layer's collectives."""
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """The file as written. The data-parallel size is what remains of `all_gpus`."""

    order: Order
    tensor: int
    expert: int
    pipeline: int
    all_gpus: int
    pipeline_bytes: int
    recomputes: dict[int, range]
    """For a layer that initiates: the layers whose forward runs again before its backward."""
    layers: tuple[SimaiLayer, ...]
    last_bottom_layer: int = 0
    """The layer of DLRM behind which embeddings are needed."""
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> int:
        return self.all_gpus // (self.tensor * self.pipeline)

    @property
    def recomputed(self) -> int:
        """Layers that run forward again, in one pass."""
        return sum(map(len, self.recomputes.values()))

    def ranks_of(self, group: ParallelGroup, ranks_per_host: int = 1) -> list[tuple[int, ...]]:
        """Return every rank's group, each once. Source: SimAI, `system/MockNcclGroup.cc`.

        Tensor groups are consecutive ranks, expert groups the same place in consecutive tensor groups. Raises
        `WorkloadError` where hosts are of no use: their ranks do not divide the job's.
        """
        gpus, tensor, expert = self.all_gpus, self.tensor, self.expert
        match group:
            case ParallelGroup.ALL:
                return [tuple(range(gpus))]
            case ParallelGroup.TENSOR:
                return [tuple(range(first, first + tensor)) for first in range(0, gpus, tensor)]
            case ParallelGroup.DATA:
                stride = gpus // self.data
                return [tuple(range(first, gpus, stride)) for first in range(stride)]
            case ParallelGroup.HOST | ParallelGroup.RAIL:
                if gpus % ranks_per_host:
                    raise WorkloadError(f"{gpus} GPUs are no whole number of hosts with {ranks_per_host} each")
                if group is ParallelGroup.HOST:
                    return [tuple(range(first, first + ranks_per_host)) for first in range(0, gpus, ranks_per_host)]
                return [tuple(range(first, gpus, ranks_per_host)) for first in range(ranks_per_host)]
            case ParallelGroup.EXPERT:
                size, block, stride = expert, tensor * expert, tensor
            case ParallelGroup.DATA_OF_EXPERT:
                size, block, stride = self.data // expert, tensor * self.data, tensor * expert
        return [
            tuple(range(start + inside, start + inside + size * stride, stride))
            for start in range(0, gpus, block)
            for inside in range(stride)
        ]


def parse_simai_workload(text: str, *, file: str, ranks: int | None = None) -> TrainingJob:
    """Read a SimAI workload; `ranks` is the number of ranks where the file does not say it.

    Raises `SpecError` with every fault and its place.
    """
    faults = Faults(file)
    lines = word_lines(text)
    head, second = next(lines, None), next(lines, None)
    if head is None:
        hint = "its first line begins with HYBRID_TRANSFORMER_FWD_IN_BCKWD, or another policy of SimAI"
        faults.stop("empty", "the file is empty", hint=hint)
    values, lists = _header(head, faults, ranks)
    if second is None:
        faults.stop("no-layers", "the file has no second line", hint="it is the number of layers")
    if len(second) > 1:
        faults.add("bad-header", "the second line is the number of layers alone", at=second[1])
    count = faults.integer(second[0], "the number of layers", low=1, high=MAX_LAYERS)
    reader = _Rows(head[0].text, faults)
    layers = [reader.layer(words, index) for index, words in enumerate(islice(lines, MAX_LAYERS))]
    rows = len(layers) + sum(1 for _ in lines)
    if count is not None and count != rows:
        cut = "the file may be cut short" if rows < count else None
        message = f"the second line says {count} layers, the file has {rows}"
        faults.add("count-mismatch", message, at=second[0], hint=cut)
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
        order=POLICIES[head[0].text].order,
        tensor=values["model_parallel_NPU_group"],
        expert=values["ep"],
        pipeline=values["pp"],
        all_gpus=values["all_gpus"],
        pipeline_bytes=values["pp_comm"],
        recomputes=recomputes,
        layers=tuple(layer for layer in layers if layer is not None),
        last_bottom_layer=values["DLRM_LAST_BOTTOM_LAYER"],
        notes=reader.notes(),
    )


def _header(
    words: list[Word], faults: Faults, ranks: int | None
) -> tuple[dict[str, int], dict[str, list[tuple[Word, int]]]]:
    policy = words[0]
    if policy.text not in POLICIES:
        hint = choice_hint(policy.text.upper(), POLICIES, f"the first word is one of {', '.join(POLICIES)}")
        faults.stop("unknown-policy", f"the parallelism {shown(policy.text)} is not supported", at=policy, hint=hint)
    values, places, lists = _pairs(words[1:], faults)
    gpus = values.get("all_gpus") or ranks
    if gpus is None:
        hint = "write it as AICB does (all_gpus: 16), or import the file on a lab, whose ranks it has then"
        faults.add("missing-key", "the first line has no all_gpus:", at=policy, hint=hint)
    if policy.text in _TRANSFORMERS and "model_parallel_NPU_group" not in places:
        faults.add("missing-key", "the first line has no model_parallel_NPU_group:", at=policy)
    faults.check()
    assert gpus is not None
    values["all_gpus"] = gpus
    for key in ("ep", "pp", "vpp", "ga"):
        values[key] = values.get(key) or 1
    # SimAI takes a group of 0 for all; other policies than its transformers have none.
    tensor = values.get("model_parallel_NPU_group") or (gpus if policy.text in _TRANSFORMERS else 1)
    values["model_parallel_NPU_group"] = tensor
    values.setdefault("pp_comm", 0)
    values.setdefault("DLRM_LAST_BOTTOM_LAYER", 0)
    stage = tensor * values["pp"]
    where = places.get("all_gpus") or places.get("model_parallel_NPU_group") or policy
    if gpus % stage:
        message = f"{gpus} GPUs cannot be cut into parts of {stage} (tensor times pipeline parallelism)"
        other = None if "all_gpus" in places else f"a lab with {stage} ranks, or a multiple of that"
        faults.stop("bad-parallelism", message, at=where, hint=other)
    if (gpus // stage) % values["ep"]:
        message = f"expert parallelism {values['ep']} does not divide data parallelism {gpus // stage}"
        faults.stop("bad-parallelism", message, at=places["ep"])
    return values, lists


def _pairs(
    words: list[Word], faults: Faults
) -> tuple[dict[str, int], dict[str, Word], dict[str, list[tuple[Word, int]]]]:
    """The `key: value` pairs of the first line, where each key stands, and the lists of layers."""
    values: dict[str, int] = {}
    places: dict[str, Word] = {}
    lists: dict[str, list[tuple[Word, int]]] = {key: [] for key in _LISTS}
    index = 0
    while index < len(words):
        word = words[index]
        key = word.text.removesuffix(":")
        index += 1
        if key not in (*_KEYS, *_LISTS):
            _unknown_key(word, faults)
            if index < len(words) and words[index].text.isdigit():
                index += 1  # its value
            continue
        if key in places:
            faults.add("duplicate-key", f"{key} stands twice", at=word)
        places[key] = word
        if index == len(words):
            faults.add("missing-value", f"{key} has no value after it", at=word)
            break
        layers = key in (*_LISTS, "DLRM_LAST_BOTTOM_LAYER")
        high = MAX_LAYERS if layers else MAX_NUMBER if key == "pp_comm" else MAX_RANKS
        value = faults.integer(words[index], key, high=high)
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
    return values, places, lists


def _unknown_key(word: Word, faults: Faults) -> None:
    known = (*_KEYS, *_LISTS)
    key, _, value = word.text.replace("=", ":").partition(":")
    hint = f"write {key}: {value}" if key in known and value else choice_hint(key, known, "remove it, and its value")
    faults.add("unknown-key", f"{shown(word.text)} is none of {', '.join(known)}", at=word, hint=hint)


class _Rows:
    """Reads the layers of a file with a policy, and counts what the policy has no use for."""

    def __init__(self, policy: str, faults: Faults) -> None:
        self.name = policy
        self.faults = faults
        self.columns = COLUMNS + (policy == "HYBRID_CUSTOMIZED")
        self.unused = self.unknown = 0

    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.unused:
            notes.append(f"{self.name} has no collectives in {self.unused} of the phases for which the file names one")
        if self.unknown:
            notes.append(f"{_IGNORED} is left out, as in SimAI: {self.unknown}")
        return tuple(notes)

    def layer(self, words: list[Word], index: int) -> SimaiLayer | None:
        faults = self.faults
        if len(words) != self.columns:
            message = f"the row has {len(words)} columns instead of {self.columns}"
            hint = (
                "name, -1, then time, collective and bytes of forward, input gradient and weight gradient, update time"
            )
            faults.add("bad-row", message, at=words[0], hint=hint)
            return None
        if not words[1].text.removeprefix("-").isdigit():
            faults.add("not-a-number", f"the dependency is {shown(words[1].text)}, not -1", at=words[1])
        policy = self._policy(words, index)
        if policy is None:
            return None
        forward = self._phase(words[2:5], policy.forward)
        input_gradient = self._phase(words[5:8], policy.forward)
        weight_gradient = self._phase(words[8:11], policy.weights)
        update = faults.integer(words[11], "the update time", high=MAX_DURATION_NS)
        if forward is None or input_gradient is None or weight_gradient is None or update is None:
            return None
        return SimaiLayer(
            name=words[0].text[:100],
            forward=forward,
            input_gradient=input_gradient,
            weight_gradient=weight_gradient,
            update_ns=update,
            position=words[0].position,
        )

    def _policy(self, words: list[Word], index: int) -> Policy | None:
        """The policy of a row."""
        policy = POLICIES[self.name]
        if policy.order in {Order.DLRM, Order.DLRM_ENHANCED} and index == 0:
            return _EVERYWHERE
        if self.columns == COLUMNS:
            return policy
        word = words[COLUMNS]
        found = POLICIES.get(word.text)
        if found is None or word.text == self.name:
            known = ", ".join(name for name in POLICIES if name != self.name)
            message = f"the layer's parallelism {shown(word.text)} is not supported"
            self.faults.add("unknown-policy", message, at=word, hint=f"one of {known}")
            return None
        return found

    def _phase(self, words: list[Word], group: ParallelGroup | None) -> SimaiPhase | None:
        """A phase whose collectives are of `group`, unless the collective's name says otherwise."""
        compute = self.faults.integer(words[0], "the time", high=MAX_DURATION_NS)
        size = self.faults.integer(words[2], "the size")
        text = words[1].text
        for suffix, meant in (("_DP_EP", ParallelGroup.DATA_OF_EXPERT), ("_EP", ParallelGroup.EXPERT)):
            if text.endswith(suffix):
                text = text.removesuffix(suffix)
                group = meant if self.name in _TRANSFORMERS else group
                break
        kind = _KINDS.get(text)
        if kind is None and words[1].text not in ("NONE", _IGNORED):
            known = f"NONE, or one of {', '.join(_KINDS)}, perhaps with _EP or _DP_EP behind it"
            hint = choice_hint(words[1].text.upper(), _KINDS, known)
            self.faults.add("unknown-collective", f"{shown(words[1].text)} is not supported", at=words[1], hint=hint)
            return None
        self.unknown += text == _IGNORED
        if compute is None or size is None:
            return None
        if kind is not None and group is None:
            self.unused += 1
            kind = None
        return SimaiPhase(compute_ns=compute, kind=kind, group=group or ParallelGroup.ALL, size_bytes=size)
