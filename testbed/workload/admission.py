"""Receiver admission: a rank lets at most a window of bytes come at a time, and senders wait until they are cleared.

Meta trains without DCQCN since the receivers of its collectives throttle: NCCL sends a chunk only after the receiver
has sent a clear-to-send packet for it, so that what is under way to a rank is bounded (Gangidi et al., "RDMA over
Ethernet for Distributed AI Training at Meta Scale", SIGCOMM 2024, section 5.3). Here these packets are messages of
the workload like any other, so they go over every transport, emulated and simulated.

A rank's first window is cleared beforehand, as NCCL posts its first buffers before anything is sent. Each later
transfer to it waits for a message that the rank sends when so much of what was cleared before has come that the window
has room. Transfers are cleared in the order of the workload's steps, in which all that a step waits for stands before
it, so nothing waits in a circle. One that is larger than the window comes alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from testbed.base.errors import WorkloadError
from testbed.workload.steps import Collective, Compute, FoldedRing, Step, Transfer, Workload

CLEAR_BYTES = 64
"""The size of a clear-to-send message: an entry of NCCL's FIFO of receives (ncclIbSendFifo of transport/net_ib.cc)."""


@dataclass(slots=True)
class _Receiver:
    """The transfers that a rank has let come, by number and size, the oldest first, as far as they fill a window."""

    cleared: deque[tuple[int, int]] = field(default_factory=deque)
    bytes: int = 0
    gate: int | None = None
    """The step that has ended when all before those has come; None: nothing was waited for so far."""


def with_admission(workload: Workload, window_bytes: int) -> Workload:
    """Return a workload whose ranks let at most `window_bytes` come over the fabric at a time.

    Reads, which their receiver begins, and jobs of fio are no pushes, and come as before. Steps that nothing is put
    before stay what they are, but for their numbers. Raises `WorkloadError` for a ring that is one step.
    """
    folded = next((step for step in workload.steps if isinstance(step, FoldedRing)), None)
    if folded is not None:
        raise WorkloadError(
            f"admission holds back transfers one by one, and those of a ring of {len(folded.ranks):,} ranks are one"
            " step",
            field="admission",
            hint="fewer ranks, or the workload without admission",
        )
    receivers: dict[int, _Receiver] = {}
    steps: list[Step] = []
    moved: list[int] = []
    messages = 0
    for old in workload.steps:
        step, after = old, tuple(moved[before] for before in old.after)
        if isinstance(step, Transfer) and step.restores is not None:
            step = replace(step, restores=moved[step.restores])
        if isinstance(step, Transfer) and not (step.scale_up or step.pulled or step.job is not None):
            receiver = receivers.setdefault(step.destination, _Receiver())
            cleared = _clear(receiver, step, steps, window_bytes)
            messages += cleared is not None
            after = after if cleared is None else (*after, cleared)
            receiver.cleared.append((len(steps), step.size_bytes))
            receiver.bytes += step.size_bytes
        moved.append(len(steps))
        steps.append(replace(step, number=len(steps), after=after))
    note = f"Ranks let {window_bytes:,} bytes come at a time, by {messages} messages of {CLEAR_BYTES} bytes."
    return replace(
        workload,
        steps=tuple(steps),
        collectives=tuple(_moved(collective, moved) for collective in workload.collectives),
        first_tokens=tuple(replace(one, step=moved[one.step]) for one in workload.first_tokens),
        notes=(*workload.notes, note),
    )


def _clear(receiver: _Receiver, step: Transfer, steps: list[Step], window_bytes: int) -> int | None:
    """Add what clears a transfer: the number of the message that its source waits for; None: there is room for it."""
    waited_for: list[int] = []
    while receiver.cleared and receiver.bytes + step.size_bytes > window_bytes:
        number, size = receiver.cleared.popleft()
        receiver.bytes -= size
        waited_for.append(number)
    if waited_for:
        before = () if receiver.gate is None else (receiver.gate,)
        receiver.gate = len(steps)
        steps.append(
            Compute(
                number=len(steps),
                rank=step.destination,
                duration_ns=0,
                after=(*before, *waited_for),
                label=f"{step.label}.room",
            )
        )
    if receiver.gate is None:
        return None
    number = len(steps)
    steps.append(
        Transfer(
            number=number,
            source=step.destination,
            destination=step.source,
            size_bytes=CLEAR_BYTES,
            after=(receiver.gate,),
            label=f"{step.label}.clear",
        )
    )
    return number


def _moved(collective: Collective, moved: list[int]) -> Collective:
    span = collective.steps
    if not span:
        return collective
    return replace(collective, steps=range(moved[span.start], moved[span.stop - 1] + 1))
