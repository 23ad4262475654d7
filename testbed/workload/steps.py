"""The parts of a workload: transfers between ranks, computing, and what each waits for.

A rank is a GPU (or a host of the front-end), numbered from 0; which NIC of which host it is, is decided elsewhere. A
collective's transfers say which part of an array they carry and whether it is added or copied at the receiver, so that
a worker can carry real data and check it.

Storage protocols have commands for reads. Over a transport that only sends bytes, whose transfers are begun by who has
them, a request goes there first (`with_requests`), as those commands are on the wire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise


class Combine(StrEnum):
    """The use that a receiver makes of the bytes that arrive."""

    NONE = "none"
    """None: the bytes are traffic alone."""
    COPY = "copy"
    REDUCE = "reduce"
    """Added, element by element, to what is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Part of a rank's array, in elements."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length

    def split(self, parts: int) -> tuple[Slice, ...]:
        """`parts` slices one after another, the first ones longer by one element where it does not divide."""
        base, longer = divmod(self.length, parts)
        starts = [self.offset + part * base + min(part, longer) for part in range(parts + 1)]
        return tuple(Slice(offset=a, length=b - a) for a, b in pairwise(starts))


@dataclass(frozen=True, slots=True, kw_only=True)
class IoJob:
    """A transfer that fio moves: requests of `block_bytes`, `depth` of them under way, in an area of a target.

    A job that reads and writes is two transfers of one label, one each way.
    """

    area_bytes: int
    """The area that the job has of the target, in whole blocks: each is visited once, and again where it `repeats`."""
    block_bytes: int
    depth: int = 1
    at_random: bool = False
    read_percent: int | None = None
    """The percentage of reads in a job that reads and writes. fio draws which."""
    runtime_ns: int = 0
    """The job ends after this time, in real time (the scale multiplies it), done or not; 0: when it is done."""
    repeats: bool = False
    """It begins again with its first block, until its time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InSwitch:
    """The part that a transfer has in an operation of a scale-up switch (NVLink SHARP), which has `members` of them.

    The switch adds up the same piece of all members' sources on its way to one destination or, with `multicast`,
    copies one source's piece to all members' destinations. `operation` tells operations apart.
    """

    operation: int
    members: int
    multicast: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes from one rank to another. `number` is its place in the workload's steps."""

    number: int
    source: int
    destination: int
    size_bytes: int
    after: tuple[int, ...] = ()
    """Steps that must have ended before it begins."""
    start_ns: int = 0
    """Not before this time after the workload's start, in real time (the scale multiplies it)."""
    piece: Slice | None = None
    """The elements that it carries of a collective, at the same place of the receiver unless `target` differs."""
    target: Slice | None = None
    combine: Combine = Combine.NONE
    scale_up: bool = False
    """Between GPUs of one scale-up domain: over its network, not over the fabric."""
    in_switch: InSwitch | None = None
    """The operation in a scale-up switch that it is part of; None where it goes from GPU to GPU."""
    vc: int | None = None
    """The virtual channel of its frames inside a scale-up domain; None: that of requests."""
    pulled: bool = False
    """It is a read: its destination begins it by asking for the bytes, and so `after` has steps of the destination."""
    restores: int | None = None
    """The transfer whose bytes a read has. A transport whose targets keep what is written reads just them."""
    withdraws: bool = False
    """With its end, nobody else may read any more what its source keeps in the pooled memory that it goes to."""
    job: IoJob | None = None
    """fio moves it so, and with a limit of time its size is only what one pass has; None: as the transport does."""
    label: str = ""
    """The thing it belongs to: `allreduce[3].reduce-scatter.2`, `forward.mb0.layer1`, ..."""

    @property
    def begun_by(self) -> int:
        """The rank that begins it."""
        return self.destination if self.pulled else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """A rank is busy for a time."""

    number: int
    rank: int
    duration_ns: int
    """In real time (the scale multiplies it)."""
    after: tuple[int, ...] = ()
    start_ns: int = 0
    """Not before this time after the workload's start, in real time."""
    waits: bool = False
    """Nothing is computed: its rank waits for the begin of its tenant."""
    is_batch: bool = False
    """An accelerator works on a batch that was read for it: the time from one to the next says how well it is used."""
    label: str = ""

    @property
    def is_work(self) -> bool:
        """Tell whether a job has begun with it: it is no wait, nor a mere meeting of steps."""
        return self.duration_ns > 0 and not self.waits


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedRing:
    """All transfers of a ring collective in one step: in each of its rounds every rank sends a block to the next one,
    once it has that of the round before.

    Whoever looks at flows, and not at packets, need not see each: of 16,384 ranks they are half a billion.
    """

    number: int
    ranks: tuple[int, ...]
    """In the order of the ring; the last one sends to the first."""
    size_bytes: int
    """The size of a block: what a rank sends in a round."""
    rounds: int
    chunks: int = 1
    """The parts of a block that follow one another."""
    inside: frozenset[int] = frozenset()
    """The ranks that send to the next one inside their scale-up domain, over its network."""
    after: tuple[int, ...] = ()
    start_ns: int = 0
    label: str = ""

    @property
    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield each rank with the one that it sends to."""
        return zip(self.ranks, (*self.ranks[1:], self.ranks[0]), strict=True)

    @property
    def total_bytes(self) -> int:
        """Return the payload of all its transfers."""
        return len(self.ranks) * self.rounds * self.size_bytes


Step = Transfer | Compute | FoldedRing


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective that a set of steps amounts to, for busbw and for checking data.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """

    kind: str
    """`all_reduce`, `reduce_scatter`, `all_gather`, `broadcast`, `reduce`, `gather`, `scatter`, `all_to_all` or
    `send_recv`."""
    algorithm: str
    ranks: tuple[int, ...]
    size_bytes: int
    """S as nccl-tests has it for this kind."""
    elements: int
    """The elements of each rank's array."""
    steps: range
    root: int | None = None
    staging: int = 0
    """Elements behind each rank's array in which it keeps what it passes on to others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for inference: a prompt goes from a client to a server, which answers it token by token.

    It begins at its time, whatever became of others (open loop). Times are real (the scale multiplies them).
    """

    number: int
    """Its place in the workload's requests."""
    client: int
    server: int
    start_ns: int
    prompt_tokens: int
    output_tokens: int
    request_bytes: int
    """The size of the whole request, its header included."""
    chunk_bytes: int
    """The size of each token in the answer."""
    prefill_ns: int
    """The time that the server computes from the last byte of the request until the first token."""
    tpot_ns: int
    """The time that it computes from one token to the next (TPOT: time per output token)."""
    ttft_limit_ns: int
    """The longest time to the first token (TTFT) of a request that counts as goodput."""
    tpot_limit_ns: int
    """Its longest mean time from one token to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """A prompt whose first token is there when a step of computing has ended. Times are real (the scale multiplies
    them)."""

    step: int
    due_ns: int
    """When the prompt arrived, after the workload's start."""
    service_ns: int
    """The part of the time to the first token that is computing, where nothing is waited for."""
    limit_ns: int
    """The longest time to the first token (TTFT) that counts as goodput."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Steps in an order in which every step stands after those that it waits for.

    `ranks` is how many there are.
    """

    name: str
    ranks: int
    steps: tuple[Step, ...]
    collectives: tuple[Collective, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """Approximations made, for the report."""
    requests: tuple[Request, ...] = ()
    """Beside the steps, and in the order of their begins; nothing waits for them."""
    first_tokens: tuple[FirstToken, ...] = ()
    """First tokens of prompts that are steps here, and not requests."""
    tenant_ranks: tuple[tuple[int, ...], ...] = ()
    """The ranks of each of its tenants, in their order, where it is made of several workloads side by side."""
    tenant_names: tuple[str, ...] = ()
    """The names of those tenants, where somebody has named them."""
    tenant_starts_ns: tuple[int, ...] = ()
    """When each of those that are named begins."""

    def __post_init__(self) -> None:
        for number, step in enumerate(self.steps):
            if step.number != number:
                raise ValueError(f"step {number} is numbered {step.number}")
            if any(not 0 <= before < number for before in step.after):
                raise ValueError(f"step {number} waits for {step.after}, which do not stand before it")
            if isinstance(step, Transfer) and step.restores is not None and not 0 <= step.restores < number:
                raise ValueError(f"step {number} restores {step.restores}, which does not stand before it")
        for number, request in enumerate(self.requests):
            if request.number != number:
                raise ValueError(f"request {number} is numbered {request.number}")

    @property
    def tenants_apart(self) -> dict[str, frozenset[int]]:
        """Return the ranks of its named tenants by their names, without those that share ranks with another: what a
        rank does cannot be told apart."""
        taken = Counter(rank for ranks in self.tenant_ranks for rank in set(ranks))
        named = zip(self.tenant_names, self.tenant_ranks, strict=False)
        return {name: frozenset(ranks) for name, ranks in named if all(taken[rank] == 1 for rank in ranks)}

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        return tuple(step for step in self.steps if isinstance(step, Transfer))

    @property
    def is_open_loop(self) -> bool:
        """Tell whether all of it is transfers that wait for nothing but their time, some of them over the fabric."""
        if self.requests or all(step.scale_up for step in self.transfers):
            return False
        return all(isinstance(step, Transfer) and not step.after and step.in_switch is None for step in self.steps)

    @property
    def is_pattern(self) -> bool:
        """Tell whether all of it is transfers that begin at once, some of them over the fabric."""
        return self.is_open_loop and not any(step.start_ns for step in self.transfers)


def fabric_pairs(workload: Workload) -> Iterator[tuple[int, int]]:
    """Yield, for each transfer over the fabric and each request, the rank that sends and the one that receives."""
    for step in workload.steps:
        if isinstance(step, Transfer) and not step.scale_up:
            yield step.source, step.destination
        elif isinstance(step, FoldedRing):
            yield from (ends for ends in step.edges if ends[0] not in step.inside)
    for request in workload.requests:
        yield request.client, request.server


def sends_nothing(workload: Workload) -> bool:
    """Tell whether no step sends and nobody asks for anything, so that no network could fail at it."""
    return not workload.requests and not any(isinstance(step, Transfer | FoldedRing) for step in workload.steps)


def payload_bytes(workload: Workload) -> int:
    """Return all payload: of transfers, and of requests with their answers."""
    asked = sum(one.request_bytes + one.output_tokens * one.chunk_bytes for one in workload.requests)
    folded = sum(step.total_bytes for step in workload.steps if isinstance(step, FoldedRing))
    return asked + folded + sum(step.size_bytes for step in workload.transfers)


def fabric_bytes(workload: Workload) -> int:
    """Return the payload that enters the fabric: all but what stays in a scale-up domain."""
    inside = sum(step.size_bytes for step in workload.transfers if step.scale_up)
    rings = [step for step in workload.steps if isinstance(step, FoldedRing)]
    inside += sum(len(step.inside) * step.rounds * step.size_bytes for step in rings)
    return payload_bytes(workload) - inside


def requests_last_ns(workload: Workload) -> int:
    """Return when servers have computed the last token of all, in real time from the begin; 0 without requests."""
    return max(
        (one.start_ns + one.prefill_ns + (one.output_tokens - 1) * one.tpot_ns for one in workload.requests), default=0
    )


READ_REQUEST_BYTES = 72
"""A command of NVMe/TCP: a submission queue entry of 64 bytes behind the PDU's header (NVM Express TCP Transport
Specification 1.0, section 3.6.2.2)."""


def with_requests(workload: Workload, *, pulls: Callable[[Transfer], bool] = lambda step: False) -> Workload:
    """Return a workload that has a transfer of a request before each read, unless the transport `pulls` that.

    The request goes from the reader to who has the bytes, and waits for what the read waited for; the read is then
    begun by its source. Steps that nothing is put before stay what they are, but for their numbers.
    """
    if not any(step.pulled and not pulls(step) for step in workload.transfers):
        return workload
    steps: list[Step] = []
    moved: list[int] = []
    for old in workload.steps:
        step, after = old, tuple(moved[before] for before in old.after)
        if isinstance(step, Transfer) and step.pulled and not pulls(step):
            request = Transfer(
                number=len(steps),
                source=step.destination,
                destination=step.source,
                size_bytes=READ_REQUEST_BYTES,
                after=after,
                start_ns=step.start_ns,
                scale_up=step.scale_up,
                label=f"{step.label}.request",
            )
            steps.append(request)
            step, after = replace(step, pulled=False, start_ns=0), (request.number,)
        if isinstance(step, Transfer) and step.restores is not None:
            step = replace(step, restores=moved[step.restores])
        moved.append(len(steps))
        steps.append(replace(step, number=len(steps), after=after))
    return replace(
        workload,
        steps=tuple(steps),
        collectives=tuple(_moved(collective, moved) for collective in workload.collectives),
        first_tokens=tuple(replace(one, step=moved[one.step]) for one in workload.first_tokens),
        notes=(*workload.notes, f"A read is asked for by a message of {READ_REQUEST_BYTES} bytes."),
    )


def _moved(collective: Collective, moved: list[int]) -> Collective:
    span = collective.steps
    if not span:
        return collective
    return replace(collective, steps=range(moved[span.start], moved[span.stop - 1] + 1))
