"""An incast through the switch in virtual time: senders and the receiver are ends of links, or obey pauses."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

from encoded_frames import encode_frame
from link_end import LinkConfig as EndConfig
from link_end import Offered, ScaleUpLink
from native_link import credit_config

from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.binding import LinkConfig
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings
from testbed.protocols.scale_up.domain.switch_core import SwitchCore
from testbed.protocols.scale_up.frames import DataFrame
from testbed.protocols.scale_up.headers import UaRequest

RATE_BPS = 1_000_000_000
PAYLOAD = bytes(4096)
FRAME_BYTES = 14 + 4 + 16 + 4096 + 4
FRAME_NS = -(-FRAME_BYTES * 8_000_000_000 // RATE_BPS)
QUANTUM_NS = 512


def request(source: int, destination: int, vc: int = 0) -> DataFrame:
    header = UaRequest(0x28, vc & 3, 0, 0, 0, 0, 63, 15, 0, source, destination)
    return DataFrame(bytes(6), bytes([2, 0, 0, 0, 0, source]), vc, header, PAYLOAD)


@dataclass(slots=True)
class Sender:
    """It has frames for one GPU, and sends at the link's rate as long as it may."""

    gpu: int
    destination: int
    left: int
    link: ScaleUpLink | None
    sent: int = 0
    free_ns: int = 0
    paused_until_ns: int = 0
    waits: bool = False


@dataclass(slots=True)
class Incast:
    """GPUs 1 to N send to GPU 0. Run it, then look at what came and what the switch counted."""

    settings: LinkSettings
    senders: int
    frames_each: int
    core: SwitchCore = field(init=False)
    received: dict[int, int] = field(init=False, default_factory=dict)
    """Frames that GPU 0 got, by sender."""
    now: int = 0
    _events: list[tuple[int, int, str, int, bytes]] = field(default_factory=list)
    _count: Any = field(default_factory=itertools.count)
    _sending: dict[int, Sender] = field(default_factory=dict)
    _receiver: ScaleUpLink | None = None

    def __post_init__(self) -> None:
        gpus = self.senders + 1
        macs = [bytes([2, 0, 0, 0, 0, gpu]) for gpu in range(gpus)]
        links = (LinkConfig * gpus)(*(self.settings.native(bytes(6), mac, epoch=0) for mac in macs))
        self.core = SwitchCore(scale_up_domain.library(), self.settings, links, gpus=gpus, planes=1)
        for gpu in range(1, gpus):
            self._sending[gpu] = Sender(gpu, 0, self.frames_each, self._end())
            self._at(0, "send", gpu)
        self._receiver = self._end()
        self.received = dict.fromkeys(range(1, gpus), 0)

    def close(self) -> None:
        self.core.close()

    def _end(self) -> ScaleUpLink | None:
        if self.settings.flow_control is not FlowControl.CREDITS:
            return None
        config = credit_config(*self.settings.capacity, unit_bytes=self.settings.unit)
        return ScaleUpLink(EndConfig(address=bytes(6), peer=bytes(6), sending=config, receiving=config))

    def _at(self, when: int, what: str, gpu: int, data: bytes = b"") -> None:
        heapq.heappush(self._events, (when, next(self._count), what, gpu, data))

    def run(self, until_ns: int) -> None:
        """Let this much time pass at most; shorter where nothing is left to be sent."""
        while True:
            when = max(self.now, min(self._events[0][0] if self._events else until_ns, self.core.next_timer()))
            if when >= until_ns or (not self._events and self._is_empty()):
                return
            self.now = when
            while self._events and self._events[0][0] <= self.now:
                _, _, what, gpu, data = heapq.heappop(self._events)
                if what == "send":
                    self._send(self._sending[gpu])
                else:
                    self._arrive(gpu, data)
            for port, data in self.core.work(self.now):
                self._at(self.now + self.settings.delay_ns, "arrive", port, data)

    def _is_empty(self) -> bool:
        return not any(self.core.held(port, 0) for port in range(self.senders + 1)) and not any(
            sender.left for sender in self._sending.values()
        )

    def _send(self, sender: Sender) -> None:
        if not sender.left or self.now < sender.free_ns:
            return
        if self.now < sender.paused_until_ns:
            sender.waits = True
            return
        frame = request(sender.gpu, sender.destination)
        if sender.link is None:
            data: bytes | None = encode_frame(frame)
        else:
            offered, data = sender.link.offer(frame, self.now)
            sender.waits = offered is Offered.NO_CREDITS
        if data is None:
            return
        self.core.receive(sender.gpu, data, self.now)
        sender.left -= 1
        sender.sent += 1
        sender.free_ns = self.now + FRAME_NS
        self._at(sender.free_ns, "send", sender.gpu)

    def _arrive(self, gpu: int, data: bytes) -> None:
        if gpu == 0:
            self._take(data)
            return
        sender = self._sending[gpu]
        if data[12:14] == b"\x88\x08":
            quanta = int.from_bytes(data[18:20], "big")
            sender.paused_until_ns = self.now + quanta * QUANTUM_NS if quanta else 0
        elif sender.link is not None:
            sender.link.receive(data, self.now)
        if sender.waits:
            sender.waits = False
            self._at(self.now, "send", gpu)

    def _take(self, data: bytes) -> None:
        if data[12:14] != b"\x88\xb6" or data[14] == 0x5C:
            return
        self.received[data[11]] += 1
        if self._receiver is not None:
            frame = self._receiver.receive(data, self.now)
            assert frame is not None
            self._receiver.free(frame.vc, len(data))
            for control in self._receiver.poll(self.now):
                self.core.receive(0, control, self.now)
