"""The structures that eBPF and Python share have the same fields at the same places."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from testbed.base.datapath import abi, maps
from testbed.base.datapath.build import compile_c, source_texts
from testbed.base.datapath.traffic_class import ClassPlan

CONSTANTS = {
    "CLASSES": abi.CLASSES,
    "DEPTH_BINS": abi.DEPTH_BINS,
    "TAG_BITS": abi.TAG_BITS,
    "MARK_VALID": abi.MARK_VALID,
    "MARK_TRIMMED": abi.MARK_TRIMMED,
    **{f"LB_{name}": code for name, code in abi.BALANCING_CODES.items()},
    **{f"CLASS_{item.name}": item.value for item in abi.ClassFlag},
    **{f"CLASS_MARK_AT_{place.name}": value for place, value in abi.MARK_AT_FLAGS.items()},
    **{f"PORT_{item.name}": item.value for item in abi.PortFlag},
    **{f"EVENT_{item.name}": item.value for item in abi.EventKind},
}


def assertions(structs: dict[str, np.dtype[np.void]]) -> str:
    """C that compiles only where all of it is so."""
    lines = ['#include "rules.h"']
    for name, kind in structs.items():
        lines.append(f'_Static_assert(sizeof(struct {name}) == {kind.itemsize}, "{name}");')
        assert kind.fields is not None
        for field, (_, offset, *_) in kind.fields.items():
            lines.append(f'_Static_assert(__builtin_offsetof(struct {name}, {field}) == {offset}, "{name}.{field}");')
    lines += [f'_Static_assert({name} == {value}, "{name}");' for name, value in CONSTANTS.items()]
    return "\n".join(lines) + "\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    for name, text in source_texts("testbed.base.datapath", "programs", ("layout.h", "rules.h")).items():
        (tmp_path / name).write_bytes(text)
    return tmp_path


def test_the_structures_agree(programs: Path) -> None:
    (programs / "check.c").write_text(assertions(maps.STRUCTS))
    compile_c([programs / "check.c"], programs / "check.o")


def test_all_that_a_class_is_told_is_a_field_of_its_plan() -> None:
    assert set(maps.STRUCTS["class_config"].names or ()) - {"flags"} <= {each.name for each in fields(ClassPlan)}


def test_a_structure_that_differs_is_found(programs: Path) -> None:
    moved = np.dtype([("added", "<u8"), *maps.STRUCTS["buffer"].descr])
    (programs / "check.c").write_text(assertions({**maps.STRUCTS, "buffer": moved}))
    with pytest.raises(Exception, match="does not compile"):
        compile_c([programs / "check.c"], programs / "check.o")
