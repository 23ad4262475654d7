"""Structures and numbers that C and Python share, held against each other by the compiler of C."""

import ctypes
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from testbed.base.datapath.build import compile_c

Layout = type[ctypes.Structure] | np.dtype[np.void]


@pytest.fixture
def compile_layouts(tmp_path: Path) -> Callable[..., None]:
    """Compiles C that includes `headers` and is right only where each structure has its fields where Python's has
    them, and each constant its value."""
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")

    def compile_them(
        headers: Sequence[str],
        directories: Sequence[Path],
        structs: Mapping[str, Layout],
        constants: Mapping[str, int],
        flags: Sequence[str] = ("-std=gnu11", "-c"),
    ) -> None:
        lines = [f'#include "{name}"' for name in headers]
        for name, kind in structs.items():
            size, offsets = measured(kind)
            facts = {f"sizeof(struct {name})": size}
            facts |= {f"__builtin_offsetof(struct {name}, {field})": at for field, at in offsets.items()}
            lines += [f'_Static_assert({fact} == {value}, "{fact}");' for fact, value in facts.items()]
        lines += [f'_Static_assert(({name}) == {int(value)}ull, "{name}");' for name, value in constants.items()]
        (tmp_path / "check.c").write_text("\n".join(lines) + "\n")
        include = [word for path in directories for word in ("-I", str(path))]
        compile_c([tmp_path / "check.c"], tmp_path / "check.o", [*flags, *include])

    return compile_them


def measured(kind: Layout) -> tuple[int, dict[str, int]]:
    """The size of a structure, and where its fields begin."""
    if isinstance(kind, np.dtype):
        assert kind.fields is not None
        return kind.itemsize, {field: offset for field, (_, offset, *_) in kind.fields.items()}
    return ctypes.sizeof(kind), {field: getattr(kind, field).offset for field, *_ in kind._fields_}
