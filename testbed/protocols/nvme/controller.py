"""A controller: the association of one host with one subsystem, its properties, and its administration commands.

Life cycle: Connect on queue 0 makes it, with CSTS.RDY 0. The host sets CC.EN; CSTS.RDY becomes
1, and only now administration commands and Connect of other queues are taken. CC.SHN asks for a shutdown, which is
complete at once (CSTS.SHST), as nothing is held back here. CC.EN = 0 resets it: its I/O queues end. It ends with its
admin queue, or when no command came within the keep-alive time-out (KATO); CSTS.CFS is then set, and all its
connections are closed. Every command counts as a sign of life (CTRATT.TBKAS).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from testbed.protocols.nvme.codes import (
    DO_NOT_RETRY,
    EVERY_NSID,
    AdminOpcode,
    Cc,
    Cns,
    Csts,
    FabricsType,
    Feature,
    LogPage,
    Property,
    Status,
)
from testbed.protocols.nvme.commands import Sqe
from testbed.protocols.nvme.data_structures import (
    CHANGED_BYTES,
    IDENTIFY_BYTES,
    VERSION,
    ControllerData,
    ErrorEntry,
    Usage,
    encode_discovery_log,
    encode_namespace_list,
)

if TYPE_CHECKING:
    from testbed.protocols.nvme.controller_queue import ControllerQueue
    from testbed.protocols.nvme.subsystem import Subsystem, Target

_MS: Final = 1_000_000
KEEP_ALIVE_UNIT_MS: Final = 100
"""KAS: time-outs are rounded up to a multiple of it."""
EVENT_REQUESTS: Final = 4
"""AERL + 1: so many Asynchronous Event Requests may wait."""
KEPT_ERRORS: Final = 8
"""ELPE + 1."""
MOST_LOG_BYTES: Final = 1 << 20
_NAMESPACE_CHANGED: Final = 0x02 | LogPage.CHANGED_NAMESPACES << 16
"""A notice (type 2) that namespace attributes changed (0), and the log page that tells which."""
_WANTS_NAMESPACE_EVENTS: Final = 1 << 8
_ENTRY_SIZES: Final = 0x46 << 16
"""CC.IOCQES 4 and CC.IOSQES 6: entries of 16 and 64 bytes."""
_ENTRY_SIZES_MASK: Final = 0xFF << 16


class CommandError(Exception):
    """A command ends with a status that is not success."""

    def __init__(self, status: Status, *, retry: bool = False) -> None:
        super().__init__(status.name)
        self.status = status if retry else status | DO_NOT_RETRY


@dataclass(frozen=True, slots=True)
class Reply:
    """The good end of an administration command: Dwords 0 and 1 of its completion, and data."""

    result: int = 0
    data: bytes = b""


class Controller:
    """Times in ns."""

    def __init__(self, target: Target, subsystem: Subsystem, admin: ControllerQueue, host: tuple[str, bytes]) -> None:
        self.target: Final = target
        self.subsystem: Final = subsystem
        self.cntlid: Final[int] = subsystem.new_cntlid()
        self.admin: Final = admin
        self.hostnqn, self.hostid = host
        self.queues: Final[dict[int, ControllerQueue]] = {}
        """I/O queues by QID."""
        self.cc: int = 0
        self.csts: int = 0
        self.kato_ms: int = 0
        self.alive_until: int | None = None
        self.granted_queues: int = 0
        self.event_configuration: int = 0
        self.usage: Final = Usage()
        self._errors: deque[ErrorEntry] = deque(maxlen=KEPT_ERRORS)
        self._event_requests: deque[int] = deque()
        """CIDs of those that wait."""
        self._changed: set[int] = set()
        self._notice_is_out = False
        subsystem.controllers[self.cntlid] = self

    # --- life cycle ---------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return bool(self.csts & Csts.RDY)

    def start_keep_alive(self, kato_ms: int, now: int) -> None:
        self.kato_ms = -(-kato_ms // KEEP_ALIVE_UNIT_MS) * KEEP_ALIVE_UNIT_MS
        self.on_sign_of_life(now)

    def on_sign_of_life(self, now: int) -> None:
        self.alive_until = now + self.kato_ms * _MS if self.kato_ms else None

    def is_overdue(self, now: int) -> bool:
        return self.alive_until is not None and now >= self.alive_until

    def fail(self, reason: str) -> None:
        """End the association from this side."""
        self.csts |= Csts.CFS
        self.admin.close(reason)

    def on_admin_closed(self, reason: str) -> None:
        """With the admin queue all of it ends."""
        self.alive_until = None
        self.subsystem.controllers.pop(self.cntlid, None)
        self._close_io_queues(reason)

    def _close_io_queues(self, reason: str) -> None:
        for queue in list(self.queues.values()):
            queue.close(reason)
        self.queues.clear()

    # --- fabrics commands ---------------------------------------------------------------------------------

    def on_fabrics(self, sqe: Sqe) -> Reply:
        """Execute a fabrics command of the admin queue other than Connect. Raises `CommandError`."""
        match sqe.fctype:
            case FabricsType.PROPERTY_GET:
                return Reply(self._property(sqe.cdw11, long=bool(sqe.cdw10 & 7)))
            case FabricsType.PROPERTY_SET:
                self._set_property(sqe)
                return Reply()
            case FabricsType.DISCONNECT:
                raise CommandError(Status.INVALID_QUEUE_TYPE)
            case FabricsType.CONNECT:
                raise CommandError(Status.COMMAND_SEQUENCE_ERROR)
            case _:
                raise CommandError(Status.INVALID_COMMAND_OPCODE)

    def _property(self, offset: int, *, long: bool) -> int:
        entries = self.target.config.queue_entries
        capabilities = (entries - 1) | 1 << 16 | 20 << 24 | 1 << 37  # MQES, CQR, TO (10 s), CSS: NVM
        values = {Property.CAP: capabilities, Property.VS: VERSION, Property.CC: self.cc, Property.CSTS: self.csts}
        if offset not in values or long is not (offset == Property.CAP):
            raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
        return values[Property(offset)]

    def _set_property(self, sqe: Sqe) -> None:
        if sqe.cdw11 != Property.CC or sqe.cdw10 & 7:
            raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
        before, self.cc = self.cc, sqe.cdw12
        if self.cc & Cc.EN and not before & Cc.EN:
            sizes = self.cc & _ENTRY_SIZES_MASK
            fits = sizes == _ENTRY_SIZES or self.subsystem.is_discovery
            self.csts = Csts.RDY if fits else Csts.CFS
        elif before & Cc.EN and not self.cc & Cc.EN:
            self.csts = 0
            self._event_requests.clear()
            self._close_io_queues("the host has reset the controller")
        if self.cc & Cc.SHN:
            self.csts = self.csts & ~(3 << 2) | Csts.SHST_COMPLETE

    # --- administration commands --------------------------------------------------------------------------

    def on_admin(self, sqe: Sqe, now: int) -> Reply | None:
        """Execute an administration command; None: it ends later. Raises `CommandError`."""
        if not self.ready:
            raise CommandError(Status.COMMAND_SEQUENCE_ERROR)
        match sqe.opcode:
            case AdminOpcode.IDENTIFY:
                return Reply(data=self._identify(sqe))
            case AdminOpcode.GET_LOG_PAGE:
                return Reply(data=self._log_page(sqe))
            case AdminOpcode.SET_FEATURES:
                return Reply(self._set_feature(sqe, now))
            case AdminOpcode.GET_FEATURES:
                return Reply(self._feature(sqe.cdw10 & 0xFF))
            case AdminOpcode.KEEP_ALIVE:
                return Reply()
            case AdminOpcode.ABORT:
                return Reply(self._abort(sqe.cdw10 & 0xFFFF, sqe.cdw10 >> 16))
            case AdminOpcode.ASYNC_EVENT_REQUEST:
                if len(self._event_requests) >= EVENT_REQUESTS:
                    raise CommandError(Status.ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED)
                self._event_requests.append(sqe.cid)
                self._send_notice()
                return None
            case _:
                raise CommandError(Status.INVALID_COMMAND_OPCODE)

    def describe(self) -> ControllerData:
        subsystem = self.subsystem
        return ControllerData(
            cntlid=self.cntlid,
            subnqn=subsystem.nqn,
            serial=subsystem.serial,
            namespaces=max(subsystem.namespaces, default=0 if subsystem.is_discovery else 1),
            most_commands=self.target.config.queue_entries,
            most_transfer=self.target.config.most_transfer,
            discovery=subsystem.is_discovery,
            keep_alive_unit_ms=KEEP_ALIVE_UNIT_MS,
            event_requests=EVENT_REQUESTS,
        )

    def _identify(self, sqe: Sqe) -> bytes:
        cns, nsid = sqe.cdw10 & 0xFF, sqe.nsid
        if cns == Cns.CONTROLLER:
            return self.describe().encode()
        if self.subsystem.is_discovery:
            raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
        namespaces = self.subsystem.namespaces
        if cns == Cns.ACTIVE_NAMESPACES:
            if nsid >= EVERY_NSID - 1:
                raise CommandError(Status.INVALID_NAMESPACE_OR_FORMAT)
            return encode_namespace_list(item for item in namespaces if item > nsid)
        if cns not in (Cns.NAMESPACE, Cns.NAMESPACE_DESCRIPTORS):
            raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
        namespace = namespaces.get(nsid)
        if namespace is not None:
            return namespace.encode() if cns == Cns.NAMESPACE else namespace.encode_descriptors()
        if cns == Cns.NAMESPACE and 1 <= nsid <= self.describe().namespaces:
            return bytes(IDENTIFY_BYTES)  # An NSID that is valid and not active.
        raise CommandError(Status.INVALID_NAMESPACE_OR_FORMAT)

    def _log_page(self, sqe: Sqe) -> bytes:
        length = ((sqe.cdw10 >> 16 | (sqe.cdw11 & 0xFFFF) << 16) + 1) * 4
        offset = sqe.cdw12 | sqe.cdw13 << 32
        if length > MOST_LOG_BYTES or offset % 4:
            raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
        page = sqe.cdw10 & 0xFF
        if self.subsystem.is_discovery:
            if page != LogPage.DISCOVERY:
                raise CommandError(Status.INVALID_LOG_PAGE)
            content = encode_discovery_log(1, self.target.discovery_entries(self.hostnqn))
        else:
            content = self._nvm_log_page(page)
        if offset > len(content):
            raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
        return content[offset : offset + length].ljust(length, b"\0")

    def _nvm_log_page(self, page: int) -> bytes:
        match page:
            case LogPage.ERROR:
                return b"".join(entry.encode() for entry in reversed(self._errors))
            case LogPage.SMART:
                return self.usage.encode()
            case LogPage.CHANGED_NAMESPACES:
                content = encode_namespace_list(self._changed)
                assert len(content) == CHANGED_BYTES
                self._changed.clear()
                self._notice_is_out = False
                return content
            case _:
                raise CommandError(Status.INVALID_LOG_PAGE)

    def _set_feature(self, sqe: Sqe, now: int) -> int:
        if sqe.cdw10 >> 31:
            raise CommandError(Status.INVALID_FIELD_IN_COMMAND)  # Nothing is kept over a reset.
        match sqe.cdw10 & 0xFF:
            case Feature.NUMBER_OF_QUEUES if not self.subsystem.is_discovery:
                submission, completion = sqe.cdw11 & 0xFFFF, sqe.cdw11 >> 16
                if 0xFFFF in (submission, completion):
                    raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
                if self.queues:
                    raise CommandError(Status.COMMAND_SEQUENCE_ERROR)
                self.granted_queues = min(submission + 1, completion + 1, self.target.config.most_io_queues)
            case Feature.ASYNC_EVENT_CONFIGURATION:
                self.event_configuration = sqe.cdw11
            case Feature.KEEP_ALIVE_TIMER:
                self.start_keep_alive(sqe.cdw11, now)
            case _:
                raise CommandError(Status.INVALID_FIELD_IN_COMMAND)
        return self._feature(sqe.cdw10 & 0xFF)

    def _feature(self, feature: int) -> int:
        match feature:
            case Feature.NUMBER_OF_QUEUES if not self.subsystem.is_discovery:
                last = max(self.granted_queues, 1) - 1
                return last | last << 16
            case Feature.ASYNC_EVENT_CONFIGURATION:
                return self.event_configuration
            case Feature.KEEP_ALIVE_TIMER:
                return self.kato_ms
            case _:
                raise CommandError(Status.INVALID_FIELD_IN_COMMAND)

    def _abort(self, sqid: int, cid: int) -> int:
        """0 where the command ends as aborted, 1 where it goes on or is not there."""
        if sqid == 0 and cid in self._event_requests:
            self._event_requests.remove(cid)
            self.admin.finish_admin(cid, Status.COMMAND_ABORT_REQUESTED)
            return 0
        queue = self.queues.get(sqid)
        return 0 if queue is not None and queue.abort(cid) else 1

    # --- events -------------------------------------------------------------------------------------------

    def on_namespace_changed(self, nsid: int) -> None:
        """Note it for the log page, and tell the host, if it asked for that."""
        self._changed.add(nsid)
        self._send_notice()

    def _send_notice(self) -> None:
        wanted = self.event_configuration & _WANTS_NAMESPACE_EVENTS
        if self._changed and wanted and not self._notice_is_out and self._event_requests:
            self._notice_is_out = True
            self.admin.finish_admin(self._event_requests.popleft(), Status.SUCCESS, _NAMESPACE_CHANGED)

    def on_error(self, sqid: int, sqe: Sqe, status: int) -> None:
        """A command has failed: the error log has the last of them."""
        self.usage.errors += 1
        self._errors.append(ErrorEntry(self.usage.errors, sqid, sqe.cid, status, sqe.slba, sqe.nsid))
