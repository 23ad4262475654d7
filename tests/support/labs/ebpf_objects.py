"""The objects that the kernel holds for a lab's data path, asked of bpf(2) itself (linux/bpf.h)."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from testbed.base.datapath.abi import CLASSES
from testbed.lab.core.drivers.netlink.port_programs import port_entries

_SYS_BPF = 321  # x86-64
_PROG_GET_NEXT_ID, _MAP_GET_NEXT_ID, _PROG_GET_FD_BY_ID, _MAP_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD = 11, 12, 13, 14, 15
_MOST_MAPS = 64
_libc = ctypes.CDLL(None, use_errno=True)


class _Map(NamedTuple):
    name: str
    entries: int


class _Program(NamedTuple):
    name: str
    maps: frozenset[int]


def ebpf_objects(lab_ports: int) -> list[str]:
    """Programs and maps of labs with so many ports, known by the size of their map `queues`."""
    wanted = _Map("queues", port_entries(lab_ports) * CLASSES)
    maps = {number for number, found in _maps() if found == wanted}
    return sorted(program.name for program in _programs() if program.maps & maps) + ["queues"] * len(maps)


def _maps() -> Iterator[tuple[int, _Map]]:
    for number, fd in _objects(_MAP_GET_NEXT_ID, _MAP_GET_FD_BY_ID):
        info = ctypes.create_string_buffer(80)
        _information(fd, info)
        entries, _, name = struct.unpack_from("=II16s", info.raw, 16)
        yield number, _Map(_text(name), entries)


def _programs() -> Iterator[_Program]:
    for _, fd in _objects(_PROG_GET_NEXT_ID, _PROG_GET_FD_BY_ID):
        info = ctypes.create_string_buffer(80)
        numbers = (ctypes.c_uint32 * _MOST_MAPS)()
        struct.pack_into("=IQ", info, 52, _MOST_MAPS, ctypes.addressof(numbers))
        _information(fd, info)
        count, _, name = struct.unpack_from("=IQ16s", info.raw, 52)
        yield _Program(_text(name), frozenset(numbers[: min(count, _MOST_MAPS)]))


def _objects(next_id: int, by_id: int) -> Iterator[tuple[int, int]]:
    """Number and descriptor of each object; the descriptor is closed afterwards."""
    number = 0
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("=III", number, 0, 0), 12)
        try:
            _bpf(next_id, attributes)
            number = struct.unpack_from("=I", attributes.raw, 4)[0]
            fd = _bpf(by_id, ctypes.create_string_buffer(struct.pack("=III", number, 0, 0), 12))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            if struct.unpack_from("=I", attributes.raw, 4)[0] == 0:
                return  # no next one
            continue  # it went meanwhile
        try:
            yield number, fd
        finally:
            os.close(fd)


def _information(fd: int, info: ctypes.Array[ctypes.c_char]) -> None:
    request = struct.pack("=IIQ", fd, len(info), ctypes.addressof(info))
    _bpf(_OBJ_GET_INFO_BY_FD, ctypes.create_string_buffer(request, len(request)))


def _bpf(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    result = int(_libc.syscall(ctypes.c_long(_SYS_BPF), command, attributes, len(attributes)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _text(name: bytes) -> str:
    return name.split(b"\0")[0].decode()
