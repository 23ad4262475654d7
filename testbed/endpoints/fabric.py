"""The transport for programs under asyncio, in libfabric's words: domains, endpoints, memory regions, completions.

    async with Fabric() as fabric:
        domain = fabric.open("10.0.0.1", UetConfig(base_rtt_ns=2_000_000))
        endpoint = domain.endpoint(job_id=7)
        await endpoint.send("10.0.0.2", b"hello")

No thread: the agent's epoll descriptor is one that the event loop waits for, and its timers are behind that descriptor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.endpoints.agent import Agent, begin_closing
from testbed.endpoints.fabric_endpoint import FabricEndpoint
from testbed.endpoints.sockets import SocketConfig
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, MemoryRegion
from testbed.protocols.uet.security.tss import SecureDomain
from testbed.protocols.uet.semantics.endpoint import WritableBuffer
from testbed.protocols.uet.trace import Trace

CLOSE_PATIENCE_S = 2.0
"""The time that operations may still take, and peers to acknowledge the end."""


class Fabric:
    """Any number of FEPs in one event loop. Leaving it closes what is open, in order; after an error, at once.

    `seed`: of the random numbers of its FEPs; by default the machine's own.
    """

    def __init__(self, *, seed: int | None = None) -> None:
        self.agent = Agent(seed=seed)
        self._domains: dict[str, Domain] = {}
        self._events: asyncio.AbstractEventLoop | None = None
        self._turn_is_due = False
        self._closed = False
        self._expected: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def __aenter__(self) -> Self:
        self._events = asyncio.get_running_loop()
        self._events.add_reader(self.agent.loop.fileno(), self._turn)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(CLOSE_PATIENCE_S if kind is None else 0.0)

    async def close(self, patience_s: float = CLOSE_PATIENCE_S) -> None:
        """Close every domain; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._events is not None:
                domains = list(self._domains.values())
                await asyncio.gather(*(domain.close(patience_s) for domain in domains))
        finally:
            self._detach()
            for domain in list(self._domains.values()):
                domain.give_up("the fabric is closed")
            self.agent.close(patience_ns=0)

    def open(
        self,
        address: str,
        config: UetConfig | None = None,
        *,
        sockets: SocketConfig | None = None,
        delay_ns: int | Mapping[str, int] = 0,
        security: SecureDomain | None = None,
        trace: Trace | None = None,
    ) -> Domain:
        """Open a FEP on an address of this host; the arguments are those of `Agent.open`.

        Raises `OSError` if the address is not ours or its port is taken.
        """
        if self._events is None:
            raise UsageError("a fabric is opened by `async with Fabric() as fabric`")
        fep = self.agent.open(
            address, config or UetConfig(), sockets=sockets, delay_ns=delay_ns, security=security, trace=trace
        )
        domain = self._domains[fep.address] = Domain(self, fep)
        return domain

    # --- for domains and endpoints -----------------------------------------------------------------------

    def touch(self) -> None:
        """The FEPs have been given work: a turn is due, one for all that is given before it."""
        self.agent.loop.touch()
        self._schedule_turn()

    async def reached(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition, which is asked after every turn, holds. False: it does not within the time."""
        assert self._events is not None
        future: asyncio.Future[None] = self._events.create_future()
        entry = (condition, future)
        self._expected.append(entry)
        self.touch()
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return condition()
        finally:
            if entry in self._expected:
                self._expected.remove(entry)
        return True

    def forget(self, domain: Domain) -> None:
        """It is closed."""
        del self._domains[domain.address]
        self.agent.forget(domain.address)

    # --- turns -------------------------------------------------------------------------------------------

    def _schedule_turn(self) -> None:
        if not self._turn_is_due and self._events is not None:
            self._turn_is_due = True
            self._events.call_soon(self._turn_due)

    def _turn_due(self) -> None:
        self._turn_is_due = False
        if self._events is not None:
            self._turn()

    def _turn(self) -> None:
        try:
            more = self.agent.loop.turn()
        except Exception as error:
            # A fault of ours. Without the descriptor the event loop does not come back to it for ever.
            self._detach()
            for domain in self._domains.values():
                domain.give_up(f"the transport failed: {error!r}")
            raise
        for domain in self._domains.values():
            domain.collect()
        for entry in list(self._expected):
            condition, future = entry
            if condition():
                self._expected.remove(entry)
                if not future.done():
                    future.set_result(None)
        if more:
            self._schedule_turn()

    def _detach(self) -> None:
        if self._events is not None:
            self._events.remove_reader(self.agent.loop.fileno())
            self._events = None


class Domain:
    """A FEP of this process. Made by `Fabric.open`."""

    def __init__(self, fabric: Fabric, fep: Fep) -> None:
        self.fep = fep
        """The protocol below: counters, trace, PDCs."""
        self.address = fep.address
        self.fabric = fabric
        self._endpoints: list[FabricEndpoint] = []
        self._closing = False

    def endpoint(
        self,
        *,
        job_id: int,
        pid_on_fep: int = 0,
        resource_index: int = 1,
        transmit_depth: int = 256,
        receive_depth: int = 1024,
    ) -> FabricEndpoint:
        """Open an endpoint, as a process of a job would. Raises `UsageError` if there is one of this name.

        The depths are the operations that may be under way, and the receives posted, at a time.
        """
        if self._closing:
            raise UsageError(f"{self.address} is closed")
        core = self.fep.endpoint(job_id=job_id, pid_on_fep=pid_on_fep, resource_index=resource_index)
        endpoint = FabricEndpoint(core, self.fabric.touch, transmit_depth=transmit_depth, receive_depth=receive_depth)
        self._endpoints.append(endpoint)
        return endpoint

    def memory_region(
        self, buffer: WritableBuffer, *, access: Access, key: int | None = None, job_id: int | None = None
    ) -> MemoryRegion:
        """Let peers at this memory: those of one job, or all. Its `key`, drawn at random by default, lets them in."""
        return self.fep.register(buffer, access, job_id, key)

    def deregister(self, region: MemoryRegion) -> None:
        """Close a memory region again."""
        self.fep.retire(region.key)

    def write_trace(self, path: Path) -> None:
        """Write the events of this FEP's trace to a file, one JSON object a line, as `testbed uet plot` reads them.

        Raises `UsageError` if the FEP was opened without a trace, `OSError` if the file cannot be written.
        """
        if self.fep.trace is None:
            raise UsageError(f"{self.address} was opened without a trace: fabric.open(..., trace=Trace())")
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in self.fep.trace.json_lines())

    async def close(self, patience_s: float = CLOSE_PATIENCE_S) -> None:
        """Take back posted receives, let other operations end, close the PDCs; what is not done in time fails."""
        if self._closing:
            return
        self._closing = True
        now = time.monotonic_ns()
        for endpoint in self._endpoints:
            endpoint.close()
        if patience_s > 0:
            begin_closing(self.fep, now)
            await self.fabric.reached(self._quiet, patience_s)
        self.give_up("the endpoint is closed")
        self.fabric.forget(self)

    def _quiet(self) -> bool:
        if any(endpoint.under_way for endpoint in self._endpoints):
            return False
        return not self.fep.pdcs

    def give_up(self, reason: str) -> None:
        """End every operation at once."""
        for endpoint in self._endpoints:
            endpoint.give_up(reason)

    def collect(self) -> None:
        """Hand out what has ended."""
        gone = False
        for endpoint in self._endpoints:
            endpoint.collect()
            gone = gone or (endpoint.is_closed and not endpoint.under_way)
        if gone:
            self._endpoints = [item for item in self._endpoints if not item.is_closed or item.under_way]
