"""Sends that do not go out whole at once: RENDEZVOUS (the target reads the rest) and DEFERRABLE (the target says when).

Source: UE Specification 1.0, section 3.4 (RENDEZVOUS_SEND, DEFERRABLE_SEND, DEFERRABLE_RTR) and the rendezvous
extension. The public sources name the fields but not the whole exchange of a deferral; what is decided here: a target
without a matching receive answers DROPPED, remembers the message without its data, and sends DEFERRABLE_RTR with both
restart tokens when a receive is posted; the initiator, which stopped at the answer, then sends the message once more,
with both tokens in the place of the buffer offset. A rendezvous send ends at the initiator when the target has read
the rest.

An offer may wait as long as the target likes, and so may a receive that has asked for a restart; but not for a peer
that knows of it no more, because it began anew or gave up. So who waits asks now and then, by a NO_OP with a `Question`
in the place of the buffer offset and what it is about in that of the match bits. NO_MATCH says that the peer does not
know it; said twice, with no progress in between, that is the end. (A peer of another make takes it for a plain NO_OP,
which tells at least that it lives.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Final

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.delivery.pdc import Pdc
from testbed.protocols.uet.delivery.receiver import Answer
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import Mode, Opcode, RequestBit, ReturnCode
from testbed.protocols.uet.packets.ses import StandardRequest
from testbed.protocols.uet.packets.ses_extensions import RendezvousExtension
from testbed.protocols.uet.semantics.incoming import IncomingMessage
from testbed.protocols.uet.semantics.messages import Message, MessageHeader, ReadMessage, Target
from testbed.protocols.uet.semantics.operations import Operation, OpKind
from testbed.protocols.uet.semantics.owner import SemanticsOwner

if TYPE_CHECKING:
    from testbed.protocols.uet.semantics.endpoint import Endpoint
    from testbed.protocols.uet.semantics.target import TargetSemantics

_SES_REL: Final = int(RequestBit.REL)
_TOKEN_MASK: Final = 0xFFFF_FFFF


class Question(IntEnum):
    """The things that a peer is asked whether it still knows."""

    RENDEZVOUS = 1
    """A question of the target: the rendezvous send whose rest has this key."""
    DEFERRABLE = 2
    """A question of the target: the deferrable send with this token of the initiator (upper half)."""
    RESTART = 3
    """A question of the initiator: the restart that was asked for with these tokens."""


class Step(Operation):
    """An operation of our own making, part of a user's: its end is told to a function."""

    def __init__(
        self, kind: OpKind, now: int, then: Callable[[Operation, int], None], buffer: memoryview | None = None
    ) -> None:
        super().__init__(kind, deque(), None, now, buffer)
        self._then = then

    def complete(self, status: ReturnCode, length: int, now: int, error: str = "") -> None:
        if self.status is None:
            super().complete(status, length, now, error)
            self._then(self, now)


Identity = tuple[str, int, int, int]
"""The name of a deferral: address and job of its initiator, `Question`, subject."""


class Deferral:
    """The memory that a target has of a rendezvous or deferrable send."""

    def __init__(
        self,
        header: StandardRequest,
        extension: RendezvousExtension | None,
        remote: str,
        mode: Mode,
        endpoint: Endpoint,
        known: dict[Identity, Deferral],
    ) -> None:
        self.header = header
        self.extension = extension
        self.remote = remote
        self.mode = mode
        self.endpoint = endpoint
        self.known = known
        if extension is not None:
            self.identity = (remote, header.job_id, Question.RENDEZVOUS, extension.read_key)
        else:
            self.identity = (remote, header.job_id, Question.DEFERRABLE, header.buffer_offset & ~_TOKEN_MASK)
        known[self.identity] = self
        self.eager = bytearray()
        """Room for the eager part, once it is known that there may be so much."""

    def forget(self) -> None:
        """It has come to its end, whichever."""
        if self.known.get(self.identity) is self:
            del self.known[self.identity]


class _Wait:
    """An operation that waits for a peer, which is asked now and then whether it still knows why."""

    def __init__(self, operation: Operation, target: Target, mode: Mode, question: Question, subject: int) -> None:
        self.operation = operation
        self.target = target
        self.mode = mode
        self.question = question
        self.subject = subject
        self.settled = False
        """The peer has acknowledged what it is to know."""
        self.asked = False
        """It is being asked at present."""
        self.doubted = False
        """It did not know when it was asked the last time, and nothing has come of it since."""


class _Offer(_Wait):
    """Initiator: a rendezvous or deferrable send that waits for its target."""

    def __init__(self, operation: Operation, target: Target, mode: Mode, key: int, left: int, token: int = 0) -> None:
        question = Question.DEFERRABLE if token else Question.RENDEZVOUS
        super().__init__(operation, target, mode, question, token << 32 if token else key)
        self.key = key
        """The key of the memory that is offered; 0 for a deferrable send."""
        self.left = left
        self.restarted_by = 0
        """The target's token of the latest restart."""
        self.restart: Callable[[int, int], None] | None = None


class DeferredSends:
    """Both sides of deferred sends at one FEP."""

    OPCODES: ClassVar[frozenset[Opcode]] = frozenset(
        {Opcode.RENDEZVOUS_SEND, Opcode.RENDEZVOUS_TSEND, Opcode.DEFERRABLE_SEND, Opcode.DEFERRABLE_TSEND}
    )
    _RENDEZVOUS: ClassVar[frozenset[Opcode]] = frozenset({Opcode.RENDEZVOUS_SEND, Opcode.RENDEZVOUS_TSEND})
    _TAGGED: ClassVar[frozenset[Opcode]] = frozenset({Opcode.RENDEZVOUS_TSEND, Opcode.DEFERRABLE_TSEND})

    def __init__(self, fep: SemanticsOwner, semantics: TargetSemantics) -> None:
        self._fep = fep
        self._semantics = semantics
        self._next_token = 0
        self._offers: dict[int, _Offer] = {}
        self._read_offers: dict[int, _Offer] = {}
        self._check_at = 0
        self._accepted: dict[int, tuple[_Wait, Deferral]] = {}
        """Receives that wait for a restart, by our token."""
        self._known: dict[Identity, Deferral] = {}
        """Offers of peers that have not come to an end."""

    # --- initiator ---------------------------------------------------------------------------------------

    def rendezvous(
        self,
        endpoint: Endpoint,
        operation: Operation,
        target: Target,
        payload: memoryview,
        mode: Mode,
        now: int,
    ) -> None:
        """Send as much as one packet holds, and let the target read the rest from our memory."""
        eager = payload[: self._fep.payload_bytes]
        rest = payload[self._fep.payload_bytes :]
        region = self._fep.register(rest, Access.REMOTE_READ, target.job_id)
        offer = _Offer(operation, target, mode, region.key, len(rest))
        self._read_offers[region.key] = offer
        self._watch(now)
        extension = RendezvousExtension(
            eager_length=len(eager),
            ri_generation=0,
            pid_on_fep=endpoint.address.pid_on_fep,
            resource_index=endpoint.address.resource_index,
            read_offset=0,
            read_key=region.key,
        )

        def sent(step: Operation, at: int) -> None:
            if step.status is not ReturnCode.OK:
                self._withdraw(offer, step.status or ReturnCode.UNDELIVERABLE, at, step.error)
            elif offer.left == 0:
                self._withdraw(offer, ReturnCode.OK, at, "")
            offer.settled = True

        pdc = self._fep.submit(target.ip, target.job_id, mode, now)
        header = MessageHeader(
            opcode=Opcode.RENDEZVOUS_TSEND if operation.kind is OpKind.TSEND else Opcode.RENDEZVOUS_SEND,
            match_bits=operation.tag,
            extension=extension.encode(),
            request_length=len(payload),
        )
        message = Message(self._fep.transfers(pdc), Step(operation.kind, now, sent), target, header, eager)
        self._fep.start(pdc, message, now)

    def offers(self, key: int) -> bool:
        """Tell whether the memory of this key is what a rendezvous offers."""
        return key in self._read_offers

    def was_lost(self, key: int, reason: str, now: int) -> None:
        """The target could not be given what it asked for of this region."""
        offer = self._read_offers.get(key)
        if offer is not None:
            self._withdraw(offer, ReturnCode.UNDELIVERABLE, now, reason)

    def was_read(self, key: int, length: int, now: int) -> None:
        """A target has `length` bytes of the region of this key."""
        offer = self._read_offers.get(key)
        if offer is not None:
            offer.left -= length
            offer.doubted = False
            if offer.left <= 0:
                self._withdraw(offer, ReturnCode.OK, now, "")

    def _withdraw(self, offer: _Offer, status: ReturnCode, now: int, error: str) -> None:
        if self._read_offers.pop(offer.key, None) is not None:
            self._fep.retire(offer.key)
        buffer = offer.operation.buffer
        length = len(buffer) if buffer is not None and status is ReturnCode.OK else 0
        offer.operation.complete(status, length, now, error)

    def deferrable(self, operation: Operation, target: Target, payload: memoryview, mode: Mode, now: int) -> None:
        """Send, but be ready to send again when the target has a receive for it."""
        token = self._token()
        offer = self._offers[token] = _Offer(operation, target, mode, 0, len(payload), token)
        self._watch(now)
        opcode = Opcode.DEFERRABLE_TSEND if operation.kind is OpKind.TSEND else Opcode.DEFERRABLE_SEND

        def send(target_token: int, at: int) -> None:
            offer.settled = offer.doubted = False

            def sent(step: Operation, finished: int) -> None:
                offer.settled = step.status is ReturnCode.DROPPED
                if not offer.settled:
                    self._offers.pop(token, None)
                    operation.complete(step.status or ReturnCode.OK, step.length, finished, step.error)

            pdc = self._fep.submit(target.ip, target.job_id, mode, at)
            transfers = self._fep.transfers(pdc)
            step = Step(operation.kind, at, sent)
            header = MessageHeader(opcode, operation.tag, token << 32 | target_token)
            self._fep.start(pdc, Message(transfers, step, target, header, payload, stop_on_deferral=True), at)

        offer.restart = send
        send(0, now)

    def restart(self, remote: str, header: StandardRequest, now: int) -> bool:
        """DEFERRABLE_RTR has arrived: its tokens are in the place of the match bits. False: there is no such message.

        Only the peer that the message was sent to may ask for it, and once with each of its tokens.
        """
        offer = self._offers.get(header.memory_key >> 32)
        token = header.memory_key & _TOKEN_MASK
        if (
            offer is None
            or offer.restart is None
            or offer.operation.done
            or (offer.target.ip, offer.target.job_id) != (remote, header.job_id)
            or token in (0, offer.restarted_by)
        ):
            self._fep.count("stray-restart")
            return False
        offer.restarted_by = token
        try:
            offer.restart(token, now)
        except UsageError as error:  # no PDC is free
            self._give_up(offer, now, str(error))
        return True

    # --- does the peer still know? -----------------------------------------------------------------------

    def _watch(self, now: int) -> None:
        if self._check_at == 0:
            self._check_at = now + self._fep.config.patience_ns

    def next_timer(self) -> int | None:
        """Return when peers are to be asked; None while nothing waits for one."""
        return (self._check_at or None) if self._offers or self._read_offers or self._accepted else None

    def handle_timer(self, now: int) -> None:
        """Ask the peers of all that waits."""
        due = self.next_timer()
        if due is None:
            self._check_at = 0
        elif due <= now:
            self._check_at = now + self._fep.config.patience_ns
            restarts = [wait for wait, _ in self._accepted.values()]
            for wait in [*self._offers.values(), *self._read_offers.values(), *restarts]:
                if wait.settled and not wait.asked and not wait.operation.done:
                    self._ask(wait, now)

    def _ask(self, wait: _Wait, now: int) -> None:
        def answered(step: Operation, at: int) -> None:
            wait.asked = False
            if step.status is ReturnCode.NO_MATCH and not wait.doubted:
                wait.doubted = True  # it may have come to its end there just now: then we shall hear of it
            elif step.status is ReturnCode.NO_MATCH:
                self._give_up(wait, at, "the peer knows of it no more")
            elif step.status is not ReturnCode.OK:
                self._give_up(wait, at, step.error)
            else:
                wait.doubted = False

        try:
            pdc = self._fep.submit(wait.target.ip, wait.target.job_id, wait.mode, now)
        except UsageError as error:
            self._give_up(wait, now, str(error))
            return
        wait.asked = True
        step = Step(wait.operation.kind, now, answered)
        transfers = self._fep.transfers(pdc)
        nothing = memoryview(b"")
        header = MessageHeader(Opcode.NO_OP, wait.subject, wait.question)
        self._fep.start(pdc, Message(transfers, step, wait.target, header, nothing), now)

    def knows(self, remote: str, header: StandardRequest) -> bool:
        """Tell whether what a NO_OP asks about is known here; one that asks about nothing is always right."""
        subject = header.memory_key
        if header.buffer_offset == Question.RESTART:
            offer = self._offers.get(subject >> 32)
            return (
                offer is not None
                and (offer.target.ip, offer.target.job_id) == (remote, header.job_id)
                and offer.restarted_by == subject & _TOKEN_MASK
            )
        if header.buffer_offset in (Question.RENDEZVOUS, Question.DEFERRABLE):
            return (remote, header.job_id, header.buffer_offset, subject) in self._known
        return True

    def _give_up(self, wait: _Wait, now: int, reason: str) -> None:
        for token in [token for token, other in self._offers.items() if other is wait]:
            del self._offers[token]
        for token, (other, deferral) in list(self._accepted.items()):
            if other is wait:
                del self._accepted[token]
                deferral.forget()
        if isinstance(wait, _Offer):
            self._withdraw(wait, ReturnCode.UNDELIVERABLE, now, reason)
        else:
            wait.operation.complete(ReturnCode.UNDELIVERABLE, 0, now, reason)

    def closed(self, endpoint: Endpoint) -> None:
        """Learn that what waits for a receive of this endpoint will never meet one."""
        for deferral in [deferral for deferral in self._known.values() if deferral.endpoint is endpoint]:
            deferral.forget()

    def _token(self) -> int:
        if self._next_token == 0:  # the first one: who begins anew must not take up what the one before has left
            self._next_token = self._fep.random.getrandbits(31)
        self._next_token = self._next_token % _TOKEN_MASK + 1
        return self._next_token

    # --- target ------------------------------------------------------------------------------------------

    def begin(self, pdc: Pdc, header: StandardRequest, message: IncomingMessage, now: int) -> IncomingMessage | Answer:
        """The first packet of such a send: it meets a receive, or waits in the unexpected list without the bulk."""
        semantics = self._semantics
        endpoint = message.endpoint
        assert endpoint is not None
        tagged = header.opcode in self._TAGGED
        queue = endpoint.tagged if tagged else endpoint.untagged
        tag = header.memory_key if tagged else 0
        rendezvous = header.opcode in self._RENDEZVOUS
        extension = header.extension if isinstance(header.extension, RendezvousExtension) else None
        if rendezvous and (extension is None or extension.eager_length > header.request_length):
            message.status = ReturnCode.OP_VIOLATION
            return message
        number = semantics.initiator_number(pdc.remote, header.initiator)
        operation = None
        if not rendezvous and header.buffer_offset & _TOKEN_MASK:
            accepted = self._accepted.get(header.buffer_offset & _TOKEN_MASK)
            if accepted is None or (accepted[1].remote, accepted[1].header.job_id) != (pdc.remote, header.job_id):
                message.status = ReturnCode.CANCELLED
                return message
            del self._accepted[header.buffer_offset & _TOKEN_MASK]
            accepted[1].forget()
            operation = accepted[0].operation
        else:
            posted = queue.match(tag, number)
            if posted is not None:
                assert isinstance(posted.context, Operation)
                operation = posted.context
                operation.tag = tag
        eager = 0 if extension is None else extension.eager_length
        if operation is not None:
            if not rendezvous:
                semantics.meet(message, operation)
                return message
            assert operation.buffer is not None
            if eager > len(operation.buffer):
                semantics.meet(message, operation)
                message.total = eager
                return message
            deferral = message.deferral = Deferral(header, extension, pdc.remote, pdc.mode, endpoint, self._known)
            message.operation = self._rendezvous_step(message, operation, now)
        else:
            message.unexpected = queue.add_unexpected(tag, number, eager, message)
            if message.unexpected is None:
                return semantics.no_room()
            deferral = message.deferral = Deferral(header, extension, pdc.remote, pdc.mode, endpoint, self._known)
            if not rendezvous:
                message.status = ReturnCode.DROPPED
                return message
        # Only the eager part comes as packets of this message.
        deferral.eager = bytearray(eager)
        message.total = eager
        message.view = memoryview(deferral.eager)
        return message

    def take(self, message: IncomingMessage, operation: Operation, now: int) -> bool:
        """A receive is posted for such a send that came before it. False if `message` is an ordinary one."""
        deferral = message.deferral
        if deferral is None:
            return False
        if deferral.extension is None:
            self._ask_to_restart(message, deferral, operation, now)
        else:
            step = self._rendezvous_step(message, operation, now)
            if message.received >= message.total:
                step.complete(ReturnCode.OK, message.total, now)
            else:
                message.operation = step
        return True

    def _ask_to_restart(self, message: IncomingMessage, deferral: Deferral, operation: Operation, now: int) -> None:
        token = self._token()
        operation.source = message.source
        endpoint = message.endpoint
        assert endpoint is not None and message.source is not None
        tokens = (deferral.header.buffer_offset >> 32) << 32 | token
        to = message.source
        target = Target(to.ip, endpoint.address.job_id, to.pid_on_fep, to.resource_index, True, endpoint.initiator)
        wait = _Wait(operation, target, deferral.mode, Question.RESTART, tokens)
        self._accepted[token] = (wait, deferral)
        self._watch(now)

        def sent(step: Operation, at: int) -> None:
            wait.settled = True
            if step.status is not ReturnCode.OK and self._accepted.pop(token, None) is not None:
                deferral.forget()
                operation.complete(step.status or ReturnCode.UNDELIVERABLE, 0, at, step.error)

        try:
            pdc = self._fep.submit(target.ip, target.job_id, deferral.mode, now)
        except UsageError as error:  # no PDC is free
            self._give_up(wait, now, str(error))
            return
        step = Step(operation.kind, now, sent)
        empty = memoryview(b"")
        header = MessageHeader(Opcode.DEFERRABLE_RTR, tokens)
        self._fep.start(pdc, Message(self._fep.transfers(pdc), step, target, header, empty), now)

    def _rendezvous_step(self, message: IncomingMessage, operation: Operation, now: int) -> Step:
        """Return what follows the eager part: copy it, and read the rest."""
        deferral = message.deferral
        assert deferral is not None and deferral.extension is not None
        extension = deferral.extension
        total = deferral.header.request_length
        operation.source = message.source

        def eager_arrived(step: Operation, at: int) -> None:
            if step.status is not ReturnCode.OK:
                deferral.forget()
                operation.complete(step.status or ReturnCode.UNDELIVERABLE, 0, at, step.error)
                return
            buffer = operation.buffer
            assert buffer is not None
            if total > len(buffer):
                deferral.forget()
                operation.complete(ReturnCode.TOO_LONG, 0, at)
                return
            operation.header_data = message.header_data
            eager = len(deferral.eager)
            buffer[:eager] = deferral.eager
            if eager == total:
                deferral.forget()
                operation.complete(ReturnCode.OK, total, at)
                return
            self._read_rest(message, deferral, extension, operation, buffer[eager:total], at)

        return Step(operation.kind, now, eager_arrived)

    def _read_rest(
        self,
        message: IncomingMessage,
        deferral: Deferral,
        extension: RendezvousExtension,
        operation: Operation,
        buffer: memoryview,
        now: int,
    ) -> None:
        total = deferral.header.request_length

        def read(step: Operation, at: int) -> None:
            deferral.forget()
            status = step.status or ReturnCode.UNDELIVERABLE
            operation.complete(status, total if status is ReturnCode.OK else 0, at, step.error)

        endpoint = message.endpoint
        assert endpoint is not None
        step = Step(OpKind.READ, now, read, buffer)
        job_id = deferral.header.job_id
        try:
            pdc = self._fep.submit(deferral.remote, job_id, deferral.mode, now)
        except UsageError as error:
            deferral.forget()
            operation.complete(ReturnCode.UNDELIVERABLE, 0, now, str(error))
            return
        transfers = self._fep.transfers(pdc)
        relative = bool(deferral.header.flags & _SES_REL)
        target = Target(
            deferral.remote, job_id, extension.pid_on_fep, extension.resource_index, relative, endpoint.initiator
        )
        source = ReadMessage(transfers, step, target, buffer, RemoteBuffer(extension.read_key, extension.read_offset))
        self._fep.start(pdc, source, now)
        pdc.arm(transfers.expect(now))
