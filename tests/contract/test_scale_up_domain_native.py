"""The structures and numbers that the C of a scale-up domain and Python share are the same in both."""

from __future__ import annotations

import ctypes
import shutil
from importlib import resources
from pathlib import Path

import native_link
import pytest

from testbed.base.datapath.build import compile_c
from testbed.protocols.scale_up import ctlos, cyclic, frames, headers, native, retry
from testbed.protocols.scale_up.credits import NEVER
from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import KEYS, Kind, Spray
from testbed.protocols.scale_up.domain.errors import Outcome
from testbed.protocols.scale_up.domain.link import FlowControl

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "ctlos": native_link.NativeCtlos,
    "cc_count": native_link.NativeCount,
    "wire_frame": native_link.NativeFrame,
    "credit_config": native_link.NativeCreditConfig,
    "credit_sender_counters": native_link.NativeCreditSenderCounters,
    "credit_receiver_counters": native_link.NativeCreditReceiverCounters,
    "credit_sender": native_link.NativeCreditSender,
    "credit_receiver": native_link.NativeCreditReceiver,
    "retry_config": native.NativeRetryConfig,
    "retry_sender_counters": native.NativeRetrySenderCounters,
    "retry_receiver_counters": native.NativeRetryReceiverCounters,
    "retry_slot": native_link.NativeSlot,
    "retry_released": native_link.NativeReleased,
    "retry_sender": native_link.NativeRetrySender,
    "retry_receiver": native_link.NativeRetryReceiver,
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
    **{item.name: item for item in (*ctlos.CtlosType, *headers.HeaderKind)},
    **{f"CHECK_{item.name}": item for item in frames.FrameCheck},
    **{f"ACTION_{item.name}": item for item in retry.FrameAction},
    **{f"SENDER_{item.name}": item for item in native_link.SenderState},
    **{f"RECEIVER_{item.name}": item for item in native_link.ReceiverState},
    **{f"VERDICT_{item.name}": item for item in native_link.Verdict},
    **{f"SPRAY_{item.name}": item for item in Spray},
    **{f"OP_{item.name}": item for item in Kind},
    **{f"STATUS_{item.name}": item for item in Outcome if item < Outcome.TIMEOUT},
    **{f"OUTCOME_{item.name}": item for item in Outcome if item >= Outcome.TIMEOUT},
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
    lines = [f'#include "{name}.h"' for name in ("credits", "retry", "switch_loop", "endpoint_loop")]
    for name, kind in structs.items():
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(kind)}, "{name}");')
        for field, *_ in kind._fields_:
            offset = getattr(kind, field).offset
            lines.append(f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{name}.{field}");')
    lines += [f'_Static_assert(({name}) == {int(value)}ull, "{name}");' for name, value in CONSTANTS.items()]
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
    scale_up_domain.build(tmp_path, "-Wextra", "-Werror")
