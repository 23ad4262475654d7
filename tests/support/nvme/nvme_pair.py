"""A host and a target joined by memory, with a clock of the test's: NVMe/TCP without sockets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.protocols.nvme.codes import DISCOVERY_NQN, IoOpcode, PduType
from testbed.protocols.nvme.commands import ConnectData, Sqe, connect_command, encode_sqe
from testbed.protocols.nvme.config import ControllerConfig, HostConfig
from testbed.protocols.nvme.controller_queue import CommandReceived, ControllerQueue, IoCommand
from testbed.protocols.nvme.data_structures import NamespaceData
from testbed.protocols.nvme.host_controller import HostController
from testbed.protocols.nvme.host_queue import HostQueue, HostRequest
from testbed.protocols.nvme.pdu import Initialize, Layout, encode_pdu
from testbed.protocols.nvme.subsystem import Subsystem, Target

NQN = "nqn.2026-01.lab:st1"
HOST = HostConfig(hostnqn="nqn.2026-01.lab:h1", hostid=b"host-1".ljust(16, b"."))
BLOCK = 4096
BLOCKS = 1024
NAMESPACE = NamespaceData(nsid=1, nguid=bytes(range(1, 17)), blocks=BLOCKS, block_bytes=BLOCK)
S = 1_000_000_000


def some_target(config: ControllerConfig | None = None, *subsystems: Subsystem) -> Target:
    """One subsystem with one namespace of 4 MiB, unless others are given."""
    target = Target(subsystems or [Subsystem(NQN, "serial", [NAMESPACE])], config)
    target.addresses = [("10.5.0.1", 4420)]
    return target


@dataclass
class NvmePair:
    """`deliver` moves all there is; the target's media is `store`, and commands in `held` wait if `hold` says so."""

    target: Target = field(default_factory=some_target)
    host_config: HostConfig = HOST
    subnqn: str = NQN
    now: int = 0
    hold: bool = False
    links: list[tuple[HostQueue, ControllerQueue]] = field(default_factory=list)
    held: list[IoCommand] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = memoryview(bytearray(BLOCKS * BLOCK))
        self.host = HostController(self.host_config, self.subnqn, self.now)

    def deliver(self) -> None:
        """Until nothing moves."""
        moved = True
        while moved:
            moved = False
            while self.host.wanted_queues:
                accepted = self.target.accept(self.now)
                self.links.append((self.host.open_queue(self.host.wanted_queues[0], self.now), accepted))
            for near, far in self.links:
                moved |= self._carry(near, far) | self._execute(far) | self._carry(far, near)
            self.host.advance(self.now)

    def _carry(self, source: HostQueue | ControllerQueue, sink: HostQueue | ControllerQueue) -> bool:
        data = source.take_to_send()
        sink.receive(data, self.now)
        if source.finished and not sink.closed:
            sink.close("the stream has ended")
        return bool(data)

    def _execute(self, queue: ControllerQueue) -> bool:
        found = bool(queue.events)
        while queue.events:
            event = queue.events.popleft()
            if self.hold and isinstance(event, CommandReceived):
                self.held.append(event.command)
            else:
                self.step(event.command, data_are_here=not isinstance(event, CommandReceived))
        return found

    def step(self, command: IoCommand, *, data_are_here: bool = False) -> None:
        """Do what the I/O layer would do next with a command."""
        span = self.store[command.offset : command.offset + command.length]
        if command.opcode is IoOpcode.READ:
            command.queue.send_data(command, span)
        elif command.opcode is IoOpcode.WRITE and not data_are_here:
            command.queue.receive_data(command, span)
        elif command.failure:
            command.queue.complete(command, command.failure, retry=True)
        else:
            if command.opcode is IoOpcode.WRITE_ZEROES:
                span[:] = bytes(command.length)
            for offset, length in command.ranges:
                self.store[offset : offset + length] = bytes(length)
            command.queue.complete(command, 0)

    def pass_time(self, seconds: float, steps: int = 10) -> None:
        """Let time pass; timers are handled when they are due."""
        end = self.now + round(seconds * S)
        for index in range(1, steps + 1):
            self.now = end - round(seconds * S) * (steps - index) // steps
            self.target.on_timer(self.now)
            self.host.advance(self.now)
            self.deliver()

    @property
    def queue(self) -> HostQueue:
        """The first I/O queue."""
        return self.host.queues[1]

    def submit(self, sqe: Sqe, *, data: bytes = b"", place: bytearray | None = None, qid: int = 1) -> HostRequest:
        """A command, delivered."""
        request = HostRequest(sqe, data=data, place=place if place is not None else b"")
        self.host.queues[qid].submit(request)
        self.deliver()
        return request

    def admin(self, sqe: Sqe, length: int = 0) -> tuple[HostRequest, bytearray]:
        """An administration command with so many bytes of an answer."""
        place = bytearray(length)
        return self.submit(sqe, place=place, qid=0), place


def live_pair(host: HostConfig = HOST, controller: ControllerConfig | None = None, subnqn: str = NQN) -> NvmePair:
    """A pair whose association is up."""
    pair = NvmePair(some_target(controller), host, subnqn)
    pair.deliver()
    assert pair.host.state.value == "live", pair.host.reason
    return pair


def discovery_pair(target: Target, hostnqn: str) -> NvmePair:
    pair = NvmePair(target, HostConfig(hostnqn=hostnqn, hostid=bytes(16)), DISCOVERY_NQN)
    pair.deliver()
    return pair


def ic_request(**fields: int | bool) -> bytes:
    return Initialize(**fields).encode(PduType.IC_REQ)  # type: ignore[arg-type]


def capsule(sqe: Sqe, cid: int, data: bytes = b"", *, length: int | None = None, layout: Layout | None = None) -> bytes:
    """A CapsuleCmd, with data in the capsule if there are any."""
    layout = layout or Layout()
    entry = encode_sqe(sqe, cid, len(data) if length is None else length, in_capsule=bool(data))
    return encode_pdu(PduType.CAPSULE_CMD, entry, layout, data=len(data)) + data


def connect_capsule(
    qid: int = 0,
    *,
    entries: int = 32,
    kato_ms: int = 0,
    cntlid: int = 0xFFFF,
    subnqn: str = NQN,
    hostnqn: str = HOST.hostnqn,
    flow_control: bool = False,
) -> bytes:
    data = ConnectData(HOST.hostid, cntlid, subnqn, hostnqn)
    return capsule(connect_command(qid, entries, kato_ms, flow_control=flow_control), 0, data.encode())


def split_pdus(stream: bytes) -> Iterable[bytes]:
    while stream:
        length = int.from_bytes(stream[4:8], "little")
        yield stream[:length]
        stream = stream[length:]
