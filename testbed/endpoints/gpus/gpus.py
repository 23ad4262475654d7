"""GPUs of a scale-up domain for programs under asyncio: windows of memory, and loads, stores, atomics, copies and
messages between them.

    async with ScaleUp() as scale_up:                     # in a host of a lab: `./lab exec HOST -- python PROGRAM`
        here, there = await scale_up.open(1), await scale_up.open(2)
        window = await there.window(bytearray(1 << 20))
        await window.authorise(here.number)
        await here.store(window.reference, b"hello", offset=64)
        print(await here.load(window.reference, 5, offset=64))

**Units.** Sizes and offsets are bytes. Times are of the lab: a round trip takes the modelled one times the time scale.

**Order.** Operations of a GPU that touch one region of 256 bytes, aligned to its window's address 0, are carried out in
the order in which they were asked for (UALink 200G 1.0). Between regions there is none: they take different planes.
`fence` makes what is asked for after it wait for all before it. An operation is done when the peer has answered for
every byte of it.

**Errors.** `WindowRefused`: the peer has no such window, its key is another one, or it has not authorised this GPU
there for that. `TransactionTimeout`: no answer came. `LinkDown`: a plane in use went down, or all are.
`OperationCancelled`: the GPU was closed. All are `ScaleUpError`. What such an operation has done until then is done.
`UsageError`: what cannot be asked at all, such as an offset outside of the window.

A thread serves the GPUs, so that peers reach a GPU's windows whatever its program does meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Self, TypeVar

from testbed.endpoints.gpus.server_thread import ServedGpu, ServerThread
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.endpoint import Done
from testbed.protocols.scale_up.domain.host_gpus import HostGpus
from testbed.protocols.scale_up.domain.windows import ALL_RIGHTS, Window, WindowReference

_T = TypeVar("_T")


class Message(NamedTuple):
    """A message that a GPU has got from another one."""

    source: int
    """The number of the GPU in the domain, from 0."""
    data: bytes


class ScaleUp:
    """The GPUs of this host that this program works for. Leaving it closes them, with whatever is under way.

    `host`: what the lab says of this host's GPUs; by default, what its environment names.
    """

    def __init__(self, host: HostGpus | None = None) -> None:
        """Raises `UsageError` outside of a host with GPUs."""
        self.host = HostGpus.read() if host is None else host
        self._server: ServerThread | None = None

    async def __aenter__(self) -> Self:
        """Raises `OSError` where the library of endpoints is not there."""
        self._server = ServerThread(self.host.library)
        self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await asyncio.to_thread(self._server.close)

    async def open(self, number: int) -> GpuMemory:
        """Be the GPU of this number, from 1, of the host.

        Raises `UsageError` where there is none, and `OSError` where another program is that GPU (EBUSY), or this one
        may not open packet sockets (CAP_NET_RAW).
        """
        if self._server is None:
            raise UsageError("a scale-up domain is opened by `async with ScaleUp() as scale_up`")
        served = await asyncio.wrap_future(self._server.open(self.host.gpu(number)))
        return GpuMemory(self._server, served)


class MemoryWindow:
    """Memory of a GPU that its peers may reach once they are authorised; made by `GpuMemory.window`."""

    def __init__(self, server: ServerThread, window: Window) -> None:
        self._server = server
        self._window = window
        self.reference: WindowReference = window.reference()
        """A peer needs this to reach it; the key is in it: having this is what importing a window is."""

    async def authorise(self, peer: int, may: bool = True) -> None:
        """Let the GPU of this number in the domain, from 0, reach the window, or no longer. Raises `UsageError`."""
        await asyncio.wrap_future(self._server.call(self._window.authorise, peer, may))

    async def withdraw(self) -> None:
        """Nobody reaches it any more, and its buffer is free."""
        await asyncio.wrap_future(self._server.call(self._window.withdraw))


class GpuMemory:
    """A GPU's end of the domain; made by `ScaleUp.open`. The module says in which order operations are carried out."""

    def __init__(self, server: ServerThread, served: ServedGpu) -> None:
        self._server = server
        self._served = served
        self.number: int = served.endpoint.gpu
        """Its number in the domain, from 0: what peers and windows name."""

    async def window(self, buffer: Any, rights: int = ALL_RIGHTS) -> MemoryWindow:
        """Export a buffer that can be written (a bytearray, an array, an mmap), with a random key of 16 bits.

        `rights` are those of all peers together: `READ`, `WRITE` and `ATOMIC` of
        `testbed.protocols.scale_up.domain.endpoint`. The buffer must stay as large as it is. Raises `UsageError`, for
        the 65th window among others.
        """
        return MemoryWindow(self._server, await self._call(self._served.endpoint.export, buffer, rights))

    async def load(self, window: WindowReference, size: int, *, offset: int = 0) -> bytes:
        """Read `size` bytes of a peer's memory."""
        if size < 1:
            raise UsageError(f"a load of {size} bytes")
        data = bytearray(size)
        await self._operate(lambda: self._served.endpoint.read(window, data, offset))
        return bytes(data)

    async def store(self, window: WindowReference, data: Any, *, offset: int = 0) -> None:
        """Write bytes to a peer's memory. What can change, such as a bytearray, must not until it is done."""
        await self._operate(lambda: self._served.endpoint.write(window, data, offset))

    async def fetch_add(self, window: WindowReference, offset: int, value: int, *, size: int = 8) -> int:
        """Add `value`, modulo 2^(8 `size`), to the little-endian number of 4 or 8 bytes at a multiple of its size;
        return what was there before. Atomics of all peers and of the GPU's own at one place follow one another."""
        done = await self._operate(lambda: self._served.endpoint.fetch_add(window, offset, value, size))
        return done.result

    async def compare_and_swap(
        self, window: WindowReference, offset: int, expected: int, value: int, *, size: int = 8
    ) -> int:
        """Write `value` where `expected` is there, as `fetch_add` adds; return what was there before."""
        endpoint = self._served.endpoint
        done = await self._operate(lambda: endpoint.compare_and_swap(window, offset, expected, value, size))
        return done.result

    async def copy_to(self, window: WindowReference, buffer: Any, *, offset: int = 0) -> float:
        """Copy a buffer of any size to a peer's memory, by the copy engine: over all planes, with as many transactions
        under way as the link takes. Return how many seconds of the lab it took from when it was begun."""
        return _seconds(await self._operate(lambda: self._served.endpoint.write(window, buffer, offset)))

    async def copy_from(self, window: WindowReference, buffer: Any, *, offset: int = 0) -> float:
        """Fill a buffer of any size from a peer's memory, as `copy_to` empties one."""
        return _seconds(await self._operate(lambda: self._served.endpoint.read(window, buffer, offset)))

    async def message(self, peer: int, data: bytes) -> None:
        """Send a message to the GPU of a number in the domain, from 0: at most `largest_message` bytes.

        Messages of one GPU to another arrive in order. Raises `PeerBusy` where the peer has no room for one more.
        """
        await self._operate(lambda: self._served.endpoint.message(peer, data))

    async def receive(self) -> Message:
        """Wait for a message, of whatever GPU."""
        return Message(*await asyncio.wrap_future(self._server.receive(self._served)))

    async def fence(self) -> None:
        """Wait until all is done that was asked for before; what is asked for after this begins then."""
        await self._operate(self._served.endpoint.fence)

    @property
    def largest_message(self) -> int:
        """In bytes: the payload of a frame."""
        return self._served.endpoint.settings.largest_message

    async def counters(self) -> dict[str, Any]:
        """Return the counters of this GPU since it was opened: `requests`, `responses`, `served`, `refused` and more,
        and under `planes` of each link and VC, with SAI's names."""
        counted = await self._call(self._served.endpoint.counters)
        return counted | {"lost_messages": self._served.lost_messages}

    async def _operate(self, begin: Callable[[], int]) -> Done:
        return await asyncio.wrap_future(self._server.begin(self._served, begin))

    async def _call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        future: Future[_T] = self._server.call(function, *arguments)
        return await asyncio.wrap_future(future)


def _seconds(done: Done) -> float:
    return (done.ended_ns - done.begun_ns) / 1e9
