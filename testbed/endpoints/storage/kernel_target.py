"""A target that the kernel is (nvmet-tcp): what it serves is made in configfs, and removed again.

One subsystem has one namespace, in the memory of a null_blk device, and a port for each address. The first link of a
port to a subsystem opens its listening socket, in the network namespace of the thread that makes the link; so one
kernel serves all nodes of a lab, each in its own. Names in configfs and of block devices are the machine's: the NQN of
a subsystem has the lab's name, and all other names follow from the NQN. What a process that was killed has left is
found by it (`remove_kernel_targets`).

Sources: Linux, drivers/nvme/target/configfs.c and tcp.c, Documentation/block/null_blk.rst; NVM Express Base
Specification 2.0, 4.5 (NQNs).
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.base.cleanup import on_failure
from testbed.endpoints.storage.media import MediaConfig
from testbed.endpoints.storage.pattern import Pattern

CONFIGFS = Path("/sys/kernel/config")
MOST_PORTS = 16
"""Numbers of ports that are tried for a target, of the 65,535 that the machine has."""
INLINE_BYTES = 8192
"""Bytes of data in the capsule of a write, as our own target takes them."""
_MIB = 1 << 20
_IRQ_TIMER = "2"
"""null_blk ends a command when `completion_nsec` have passed."""
_libc = ctypes.CDLL(None, use_errno=True)


class TargetInUse(OSError):
    """Another process serves the subsystem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTargetConfig:
    """One subsystem at some addresses, with one namespace (NSID 1) of `size` bytes in blocks of `block` bytes.

    `media.rate` is in bytes/s, of which null_blk takes whole MiB/s.
    """

    nqn: str
    addresses: tuple[tuple[str, int], ...]
    size: int
    block: int
    nguid: bytes
    media: MediaConfig


class KernelTarget:
    """It listens from its making on, in the network namespace of the calling thread, until it is closed."""

    def __init__(self, config: KernelTargetConfig) -> None:
        """Raises `OSError` where the kernel has no nvmet or refuses, and `TargetInUse`."""
        self._nqn = config.nqn
        self._lock = -1
        self._disk = -1
        with on_failure(self.close):
            with _configfs() as root:
                self._lock = _lock_subsystem(root, config.nqn)
                _remove_parts(root, config.nqn)  # of a process that was killed
                _make(root, config)
            self._disk = os.open(Path("/dev", _disk_name(config.nqn)), os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)

    def put(self, pattern: Pattern, offset: int, length: int) -> None:
        """Have the medium hold a pattern, in whole blocks, for hosts to read. Raises `OSError`."""
        view = _aligned(min(length, _MIB))
        for at in range(offset, offset + length, _MIB):
            part = view[: min(_MIB, offset + length - at)]
            pattern.fill(part, at)
            if os.pwrite(self._disk, part, at) != len(part):
                raise OSError(f"the medium takes no {len(part)} bytes at {at}")

    def wrong_bytes(self, pattern: Pattern, offset: int, length: int) -> int:
        """Return how many bytes of the medium, in whole blocks, are not those of a pattern. Raises `OSError`."""
        wrong = 0
        view = _aligned(min(length, _MIB))
        for at in range(offset, offset + length, _MIB):
            part = view[: min(_MIB, offset + length - at)]
            if os.preadv(self._disk, [part], at) != len(part):
                raise OSError(f"the medium has no {len(part)} bytes at {at}")
            wrong += sum(count for _, count in pattern.differences(part, at))
        return wrong

    def close(self) -> None:
        """Remove all of it. Raises `OSError` where the kernel refuses."""
        if self._disk >= 0:
            os.close(self._disk)
            self._disk = -1
        if self._lock < 0:
            return
        try:
            with _configfs() as root:
                _remove(root, self._nqn)
        finally:
            os.close(self._lock)
            self._lock = -1


def remove_kernel_targets(prefix: str) -> list[str]:
    """Remove what processes that were killed have left of subsystems whose NQNs begin so; return their NQNs.

    Raises `OSError` where the kernel refuses.
    """
    if not Path("/sys/module/nvmet").is_dir():
        return []
    with _configfs() as root:
        found = [path.name for path in _listed(root / "nvmet/subsystems") if path.name.startswith(prefix)]
        for nqn in found:
            _remove(root, nqn)
    return found


# --- configfs --------------------------------------------------------------------------------------------


@contextmanager
def _configfs() -> Iterator[Path]:
    """Return the directory on which configfs is mounted: as the machine has it, else at a place of our own for as long
    as it is needed."""
    if (CONFIGFS / "nvmet").is_dir():
        yield CONFIGFS
        return
    with tempfile.TemporaryDirectory(prefix="testbed-configfs-") as directory:
        place = directory.encode()
        if _libc.mount(b"configfs", place, b"configfs", 0, None):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), "configfs")
        try:
            yield Path(directory)
        finally:
            _libc.umount2(place, 2)  # MNT_DETACH


def _lock_subsystem(root: Path, nqn: str) -> int:
    """Make the subsystem if it is not there, and return a descriptor that keeps it from other processes."""
    subsystem = root / "nvmet/subsystems" / nqn
    with suppress(FileExistsError):
        subsystem.mkdir()
    fd = os.open(subsystem, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise TargetInUse(f"{nqn} is served by another process") from None
    return fd


def _make(root: Path, config: KernelTargetConfig) -> None:
    """The subsystem is there; make its medium, its namespace and its ports."""
    media, name = config.media, _disk_name(config.nqn)
    disk = root / "nullb" / name
    disk.mkdir()
    values = {
        "memory_backed": "1",
        "size": str(-(-config.size // _MIB)),
        "blocksize": str(config.block),
        "submit_queues": "1",
    }
    if media.depth:
        values["hw_queue_depth"] = str(media.depth)
    if media.latency_us:
        values |= {"irqmode": _IRQ_TIMER, "completion_nsec": str(media.latency_us * 1000)}
    if media.rate:
        values["mbps"] = str(whole_mib(media.rate))
    _write(disk, **values, power="1")
    subsystem = root / "nvmet/subsystems" / config.nqn
    _write(subsystem, attr_allow_any_host="1")
    space = subsystem / "namespaces/1"
    space.mkdir()
    _write(space, device_path=f"/dev/{name}", device_nguid=str(uuid.UUID(bytes=config.nguid)), enable="1")
    for address, number in config.addresses:
        port = _make_port(root, config.nqn)
        _write(port, addr_trtype="tcp", addr_adrfam="ipv6" if ":" in address else "ipv4", addr_traddr=address)
        _write(port, addr_trsvcid=str(number), param_inline_data_size=str(INLINE_BYTES))
        (port / "subsystems" / config.nqn).symlink_to(subsystem)  # it listens


def _make_port(root: Path, nqn: str) -> Path:
    for number in _port_numbers(nqn):
        port = root / "nvmet/ports" / number
        with suppress(FileExistsError):
            port.mkdir()
            return port
    raise OSError(f"all ports that {nqn} may have are taken")


def _remove(root: Path, nqn: str) -> None:
    _remove_parts(root, nqn)
    with suppress(FileNotFoundError):
        (root / "nvmet/subsystems" / nqn).rmdir()


def _remove_parts(root: Path, nqn: str) -> None:
    """Remove all that belongs to a subsystem, whatever there is of it: first what hosts see."""
    own = _port_numbers(nqn)
    for port in _listed(root / "nvmet/ports"):
        link = port / "subsystems" / nqn
        if link.is_symlink():
            link.unlink()
        if port.name in own and not _listed(port / "subsystems"):
            port.rmdir()
    for space in _listed(root / "nvmet/subsystems" / nqn / "namespaces"):
        _write(space, enable="0")
        space.rmdir()
    with suppress(FileNotFoundError):
        (root / "nullb" / _disk_name(nqn)).rmdir()


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []


def _write(directory: Path, **values: str) -> None:
    for name, value in values.items():
        (directory / name).write_text(value)


def _disk_name(nqn: str) -> str:
    """A block device has at most 31 characters, and an NQN 223."""
    return f"testbed-{zlib.crc32(nqn.encode()):08x}"


def _port_numbers(nqn: str) -> list[str]:
    """Return the names that a subsystem's ports may have: ports have numbers for names, and no other place for one."""
    first = zlib.crc32(nqn.encode())
    return [str(1 + (first + number) % 0xFFFF) for number in range(MOST_PORTS)]


def whole_mib(rate: int) -> int:
    """The MiB/s that null_blk is told for a rate in bytes/s."""
    return max(1, round(rate / _MIB))


def _aligned(length: int) -> memoryview:
    """Memory that O_DIRECT takes."""
    return memoryview(mmap.mmap(-1, max(length, 1)))
