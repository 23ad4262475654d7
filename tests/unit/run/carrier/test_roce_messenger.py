"""The queue pairs of the carrier where they hold as much as they can: nothing is lost without a word."""

from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

from testbed.protocols.errors import UsageError
from testbed.protocols.roce.packets.opcodes import Operation
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import WorkRequest, WorkStatus
from testbed.run.carrier.messengers.messenger import Told, Undelivered
from testbed.run.carrier.messengers.roce import RoceFlow, RoceMessenger


class FullQueuePair:
    """A queue pair that takes `room` messages, and acknowledges none by itself."""

    def __init__(self, completions: deque[Any], room: int) -> None:
        self.number, self.state, self.config = 0x100, QpState.RTS, SimpleNamespace(most_posted=room)
        self._completions, self._posted = completions, deque[WorkRequest]()
        self.sent = self.retransmitted = 0
        self.receives = deque(["room"] * 3)

    def send(self, data: Any, now: int, *, context: object) -> None:
        if len(self._posted) >= self.config.most_posted:
            raise UsageError("full")
        self._posted.append(WorkRequest(Operation.SEND, memoryview(data), None, context))

    def take_receive(self) -> str | None:
        return self.receives.popleft() if self.receives else None

    def complete(self, request: WorkRequest, status: WorkStatus, error: str, now: int) -> None:
        request.status, request.error = status, error
        self._completions.append(request)

    def acknowledge(self) -> None:
        self.complete(self._posted.popleft(), WorkStatus.SUCCESS, "", 0)


def messenger(room: int) -> tuple[Any, Any]:
    """A messenger without an RNIC, and the queue pair that it has."""
    found: Any = RoceMessenger.__new__(RoceMessenger)
    found.completions = deque()
    qp: Any = FullQueuePair(found.completions, room)
    destroyed: list[Any] = []
    found._rnic = SimpleNamespace(destroy_qp=lambda qp, now: destroyed.append(qp), destroyed=destroyed)
    found._control = {"10.0.0.2": qp}
    found._leaving, found._time_wait_ns, found._gone = deque(), 1 << 60, Counter()
    found._agent = SimpleNamespace(loop=SimpleNamespace(touch=lambda _: None))
    return found, qp


def test_a_flow_that_is_full_is_not_ready_until_there_is_room() -> None:
    opened, qp = messenger(room=2)
    flow = RoceFlow(opened, "10.0.0.2", qp, psn=1)
    flow.on_told()
    for _ in range(2):
        assert flow.is_ready
        flow.send(memoryview(b"data"), "end")
    assert not flow.is_ready
    qp.acknowledge()
    assert list(opened.poll()) == [Told("end")], "its program is read again"
    assert flow.is_ready
    qp.acknowledge()
    assert list(opened.poll()) == []


def test_a_frame_that_no_queue_takes_is_undelivered() -> None:
    opened, qp = messenger(room=1)
    opened.tell("10.0.0.2", b"first", "one")
    opened.tell("10.0.0.2", b"second", "other")
    assert list(opened.poll()) == [Undelivered("other", "full")]
    qp.acknowledge()
    assert list(opened.poll()) == [Told("one")]


def test_a_flow_that_has_ended_acknowledges_for_a_while_and_holds_no_memory() -> None:
    """The peer may not have heard that all has arrived: it would give up what it sends again to nobody."""
    opened, qp = messenger(room=2)
    flow = RoceFlow(opened, "10.0.0.2", qp, psn=1)
    flow.close(at_once=False)
    assert opened._rnic.destroyed == [] and not qp.receives
    opened._end_leaving(1 << 61)
    assert opened._rnic.destroyed == [qp]


def test_a_flow_that_still_sends_leaves_once_all_is_acknowledged() -> None:
    opened, qp = messenger(room=2)
    flow = RoceFlow(opened, "10.0.0.2", qp, psn=1)
    flow.send(memoryview(b"data"), "end")
    flow.close(at_once=False)
    assert not opened._leaving
    qp.acknowledge()
    assert list(opened.poll()) == []
    assert [one for _, one in opened._leaving] == [flow] and opened._rnic.destroyed == []


def test_a_flow_that_is_reset_is_gone_at_once() -> None:
    opened, qp = messenger(room=2)
    RoceFlow(opened, "10.0.0.2", qp, psn=1).close(at_once=True)
    assert opened._rnic.destroyed == [qp] and not opened._leaving
