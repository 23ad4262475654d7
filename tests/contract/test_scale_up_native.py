"""The structures and numbers that the link layer's C and Python share are the same in both."""

from __future__ import annotations

import ctypes
import shutil
from importlib import resources
from pathlib import Path

import native_link as native
import pytest
import retry_model
from native_link import build

from testbed.base.datapath.build import compile_c
from testbed.protocols.scale_up import ctlos, cyclic, frames, headers, retry
from testbed.protocols.scale_up.credits import NEVER

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "ctlos": native.NativeCtlos,
    "cc_count": native.NativeCount,
    "wire_frame": native.NativeFrame,
    "credit_config": native.NativeCreditConfig,
    "credit_sender_counters": native.NativeCreditSenderCounters,
    "credit_receiver_counters": native.NativeCreditReceiverCounters,
    "credit_sender": native.NativeCreditSender,
    "credit_receiver": native.NativeCreditReceiver,
    "retry_config": native.NativeRetryConfig,
    "retry_sender_counters": native.NativeRetrySenderCounters,
    "retry_receiver_counters": native.NativeRetryReceiverCounters,
    "retry_slot": native.NativeSlot,
    "retry_released": native.NativeReleased,
    "retry_sender": native.NativeRetrySender,
    "retry_receiver": native.NativeRetryReceiver,
}
CONSTANTS = {
    "SCALE_UP_ETHERTYPE": frames.ETHERTYPE,
    "ETHERNET_BYTES": frames.ETHERNET_BYTES,
    "PREFIX_BYTES": frames.PREFIX_BYTES,
    "FCS_BYTES": frames.FCS_BYTES,
    "CTLOS_BYTES": ctlos.CTLOS_BYTES,
    "CTLOS_SLOTS": frames.CTLOS_SLOTS,
    "CONTROL_FRAME_BYTES": frames.CONTROL_FRAME_BYTES,
    "CC_UPDATE_BYTES": frames.CC_UPDATE_BYTES,
    "CC_UPDATE_COUNTS": frames.CC_UPDATE_COUNTS,
    "LEAST_FRAME_BYTES": frames.LEAST_BYTES,
    "COUNT_MASK": ctlos.COUNT_MASK,
    "VCS": ctlos.VCS,
    "CYCLE_MASK": cyclic.CYCLE_MASK,
    "HALF_CYCLE": cyclic.HALF_CYCLE,
    "MOST_OUTSTANDING": retry.MOST_OUTSTANDING,
    "UNLIMITED_REPLAYS": retry.UNLIMITED_REPLAYS,
    "NEVER": NEVER,
    **{item.name: item.value for item in (*ctlos.CtlosType, *headers.HeaderKind)},
    **{f"CHECK_{item.name}": item.value for item in frames.FrameCheck},
    **{f"ACTION_{item.name}": item.value for item in retry.FrameAction},
    **{f"SENDER_{item.name}": item.value for item in retry_model.SenderState},
    **{f"RECEIVER_{item.name}": item.value for item in retry_model.ReceiverState},
    **{f"VERDICT_{item.name}": item.value for item in retry_model.Verdict},
}


def assertions(structs: dict[str, type[ctypes.Structure]]) -> str:
    """C that compiles only where all of it is so."""
    lines = ['#include "credits.h"', '#include "retry.h"']
    for name, kind in structs.items():
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(kind)}, "{name}");')
        for field, *_ in kind._fields_:
            offset = getattr(kind, field).offset
            lines.append(f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{name}.{field}");')
    lines += [f"_Static_assert({name} == {value}u" + f'll, "{name}");' for name, value in CONSTANTS.items()]
    return "\n".join(lines) + "\n"


def compiles(text: str, directory: Path) -> None:
    (directory / "check.c").write_text(text)
    include = str(resources.files("testbed.protocols.scale_up").joinpath("native"))
    compile_c([directory / "check.c"], directory / "check.o", ["-std=gnu11", "-c", "-I", include])


@pytest.fixture(autouse=True)
def clang() -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")


def test_the_structures_agree(tmp_path: Path) -> None:
    compiles(assertions(STRUCTS), tmp_path)


def test_a_structure_that_differs_is_found(tmp_path: Path) -> None:
    class Moved(ctypes.Structure):
        _fields_ = [("added", ctypes.c_uint32), *native.NativeSlot._fields_]

    with pytest.raises(Exception, match="does not compile"):
        compiles(assertions(STRUCTS | {"retry_slot": Moved}), tmp_path)


def test_the_compiler_has_nothing_to_say(tmp_path: Path) -> None:
    """The library is built without a warning, all of which are errors here."""
    build(tmp_path, "-Wextra", "-Werror")
