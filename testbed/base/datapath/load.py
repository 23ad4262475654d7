"""Loading the compiled programs with libbpf, and pinning their maps and tracepoint links.

libbpf is used through its C interface (libbpf.h, stable since 1.0).
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.datapath import bpf
from testbed.base.datapath.abi import EVENTS_MAP, MAP_NAMES, SAMPLES_MAP
from testbed.base.errors import CapabilityError, DriverError

FILTERS = ("port_ingress", "port_enqueue", "port_egress")
CUT = "port_cut"
"""For stubs of links that end on another machine; pinned, as the filters are."""
TRACEPOINTS = ("port_purge",)
PATHS = "port_paths"
"""Attached to the kernel's tracepoint `fib_table_lookup`, where it is needed."""

_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _Libbpf:
    """The library, with what it said last."""

    def __init__(self) -> None:
        try:
            self.library: Any = ctypes.CDLL("libbpf.so.1", use_errno=True)
        except OSError as error:
            raise CapabilityError(
                "qos: needs libbpf 1", missing="libbpf1", hint="apt-get install libbpf1 (./lab does it)"
            ) from error
        self.said: list[str] = []
        self._format = ctypes.CDLL(None).vsnprintf
        self._format.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p)
        self._printer = _PRINT(self._print)
        lib = self.library
        lib.libbpf_set_print(self._printer)
        pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        for name, result, arguments in (
            ("bpf_object__open_file", pointer, (text, pointer)),
            ("bpf_object__load", integer, (pointer,)),
            ("bpf_object__close", None, (pointer,)),
            ("bpf_object__find_map_by_name", pointer, (pointer, text)),
            ("bpf_object__find_program_by_name", pointer, (pointer, text)),
            ("bpf_map__set_max_entries", integer, (pointer, ctypes.c_uint32)),
            ("bpf_map__pin", integer, (pointer, text)),
            ("bpf_map__fd", integer, (pointer,)),
            ("bpf_program__fd", integer, (pointer,)),
            ("bpf_program__pin", integer, (pointer, text)),
            ("bpf_program__attach", pointer, (pointer,)),
            ("bpf_program__set_autoload", integer, (pointer, ctypes.c_bool)),
            ("bpf_link__pin", integer, (pointer, text)),
            ("bpf_link__destroy", integer, (pointer,)),
        ):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments

    def _print(self, level: int, form: bytes, arguments: int) -> int:
        if level == 0:  # LIBBPF_WARN
            buffer = ctypes.create_string_buffer(1000)
            self._format(buffer, len(buffer), form, arguments)
            self.said.append(buffer.value.decode("utf-8", "replace").strip())
        return 0

    def check(self, result: int | None, what: str, *, pointer: bool = False) -> int:
        """`result`, or a `DriverError` that carries what libbpf said."""
        failed = not result if pointer else result is None or result < 0
        if failed:
            code = ctypes.get_errno()
            reason = next((line for line in self.said if line), os.strerror(code))
            raise DriverError(
                f"{what}: {reason}", operation=what, errno=code, hint="`testbed doctor` shows what this kernel has"
            )
        return result or 0


@functools.cache
def _libbpf() -> _Libbpf:
    return _Libbpf()


@dataclass(frozen=True, slots=True)
class Filters:
    """Descriptors of the loaded filter programs; they stay valid until `close`."""

    ingress: int
    enqueue: int
    egress: int

    def close(self) -> None:
        for fd in (self.ingress, self.enqueue, self.egress):
            os.close(fd)


def require_libbpf() -> None:
    """Raise `CapabilityError` where libbpf is not installed."""
    _libbpf()


def load_programs(
    program_object: Path, directory: Path, sizes: Mapping[str, int], *, asks_kernel: bool = False
) -> Filters:
    """Load the programs, pin their maps and attach the tracepoints with their links pinned in `directory`.

    `asks_kernel`: some switch has to know the paths of a packet, which `PATHS` reads as the kernel looks a route up.

    `sizes` gives the number of entries of each map of `abi.MAP_NAMES`. What is pinned lives until it is unpinned.
    Raises `CapabilityError` or `DriverError`.
    """
    libbpf = _libbpf()
    lib = libbpf.library
    libbpf.said.clear()
    loaded = libbpf.check(lib.bpf_object__open_file(os.fsencode(program_object), None), "open eBPF", pointer=True)
    try:
        found = {}
        for name in (*MAP_NAMES, EVENTS_MAP, SAMPLES_MAP):
            found[name] = libbpf.check(
                lib.bpf_object__find_map_by_name(loaded, name.encode()), f"find map {name}", pointer=True
            )
            if name in sizes:
                libbpf.check(lib.bpf_map__set_max_entries(found[name], sizes[name]), f"size map {name}")
        if not asks_kernel:
            paths = lib.bpf_object__find_program_by_name(loaded, PATHS.encode())
            libbpf.check(
                lib.bpf_program__set_autoload(libbpf.check(paths, f"find program {PATHS}", pointer=True), False),
                f"leave out {PATHS}",
            )
        libbpf.check(lib.bpf_object__load(loaded), "load eBPF")
        for name, item in found.items():
            libbpf.check(lib.bpf_map__pin(item, os.fsencode(directory / name)), f"pin map {name}")
        programs = {
            name: libbpf.check(
                lib.bpf_object__find_program_by_name(loaded, name.encode()), f"find program {name}", pointer=True
            )
            for name in (*FILTERS, CUT, *TRACEPOINTS, PATHS)
        }
        for name in (*TRACEPOINTS, *([PATHS] if asks_kernel else [])):
            link = libbpf.check(lib.bpf_program__attach(programs[name]), f"attach {name}", pointer=True)
            try:
                libbpf.check(lib.bpf_link__pin(link, os.fsencode(directory / name)), f"pin {name}")
            finally:
                lib.bpf_link__destroy(link)
        for name in (*FILTERS, CUT):  # for ports that a lab gets later
            libbpf.check(lib.bpf_program__pin(programs[name], os.fsencode(directory / name)), f"pin {name}")
        descriptors = [os.dup(lib.bpf_program__fd(programs[name])) for name in FILTERS]
        return Filters(*descriptors)
    finally:
        lib.bpf_object__close(loaded)


def open_filters(directory: Path) -> Filters:
    """The programs of a lab that is up, pinned in `directory`. Raises `DriverError` where they are gone."""
    return Filters(*(bpf.get_pinned(directory / name) for name in FILTERS))


def load_plain(
    program_object: Path, programs: Sequence[str], maps: Sequence[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Load programs that share no map with others: descriptors of the programs and of the maps, by name. Nothing is
    pinned. Raises `CapabilityError` or `DriverError`."""
    libbpf = _libbpf()
    lib = libbpf.library
    libbpf.said.clear()
    loaded = libbpf.check(lib.bpf_object__open_file(os.fsencode(program_object), None), "open eBPF", pointer=True)
    try:
        libbpf.check(lib.bpf_object__load(loaded), "load eBPF")
        found_programs, found_maps = {}, {}
        for name in programs:
            item = lib.bpf_object__find_program_by_name(loaded, name.encode())
            found_programs[name] = lib.bpf_program__fd(libbpf.check(item, f"find program {name}", pointer=True))
        for name in maps:
            item = lib.bpf_object__find_map_by_name(loaded, name.encode())
            found_maps[name] = lib.bpf_map__fd(libbpf.check(item, f"find map {name}", pointer=True))
        return (
            {name: os.dup(fd) for name, fd in found_programs.items()},
            {name: os.dup(fd) for name, fd in found_maps.items()},
        )
    finally:
        lib.bpf_object__close(loaded)
