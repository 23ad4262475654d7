"""The structures and numbers that the C of a scale-up domain and Python share are the same in both."""

from __future__ import annotations

import ctypes
import shutil
from importlib import resources
from pathlib import Path

import pytest

from testbed.base.datapath.build import compile_c
from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import KEYS, Kind, Spray
from testbed.protocols.scale_up.domain.errors import Outcome
from testbed.protocols.scale_up.domain.link import FlowControl

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "link_config": binding.LinkConfig,
    "link_counters": binding.LinkCounters,
    "vc_counters": binding.VcCounters,
    "wire_errors": binding.WireErrors,
    "switch_config": binding.SwitchConfig,
    "endpoint_config": binding.EndpointConfig,
    "endpoint_counters": binding.EndpointCounters,
    "completion": binding.Completion,
    "histogram": binding.Steps,
}
CONSTANTS = {
    "LINK_VCS": binding.LINK_VCS,
    "PLANES": binding.PLANES,
    "STEPS": binding.STEPS,
    "TAGS": binding.TAGS,
    "REGION_BYTES": binding.REGION_BYTES,
    "MOST_GPUS": binding.MOST_GPUS,
    "VC_OF_REQUESTS": binding.VC_OF_REQUESTS,
    "BODY_AT + REQUEST_BYTES + FCS_BYTES": binding.OVERHEAD_BYTES,
    "1 << KEY_BITS": KEYS,
    "CREDITS": FlowControl.CREDITS,
    "PFC": FlowControl.PFC,
    "NO_FLOW_CONTROL": FlowControl.NONE,
    **{f"SPRAY_{item.name}": item.value for item in Spray},
    **{f"OP_{item.name}": item.value for item in Kind},
    **{f"STATUS_{item.name}": item.value for item in Outcome if item < Outcome.TIMEOUT},
    **{f"OUTCOME_{item.name}": item.value for item in Outcome if item >= Outcome.TIMEOUT},
}


@pytest.fixture(autouse=True)
def clang() -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")


def directories() -> list[Path]:
    """Of the library's sources."""
    packages = ("testbed", "testbed.protocols.scale_up", "testbed.protocols.scale_up.domain")
    return [Path(str(resources.files(package).joinpath("native"))) for package in packages]


def assertions(structs: dict[str, type[ctypes.Structure]]) -> str:
    """C that compiles only where all of it is so."""
    lines = ['#include "switch_loop.h"', '#include "endpoint_loop.h"']
    for name, kind in structs.items():
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(kind)}, "{name}");')
        for field, *_ in kind._fields_:
            offset = getattr(kind, field).offset
            lines.append(f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{name}.{field}");')
    lines += [f'_Static_assert(({name}) == {int(value)}, "{name}");' for name, value in CONSTANTS.items()]
    return "\n".join(lines) + "\n"


def compiles(text: str, directory: Path) -> None:
    (directory / "check.c").write_text(text)
    include = [word for path in directories() for word in ("-I", str(path))]
    compile_c([directory / "check.c"], directory / "check.o", ["-std=gnu11", "-c", *include])


def test_the_structures_agree(tmp_path: Path) -> None:
    compiles(assertions(STRUCTS), tmp_path)


def test_a_structure_that_differs_is_found(tmp_path: Path) -> None:
    class Moved(ctypes.Structure):
        _fields_ = [("added", ctypes.c_uint64), *binding.Completion._fields_]

    with pytest.raises(Exception, match="does not compile"):
        compiles(assertions(STRUCTS | {"completion": Moved}), tmp_path)


def test_the_compiler_has_nothing_to_say(tmp_path: Path) -> None:
    """The library is built without a warning, all of which are errors here."""
    shared, links, domain = directories()
    units = [shared / name for name in scale_up_domain.SHARED_SOURCES if name.endswith(".c")]
    units += sorted(links.glob("*.c"))
    units += sorted(domain.glob("*.c"))
    include = [word for path in (shared, links, links.parents[1], domain) for word in ("-I", str(path))]
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *include]
    compile_c(units, tmp_path / "out", flags)
