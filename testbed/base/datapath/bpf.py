"""The few commands of bpf(2) that are needed beside libbpf: pinned objects and what they are. Source: linux/bpf.h."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from pathlib import Path

from testbed.base.errors import CapabilityError, DriverError

_SYS_BPF = 321  # x86-64
_UPDATE_ELEM, _DELETE_ELEM, _OBJ_GET, _OBJ_GET_INFO, _LINK_CREATE = 2, 3, 7, 15, 28
_SK_LOOKUP = 36
"""BPF_SK_LOOKUP of enum bpf_attach_type."""
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: bytes) -> int:
    """The call's result; raises `OSError`."""
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(_libc.syscall(ctypes.c_long(_SYS_BPF), command, buffer, len(attributes)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def get_pinned(path: Path) -> int:
    """A new descriptor of the object pinned at `path`. Raises `DriverError`."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    try:
        return _bpf(_OBJ_GET, struct.pack("=QII", ctypes.addressof(name), 0, 0))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):  # root alone can enter the file system of the pins
            raise CapabilityError(f"{path}: not permitted", missing="root", hint="run as root") from error
        raise DriverError(
            f"the data path of the lab is gone: {path}: {error.strerror}",
            errno=error.errno or 0,
            hint="deploy --reconfigure brings it back",
        ) from error


def map_entries(fd: int) -> int:
    """`max_entries` of a map."""
    info = ctypes.create_string_buffer(80)
    _bpf(_OBJ_GET_INFO, struct.pack("=IIQ", fd, len(info), ctypes.addressof(info)))
    return int(struct.unpack_from("=6I", info.raw)[4])  # type, id, key size, value size, max entries, flags


def update_u32(fd: int, key: int, value: int) -> None:
    """Set an entry of a map whose keys and values are 32 bits. Raises `OSError`."""
    update(fd, struct.pack("=I", key), struct.pack("=I", value))


def update(fd: int, key: bytes, value: bytes) -> None:
    """Set an entry of a map; that of a map of sockets is a descriptor in 64 bits. Raises `OSError`."""
    k, v = (ctypes.create_string_buffer(item, len(item)) for item in (key, value))
    _bpf(_UPDATE_ELEM, struct.pack("=I4xQQQ", fd, ctypes.addressof(k), ctypes.addressof(v), 0))


def delete_u32(fd: int, key: int) -> None:
    """Remove an entry of a map whose keys are 32 bits. Raises `OSError`."""
    k = ctypes.create_string_buffer(struct.pack("=I", key), 4)
    _bpf(_DELETE_ELEM, struct.pack("=I4xQ8xQ", fd, ctypes.addressof(k), 0))


def attach_socket_lookup(program: int, namespace: int) -> int:
    """Have a program (sk_lookup) choose the listening sockets of a network namespace.

    It does so as long as the descriptor that comes back is open. Both arguments are descriptors. Raises `OSError`.
    """
    return _bpf(_LINK_CREATE, struct.pack("=IIII", program, namespace, _SK_LOOKUP, 0))
