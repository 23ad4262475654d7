"""Transfers over InfiniBand: what a host is told of them. They go over a fabric in virtual time alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program
from testbed.endpoints.worker.traffic import Listener, Traffic
from testbed.endpoints.worker.transport_registry import WorkerTransport
from testbed.endpoints.worker.transports.roce import RoceSettings

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers

SERVICES = ("rc", "ud")
"""Reliable connections, or datagrams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IbSettings(RoceSettings):
    """The settings of RoCE's queue pairs, and the service that carries transfers."""

    kind: ClassVar[str] = "ib"
    service: Annotated[str, Meta(pattern="^(rc|ud)$")] = SERVICES[0]
    """One of `SERVICES`."""


def _make_traffic(
    program: Program, loop: WatchingLoop, buffers: CollectiveBuffers | None, listener: Listener
) -> Traffic:
    raise TrafficError("InfiniBand goes over a fabric in virtual time, and a worker has none")


TRANSPORT = WorkerTransport(settings=IbSettings, make_traffic=_make_traffic)
