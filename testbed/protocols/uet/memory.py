"""Registered memory: what remote requests may touch, under which key, and which return code refuses them.

Source: UE Specification 1.0, section 3.4 (memory keys, buffer offset, return codes). A key has meaning within one
{JobID, PIDonFEP, resource index}, so an endpoint keeps one `MemoryTable` for each resource index of RMA.
"""

from __future__ import annotations

from enum import IntFlag
from random import Random
from typing import Final, NamedTuple, Protocol

from testbed.protocols.errors import TransportError, UsageError
from testbed.protocols.uet.addressing import JOB_LIMIT
from testbed.protocols.uet.packets.codes import ReturnCode

KEY_LIMIT: Final = 1 << 64
_KEY_TRIES: Final = 64


class Access(IntFlag):
    """The kinds of access that a region is registered for."""

    LOCAL = 0x01
    """Source of our own sends and writes, destination of our own receives and reads."""
    REMOTE_READ = 0x02
    REMOTE_WRITE = 0x04
    REMOTE_ATOMIC = 0x08


_ALL_ACCESS: Final = 0x0F
_REMOTE_WRITE: Final = int(Access.REMOTE_WRITE)
# The `&` of IntFlag costs more than all the rest of `MemoryTable.resolve`; membership of a set costs 30 ns.
_PERMITTED: Final = tuple(
    frozenset(asked for asked in range(_ALL_ACCESS + 1) if asked & ~granted == 0) for granted in range(_ALL_ACCESS + 1)
)


class RemoteBuffer(NamedTuple):
    """A place in memory that a peer has registered, as an initiator names it (fi_rma(3)). Its length is that of the
    operation on it."""

    key: int
    """`memory_key` of the region, 64 bits."""
    offset: int = 0
    """`buffer_offset` of the first byte, 64 bits."""


class CopiedMemory(Protocol):
    """Memory that is reached by copies alone, such as that of another process."""

    size: int
    """Bytes."""

    def load(self, offset: int, length: int) -> bytearray:
        """Return a copy of `length` bytes. Raises `OSError` where they cannot be read (any longer)."""

    def store(self, offset: int, data: memoryview) -> None:
        """Copy `data` to its place. Raises `OSError` where it cannot be written (any longer)."""


class AccessRefused(TransportError):
    """A request names memory that it may not touch; `return_code` is what the response to it says."""

    def __init__(self, return_code: ReturnCode, reason: str) -> None:
        super().__init__(f"{return_code.name}: {reason}")
        self.return_code = return_code
        self.reason = reason


class MemoryRegion:
    """A buffer under a key. `MemoryTable.register` makes it."""

    key: int
    """64 bits."""
    buffer: memoryview
    """Bytes, writable or read-only; none where the memory is copied."""
    copied: CopiedMemory | None
    """The memory of the region, where it is none of this process."""
    base: int
    """The buffer offset of its first byte."""
    access: Access
    job_id: int | None
    """The job whose requests are let in; None: any."""
    registered: bool
    """False once deregistered: who keeps a view from before must not write through it any longer."""

    def __init__(
        self,
        key: int,
        buffer: memoryview,
        access: Access,
        job_id: int | None,
        copied: CopiedMemory | None = None,
        base: int = 0,
    ) -> None:
        self.key = key
        self.buffer = buffer
        self.copied = copied
        self.base = base
        self.access = access
        self.job_id = job_id
        self.registered = True

    def view(self, offset: int, length: int, access: int, most_copied: int = -1) -> memoryview:
        """`length` bytes at the buffer offset `offset`, zero at the very end included.

        Of memory that is copied it is a copy, which a WRITE fills, so that it has nothing in it then; what is in it in
        the end goes to its place by `keep`. `most_copied` is the largest copy that is made; -1: any.

        Raises `AccessRefused` with PERM_VIOLATION, AT_OUT_OF_RANGE where not all of it lies inside (sums beyond 64
        bits do not wrap), UNSUPPORTED_SIZE for too large a copy, or HOST_UNSUCCESS_CMPL where memory that is copied
        cannot be read. Nothing is allocated before.
        """
        if access not in _PERMITTED[self.access]:
            raise AccessRefused(
                ReturnCode.PERM_VIOLATION, f"{Access(access)!r} of a region registered for {self.access!r}"
            )
        copied = self.copied
        size = len(self.buffer) if copied is None else copied.size
        start = offset - self.base
        end = start + length
        if start < 0 or end < start or end > size:
            raise AccessRefused(ReturnCode.AT_OUT_OF_RANGE, f"{length} bytes at offset {start} of {size} bytes")
        if copied is None:
            return self.buffer[start:end]
        if 0 <= most_copied < length:
            raise AccessRefused(ReturnCode.UNSUPPORTED_SIZE, f"{length} bytes of a copy, which has {most_copied}")
        if access == _REMOTE_WRITE:
            return memoryview(bytearray(length))
        try:
            return memoryview(copied.load(start, length))
        except OSError as error:
            raise AccessRefused(ReturnCode.HOST_UNSUCCESS_CMPL, f"the memory cannot be read: {error}") from None

    def keep(self, offset: int, data: memoryview) -> None:
        """Put what was written into a `view` of memory that is copied to its place.

        Raises `AccessRefused` with HOST_UNSUCCESS_CMPL where that cannot be written.
        """
        if self.copied is None or not len(data):
            return
        try:
            self.copied.store(offset - self.base, data)
        except OSError as error:
            raise AccessRefused(ReturnCode.HOST_UNSUCCESS_CMPL, f"the memory cannot be written: {error}") from None


def _as_bytes(buffer: bytes | bytearray | memoryview) -> memoryview:
    """A view of `buffer` as a row of bytes. Raises `UsageError` if its memory has gaps."""
    view = memoryview(buffer)
    if view.ndim == 1 and view.format == "B" and view.contiguous:
        return view
    try:
        return view.cast("B")
    except TypeError as error:
        raise UsageError(f"memory to be registered must be contiguous: {error}") from None


class MemoryTable:
    """The regions of one resource index, by key."""

    def __init__(self) -> None:
        self._regions: dict[int, MemoryRegion] = {}

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, key: int) -> bool:
        return key in self._regions

    def register(
        self,
        buffer: bytes | bytearray | memoryview,
        access: Access,
        job_id: int | None,
        key: int | None = None,
        random: Random | None = None,
    ) -> MemoryRegion:
        """Let requests of `job_id` (24 bits; None: of any job) use `buffer` as `access` says.

        `key` is the caller's choice or drawn from `random`. Raises `UsageError`: a key that is taken or no 64-bit
        number, neither key nor `random`, read-only memory to be written, memory with gaps.
        """
        view = _as_bytes(buffer)
        if view.readonly and access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC):
            raise UsageError("read-only memory cannot be registered for remote writes or atomics")
        return self._add(MemoryRegion(self._chosen_key(key, random), view, Access(access), job_id))

    def register_copied(
        self,
        memory: CopiedMemory,
        access: Access,
        job_id: int | None,
        *,
        base: int = 0,
        key: int | None = None,
        random: Random | None = None,
    ) -> MemoryRegion:
        """Do as `register`, for memory that is reached by copies; `base` is the buffer offset of its first byte."""
        chosen = self._chosen_key(key, random)
        return self._add(MemoryRegion(chosen, memoryview(b""), Access(access), job_id, memory, base))

    def _add(self, region: MemoryRegion) -> MemoryRegion:
        access, job_id = region.access, region.job_id
        if not 0 <= int(access) <= _ALL_ACCESS:
            raise UsageError(f"no such access: {int(access):#x}")
        if job_id is not None and not 0 <= job_id < JOB_LIMIT:
            raise UsageError(f"JobID must be 0 to {JOB_LIMIT - 1}, not {job_id}")
        self._regions[region.key] = region
        return region

    def _chosen_key(self, key: int | None, random: Random | None) -> int:
        if key is None:
            return self._draw_key(random)
        if not 0 <= key < KEY_LIMIT:
            raise UsageError(f"a memory key has 64 bits: {key}")
        if key in self._regions:
            raise UsageError(f"memory key {key:#x} is taken")
        return key

    def _draw_key(self, random: Random | None) -> int:
        if random is None:
            raise UsageError("registration needs a key or a source of random keys")
        for _ in range(_KEY_TRIES):
            key = random.getrandbits(64)
            if key not in self._regions:
                return key
        raise UsageError(f"{_KEY_TRIES} random memory keys in a row were taken: the source is not random")

    def deregister(self, key: int) -> MemoryRegion:
        """Forget a region, and mark it so. Raises `UsageError` if there is none."""
        region = self._regions.pop(key, None)
        if region is None:
            raise UsageError(f"no memory is registered under key {key:#x}")
        region.registered = False
        return region

    def find(self, key: int, job_id: int) -> MemoryRegion:
        """The region that a request of `job_id` means. Raises `AccessRefused`: BAD_MKEY, BAD_JOB_ID."""
        region = self._regions.get(key)
        if region is None:
            raise AccessRefused(ReturnCode.BAD_MKEY, f"no memory is registered under key {key:#x}")
        if region.job_id is not None and region.job_id != job_id:
            raise AccessRefused(ReturnCode.BAD_JOB_ID, f"job {job_id} asks for memory of job {region.job_id}")
        return region

    def resolve(self, key: int, job_id: int, offset: int, length: int, access: int) -> memoryview:
        """The memory that a request means: `length` bytes at the buffer offset `offset`.

        Raises `AccessRefused`, in this order: BAD_MKEY, BAD_JOB_ID, PERM_VIOLATION, AT_OUT_OF_RANGE.
        """
        return self.find(key, job_id).view(offset, length, access)
