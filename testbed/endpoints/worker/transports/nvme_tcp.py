"""Transfers by NVMe/TCP: hosts write to storage targets, and read from them what they pull.

Each pair of a host's NIC and a target's has an association of its own, whose I/O queue comes from the port of the
program; with `multipath` it has one more with each other NIC of the target, which goes on where the first one dies. A
step has the range of the namespace that begins at its number times 4 GiB, so that a target knows whose bytes come, and
its contents are those of a pattern, which the receiving end checks. A transfer has arrived when the medium has it: at
the end of its last command. What a later step restores is kept, and that step reads the range of the one that wrote it;
of all else, targets forget what was written and make what is read.
"""

from __future__ import annotations

import select
import socket
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from testbed.base.cleanup import on_failure
from testbed.base.program_errors import TrafficError
from testbed.endpoints.storage.backends import Backend, MediaError, MemoryBackend
from testbed.endpoints.storage.media import MediaConfig
from testbed.endpoints.storage.nvme_host import Initiator, StorageError
from testbed.endpoints.storage.pattern import Pattern, merge_ranges
from testbed.endpoints.storage.target import TargetServer
from testbed.endpoints.storage.target_config import ListenAddress, NamespaceConfig, SubsystemConfig, TargetConfig
from testbed.endpoints.storage.volume import Operation, Volume, VolumeRequest
from testbed.endpoints.worker.curves import MOST_CHANNELS, ChannelState
from testbed.endpoints.worker.nvme.kernel_target import KernelTargetEnd
from testbed.endpoints.worker.nvme.settings import BLOCK_BYTES, STEP_BYTES, NvmeTcpSettings, whole_blocks
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Channel, Endpoint, Program, Step
from testbed.endpoints.worker.streams.tcp_info import read_tcp_info
from testbed.endpoints.worker.streams.tcp_socket import KernelSockets, SocketSource, TcpSocket
from testbed.endpoints.worker.traffic import ChannelEnd, Listener
from testbed.endpoints.worker.transport_registry import WorkerTransport
from testbed.protocols.nvme.codes import Status
from testbed.protocols.nvme.config import HostConfig
from testbed.workload.builder import MAX_STEPS

SPACE_BYTES = MAX_STEPS * STEP_BYTES
GIVE_UP = 4
"""Keep-alive time-outs without a live path, after which a run fails."""


class NvmeTcpTraffic:
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    def __init__(
        self, program: Program, loop: WatchingLoop, listener: Listener, sockets: SocketSource | None = None
    ) -> None:
        settings = program.transport
        assert isinstance(settings, NvmeTcpSettings)
        self.settings = settings
        self.listener = listener
        self.pattern = Pattern(program.seed)
        self._loop = loop
        self.sockets: SocketSource = KernelSockets() if sockets is None else sockets
        self._endpoints = {endpoint.rank: endpoint for endpoint in program.endpoints}
        self._own = program.own
        self._timer = self.sockets.timer()
        self._steps = {step.number: step for step in program.steps if step.channel is not None}
        self._hosts: dict[int, _HostEnd] = {}
        self._target: _TargetEnd | None = None
        self._kernel_target: KernelTargetEnd | None = None
        self._channels = program.channels
        self._watched: list[int] = []
        for channel in program.channels:
            ends = self._address(channel.source), self._address(channel.destination)
            served = [address in settings.targets for address in ends]
            if sum(served) != 1:
                raise TrafficError("NVMe/TCP leads from a host to a storage target, or back")

    def _address(self, rank: int) -> str:
        return self._endpoints[rank].address

    def _target_of(self, channel: Channel) -> int:
        """The rank at the end of a channel that is a storage target."""
        return channel.source if self._address(channel.source) in self.settings.targets else channel.destination

    # --- setting up --------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        begun = [channel for channel in self._channels if self._target_of(channel) not in self._own]
        return len(self._hosts) == len(begun) and all(end.volume is not None for end in self._hosts.values())

    def listen(self) -> None:
        self._loop.watch(self._timer.fd, self._on_timer, select.EPOLLIN | select.EPOLLET)
        self._watched.append(self._timer.fd)
        served = next((one for one in self._channels if self._target_of(one) in self._own), None)
        if served is None:
            return
        name, port = self._endpoints[self._target_of(served)].host, _listening_port(served)
        if name in self.settings.kernel:
            self._serve_by_kernel(name, port)
            return
        try:
            self._target = _TargetEnd(self, name, port, self._steps)
        except OSError as error:
            raise TrafficError(f"{name} cannot listen at port {port}: {error.strerror or error}") from error
        self._watch(self._target.server.fileno(), self._target)

    def _serve_by_kernel(self, name: str, port: int) -> None:
        addresses = self.settings.ports[name]
        try:
            self.sockets.enter()
            self._kernel_target = KernelTargetEnd(
                name,
                self.settings.kernel[name],
                [(address, port) for address in addresses],
                _media(self.settings.targets[addresses[0]]),
                self.pattern,
                list(self._steps.values()),
            )
        except OSError as error:
            raise TrafficError(f"{name} cannot be served by the kernel: {error}") from error
        for step in self._steps.values():
            self.listener.on_sent(step, self.sockets.now())

    def connect(self) -> None:
        for channel in self._channels:
            if self._target_of(channel) not in self._own:
                end = self._hosts[channel.index] = _HostEnd(self, channel)
                self._watch(end.initiator.fileno(), end)
                end.work()
        self._set_timer()

    def open_socket(self, address: str, port: int, what: str) -> TcpSocket:
        """A socket of this host, bound. Raises `OSError` and `TrafficError`."""
        item = self.sockets.open(self.settings.congestion_control, self.settings.tos, what)
        with on_failure(item.close):
            item.bind((address, port))
        return item

    def host_address(self, channel: Channel) -> str:
        """The address of the host at one end of a channel."""
        return self._address(channel.source + channel.destination - self._target_of(channel))

    def target(self, channel: Channel) -> Endpoint:
        """The target at the other end."""
        return self._endpoints[self._target_of(channel)]

    @property
    def _both(self) -> list[_HostEnd | _TargetEnd]:
        return [*self._hosts.values(), *(() if self._target is None else (self._target,))]

    def _watch(self, fd: int, end: _HostEnd | _TargetEnd) -> None:
        def work(_: int) -> None:
            end.work()
            self._set_timer()

        self._loop.watch(fd, work)
        self._watched.append(fd)

    def _on_timer(self, _: int) -> None:
        self._timer.fired()
        for end in self._both:
            end.work()
        self._set_timer()

    def _set_timer(self) -> None:
        times = [end.next_timer() for end in self._both]
        due = min((time for time in times if time is not None), default=None)
        if due is not None:
            self._timer.wake_by(due)

    # --- moving ------------------------------------------------------------------------------------------

    def send(self, step: Step) -> None:
        assert step.channel is not None
        end = self._hosts[step.channel]
        end.put(step)
        end.work()
        self._set_timer()

    def turn(self, now: int) -> None:
        """Everything happens when the loop tells."""

    # --- what is known -----------------------------------------------------------------------------------

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        for channel in [one for one in self._channels if one.source in self._own][:MOST_CHANNELS]:
            item = self._connection(channel)
            if item is not None:
                info = read_tcp_info(item)
                acked_bytes = max(0, info.acked_bytes - 1)  # without the SYN
                yield channel.index, ChannelState(acked_bytes, info.cwnd_bytes, info.rtt_us, info.retransmits)

    def ends(self) -> list[ChannelEnd]:
        found = []
        for channel in self._channels:
            host, item = self._hosts.get(channel.index), self._connection(channel)
            not_safe = () if host is None else host.not_safe()
            if item is None:
                if not_safe:
                    found.append(ChannelEnd(channel=channel.index, not_safe=not_safe))
                continue
            info = read_tcp_info(item)
            begins_here = channel.source in self._own
            counters = {"delivered_ce": info.delivered_ce} if begins_here else {"out_of_order": info.out_of_order}
            found.append(
                ChannelEnd(
                    channel=channel.index,
                    sent_bytes=max(0, info.acked_bytes - 1) if begins_here else None,
                    retransmits=info.retransmits if begins_here else None,
                    packets=info.sent_packets if begins_here else None,
                    min_rtt_us=info.min_rtt_us if begins_here else None,
                    counters=counters,
                    not_safe=not_safe,
                )
            )
        return found

    def _connection(self, channel: Channel) -> TcpSocket | None:
        """The connection of a channel's I/O queue, at this end; None where it is gone."""
        host = self._hosts.get(channel.index)
        if host is not None:
            return next((item for path in host.initiator.paths if (item := path.socket_of(1)) is not None), None)
        if self._target is None:
            return None
        return self._target.connection((self.host_address(channel), channel.source_port))

    def counters(self) -> Mapping[str, int]:
        found = {"nvme_commands_resent": sum(end.resent for end in self._hosts.values())}
        found["nvme_commands_timed_out"] = sum(end.timed_out for end in self._hosts.values())
        found["nvme_associations"] = sum(
            path.associations for end in self._hosts.values() for path in end.initiator.paths
        )
        if self._target is not None:
            found |= {f"nvme_{name}": count for name, count in self._target.server.target.counts.items()}
        if self._kernel_target is not None:
            found["nvme_verified_bytes"] = self._kernel_target.verified_bytes
        return found

    def halt(self) -> None:
        self._unwatch()
        if self._kernel_target is not None:
            self._kernel_target.check()

    def _unwatch(self) -> None:
        for fd in self._watched:
            self._loop.unwatch(fd)
        self._watched.clear()

    def close(self) -> None:
        self._unwatch()
        for host in self._hosts.values():
            for path in host.initiator.paths:
                path.close()
            host.initiator.close()
        if self._target is not None:
            self._target.server.close()
        if self._kernel_target is not None:
            self._kernel_target.close()
        self._hosts.clear()
        self._target = self._kernel_target = None
        self._timer.close()


def _listening_port(channel: Channel) -> int:
    """Targets listen at one port, whichever way bytes go."""
    return channel.destination_port


class _HostEnd:
    """The association of one channel at its host, and the steps that go over it."""

    def __init__(self, traffic: NvmeTcpTraffic, channel: Channel) -> None:
        settings, target, address = traffic.settings, traffic.target(channel), traffic.host_address(channel)
        others = settings.ports.get(target.host, ()) if settings.multipath else ()
        addresses = dict.fromkeys((target.address, *others))
        self._traffic = traffic
        self._peer = str(target)
        self._tells_arrival = target.host in settings.kernel
        """The kernel, which serves the target, tells nobody what has come."""
        self._waiting: deque[_Io] = deque()
        self._under_way: dict[VolumeRequest, _Io] = {}
        self.volume: Volume | None = None

        def connect(_: tuple[str, int], qid: int) -> TcpSocket:
            return traffic.open_socket(address, channel.source_port if qid else 0, f"cannot connect to {self._peer}")

        config = HostConfig(
            hostnqn=f"nqn.2026-01.testbed:{address}",
            hostid=socket.inet_aton(address).rjust(16, b"\0"),
            queue_entries=settings.depth + 1,
            kato_ms=settings.keep_alive_ms,
            io_timeout_ns=settings.io_timeout_ms * 1_000_000,
            header_digest=settings.digests,
            data_digest=settings.digests,
        )
        paths = [(one, _listening_port(channel)) for one in addresses]
        give_up_ns = GIVE_UP * settings.keep_alive_ms * 1_000_000
        nqn = settings.kernel.get(target.host) or subsystem_nqn(target.host)
        self.initiator = Initiator(
            paths,
            nqn,
            config,
            give_up_ns=give_up_ns,
            clock=traffic.sockets.now,
            open_socket=connect,
            make_poll=traffic.sockets.poll,
        )

    @property
    def resent(self) -> int:
        return 0 if self.volume is None else self.volume.resent

    @property
    def timed_out(self) -> int:
        return 0 if self.volume is None else self.volume.timed_out

    def next_timer(self) -> int | None:
        return self.initiator.next_timer()

    def put(self, step: Step) -> None:
        """Queue the commands of a step."""
        length = self._traffic.settings.io_bytes
        state = _Moving(step)
        for at in range(0, step.size_bytes, length):
            self._waiting.append(_Io(state, at, min(length, step.size_bytes - at)))
            state.left += 1

    def not_safe(self) -> list[tuple[int, int, int]]:
        """Return the writes of which the target has not said that it has them: the step, the first byte in it, and how
        many."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for io in (*self._under_way.values(), *self._waiting):
            if not io.moving.step.pulled:
                ranges.setdefault(io.moving.step.number, []).append((io.at, io.length))
        return [(step, at, length) for step, some in sorted(ranges.items()) for at, length in merge_ranges(some)]

    def work(self) -> None:
        try:
            self._work()
        except (StorageError, TrafficError) as error:
            self._traffic.listener.on_failed(f"{self._peer}: {error}")

    def _work(self) -> None:
        self.initiator.poll(0)
        if self.volume is None:
            self.volume = self.initiator.find_volume()
            self._check_given_up()
            return
        depth = self._traffic.settings.depth
        while True:
            while self.volume.done:
                self._on_done(self.volume.done.popleft())
            if not self._waiting or len(self._under_way) >= depth:
                return
            while self._waiting and len(self._under_way) < depth:
                self._submit(self.volume, self._waiting.popleft())
            self.initiator.poll(0)

    def _check_given_up(self) -> None:
        if self.volume is None and self.initiator.given_up:
            raise StorageError("; ".join(path.last_error or "no answer" for path in self.initiator.paths))

    def _submit(self, volume: Volume, io: _Io) -> None:
        step = io.moving.step
        operation = Operation.READ if step.pulled else Operation.WRITE
        buffer = memoryview(bytearray(whole_blocks(io.length)))
        offset = _place_of(step) * STEP_BYTES + io.at
        if operation is Operation.WRITE:
            self._traffic.pattern.fill(buffer, offset)
        self._under_way[self.initiator.submit(volume, operation, offset, buffer)] = io

    def _on_done(self, request: VolumeRequest) -> None:
        io = self._under_way[request]
        step, listener = io.moving.step, self._traffic.listener
        if request.error:  # it stays among those under way: what a target has refused is not safe
            raise StorageError(f"{request.operation.value} of step {step.number}, {io.length} bytes: {request.error}")
        del self._under_way[request]
        if step.pulled:
            wrong = self._traffic.pattern.differences(request.view, request.offset)
            if wrong:
                count = sum(length for _, length in wrong)
                raise StorageError(f"step {step.number}: {count} bytes are not those that were written")
        told = step.pulled or self._tells_arrival
        if told:
            listener.on_bytes(io.length)
        io.moving.left -= 1
        if not io.moving.left:
            (listener.on_arrived if told else listener.on_sent)(step, request.ended)


@dataclass(slots=True, eq=False)
class _Moving:
    """A step that is under way, and how many of its commands have not ended."""

    step: Step
    left: int = 0


@dataclass(frozen=True, slots=True)
class _Io:
    """One command of a step."""

    moving: _Moving
    at: int
    length: int


class _TargetEnd:
    """The target that this host is, at all its addresses."""

    def __init__(self, traffic: NvmeTcpTraffic, name: str, port: int, steps: Mapping[int, Step]) -> None:
        addresses = traffic.settings.ports[name]
        values = traffic.settings.targets[addresses[0]]
        nqn = subsystem_nqn(name)
        nguid = uuid.uuid5(uuid.NAMESPACE_URL, nqn).hex
        space = NamespaceConfig(size=SPACE_BYTES, nguid=nguid, block=BLOCK_BYTES, media=_media(values))
        self.server = TargetServer(
            TargetConfig(
                listen=tuple(ListenAddress(address=address, port=port) for address in addresses),
                subsystems=(SubsystemConfig(nqn=nqn, namespaces=(space,)),),
            ),
            open_backend=lambda _: _Served(traffic, steps, values["capacity"]),
            clock=traffic.sockets.now,
            open_socket=lambda own, number: traffic.open_socket(own, number, f"cannot listen at {own}"),
            make_poll=traffic.sockets.poll,
        )

    def next_timer(self) -> int | None:
        return self.server.next_timer()

    def work(self) -> None:
        self.server.step(0)

    def connection(self, peer: tuple[str, int]) -> TcpSocket | None:
        for item in self.server.sockets():
            try:
                if item.getpeername() == peer:
                    return item
            except OSError:  # it is gone
                continue
        return None


def _place_of(step: Step) -> int:
    """The step in whose range of the namespace its bytes are."""
    return step.number if step.restores is None else step.restores


class _Served(Backend):
    """The medium of a target: what is written is checked, and kept where it is restored; what else is read is made."""

    is_transient = True

    def __init__(self, traffic: NvmeTcpTraffic, steps: Mapping[int, Step], capacity: int) -> None:
        super().__init__(SPACE_BYTES)
        self._traffic = traffic
        self._left = {number: step.size_bytes for number, step in steps.items()}
        self._steps = steps
        self._room = capacity
        self._done: set[tuple[int, int]] = set()
        """The step, and where the commands begin that have ended: one that is sent again is the same."""
        self._reads: dict[int, Step] = {}
        """By whose range of the namespace they read."""
        self.kept: dict[int, MemoryBackend] = {}
        """The bytes that are to be restored, by the step that writes it."""
        for step in steps.values():
            if not step.pulled:
                continue
            if _place_of(step) in self._reads:
                raise TrafficError(f"step {step.number} restores step {step.restores}, which another one does, too")
            self._reads[_place_of(step)] = step
            if step.restores is not None:
                self.kept[step.restores] = MemoryBackend(self._whole_bytes(step))

    def _whole_bytes(self, step: Step) -> int:
        """Return how much a restoring step reads: the blocks that were written. Raises `TrafficError`."""
        written = self._steps.get(_place_of(step))
        if written is None or written.pulled or written.size_bytes != step.size_bytes:
            raise TrafficError(f"step {step.number} restores step {step.restores}, which does not write as much here")
        return whole_blocks(step.size_bytes)

    def read(self, offset: int, length: int) -> memoryview:
        number, at = divmod(offset, STEP_BYTES)
        self._account(self._reads.get(number), offset, length)
        if number in self.kept:
            return self.kept[number].read(at, length)
        view = memoryview(bytearray(length))
        self._traffic.pattern.fill(view, offset)
        return view

    def place(self, offset: int, length: int) -> memoryview:
        number, at = divmod(offset, STEP_BYTES)
        return self.kept[number].place(at, length) if number in self.kept else memoryview(bytearray(length))

    def write(self, offset: int, data: memoryview) -> None:
        if (offset // STEP_BYTES, offset) not in self._done:
            if len(data) > self._room:
                raise MediaError(Status.CAPACITY_EXCEEDED)
            self._room -= len(data)
        wrong = self._traffic.pattern.differences(data, offset)
        if wrong:
            count = sum(length for _, length in wrong)
            self._traffic.listener.on_failed(f"step {offset // STEP_BYTES}: {count} bytes are not those that were sent")
        written = self._steps.get(offset // STEP_BYTES)
        self._account(None if written is None or written.pulled else written, offset, len(data))

    def _account(self, step: Step | None, offset: int, length: int) -> None:
        """Tell of the step whose bytes these are; those of a step that nobody has planned are refused."""
        if step is None or offset % STEP_BYTES >= step.size_bytes:
            raise MediaError(Status.LBA_OUT_OF_RANGE)
        if (step.number, offset) in self._done:
            return
        self._done.add((step.number, offset))
        count = min(length, step.size_bytes - offset % STEP_BYTES)
        listener, left = self._traffic.listener, self._left[step.number] - count
        self._left[step.number] = left
        if not step.pulled:
            listener.on_bytes(count)
        if not left:
            (listener.on_sent if step.pulled else listener.on_arrived)(step, self._traffic.sockets.now())

    def zero(self, offset: int, length: int) -> None:
        raise MediaError(Status.INVALID_FIELD_IN_COMMAND)


def _media(values: Mapping[str, int]) -> MediaConfig:
    return MediaConfig(rate=values["rate"], latency_us=values["latency_us"], depth=values["depth"])


def subsystem_nqn(target: str) -> str:
    """Return the NQN of a target's subsystem."""
    return f"nqn.2026-01.testbed:{target}"


TRANSPORT = WorkerTransport(
    settings=NvmeTcpSettings,
    make_traffic=lambda program, loop, _buffers, listener: NvmeTcpTraffic(program, loop, listener),
)
