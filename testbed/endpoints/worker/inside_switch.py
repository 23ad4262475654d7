"""Operations of a scale-up switch (NVLink SHARP) as frames: a store to all GPUs of a group, and a load of their sums.

A workload says of each transfer which operation it is part of. When all parts of one have begun, the one GPU that it is
of asks the switch: for a store where it is the source, for a load where it is the destination. All parts end when the
switch has answered, which it does when all members have.

The members of a group lend the switch their arrays of one collective, at one address. They do so, and join the group,
when its first operation begins; that takes a round trip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.program import Step
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.binding import WINDOWS
from testbed.protocols.scale_up.domain.endpoint import KEYS, Done, Element, Endpoint
from testbed.protocols.scale_up.domain.errors import ScaleUpError
from testbed.protocols.scale_up.domain.windows import ELEMENT_BYTES, Group
from testbed.workload.steps import Combine

MOST_GROUPS = 8
"""Groups of a domain: their windows are the last ones of a GPU's."""
OPEN_OPERATIONS = 48
"""Operations that a GPU has under way at a time."""
WHOLE = 1 << 48
"""More elements than an array has."""

Memory = Callable[[Step], memoryview | None]
Ended = Callable[[Step, ScaleUpError | None, int], None]


@dataclass(slots=True, kw_only=True)
class _Members:
    """A group, and who has yet to join it."""

    group: Group
    joining: set[int] = field(default_factory=set)
    """GPUs."""


@dataclass(slots=True, kw_only=True)
class _Operation:
    steps: list[Step]
    owner: int
    """The rank that asks."""
    members: _Members


class SwitchOperations:
    """The operations of one domain. `opened` has the endpoints of its ranks, `outgoing` and `landing` the memory of
    transfers, and `idle` is what traffic alone comes from and goes to."""

    def __init__(
        self, opened: Mapping[int, Endpoint], outgoing: Memory, landing: Memory, idle: memoryview, ended: Ended
    ) -> None:
        self._opened = opened
        self._outgoing = outgoing
        self._landing = landing
        self._idle = idle
        self._ended = ended
        self._parts: dict[int, list[Step]] = {}
        """By operation, its parts that have begun, while there are others."""
        self._groups: dict[tuple[int, tuple[int, ...]], _Members] = {}
        """By collective (-1: traffic alone) and ranks."""
        self._joins: dict[tuple[int, int], _Members] = {}
        """By GPU and handle."""
        self._waiting: dict[int, deque[_Operation]] = {}
        """By rank that asks."""
        self._begun: dict[int, int] = {}
        self._running: dict[tuple[int, int], _Operation] = {}
        """By GPU and handle."""

    @property
    def busy(self) -> bool:
        """Tell whether the switch has been asked for anything that it has not answered."""
        return bool(self._running or self._joins)

    def send(self, step: Step) -> None:
        """Begin a part of an operation. Raises `TrafficError`."""
        part = step.in_switch
        assert part is not None and step.destination is not None
        steps = self._parts.setdefault(part.operation, [])
        steps.append(step)
        if len(steps) < part.members:
            return
        del self._parts[part.operation]
        owner = step.source if part.multicast else step.destination
        ranks = {one.source for one in steps} | {one.destination for one in steps if one.destination is not None}
        operation = _Operation(steps=steps, owner=owner, members=self._members(step, tuple(sorted(ranks))))
        self._waiting.setdefault(owner, deque()).append(operation)
        self._begin_waiting(owner)

    def on_done(self, endpoint: Endpoint, done: Done) -> bool:
        """Tell whether what an endpoint has done was of an operation here, and go on. Raises `TrafficError`."""
        if (joined := self._joins.pop((endpoint.gpu, done.handle), None)) is not None:
            if done.error is not None:
                raise TrafficError(f"GPU {endpoint.gpu} cannot join a group of the switch: {done.error}")
            joined.joining.discard(endpoint.gpu)
            if not joined.joining:
                for rank in list(self._waiting):
                    self._begin_waiting(rank)
            return True
        operation = self._running.pop((endpoint.gpu, done.handle), None)
        if operation is None:
            return False
        self._begun[operation.owner] -= 1
        for step in operation.steps:
            self._ended(step, done.error, done.ended_ns)
        self._begin_waiting(operation.owner)
        return True

    # --- groups ------------------------------------------------------------------------------------------

    def _members(self, step: Step, ranks: tuple[int, ...]) -> _Members:
        collective = -1 if step.piece is None else step.piece.collective
        found = self._groups.get((collective, ranks))
        if found is not None:
            return found
        number = len(self._groups)
        if number == MOST_GROUPS:
            raise TrafficError(f"operations in a scale-up switch are of {MOST_GROUPS} collectives of a program at most")
        arrays = {rank: self._array(step, rank) for rank in ranks}
        group = Group(
            number=number,
            members=len(ranks),
            window=WINDOWS - 1 - number,
            key=self._endpoint(ranks[0]).draw(KEYS),
            size=arrays[ranks[0]].nbytes,
        )
        found = self._groups[collective, ranks] = _Members(group=group)
        for rank, array in arrays.items():
            endpoint = self._endpoint(rank)
            try:
                endpoint.lend(group, array)
                self._joins[endpoint.gpu, endpoint.join(group)] = found
            except UsageError as error:
                raise TrafficError(f"rank {rank} cannot join a group of the switch: {error}") from error
            found.joining.add(endpoint.gpu)
        return found

    def _array(self, step: Step, rank: int) -> memoryview:
        """Return the whole array of a rank."""
        if step.piece is None:
            return self._idle
        piece = step.piece.changed(offset=0, length=WHOLE)
        array = self._outgoing(step.changed(source=rank, piece=piece))
        return self._idle if array is None else array

    def _endpoint(self, rank: int) -> Endpoint:
        try:
            return self._opened[rank]
        except KeyError:
            raise TrafficError(f"rank {rank} has no GPU in the scale-up domain of its operations") from None

    # --- operations --------------------------------------------------------------------------------------

    def _begin_waiting(self, rank: int) -> None:
        queue = self._waiting.get(rank)
        while queue and not queue[0].members.joining and self._begun.get(rank, 0) < OPEN_OPERATIONS:
            self._begin(queue.popleft())

    def _begin(self, operation: _Operation) -> None:
        step, group = operation.steps[0], operation.members.group
        endpoint, size = self._endpoint(operation.owner), -(-step.size_bytes // ELEMENT_BYTES) * ELEMENT_BYTES
        assert step.in_switch is not None
        memory: memoryview | None
        offset = 0
        if step.piece is not None:
            offset = step.piece.offset * (step.size_bytes // step.piece.length)
        if step.in_switch.multicast:
            memory = self._outgoing(step)
        else:  # the switch has added up what the owner has, too
            piece = step.piece and step.piece.changed(combine=Combine.COPY)
            memory = self._landing(step.changed(piece=piece))
        memory = self._idle[:size] if memory is None else memory
        try:
            if step.in_switch.multicast:
                handle = endpoint.multicast_store(group, memory, offset, vc=step.vc)
            else:
                handle = endpoint.load_reduce(group, memory, offset, element=Element.FLOAT32, vc=step.vc)
        except UsageError as error:
            raise TrafficError(f"rank {operation.owner} cannot ask the switch: {error}") from error
        self._begun[operation.owner] = self._begun.get(operation.owner, 0) + 1
        self._running[endpoint.gpu, handle] = operation
