"""The structures that eBPF and Python share have the same fields at the same places."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from testbed.base.datapath import abi, maps
from testbed.base.datapath.build import BPF_FLAGS
from testbed.base.datapath.traffic_class import ClassPlan

CONSTANTS = {
    "CLASSES": abi.CLASSES,
    "DEPTH_BINS": abi.DEPTH_BINS,
    "TAG_BITS": abi.TAG_BITS,
    "MARK_VALID": abi.MARK_VALID,
    "MARK_TRIMMED": abi.MARK_TRIMMED,
    **{f"LB_{name}": code for name, code in abi.BALANCING_CODES.items()},
    **{f"HASH_{field.name}": bit for field, bit in abi.HASH_BITS.items()},
    **{f"CLASS_{item.name}": item.value for item in abi.ClassFlag},
    **{f"CLASS_MARK_AT_{place.name}": value for place, value in abi.MARK_AT_FLAGS.items()},
    **{f"PORT_{item.name}": item.value for item in abi.PortFlag},
    **{f"EVENT_{item.name}": item.value for item in abi.EventKind},
    **{f"FATE_{item.name}": item.value for item in abi.SampleFate},
    "SAMPLE_BYTES": abi.SAMPLE_BYTES,
    "MOST_PATHS": abi.MOST_PATHS,
}


def compile_structs(compile_layouts: Callable[..., None], structs: Mapping[str, np.dtype[np.void]]) -> None:
    programs = Path(str(resources.files("testbed.base.datapath") / "programs"))
    compile_layouts(["rules.h"], [programs], structs, CONSTANTS, BPF_FLAGS)


def test_the_structures_agree(compile_layouts: Callable[..., None]) -> None:
    compile_structs(compile_layouts, maps.STRUCTS)


def test_all_that_a_class_is_told_is_a_field_of_its_plan() -> None:
    assert set(maps.STRUCTS["class_config"].names or ()) - {"flags"} <= {each.name for each in fields(ClassPlan)}


def test_a_structure_that_differs_is_found(compile_layouts: Callable[..., None]) -> None:
    moved = np.dtype([("added", "<u8"), *maps.STRUCTS["buffer"].descr])
    with pytest.raises(Exception, match="does not compile"):
        compile_structs(compile_layouts, {**maps.STRUCTS, "buffer": moved})
