"""Loading the compiled programs with libbpf, and pinning their maps and tracepoint links.

libbpf is used through its C interface (libbpf.h, stable since 1.0).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.cleanup import closed_at_end
from testbed.base.datapath import bpf
from testbed.base.datapath.abi import EVENTS_MAP, MAP_NAMES, PATHS_MAP, SAMPLES_MAP
from testbed.base.errors import CapabilityError, DriverError

FILTERS = ("port_ingress", "port_enqueue", "port_egress")
CUT = "port_cut"
"""For stubs of links that end on another machine; pinned, as the filters are."""
TRACEPOINTS = ("port_purge",)
PATHS = "port_paths"
"""Attached to the kernel's tracepoint `fib_table_lookup`, while some switch needs it."""

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
            ("bpf_object__next_map", pointer, (pointer, pointer)),
            ("bpf_object__next_program", pointer, (pointer, pointer)),
            ("bpf_map__set_max_entries", integer, (pointer, ctypes.c_uint32)),
            ("bpf_map__set_autocreate", integer, (pointer, ctypes.c_bool)),
            ("bpf_map__reuse_fd", integer, (pointer, integer)),
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


def load_programs(program_object: Path, directory: Path, sizes: Mapping[str, int]) -> Filters:
    """Load the programs, pin their maps and attach the tracepoints with their links pinned in `directory`: all but
    `PATHS`, which `attach_paths` adds.

    `sizes` gives the number of entries of each map of `abi.MAP_NAMES`. What is pinned lives until it is unpinned.
    Raises `CapabilityError` or `DriverError`.
    """
    libbpf = _libbpf()
    lib = libbpf.library
    with _opened(program_object) as loaded:
        found = {}
        for name in (*MAP_NAMES, EVENTS_MAP, SAMPLES_MAP, PATHS_MAP):
            found[name] = libbpf.check(
                lib.bpf_object__find_map_by_name(loaded, name.encode()), f"find map {name}", pointer=True
            )
            if name in sizes:
                libbpf.check(lib.bpf_map__set_max_entries(found[name], sizes[name]), f"size map {name}")
        libbpf.check(lib.bpf_program__set_autoload(_program(loaded, PATHS), False), f"leave out {PATHS}")
        libbpf.check(lib.bpf_object__load(loaded), "load eBPF")
        for name, item in found.items():
            libbpf.check(lib.bpf_map__pin(item, os.fsencode(directory / name)), f"pin map {name}")
        programs = {name: _program(loaded, name) for name in (*FILTERS, CUT, *TRACEPOINTS)}
        for name in TRACEPOINTS:
            _attach(programs[name], directory / name)
        for name in (*FILTERS, CUT):  # for ports that a lab gets later
            libbpf.check(lib.bpf_program__pin(programs[name], os.fsencode(directory / name)), f"pin {name}")
        descriptors = [os.dup(lib.bpf_program__fd(programs[name])) for name in FILTERS]
        return Filters(*descriptors)


def attach_paths(program_object: Path, directory: Path) -> None:
    """Have some switch know all paths of a packet: `PATHS` reads them as the kernel looks a route up, and hands them to
    the programs that are pinned in `directory`. Attached already, it stays.

    Raises `CapabilityError`, and `DriverError`, also for programs that an older version has loaded.
    """
    if (directory / PATHS).exists():
        return
    libbpf = _libbpf()
    lib = libbpf.library
    with _opened(program_object) as loaded:
        item = None
        while item := lib.bpf_object__next_program(loaded, item):
            libbpf.check(lib.bpf_program__set_autoload(item, False), "leave out what is loaded")
        program = _program(loaded, PATHS)
        libbpf.check(lib.bpf_program__set_autoload(program, True), f"ask for {PATHS}")
        paths = libbpf.check(
            lib.bpf_object__find_map_by_name(loaded, PATHS_MAP.encode()), f"find map {PATHS_MAP}", pointer=True
        )
        while item := lib.bpf_object__next_map(loaded, item):
            libbpf.check(lib.bpf_map__set_autocreate(item, item == paths), "leave out what is there")
        with closed_at_end(bpf.get_pinned(directory / PATHS_MAP)) as there:
            libbpf.check(lib.bpf_map__reuse_fd(paths, there), f"share map {PATHS_MAP}")
        libbpf.check(lib.bpf_object__load(loaded), f"load {PATHS}")
        _attach(program, directory / PATHS)


def detach_paths(directory: Path) -> None:
    """End `PATHS`, where no switch of the data path that is pinned in `directory` needs it any more."""
    (directory / PATHS).unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(program_object: Path) -> Iterator[int]:
    """An object of libbpf, whose programs and maps live on where somebody has them when it is closed."""
    libbpf = _libbpf()
    libbpf.said.clear()
    opened = libbpf.library.bpf_object__open_file(os.fsencode(program_object), None)
    loaded = libbpf.check(opened, "open eBPF", pointer=True)
    try:
        yield loaded
    finally:
        libbpf.library.bpf_object__close(loaded)


def _program(loaded: int, name: str) -> int:
    libbpf = _libbpf()
    found = libbpf.library.bpf_object__find_program_by_name(loaded, name.encode())
    return libbpf.check(found, f"find program {name}", pointer=True)


def _attach(program: int, pin: Path) -> None:
    """Attach a program to its tracepoint until its link is unpinned."""
    libbpf = _libbpf()
    lib = libbpf.library
    link = libbpf.check(lib.bpf_program__attach(program), f"attach {pin.name}", pointer=True)
    try:
        libbpf.check(lib.bpf_link__pin(link, os.fsencode(pin)), f"pin {pin.name}")
    finally:
        lib.bpf_link__destroy(link)


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
    with _opened(program_object) as loaded:
        libbpf.check(lib.bpf_object__load(loaded), "load eBPF")
        found_programs = {name: lib.bpf_program__fd(_program(loaded, name)) for name in programs}
        found_maps = {}
        for name in maps:
            item = lib.bpf_object__find_map_by_name(loaded, name.encode())
            found_maps[name] = lib.bpf_map__fd(libbpf.check(item, f"find map {name}", pointer=True))
        return (
            {name: os.dup(fd) for name, fd in found_programs.items()},
            {name: os.dup(fd) for name, fd in found_maps.items()},
        )
