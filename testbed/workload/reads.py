"""Reads over a transport whose transfers are begun by who has the bytes: a request goes to it first.

Storage protocols have commands for this; a transport that only sends bytes gets what those are on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from testbed.workload.steps import Collective, Step, Transfer, Workload

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
