"""The structures and numbers that the pause agent's C and Python share are the same in both."""

import ctypes
from collections.abc import Callable
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


DIRECTORIES = [
    Path(str(resources.files(package) / name))
    for package, name in (
        ("testbed.daemons.portd", "native"),
        ("testbed", "native"),
        ("testbed.base.datapath", "programs"),
    )
]


def test_the_structures_agree(compile_layouts: Callable[..., None]) -> None:
    compile_layouts(["port_io.h"], DIRECTORIES, STRUCTS, CONSTANTS)


def test_a_structure_that_differs_is_found(compile_layouts: Callable[..., None]) -> None:
    class Moved(ctypes.Structure):
        _fields_ = [("added", ctypes.c_uint32), *native.Note._fields_]

    with pytest.raises(Exception, match="does not compile"):
        compile_layouts(["port_io.h"], DIRECTORIES, STRUCTS | {"note": Moved}, CONSTANTS)


@pytest.mark.usefixtures("compile_layouts")
@pytest.mark.thorough
def test_the_compiler_has_nothing_to_say(tmp_path: Path) -> None:
    """The library is built without a warning, all of which are errors here."""
    native.build(tmp_path)
    own, shared, programs = DIRECTORIES
    include = ["-I", str(programs), "-I", str(shared)]
    units = sorted([*own.glob("*.c"), *(shared / name for name in native.SHARED_SOURCES if name.endswith(".c"))])
    compile_c(
        units, tmp_path / "out", ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *include]
    )
