"""Flows between GPUs of a domain under test, and what they carry once they have settled."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from domain_lab import DomainLab

from testbed.protocols.scale_up.domain.endpoint import Endpoint
from testbed.protocols.scale_up.domain.windows import WindowReference

LONG_BYTES = 64 << 20
"""More than any flow here sends until it has been measured."""
_SPACE = bytearray(LONG_BYTES)
"""The data that flows write: nothing looks at it, and its pages are never touched but for a few."""


def open_gpus(lab: DomainLab, count: int, **settings: Any) -> list[Endpoint]:
    """The first GPUs of the domain, with their links up."""
    gpus = [lab.gpu(number, **settings) for number in range(count)]
    serve(lab, 0.2)
    return gpus


@contextlib.contextmanager
def prompt() -> Iterator[None]:
    """This process runs before others, as a worker with endpoints does: rates are then the links' own."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def serve(lab: DomainLab, duration_s: float, gpus: Sequence[Endpoint] = ()) -> list[Any]:
    """Serve all endpoints for so long; what was done meanwhile at some of them."""
    deadline = time.monotonic() + duration_s
    done: list[Any] = []
    with prompt():
        while (left := deadline - time.monotonic()) > 0:
            lab.endpoints.run(left)
            for gpu in gpus:
                done += gpu.completions()
    return done


def lend(target: Endpoint, *sources: Endpoint) -> WindowReference:
    """A window of memory that nobody looks at, for others to write to."""
    window = target.export(_SPACE)
    for source in sources:
        window.authorise(source.gpu)
    return window.reference()


def begin_write(
    source: Endpoint, target: Endpoint | WindowReference, size: int = LONG_BYTES, *, vc: int | None = None
) -> int:
    """A write of so many bytes begins, into a window of its own or a given one."""
    window = target if isinstance(target, WindowReference) else lend(target, source)
    return source.write(window, memoryview(_SPACE)[:size], vc=vc)


def received_bytes(gpu: Endpoint) -> Mapping[int, int]:
    """By VC, over all planes: frames that were taken from the links."""
    planes = gpu.counters()["planes"]
    return {vc: sum(plane["vcs"][vc]["rx_bytes"] for plane in planes) for vc in range(len(planes[0]["vcs"]))}


def receive_rates(
    lab: DomainLab, gpus: Sequence[Endpoint], *, settle_s: float, measure_s: float, vcs: Sequence[int] = (0,)
) -> list[float]:
    """Return the rate at which each GPU receives on some VCs, in bit/s on its links, measured after a while."""
    serve(lab, settle_s)
    before, begun = [received_bytes(gpu) for gpu in gpus], time.monotonic()
    serve(lab, measure_s)
    after, took = [received_bytes(gpu) for gpu in gpus], time.monotonic() - begun
    return [8 * sum(late[vc] - early[vc] for vc in vcs) / took for early, late in zip(before, after, strict=True)]
