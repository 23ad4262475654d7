"""The structures and numbers that the pause agent's C and Python share are the same in both."""

from __future__ import annotations

import ctypes
import shutil
from importlib import resources
from pathlib import Path

import pytest

from testbed.base.datapath.build import compile_c
from testbed.daemons.portd import native

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "attached_port": native.AttachedPort,
    "action": native.Action,
    "note": native.Note,
    "strays": native.StrayCounters,
    "histogram": native.Steps,
    "gate_messages": native.GateMessages,
}
CONSTANTS = {
    "GATE_MESSAGE_BYTES": native.GATE_MESSAGE_BYTES,
    **{item.name: item.value for item in (*native.ActionKind, *native.NoteKind)},
}


def assertions(structs: dict[str, type[ctypes.Structure]]) -> str:
    """C that compiles only where all of it is so."""
    lines = ['#include "port_io.h"']
    for name, kind in structs.items():
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(kind)}, "{name}");')
        for field, *_ in kind._fields_:
            offset = getattr(kind, field).offset
            lines.append(f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{name}.{field}");')
    lines += [f'_Static_assert({name} == {value}, "{name}");' for name, value in CONSTANTS.items()]
    return "\n".join(lines) + "\n"


def compiles(text: str, directory: Path) -> None:
    (directory / "check.c").write_text(text)
    headers = [
        resources.files("testbed.daemons.portd").joinpath("native"),
        resources.files("testbed").joinpath("native"),
        resources.files("testbed.base.datapath") / "programs",
    ]
    include = [word for path in headers for word in ("-I", str(path))]
    compile_c([directory / "check.c"], directory / "check.o", ["-std=gnu11", "-c", *include])


@pytest.fixture(autouse=True)
def clang() -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")


def test_the_structures_agree(tmp_path: Path) -> None:
    compiles(assertions(STRUCTS), tmp_path)


def test_a_structure_that_differs_is_found(tmp_path: Path) -> None:
    class Moved(ctypes.Structure):
        _fields_ = [("added", ctypes.c_uint32), *native.Note._fields_]

    with pytest.raises(Exception, match="does not compile"):
        compiles(assertions(STRUCTS | {"note": Moved}), tmp_path)


def test_the_compiler_has_nothing_to_say(tmp_path: Path) -> None:
    """The library is built without a warning, all of which are errors here."""
    native.build(tmp_path)
    shared = resources.files("testbed").joinpath("native")
    sources = [Path(str(item)) for item in resources.files("testbed.daemons.portd").joinpath("native").iterdir()]
    sources += [Path(str(shared.joinpath(name))) for name in native.SHARED_SOURCES]
    include = ["-I", str(resources.files("testbed.base.datapath") / "programs"), "-I", str(shared)]
    units = sorted(path for path in sources if path.suffix == ".c")
    compile_c(
        units, tmp_path / "out", ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *include]
    )
