"""The host's side of an association with a controller: brings it up, keeps it alive, and notices its end.

    CONNECTING   the admin queue connects; properties, Identify, features; then the I/O queues connect (`wanted_queues`)
    LIVE         namespaces are known, I/O queues take requests, each of which has a time-out; Keep Alive at half its
                 time-out; an event request waits
    CLOSING      the host has asked for a shutdown (CC.SHN) and waits for its completion
    FAILED       a queue has ended, a step was refused or took too long, or Keep Alive or a command was not answered in
                 time: all queues are closed, and every request on them is lost. A new association is another object.

The I/O layer owns sockets: it gives each queue that is wanted a connection (`open_queue`), moves its bytes, calls
`advance` afterwards, and takes the requests that ended from I/O queues. Source: NVM Express Base Specification
2.0: initialization of message-based controllers, keep alive, asynchronous events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import replace
from enum import StrEnum
from typing import Final

from testbed.protocols.nvme.codes import (
    DISCOVERY_NQN,
    DYNAMIC_CNTLID,
    Cc,
    Cns,
    Csts,
    Feature,
    LogPage,
    Property,
    status_name,
)
from testbed.protocols.nvme.commands import (
    ConnectData,
    Sqe,
    async_event_command,
    get_log_page_command,
    identify_command,
    keep_alive_command,
    property_get_command,
    property_set_command,
    set_features_command,
)
from testbed.protocols.nvme.config import HostConfig
from testbed.protocols.nvme.data_structures import (
    CHANGED_BYTES,
    DISCOVERY_ENTRY_BYTES,
    IDENTIFY_BYTES,
    ControllerData,
    DiscoveryEntry,
    NamespaceData,
    decode_controller,
    decode_discovery_log,
    decode_namespace,
    decode_namespace_list,
    decode_nguid,
)
from testbed.protocols.nvme.host_queue import HostQueue, HostRequest

_MS: Final = 1_000_000
_ADMIN_ENTRIES: Final = 32
_ENABLE: Final = 6 << 16 | 4 << 20 | Cc.EN
"""CC: entries of 64 and 16 bytes, NVM command set, pages of 4 KiB, and enabled."""
_NORMAL_SHUTDOWN: Final = 1 << 14
_READY_LOOK_NS: Final = 5 * _MS
MOST_DISCOVERY_ENTRIES: Final = 1024
MOST_NAMESPACES: Final = 1024

Steps = Generator[HostRequest | int | None, HostRequest | None, None]
"""A step yields an administration command, or a time in ns to wait, or None to wait for the I/O queues."""


class HostState(StrEnum):
    CONNECTING = "connecting"
    LIVE = "live"
    CLOSING = "closing"
    FAILED = "failed"


class StepRefused(Exception):
    """The controller does not do what bringing it up needs."""


class HostController:
    """Times in ns."""

    def __init__(self, config: HostConfig, subnqn: str, now: int) -> None:
        self.config: Final = config
        self.subnqn: Final[str] = subnqn
        self.state: HostState = HostState.CONNECTING
        self.reason: str = ""
        """Why it has failed."""
        self.wanted_queues: deque[int] = deque([0])
        """Queues that wait for a connection, which `open_queue` gives them."""
        self.queues: dict[int, HostQueue] = {}
        self.data: ControllerData | None = None
        self.namespaces: dict[int, NamespaceData] = {}
        self.discovered: list[DiscoveryEntry] = []
        """The subsystems that a discovery controller lists."""
        self._deadline: int | None = now + config.connect_ns
        self._wait_until: int | None = None
        self._steps: Steps | None = self._bring_up()
        self._waits_for: HostRequest | None = None
        self._answer: HostRequest | None = None
        self._keep_alive_at: int | None = None
        self._kept_alive: HostRequest | None = None
        """A Keep Alive that is not answered yet, sent at `_asked_at`."""
        self._asked_at = now
        self._event: HostRequest | None = None
        self._changed = False
        self._io_entries = config.queue_entries

    @property
    def io_queues(self) -> list[HostQueue]:
        return [queue for qid, queue in self.queues.items() if qid and queue.live]

    @property
    def most_transfer(self) -> int:
        """Bytes of one read or write, at most; 0: no limit."""
        return self.data.most_transfer if self.data is not None else 0

    def open_queue(self, qid: int, now: int) -> HostQueue:
        """There is a connection for a queue of `wanted_queues`."""
        self.wanted_queues.remove(qid)
        cntlid = self.queues[0].cntlid if qid else DYNAMIC_CNTLID
        association = ConnectData(self.config.hostid, cntlid, self.subnqn, self.config.hostnqn)
        queue = HostQueue(self.config, qid, self._io_entries if qid else _ADMIN_ENTRIES, association)
        if qid and self.data is not None:
            queue.in_capsule_bytes = max(self.data.in_capsule, 1024)
        self.queues[qid] = queue
        return queue

    # --- the I/O layer's calls ----------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Go on with what has come: to be called after bytes were moved, and when `next_timer` has passed."""
        for queue in self.queues.values():
            if queue.closed and self.state is not HostState.FAILED:
                self.fail("shut down" if self.state is HostState.CLOSING else f"queue {queue.qid}: {queue.reason}")
        if self.state is HostState.FAILED:
            return
        if self._deadline is not None and now >= self._deadline:
            self.fail(f"{self.state} for more than {self.config.connect_ns / 1e9:g} s")
            return
        if 0 in self.queues and self.queues[0].live:
            self._take_admin(now)
            self._run_steps(now)
            self._keep_alive(now)
            self._watch_commands(now)

    def next_timer(self) -> int | None:
        """When `advance` is to be called though nothing came; None: for nothing."""
        if self.state is HostState.FAILED:
            return None
        keep_alive = self._keep_alive_at if self._kept_alive is None else self._alive_until()
        times = (self._deadline, self._wait_until, keep_alive, self._answered_by())
        return min((time for time in times if time is not None), default=None)

    def shut_down(self, now: int) -> None:
        """Leave the controller in good order; its requests are to have ended before."""
        if self.state is not HostState.LIVE:
            self.fail("shut down")
            return
        self.state = HostState.CLOSING
        self._deadline = now + self.config.connect_ns
        self._steps = self._go_down()
        self._waits_for = self._answer = None
        self._run_steps(now)

    def fail(self, reason: str) -> None:
        """End the association: all that is outstanding is lost."""
        if self.state is HostState.FAILED:
            return
        self.state = HostState.FAILED
        self.reason = reason
        self.wanted_queues.clear()
        self._steps = None
        for queue in self.queues.values():
            queue.close(reason)

    # --- steps --------------------------------------------------------------------------------------------

    def _take_admin(self, now: int) -> None:
        ended = self.queues[0].ended
        while ended:
            request = ended.popleft()
            if request is self._waits_for:
                self._waits_for, self._answer = None, request
            elif request is self._kept_alive:
                self._kept_alive = None
            elif request is self._event and request.good:
                self._event = None
                self._changed = True

    def _run_steps(self, now: int) -> None:
        """Run the steps as far as they go without waiting."""
        if self._changed and self._steps is None and self.state is HostState.LIVE:
            self._changed = False
            self._steps = self._look_again()
        while self._steps is not None and self._waits_for is None:
            if self._wait_until is not None and now < self._wait_until:
                return
            if self.wanted_queues or not all(queue.live for queue in self.queues.values()):
                return
            answer, self._answer, self._wait_until = self._answer, None, None
            try:
                asked = self._steps.send(answer)
            except StopIteration:
                self._steps = None
                return
            except StepRefused as refused:
                self.fail(str(refused))
                return
            if isinstance(asked, HostRequest):
                self._waits_for = asked
                self.queues[0].submit(asked)
            elif asked is not None:
                self._wait_until = now + asked

    def _keep_alive(self, now: int) -> None:
        """Send Keep Alive at half the time-out, and fail when its answer is late by all of it."""
        if not self.config.kato_ms or self.state is not HostState.LIVE:
            return
        late_at = self._alive_until()
        if late_at is not None and now >= late_at:
            self.fail("Keep Alive was not answered")
            return
        if self._kept_alive is not None or (self._keep_alive_at is not None and now < self._keep_alive_at):
            return
        if self._keep_alive_at is not None:
            self._kept_alive = HostRequest(keep_alive_command())
            self._asked_at = now
            self.queues[0].submit(self._kept_alive)
        self._keep_alive_at = now + self.config.kato_ms * _MS // 2

    def _alive_until(self) -> int | None:
        return self._asked_at + self.config.kato_ms * _MS if self._kept_alive is not None else None

    def _watch_commands(self, now: int) -> None:
        """Fail when a command on an I/O queue is late. Linux's host over TCP does so, too, and aborts none
        (drivers/nvme/host/tcp.c, `nvme_tcp_timeout`)."""
        if self.state is not HostState.LIVE:
            return
        for queue in self.io_queues:
            queue.note_time(now)
        late_at = self._answered_by()
        if late_at is not None and now >= late_at:
            for queue in self.io_queues:
                queue.note_timeout()
            self.fail(f"a command was not answered for {self.config.io_timeout_ns / 1e9:g} s")

    def _answered_by(self) -> int | None:
        """When the oldest command of all I/O queues is late."""
        if not self.config.io_timeout_ns:
            return None
        begun = [queue.oldest_begun for queue in self.io_queues]
        oldest = min((one for one in begun if one is not None), default=None)
        return None if oldest is None else oldest + self.config.io_timeout_ns

    def _bring_up(self) -> Steps:
        yield None
        capabilities = yield from _done(property_get_command(Property.CAP))
        self._io_entries = min(self.config.queue_entries, (capabilities & 0xFFFF) + 1)
        yield from _done(property_set_command(Property.CC, _ENABLE))
        while True:
            status = yield from _done(property_get_command(Property.CSTS))
            if status & Csts.CFS:
                raise StepRefused("the controller has failed (CSTS.CFS)")
            if status & Csts.RDY:
                break
            yield _READY_LOOK_NS
        self.data = decode_controller((yield from _data(identify_command(Cns.CONTROLLER), IDENTIFY_BYTES)))
        if self.subnqn == DISCOVERY_NQN:
            yield from self._discover()
        else:
            yield from self._connect_io_queues()
            yield from self._look_at_namespaces()
            yield from _done(set_features_command(Feature.ASYNC_EVENT_CONFIGURATION, 1 << 8))
            self._request_event()
        self.state = HostState.LIVE
        self._deadline = None

    def _connect_io_queues(self) -> Steps:
        count = self.config.io_queues
        granted = yield from _done(set_features_command(Feature.NUMBER_OF_QUEUES, (count - 1) | (count - 1) << 16))
        count = min(count, (granted & 0xFFFF) + 1, (granted >> 16 & 0xFFFF) + 1)
        self.wanted_queues.extend(range(1, count + 1))
        yield None

    def _look_at_namespaces(self) -> Steps:
        found: dict[int, NamespaceData] = {}
        listed = decode_namespace_list((yield from _data(identify_command(Cns.ACTIVE_NAMESPACES), IDENTIFY_BYTES)))
        for nsid in listed[:MOST_NAMESPACES]:
            data = yield from _data(identify_command(Cns.NAMESPACE, nsid), IDENTIFY_BYTES)
            namespace = decode_namespace(nsid, data)
            if namespace is not None and not any(namespace.nguid):
                descriptors = yield from _data(identify_command(Cns.NAMESPACE_DESCRIPTORS, nsid), IDENTIFY_BYTES)
                namespace = replace(namespace, nguid=decode_nguid(descriptors) or bytes(16))
            if namespace is not None:
                found[nsid] = namespace
        self.namespaces = found

    def _discover(self) -> Steps:
        head = yield from _data(get_log_page_command(LogPage.DISCOVERY, DISCOVERY_ENTRY_BYTES), DISCOVERY_ENTRY_BYTES)
        count = min(int.from_bytes(head[8:16], "little"), MOST_DISCOVERY_ENTRIES)
        length = (count + 1) * DISCOVERY_ENTRY_BYTES
        self.discovered = decode_discovery_log(
            (yield from _data(get_log_page_command(LogPage.DISCOVERY, length), length))
        )

    def _request_event(self) -> None:
        self._event = HostRequest(async_event_command())
        self.queues[0].submit(self._event)

    def _look_again(self) -> Steps:
        """The controller has told that namespaces changed: reading the log lets it tell the next time."""
        yield from _data(get_log_page_command(LogPage.CHANGED_NAMESPACES, CHANGED_BYTES), CHANGED_BYTES)
        yield from self._look_at_namespaces()
        self._request_event()

    def _go_down(self) -> Steps:
        yield from _done(property_set_command(Property.CC, _ENABLE | _NORMAL_SHUTDOWN))
        while (yield from _done(property_get_command(Property.CSTS))) & (3 << 2) != Csts.SHST_COMPLETE:
            yield _READY_LOOK_NS
        raise StepRefused("shut down")


def _done(sqe: Sqe, place: bytearray | None = None) -> Generator[HostRequest | int | None, HostRequest | None, int]:
    """Have a command executed, and return Dwords 0 and 1 of its completion. Raises `StepRefused`."""
    answer = yield HostRequest(sqe, place=place or b"")
    assert answer is not None
    if not answer.good:
        raise StepRefused(f"opcode {sqe.opcode:02x}h: {status_name(answer.status)}")
    return answer.result


def _data(sqe: Sqe, length: int) -> Generator[HostRequest | int | None, HostRequest | None, bytearray]:
    """Have a command executed, and return its data. Raises `StepRefused`."""
    place = bytearray(length)
    yield from _done(sqe, place)
    return place
