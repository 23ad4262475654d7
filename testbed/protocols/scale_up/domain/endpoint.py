"""A GPU's end of a scale-up domain, as a worker uses it: memory windows, and operations on those of its peers.

    with Endpoints(library) as endpoints:
        a = endpoints.add(Gpu(...)); b = endpoints.add(Gpu(...))     # of the GPUs of this process
        window = b.export(buffer); window.authorise(0)
        handle = a.write(window.reference(), data)                   # at b's memory
        endpoints.run(1.0)                                           # serve all of them
        for done in a.completions(): ...

Nothing happens but in `Endpoints.run`: what a GPU's peers ask of it is answered there, too. `Endpoints.wait` runs until
one operation is done and raises what went wrong with it. A buffer must stay where it is until its operation is done,
or its window withdrawn; the objects here keep a reference to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.errors import ScaleUpError, error_of
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings, plane_links
from testbed.protocols.scale_up.domain.memory import BufferMemory, memory_of
from testbed.protocols.scale_up.domain.packet_sockets import PFC_ETHERTYPE, claim_gpu, lost_frames, open_socket
from testbed.protocols.scale_up.domain.presence import connect_end
from testbed.protocols.scale_up.domain.windows import ALL_RIGHTS, READ, WRITE, Group, Window, WindowReference
from testbed.protocols.scale_up.frames import encode_gone

KEYS: Final = 1 << 16
KNOWN_WITHIN_S: Final = 5.0
_NEVER: Final = (1 << 64) - 1


class Kind(enum.IntEnum):
    """`enum operation_kind` (endpoint.h)."""

    READ = 1
    WRITE = 2
    WRITE_FULL = 3
    ADD = 4
    CAS = 5
    MESSAGE = 6
    FENCE = 7
    ARRIVED = 8
    """Not an operation: a window has what it was to wait for. The handle is the window's number."""
    MULTICAST = 9
    REDUCE = 10
    JOIN = 11


class Element(enum.IntEnum):
    """`enum element` (transactions.h): what a switch adds up, 4 bytes each."""

    INT32 = 1
    """Modulo 2^32."""
    FLOAT32 = 2
    """IEEE 754 binary32, in the order in which the GPUs answer."""


class Spray(enum.IntEnum):
    """`enum spray` (endpoint.h): which plane a transaction takes. In a region of `coarse` x 256 bytes all take one."""

    WEIGHTED = 0
    """Planes in turn, each as often as the rate of its link says."""
    EQUAL = 1
    """Planes in turn: the slowest holds up the others."""
    PINNED = 2
    """By the window and the 2 MiB of it: what is for a plane that is down waits until it is back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of a domain and its interfaces, one to each plane."""

    gpu: int
    """Its number in the domain, from 0."""
    gpus: int
    interfaces: Sequence[str]
    addresses: Sequence[tuple[bytes, bytes]]
    """The Ethernet addresses of each interface and of its peer."""
    link: LinkSettings
    plane_rates_bps: Sequence[int] = ()
    """The rates of each plane's link, per direction; (): all have that of `link`."""
    request_vc: int = 0
    response_vc: int = 1
    timeout_s: float = 5.0
    """The time limit of a transaction that was sent."""
    spray: Spray = Spray.WEIGHTED
    peer_window: int = 0
    """Transactions of a plane and peer without an answer, at most; 0: as many as there are tags. With virtual output
    queues in the switch, what is on its way to one peer then leaves room in the buffers for what goes to others."""
    outstanding: int = binding.TAGS
    """Transactions without an answer, at most 2,048."""

    memory_bps: int = 0
    """The rate at which the memory behind its windows reads and writes, both together; 0: no limit."""
    memory_ns: int = 0
    """The time from when the memory has read or written something until the answer may go."""

    switch: str = ""
    """The run directory of the domain's switch, which learns there at once when the end's process dies; "": it learns
    that by the silence of the links alone."""

    @property
    def largest_message(self) -> int:
        """In bytes: the payload of a frame."""
        return self.link.coarse * binding.REGION_BYTES

    @property
    def answers(self) -> int:
        """Answers of a plane that wait at once: beside the usual ones, those that the memory works on meanwhile, be
        each of one line; no more than all others may have asked for."""
        held = self.memory_bps * self.memory_ns // (8_000_000_000 * binding.LINE_BYTES)
        return min(binding.MOST_RESPONSES, binding.RESPONSES + min(held, self.gpus * binding.TAGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An operation that is done, well or not. Times are CLOCK_MONOTONIC."""

    handle: int
    kind: Kind
    size: int
    begun_ns: int
    ended_ns: int
    result: int
    """The value that was there before an atomic."""
    error: ScaleUpError | None


class Endpoint:
    """Made by `Endpoints.add`. Operations return a handle, and raise `UsageError` for what cannot be asked."""

    clock_ns: Callable[[], int] = staticmethod(time.monotonic_ns)
    """The time that its operations begin at."""
    draw: Callable[[int], int] = staticmethod(secrets.randbelow)
    """Draws a number below another one, as for a window's key."""

    def __init__(self, native: Any, gpu: Gpu) -> None:
        """Opens sockets in the network namespace that the calling thread is in. Raises `OSError`, `UsageError`; the
        former with EBUSY where another program has this GPU."""
        planes = len(gpu.interfaces)
        if not 1 <= planes <= binding.PLANES or len(gpu.addresses) != planes:
            raise UsageError(f"{planes} interfaces: 1 to {binding.PLANES}, with the addresses of each")
        self.native = native
        self.gpu = gpu.gpu
        self.handle = 0
        self.settings = gpu
        self._kept: dict[int, Any] = {}
        self._exported: dict[int, Any] = {}
        self._sockets: list[socket.socket] = []
        self._rings: list[int | None] = []
        self._pause_sockets: list[socket.socket] = []
        self._lost = 0
        self._open()

    def _begin_end(self) -> None:
        """Make its end of all links. Raises `UsageError` for settings that are out of range."""
        gpu, planes = self.settings, self.planes
        link = gpu.link
        by_plane = plane_links(link, planes, gpu.plane_rates_bps)
        config = binding.EndpointConfig(
            timeout_ns=int(gpu.timeout_s * 1e9),
            gpu=gpu.gpu,
            gpus=gpu.gpus,
            planes=planes,
            request_vc=gpu.request_vc,
            response_vc=gpu.response_vc,
            coarse=link.coarse,
            outstanding=gpu.outstanding,
            frames=max(item.pool_frames(planes) for item in by_plane) + 512 + 4 * planes * gpu.answers,
            frame_bytes=link.frame_bytes,
            spray=gpu.spray,
            peer_window=gpu.peer_window,
            responses=gpu.answers,
            media_bps=gpu.memory_bps,
            media_ns=gpu.memory_ns,
        )
        epochs = [1 + self.draw(255) for _ in by_plane]
        ends = zip(by_plane, gpu.addresses, epochs, strict=True)
        links = (binding.LinkConfig * planes)(*(item.native(*both, epoch=epoch) for item, both, epoch in ends))
        self.handle = self.native.endpoint_new(config, links, self.clock_ns()) or 0
        if not self.handle:
            raise UsageError("the endpoint's settings are out of range")

    def _open(self) -> None:
        gpu, link = self.settings, self.settings.link
        self._claim = claim_gpu(gpu.interfaces[0])
        self._presence = connect_end(gpu.switch, gpu.gpu) if gpu.switch else None
        try:
            for interface in gpu.interfaces:
                self._sockets.append(open_socket(interface))
                if link.flow_control is FlowControl.PFC:
                    self._pause_sockets.append(open_socket(interface, PFC_ETHERTYPE))
            self._rings = self._open_rings(link)
            self._begin_end()
        except BaseException:
            self.close()
            raise

    @property
    def planes(self) -> int:
        """Return how many links it has, one to each plane."""
        return len(self.settings.interfaces)

    def close(self) -> None:
        """Give everything back, and tell the switch: it gives requests back, and takes the next end for another."""
        if self.handle:
            self.native.endpoint_free(self.handle)
            for item, (own, peer) in zip(self._sockets, self.settings.addresses, strict=True):
                with contextlib.suppress(OSError):
                    item.send(encode_gone(peer, own, time.monotonic_ns()))
        self.handle = 0
        if self._presence is not None:
            self._presence.close()
        for ring in self._rings:
            self.native.packet_ring_free(ring)
        self._rings = []
        if self._sockets:
            with ThreadPoolExecutor(2 * len(self._sockets)) as threads:  # the kernel waits at the end of each
                for item in (*self._sockets, *self._pause_sockets):
                    threads.submit(item.close)
        self._claim.close()
        self._kept.clear()
        self._exported.clear()

    def _open_rings(self, link: LinkSettings) -> list[int | None]:
        """A ring for each socket; None where there is none. All at once, for each waits for the kernel."""
        frames = link.ring_frames
        if not frames:
            return [None] * len(self._sockets)
        with ThreadPoolExecutor(len(self._sockets)) as threads:
            return list(
                threads.map(
                    lambda item: self.native.packet_ring_new(item.fileno(), frames, link.frame_bytes), self._sockets
                )
            )

    def descriptors(self) -> tuple[Any, Any, Any]:
        """The descriptors of the planes' sockets, these sockets' rings, and the descriptors of those for PFC frames."""
        planes = len(self._sockets)
        pauses = [item.fileno() for item in self._pause_sockets] or [-1] * planes
        return (
            (ctypes.c_int * planes)(*(item.fileno() for item in self._sockets)),
            (ctypes.c_void_p * planes)(*self._rings),
            (ctypes.c_int * planes)(*pauses),
        )

    # --- memory --------------------------------------------------------------------------------------

    @property
    def windows(self) -> Iterable[int]:
        """Return the numbers of its windows."""
        return self._exported.keys()

    def export(self, buffer: Any, rights: int = ALL_RIGHTS) -> Window:
        """Make a buffer that can be written (a bytearray, an array, an mmap) a window, with a random key."""
        memory = memory_of(buffer, written=True)
        key = self.draw(KEYS)
        number = self.native.endpoint_export(self.handle, memory.address, memory.size, key, rights)
        if number < 0:
            raise UsageError("the endpoint has no window left")
        self._exported[number] = memory.held
        return Window(self, number, key, memory.size)

    def export_at(self, number: int, key: int, buffer: Any, rights: int = ALL_RIGHTS) -> Window:
        """Make a buffer the window of this number and key, as other ends have one, too."""
        memory = memory_of(buffer, written=True)
        if self.native.endpoint_export_at(self.handle, number, memory.address, memory.size, key, rights) < 0:
            raise UsageError(f"the endpoint has a window {number} already, or can have none")
        self._exported[number] = memory.held
        return Window(self, number, key, memory.size)

    def withdraw(self, number: int) -> None:
        """Nobody reaches the window of this number any more."""
        self.native.endpoint_withdraw(self.handle, number)
        self._exported.pop(number, None)

    def lend(self, group: Group, buffer: Any) -> Window:
        """Make a buffer the memory of this GPU in a group: the switch, and nobody else, may read and write it."""
        memory = memory_of(buffer, written=True)
        number = self.native.endpoint_export_at(
            self.handle, group.window, memory.address, memory.size, group.key, READ | WRITE
        )
        if number < 0 or memory.size != group.size:
            raise UsageError(f"the endpoint has a window {group.window} already, or not {group.size} bytes for it")
        self._exported[number] = memory.held
        window = Window(self, number, group.key, memory.size)
        window.authorise(binding.SWITCH_ID)
        return window

    # --- operations ----------------------------------------------------------------------------------

    # Requests travel on the GPU's `request_vc`, or on the VC that is named.

    def read(self, window: WindowReference, buffer: Any, offset: int = 0, *, vc: int | None = None) -> int:
        """Fill a buffer from a peer's window."""
        memory = memory_of(buffer, written=True)
        return self._begin(Kind.READ, window.gpu, window.address(offset, memory.size), memory, window.operands, vc=vc)

    def write(self, window: WindowReference, data: Any, offset: int = 0, *, vc: int | None = None) -> int:
        """Write bytes to a peer's window. They must not change until it is done, but for what a view that cannot be
        written shows, which is copied."""
        memory = memory_of(data, written=False)
        return self._begin(Kind.WRITE, window.gpu, window.address(offset, memory.size), memory, window.operands, vc=vc)

    def write_full(self, window: WindowReference, data: Any, offset: int = 0, *, vc: int | None = None) -> int:
        """Write whole lines of 64 bytes, which need no byte enables."""
        memory = memory_of(data, written=False)
        at = window.address(offset, memory.size)
        return self._begin(Kind.WRITE_FULL, window.gpu, at, memory, window.operands, vc=vc)

    def fetch_add(self, window: WindowReference, offset: int, value: int, size: int = 8) -> int:
        """Add to an aligned number of 4 or 8 bytes; the result is what was there."""
        return self._atomic(Kind.ADD, window, offset, size, (value, 0))

    def compare_and_swap(self, window: WindowReference, offset: int, expected: int, value: int, size: int = 8) -> int:
        """Write `value` where `expected` is there; the result is what was there."""
        return self._atomic(Kind.CAS, window, offset, size, (expected, value))

    def message(self, peer: int, data: bytes) -> int:
        """Send a message of at most a frame's payload. Those of a GPU arrive in order."""
        memory = memory_of(data, written=False)
        return self._begin(Kind.MESSAGE, peer, 0, memory)

    def fence(self) -> int:
        """Let whatever is asked for after this begin when all before it is done."""
        return self._begin(Kind.FENCE, 0, 0, BufferMemory(None, 0, 0))

    # Operations of the switch on the memory of all members of a group, this GPU's included. All must have joined.

    def join(self, group: Group) -> int:
        """Become a member of a group at the switch, by each plane."""
        span = self.settings.link.coarse * binding.REGION_BYTES
        numbers = (ctypes.c_uint64 * 2)(group.number, group.members)
        return self._begin(Kind.JOIN, self.gpu, 0, BufferMemory(None, 0, self.planes * span), numbers)

    def multicast_store(self, group: Group, data: Any, offset: int = 0, *, vc: int | None = None) -> int:
        """Have bytes written to the memory of all members. It is done when all of them have it."""
        memory = memory_of(data, written=False)
        numbers = (ctypes.c_uint64 * 2)(group.number, 0)
        return self._begin(Kind.MULTICAST, self.gpu, group.address(offset, memory.size), memory, numbers, vc)

    def load_reduce(
        self, group: Group, buffer: Any, offset: int = 0, *, element: Element = Element.FLOAT32, vc: int | None = None
    ) -> int:
        """Fill a buffer with the sums, element by element, of what all members have there."""
        memory = memory_of(buffer, written=True)
        numbers = (ctypes.c_uint64 * 2)(group.number, element)
        return self._begin(Kind.REDUCE, self.gpu, group.address(offset, memory.size), memory, numbers, vc)

    def _atomic(self, kind: Kind, window: WindowReference, offset: int, size: int, operands: tuple[int, int]) -> int:
        if size not in (4, 8) or offset % size:
            raise UsageError(f"an atomic has 4 or 8 bytes at a multiple of them, not {size} at {offset}")
        numbers = (ctypes.c_uint64 * 2)(*(item & ((1 << 8 * size) - 1) for item in operands))
        return self._begin(kind, window.gpu, window.address(offset, size), BufferMemory(numbers, 0, size), numbers)

    def _begin(
        self, kind: Kind, peer: int, remote: int, memory: BufferMemory, operands: Any = None, vc: int | None = None
    ) -> int:
        size, element = memory.size, memory.size if kind in (Kind.ADD, Kind.CAS) else 0
        now = self.clock_ns()
        handle = self.native.endpoint_begin(
            *(self.handle, kind, peer, remote, memory.address, size, element, operands),
            binding.VC_OF_REQUESTS if vc is None else vc,
            now,
        )
        if not handle:
            raise UsageError(
                f"{kind.name.lower()} of {size} bytes at GPU {peer}: too many are under way, or out of range"
            )
        self._kept[handle] = memory.held
        return int(handle)

    # --- what comes back -----------------------------------------------------------------------------

    def completions(self) -> Iterator[Done]:
        """The operations that were done since the last call, as they ended."""
        item = binding.Completion()
        while self.native.endpoint_completion(self.handle, item):
            if item.kind != Kind.ARRIVED:
                self._kept.pop(item.handle, None)
            yield Done(
                handle=item.handle,
                kind=Kind(item.kind),
                size=item.bytes,
                begun_ns=item.begun_ns,
                ended_ns=item.ended_ns,
                result=item.result,
                error=error_of(item.outcome),
            )

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield the messages that have come: from which GPU, and the bytes."""
        size = self.settings.largest_message
        data, source = ctypes.create_string_buffer(size), ctypes.c_uint32()
        while (length := self.native.endpoint_message(self.handle, data, size, source)) >= 0:
            yield source.value, data.raw[:length]

    def cancel(self) -> None:
        """Give up all operations; those that were sent may yet be carried out, while buffers must stay."""
        self.native.endpoint_cancel(self.handle, self.clock_ns())

    def planes_down(self) -> list[int]:
        return [plane for plane in range(self.planes) if self.native.endpoint_plane_is_down(self.handle, plane)]

    @property
    def is_known(self) -> bool:
        """Tell whether the switch knows that this end has started, on every plane that is not down.

        Messages that peers send before, to one who was this GPU earlier, are lost.
        """
        return bool(self.native.endpoint_is_known(self.handle))

    def counters(self) -> dict[str, Any]:
        """Return the counters of the endpoint, and by plane those of its link and each VC."""
        native, planes = self.native, range(self.planes)
        self._lost += sum(map(lost_frames, self._sockets))
        return {
            **binding.as_dict(native.endpoint_counted(self.handle).contents),
            "socket_drops": self._lost,
            "planes": [
                {
                    **binding.as_dict(native.endpoint_link_counters(self.handle, plane).contents),
                    **binding.retry_counters(
                        native.endpoint_retry_sender(self.handle, plane),
                        native.endpoint_retry_receiver(self.handle, plane),
                    ),
                    "vcs": [
                        binding.as_dict(native.endpoint_vc_counters(self.handle, plane, vc).contents)
                        for vc in range(self.settings.link.vcs)
                    ],
                }
                for plane in planes
            ],
        }

    def latency_ns(self, share: float) -> int:
        """That of transactions, from sent to answered; 0 where there were none."""
        return int(self.native.histogram_quantile(self.native.endpoint_times(self.handle), share))

    def latencies(self) -> dict[int, int]:
        """Return how many transactions there were by latency in ns, the upper ends of steps of a histogram."""
        return binding.counts_by_ns(self.native.endpoint_times(self.handle).contents)


@dataclass(slots=True)
class Endpoints:
    """The endpoints of a process, served by one thread."""

    library: Path
    """The compiled library (`testbed.protocols.scale_up.domain.build.build`)."""
    _native: Any = field(init=False)
    _handle: int = field(init=False, default=0)
    _endpoints: list[Endpoint] = field(init=False, default_factory=list)
    _done: dict[tuple[int, int], Done] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._native = binding.load(self.library)
        self._handle = self._native.endpoint_loop_new() or 0
        if not self._handle:
            raise MemoryError("no memory or descriptor to wait with")

    def __enter__(self) -> Endpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, gpu: Gpu) -> Endpoint:
        """Open a GPU's end, with sockets in the namespace that the calling thread is in. Raises `OSError`."""
        endpoint = Endpoint(self._native, gpu)
        if error := self._native.endpoint_loop_add(self._handle, endpoint.handle, *endpoint.descriptors()):
            endpoint.close()
            raise OSError(error, "endpoint loop")
        self._endpoints.append(endpoint)
        self._native.endpoint_loop_run(self._handle, 0)  # the switch knows of it before its peers do
        return endpoint

    def remove(self, endpoint: Endpoint) -> None:
        """Close a GPU's end. What it has under way is not done, and nobody is told here."""
        self._endpoints.remove(endpoint)
        self._native.endpoint_loop_remove(self._handle, endpoint.handle)
        endpoint.close()

    def wait_known(self, endpoint: Endpoint, timeout_s: float = KNOWN_WITHIN_S) -> bool:
        """Serve until `Endpoint.is_known`. False: it does not become so within the time."""
        until_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        while not self._native.endpoint_loop_run_known(self._handle, endpoint.handle, until_ns):
            if time.monotonic_ns() >= until_ns:
                return False
        return True

    def watch(self, descriptor: int) -> None:
        """Have `run` return when this becomes readable. Raises `OSError`."""
        if error := self._native.endpoint_loop_watch(self._handle, descriptor):
            raise OSError(error, "endpoint loop")

    def run(self, timeout_s: float | None = None) -> None:
        """Serve until an operation is done, a message is there, a watched descriptor is readable, or time is over."""
        self.run_until(None if timeout_s is None else time.monotonic_ns() + int(timeout_s * 1e9))

    def run_until(self, until_ns: int | None) -> None:
        """`run` until this time of CLOCK_MONOTONIC; None: for as long as it takes."""
        self._native.endpoint_loop_run(self._handle, _NEVER if until_ns is None else until_ns)

    def wait(self, endpoint: Endpoint, handle: int, timeout_s: float = 30.0) -> Done:
        """Serve until this operation is done. Raises what went wrong with it, or `TimeoutError`.

        What else is done meanwhile is kept for other calls of this, and not in `completions`.
        """
        deadline = time.monotonic() + timeout_s
        key = (endpoint.gpu, handle)
        while key not in self._done:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"operation {handle} of GPU {endpoint.gpu} is not done after {timeout_s:g} s")
            self.run(left)
            for item in self._endpoints:
                self._done.update({(item.gpu, done.handle): done for done in item.completions()})
        done = self._done.pop(key)
        if done.error is not None:
            raise done.error
        return done

    def close(self) -> None:
        for endpoint in self._endpoints:
            if self._handle:
                self._native.endpoint_loop_remove(self._handle, endpoint.handle)
            with contextlib.suppress(OSError):
                endpoint.close()
        self._endpoints.clear()
        if self._handle:
            self._native.endpoint_loop_free(self._handle)
        self._handle = 0
