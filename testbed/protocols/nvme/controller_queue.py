"""The controller's end of a connection, which is one queue: takes command capsules, moves data, completes commands.

States: it waits for ICReq, then for Connect, then takes commands until it is closed. Fabrics and administration
commands are executed here. A command on blocks is handed to the I/O layer, which owns the media, and says each next
step:

    read    CommandReceived ──────────────────────────────────────────> send_data (C2HData, and CapsuleResp or SUCCESS)
    write   CommandReceived ── receive_data (R2T, H2CData) ── DataReceived ── complete (CapsuleResp)
    others  CommandReceived ──────────────────────────────────────────> complete

Nothing is asked of the host before `receive_data`, so the I/O layer bounds what is under way. Data in the capsule are
kept until then. A command may be aborted until its first step. When the queue closes its commands are forgotten: each
step on them does nothing. Source: NVMe over TCP Transport Specification 1.0.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from testbed.protocols.nvme.codes import (
    DISCOVERY_NQN,
    DO_NOT_RETRY,
    DYNAMIC_CNTLID,
    FABRICS_OPCODE,
    SQHD_DISABLED,
    FabricsType,
    FatalErrorStatus,
    IoOpcode,
    PduFlag,
    PduType,
    SglType,
    Status,
)
from testbed.protocols.nvme.commands import (
    CONNECT_DATA_BYTES,
    NO_FLOW_CONTROL,
    Buffer,
    Cqe,
    Sqe,
    decode_connect_data,
    decode_ranges,
    decode_sqe,
    encode_cqe,
)
from testbed.protocols.nvme.connection import Connection
from testbed.protocols.nvme.controller import CommandError, Controller, Reply
from testbed.protocols.nvme.data_structures import NamespaceData, Usage
from testbed.protocols.nvme.pdu import (
    COMMON_BYTES,
    TO_CONTROLLER,
    FatalError,
    Field,
    Header,
    Initialize,
    Layout,
    TransferHeader,
    decode_initialize,
    invalid_field,
    sequence_error,
)

if TYPE_CHECKING:
    from testbed.protocols.nvme.subsystem import Target

_RANGES_BYTES: Final = 4096
_ON_BLOCKS: Final = frozenset({IoOpcode.READ, IoOpcode.WRITE, IoOpcode.WRITE_ZEROES})
_CHANGES: Final = frozenset({IoOpcode.WRITE, IoOpcode.WRITE_ZEROES, IoOpcode.DATASET_MANAGEMENT})


class ConnectRefused(Exception):
    """Connect ends with `status`; the field at `offset` of the command, or of its data, is why."""

    def __init__(self, status: Status, offset: int, *, in_data: bool) -> None:
        super().__init__(status.name)
        self.status = status
        self.result = offset | in_data << 16


class IoCommand:
    """A command on a namespace, from its capsule to its completion. `offset` and `length` are in bytes."""

    __slots__ = (
        "asked", "failure", "finished", "in_capsule", "length", "namespace", "offset", "opcode", "place", "queue",
        "ranges", "received", "sqe", "started", "transfers",
    )  # fmt: skip

    def __init__(self, queue: ControllerQueue, sqe: Sqe, namespace: NamespaceData, span: tuple[int, int]) -> None:
        self.queue = queue
        self.sqe = sqe
        self.opcode = IoOpcode(sqe.opcode)
        self.namespace = namespace
        self.offset, self.length = span
        self.ranges: list[tuple[int, int]] = []
        """The ranges that Dataset Management is to deallocate, as offset and length."""
        self.in_capsule: bytes | None = None
        self.failure: int = 0
        """After `DataReceived`: the status that it must end with, as the data did not come well; 0 if they did."""
        self.started = False
        """It cannot be aborted any more."""
        self.finished = False
        self.place: memoryview = memoryview(b"")
        """The buffer into which its data go."""
        self.asked = 0
        """R2Ts have asked for so many bytes."""
        self.received = 0
        self.transfers: dict[int, list[int]] = {}
        """R2Ts under way: TTAG to the next offset that must come, and the end."""


@dataclass(frozen=True, slots=True)
class CommandReceived:
    """A command that holds what it must, and waits for its first step."""

    command: IoCommand


@dataclass(frozen=True, slots=True)
class DataReceived:
    """All data of a write are in the buffer given to `receive_data`, unless the command has a `failure`."""

    command: IoCommand


class ControllerQueue(Connection):
    """Made by `Target.accept`. Times in ns."""

    allowed = TO_CONTROLLER
    terminates = PduType.C2H_TERM_REQ

    def __init__(self, target: Target, now: int) -> None:
        super().__init__()
        self.target: Final = target
        self.handshake_until: Final[int] = now + target.config.handshake_ns
        self.controller: Controller | None = None
        self.qid: int = 0
        self.entries: int = 1
        self.events: deque[CommandReceived | DataReceived] = deque()
        self.reason: str = ""
        """Why it has ended."""
        self._initialized = False
        self._maxr2t = 1
        self._flow_control = True
        self._head = 0
        self._commands: dict[int, IoCommand] = {}
        self._transfers: dict[int, IoCommand] = {}
        self._next_ttag = 1

    def most_data(self) -> int:
        return self.target.config.max_h2c_data

    # --- PDUs ---------------------------------------------------------------------------------------------

    def on_pdu(self, header: Header, pdu: memoryview, data: memoryview, data_good: bool, now: int) -> None:
        if header.kind is PduType.IC_REQ:
            self._initialize(decode_initialize(pdu))
            return
        if not self._initialized:
            raise sequence_error(f"{header.kind.name} before ICReq")
        sqe = decode_sqe(pdu, COMMON_BYTES)
        if self.controller is not None:
            self.controller.on_sign_of_life(now)
        if self._flow_control:
            self._head = (self._head + 1) % self.entries
        try:
            self._check_data(sqe, data)
            if not data_good:
                raise CommandError(Status.TRANSIENT_TRANSPORT_ERROR, retry=True)
            self._execute(sqe, data, now)
        except CommandError as error:
            if self.controller is not None:
                self.controller.on_error(self.qid, sqe, error.status)
            self._respond(sqe.cid, error.status)
        except ConnectRefused as refused:
            self.target.counts["connects refused"] += 1
            self._respond(sqe.cid, refused.status | DO_NOT_RETRY, refused.result)

    def _initialize(self, asked: Initialize) -> None:
        if self._initialized:
            raise sequence_error("a second ICReq")
        config = self.target.config
        header_digest = asked.header_digest and config.header_digest
        data_digest = asked.data_digest and config.data_digest
        answer = Initialize(
            pda=config.cpda, header_digest=header_digest, data_digest=data_digest, limit=config.max_h2c_data
        )
        self._queue(answer.encode(PduType.IC_RESP))
        self.receiving = Layout(header_digest, data_digest, (config.cpda + 1) * 4)
        self.sending = Layout(header_digest, data_digest, (asked.pda + 1) * 4)
        self._maxr2t = asked.limit + 1
        self._initialized = True
        self.target.make_ready(self)

    def _check_data(self, sqe: Sqe, data: memoryview) -> None:
        """Data in the capsule must be what the SGL descriptor says."""
        if sqe.sgl_type not in (SglType.IN_CAPSULE, SglType.TRANSPORT):
            raise CommandError(Status.SGL_DESCRIPTOR_TYPE_INVALID)
        if sqe.sgl_type == SglType.IN_CAPSULE:
            if sqe.sgl_address:
                raise CommandError(Status.SGL_OFFSET_INVALID)
            if sqe.sgl_length != len(data) or not sqe.to_controller:
                raise CommandError(Status.DATA_SGL_LENGTH_INVALID)
        elif len(data):
            raise CommandError(Status.DATA_SGL_LENGTH_INVALID)

    def _execute(self, sqe: Sqe, data: memoryview, now: int) -> None:
        controller = self.controller
        if controller is None:
            if sqe.opcode != FABRICS_OPCODE or sqe.fctype != FabricsType.CONNECT:
                raise CommandError(Status.COMMAND_SEQUENCE_ERROR)
            self._connect(sqe, data, now)
        elif self.qid:
            self._execute_io(controller, sqe, data)
        else:
            if sqe.opcode == FABRICS_OPCODE:
                reply: Reply | None = controller.on_fabrics(sqe)
            else:
                reply = controller.on_admin(sqe, now)
            if reply is not None:
                self._finish_admin(sqe, reply)

    # --- Connect ------------------------------------------------------------------------------------------

    def _connect(self, sqe: Sqe, data: memoryview, now: int) -> None:
        if sqe.cdw10 & 0xFFFF:
            raise ConnectRefused(Status.CONNECT_INCOMPATIBLE_FORMAT, 40, in_data=False)
        if len(data) != CONNECT_DATA_BYTES:
            raise CommandError(Status.DATA_SGL_LENGTH_INVALID)
        qid, entries, attributes = sqe.cdw10 >> 16, (sqe.cdw11 & 0xFFFF) + 1, sqe.cdw11 >> 16
        if not 2 <= entries <= self.target.config.queue_entries:
            raise ConnectRefused(Status.CONNECT_INVALID_PARAMETERS, 44, in_data=False)
        asked = decode_connect_data(data)
        host = (asked.hostnqn, asked.hostid)
        subsystem = self.target.find_subsystem(asked.subnqn, asked.hostnqn)
        if qid == 0:
            if asked.cntlid != DYNAMIC_CNTLID:
                raise ConnectRefused(Status.CONNECT_INVALID_PARAMETERS, 16, in_data=True)
            controller = Controller(self.target, subsystem, self, host)
            controller.start_keep_alive(sqe.cdw12, now)
        else:
            found = subsystem.controllers.get(asked.cntlid)
            if found is None or (found.hostnqn, found.hostid) != host:
                raise ConnectRefused(Status.CONNECT_INVALID_PARAMETERS, 16, in_data=True)
            controller = found
            if not controller.ready:
                raise CommandError(Status.COMMAND_SEQUENCE_ERROR)
            if qid > controller.granted_queues or qid in controller.queues or subsystem.nqn == DISCOVERY_NQN:
                raise ConnectRefused(Status.CONNECT_INVALID_PARAMETERS, 42, in_data=False)
            controller.queues[qid] = self
        self.controller = controller
        self.qid, self.entries = qid, entries
        self._flow_control = not attributes & NO_FLOW_CONTROL
        self._head = int(self._flow_control)
        self._respond(sqe.cid, Status.SUCCESS, controller.cntlid)

    # --- administration -----------------------------------------------------------------------------------

    def _finish_admin(self, sqe: Sqe, reply: Reply) -> None:
        if not reply.data:
            self._respond(sqe.cid, Status.SUCCESS, reply.result)
            return
        if sqe.sgl_length < len(reply.data):
            raise CommandError(Status.DATA_SGL_LENGTH_INVALID)
        self._send_c2h(sqe.cid, reply.data, 0, last=PduFlag.LAST)
        self._respond(sqe.cid, Status.SUCCESS, reply.result)

    def finish_admin(self, cid: int, status: int, result: int = 0) -> None:
        """End a command that has waited: an Asynchronous Event Request."""
        self._respond(cid, status, result)

    # --- commands on a namespace --------------------------------------------------------------------------

    def _execute_io(self, controller: Controller, sqe: Sqe, data: memoryview) -> None:
        if sqe.opcode == FABRICS_OPCODE:
            if sqe.fctype != FabricsType.DISCONNECT:
                raise CommandError(Status.INVALID_COMMAND_OPCODE)
            self._respond(sqe.cid, Status.SUCCESS)
            self._close("the host disconnects")
            return
        if not controller.ready:
            raise CommandError(Status.COMMAND_SEQUENCE_ERROR)
        if sqe.cid in self._commands:
            raise CommandError(Status.COMMAND_ID_CONFLICT)
        if len(self._commands) >= self.entries:
            raise sequence_error(f"more than {self.entries} commands in a queue")
        command = self._make_command(controller, sqe)
        if sqe.sgl_type == SglType.IN_CAPSULE:
            command.in_capsule = bytes(data)
        self._commands[sqe.cid] = command
        if command.opcode is IoOpcode.DATASET_MANAGEMENT:
            self._start_data(command, memoryview(bytearray(sqe.sgl_length)))
        else:
            self._tell(CommandReceived(command))

    def _make_command(self, controller: Controller, sqe: Sqe) -> IoCommand:
        try:
            opcode = IoOpcode(sqe.opcode)
        except ValueError:
            raise CommandError(Status.INVALID_COMMAND_OPCODE) from None
        namespace = controller.subsystem.namespaces.get(sqe.nsid)
        if opcode is IoOpcode.FLUSH and sqe.nsid == 0xFFFF_FFFF:
            namespace = next(iter(controller.subsystem.namespaces.values()), None)
        if namespace is None:
            raise CommandError(Status.INVALID_NAMESPACE_OR_FORMAT)
        if namespace.read_only and opcode in _CHANGES:
            raise CommandError(Status.NAMESPACE_IS_WRITE_PROTECTED)
        if opcode is IoOpcode.DATASET_MANAGEMENT:
            if not 16 * ((sqe.cdw10 & 0xFF) + 1) <= sqe.sgl_length <= _RANGES_BYTES:
                raise CommandError(Status.DATA_SGL_LENGTH_INVALID)
            return IoCommand(self, sqe, namespace, (0, sqe.sgl_length))
        if opcode not in _ON_BLOCKS:
            return IoCommand(self, sqe, namespace, (0, 0))
        if sqe.slba + sqe.blocks > namespace.blocks:
            raise CommandError(Status.LBA_OUT_OF_RANGE)
        length = sqe.blocks * namespace.block_bytes
        if opcode is not IoOpcode.WRITE_ZEROES:
            if length > self.target.config.most_transfer:
                raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
            if sqe.sgl_length != length:
                raise CommandError(Status.DATA_SGL_LENGTH_INVALID)
        return IoCommand(self, sqe, namespace, (sqe.slba * namespace.block_bytes, length))

    def abort(self, cid: int) -> bool:
        """End a command that has not had its first step; tell whether it was one."""
        command = self._commands.get(cid)
        if command is None or command.started:
            return False
        self.complete(command, Status.COMMAND_ABORT_REQUESTED)
        return True

    # --- steps of the I/O layer ---------------------------------------------------------------------------

    def receive_data(self, command: IoCommand, place: memoryview) -> None:
        """Have the data of a write put into `place`, which is as long as they are; `DataReceived` tells when."""
        if not command.finished and not self.closed:
            self._start_data(command, place)

    def send_data(self, command: IoCommand, data: Buffer) -> None:
        """End a read well. `data` are sent from where they are."""
        if command.finished or self.closed:
            return
        view = memoryview(data)
        step = self.target.config.c2h_data_bytes
        for at in range(0, len(view), step):
            part = view[at : at + step]
            last = PduFlag.LAST if at + len(part) == len(view) else PduFlag(0)
            if last and not self._flow_control:
                last |= PduFlag.SUCCESS
            self._send_c2h(command.sqe.cid, part, at, last=last)
        usage = self._usage()
        if usage is not None:
            usage.reads += 1
            usage.read_bytes += len(view)
        self._end_command(command)
        if self._flow_control:
            self._respond(command.sqe.cid, Status.SUCCESS)
        self.target.make_ready(self)

    def complete(self, command: IoCommand, status: int, *, retry: bool = False) -> None:
        """End a command with a status; one that is not success forbids to try again, unless `retry`."""
        if command.finished or self.closed:
            return
        if status and not retry and status != Status.COMMAND_ABORT_REQUESTED:
            status |= DO_NOT_RETRY
        controller, usage = self.controller, self._usage()
        assert controller is not None and usage is not None
        if status:
            usage.media_errors += status & 0x700 == 0x200
            controller.on_error(self.qid, command.sqe, status)
        elif command.opcode is IoOpcode.WRITE:
            usage.writes += 1
            usage.written_bytes += command.length
        self._end_command(command)
        self._respond(command.sqe.cid, status)

    def _usage(self) -> Usage | None:
        return self.controller.usage if self.controller is not None else None

    def _end_command(self, command: IoCommand) -> None:
        command.finished = True
        del self._commands[command.sqe.cid]
        for ttag in command.transfers:
            del self._transfers[ttag]

    def _send_c2h(self, cid: int, data: Buffer, offset: int, *, last: PduFlag) -> None:
        self.send_pdu(PduType.C2H_DATA, TransferHeader(cid, 0, offset, len(data)).encode(), data, last)

    def _respond(self, cid: int, status: int, result: int = 0) -> None:
        head = self._head if self._flow_control else SQHD_DISABLED
        self.send_pdu(PduType.CAPSULE_RESP, encode_cqe(Cqe(result, head, self.qid, cid, status)))
        self.target.make_ready(self)

    def _tell(self, event: CommandReceived | DataReceived) -> None:
        self.events.append(event)
        self.target.make_ready(self)

    # --- data that come -----------------------------------------------------------------------------------

    def _start_data(self, command: IoCommand, place: memoryview) -> None:
        command.started = True
        command.place = place
        if command.in_capsule is None:
            self._ask_for_data(command)
            return
        place[:] = command.in_capsule
        command.in_capsule = None
        self._have_data(command)

    def _ask_for_data(self, command: IoCommand) -> None:
        """Send the R2Ts that may be under way."""
        while command.asked < len(command.place) and len(command.transfers) < self._maxr2t:
            length = min(self.target.config.r2t_bytes, len(command.place) - command.asked)
            ttag = self._new_ttag()
            command.transfers[ttag] = [command.asked, command.asked + length]
            self._transfers[ttag] = command
            body = TransferHeader(command.sqe.cid, ttag, command.asked, length).encode()
            self.send_pdu(PduType.R2T, body)
            command.asked += length
        self.target.make_ready(self)

    def _new_ttag(self) -> int:
        while True:
            ttag = self._next_ttag
            self._next_ttag = ttag + 1 & 0xFFFF
            if ttag not in self._transfers:
                return ttag

    def place_data(self, header: Header, transfer: TransferHeader) -> memoryview:
        if not self._initialized:
            raise sequence_error("H2CData before ICReq")
        command = self._transfers.get(transfer.ttag)
        if command is None:
            raise invalid_field(Field.TTAG, f"no R2T has the TTAG {transfer.ttag}")
        if command.sqe.cid != transfer.cid:
            raise invalid_field(Field.CCCID, f"CCCID {transfer.cid} of TTAG {transfer.ttag}")
        offset, end = command.transfers[transfer.ttag]
        stop = transfer.offset + transfer.length
        if stop > end or transfer.offset < offset:
            raise FatalError(
                FatalErrorStatus.DATA_TRANSFER_OUT_OF_RANGE, Field.DATA_OFFSET, f"data up to {stop}, R2T up to {end}"
            )
        if transfer.offset != offset:
            raise sequence_error(f"data at {transfer.offset}, not at {offset}")
        if bool(header.flags & PduFlag.LAST) is not (stop == end):
            raise sequence_error("LAST is not in the last H2CData of an R2T")
        return command.place[transfer.offset : stop]

    def on_data(self, header: Header, transfer: TransferHeader, data_good: bool, now: int) -> None:
        if self.controller is not None:
            self.controller.on_sign_of_life(now)
        command = self._transfers[transfer.ttag]
        if not data_good:
            self.target.counts["data digest errors"] += 1
            command.failure = Status.TRANSIENT_TRANSPORT_ERROR
        command.received += transfer.length
        progress = command.transfers[transfer.ttag]
        progress[0] += transfer.length
        if progress[0] == progress[1]:
            del command.transfers[transfer.ttag]
            del self._transfers[transfer.ttag]
            self._ask_for_data(command)
        if command.received == len(command.place):
            self._have_data(command)

    def _have_data(self, command: IoCommand) -> None:
        if command.opcode is not IoOpcode.DATASET_MANAGEMENT:
            self._tell(DataReceived(command))
            return
        if command.failure:
            self.complete(command, command.failure, retry=True)
            return
        size, blocks = command.namespace.block_bytes, command.namespace.blocks
        found = decode_ranges(command.sqe, command.place)
        if any(slba + count > blocks for slba, count in found):
            self.complete(command, Status.LBA_OUT_OF_RANGE)
            return
        command.ranges = [(slba * size, count * size) for slba, count in found]
        self._tell(CommandReceived(command))

    # --- the end ------------------------------------------------------------------------------------------

    def on_closed(self, reason: str) -> None:
        self.reason = reason
        if self.error is not None:
            self.target.counts[f"terminated: {self.error.status.name.lower().replace('_', ' ')}"] += 1
        elif self.terminated is not None:
            self.target.counts["terminated by hosts"] += 1
        self.events.clear()
        for command in self._commands.values():
            command.finished = True
        self._commands.clear()
        self._transfers.clear()
        controller = self.controller
        if controller is not None:
            if self.qid == 0:
                controller.on_admin_closed(reason)
            else:
                controller.queues.pop(self.qid, None)
        self.target.make_ready(self)
