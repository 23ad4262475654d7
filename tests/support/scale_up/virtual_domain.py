"""A scale-up domain in virtual time: endpoints and the switch without sockets, and wires that are immediate.

What a wire takes is in the ends of the links (`LinkSettings.delay_ns`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import Kind, Spray
from testbed.protocols.scale_up.domain.link import LinkErrors, LinkSettings
from testbed.protocols.scale_up.domain.switch_core import SwitchCore

KEY = 77
WINDOW_BYTES = 1 << 22


class Closable(Protocol):
    def close(self) -> None: ...


Made = TypeVar("Made", bound=Closable)


class Closing:
    """Domains to be closed."""

    def __init__(self) -> None:
        self._made: list[Closable] = []

    def __call__(self, item: Made) -> Made:
        self._made.append(item)
        return item

    def close(self) -> None:
        for item in self._made:
            item.close()


@dataclass(slots=True)
class VirtualDomain:
    """Every GPU has one window that all may reach, `memory`."""

    link: LinkSettings
    gpus: int
    planes: int = 1
    voq: bool = False
    spray: Spray = Spray.WEIGHTED
    peer_window: int = 0
    timeout_ns: int = 5_000_000_000
    wire: Callable[[bytes], bytes | None] = bytes
    """Says what arrives of a frame of either end."""
    late_ns: Callable[[], int] = int
    """Says by how much all of them come late each time that they have slept."""
    native: Any = field(default_factory=scale_up_domain.library)
    core: SwitchCore = field(init=False)
    endpoints: list[int] = field(init=False, default_factory=list)
    memory: list[Any] = field(init=False, default_factory=list)
    ended: dict[tuple[int, int], binding.Completion] = field(init=False, default_factory=dict)
    """By GPU and handle."""
    now: int = 1
    _kept: list[Any] = field(init=False, default_factory=list)
    _steps: int = 0

    def __post_init__(self) -> None:
        ports = self.gpus * self.planes
        links = (binding.LinkConfig * ports)(*(self._native(200) for _ in range(ports)))
        self.core = SwitchCore(
            self.native, self.link, links, gpus=self.gpus, planes=self.planes, voq=self.voq, now=self.now
        )
        for gpu in range(self.gpus):
            config = binding.EndpointConfig(
                timeout_ns=self.timeout_ns,
                gpu=gpu,
                gpus=self.gpus,
                planes=self.planes,
                response_vc=1,
                coarse=self.link.coarse,
                outstanding=binding.TAGS,
                frames=self.link.pool_frames(self.planes) + 512,
                frame_bytes=self.link.frame_bytes,
                spray=self.spray,
                peer_window=self.peer_window,
            )
            ends = (binding.LinkConfig * self.planes)(*(self._native(100) for _ in range(self.planes)))
            handle = self.native.endpoint_new(config, ends, self.now)
            assert handle
            memory = (ctypes.c_char * WINDOW_BYTES)()
            assert self.native.endpoint_export(handle, ctypes.addressof(memory), WINDOW_BYTES, KEY, 7) == 0
            for peer in range(self.gpus):
                self.native.endpoint_authorise(handle, 0, peer, True)
            self.endpoints.append(handle)
            self.memory.append(memory)

    def _native(self, epoch: int) -> binding.LinkConfig:
        return self.link.native(bytes(6), bytes(6), epoch=epoch)

    def close(self) -> None:
        self.core.close()
        for endpoint in self.endpoints:
            self.native.endpoint_free(endpoint)

    def begin(
        self, gpu: int, kind: Kind, peer: int, data: bytes, offset: int = 0, vc: int = binding.VC_OF_REQUESTS
    ) -> tuple[int, int]:
        """An operation on a peer's window; where to look for it in `ended`. What a read gets is of no interest."""
        buffer = ctypes.create_string_buffer(data, len(data))
        self._kept.append(buffer)
        operands = (ctypes.c_uint64 * 2)(1, 0) if kind is Kind.ADD else None
        element = len(data) if operands else 0
        address = 0 if kind is Kind.MESSAGE else KEY << 35 | offset
        handle = self.native.endpoint_begin(
            *(self.endpoints[gpu], kind, peer, address, ctypes.addressof(buffer), len(data), element, operands),
            vc,
            self.now,
        )
        assert handle
        return gpu, handle

    def set_errors(self, gpu: int, plane: int, errors: LinkErrors) -> None:
        self.core.set_errors(plane * self.gpus + gpu, errors, self.now)

    def run(self, until_ns: int, *handles: tuple[int, int]) -> None:
        """Until a time, or until all of some operations are done."""
        frame, done = ctypes.create_string_buffer(self.link.frame_bytes), binding.Completion()
        while self.now < until_ns and not (handles and all(item in self.ended for item in handles)):
            for gpu, endpoint in enumerate(self.endpoints):
                self.native.endpoint_work(endpoint, self.now)
                for plane in range(self.planes):
                    while length := self.native.endpoint_get(endpoint, plane, frame, len(frame)):
                        if (data := self.wire(frame.raw[:length])) is not None:
                            self.core.receive(plane * self.gpus + gpu, data, self.now)
                while self.native.endpoint_completion(endpoint, done):
                    self.ended[gpu, done.handle] = binding.Completion.from_buffer_copy(done)
            for port, sent in self.core.work(self.now):
                plane, gpu = divmod(port, self.gpus)
                if (data := self.wire(sent)) is not None:
                    assert self.native.endpoint_put(self.endpoints[gpu], plane, data, len(data), self.now)
            timers = [self.native.endpoint_next_timer(endpoint) for endpoint in self.endpoints]
            later = min(*timers, self.core.next_timer())
            self._steps = self._steps + 1 if later <= self.now else 0
            assert self._steps < 1000, f"a timer is due for ever: {self.now} {timers} {self.core.next_timer()}"
            self.now = self.now + 1 if later <= self.now else later + self.late_ns()

    def counters(self, gpu: int) -> dict[str, int]:
        return binding.as_dict(self.native.endpoint_counted(self.endpoints[gpu]).contents)

    def took_ns(self, handle: tuple[int, int]) -> int:
        done = self.ended[handle]
        assert done.outcome == 0
        return int(done.ended_ns - done.begun_ns)


def share_of(link: LinkSettings, size: int, took_ns: int, planes: int = 1, rates: Sequence[int] = ()) -> float:
    """Return the share of a link's rate, or of those of all planes, in frames with all their bytes."""
    frames = -(-size // (link.frame_bytes - binding.OVERHEAD_BYTES))
    rate = sum(rates) or planes * link.rate_bps
    return frames * link.frame_bytes * 8e9 / took_ns / rate
