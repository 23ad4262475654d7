"""The structures and numbers that the C of a scale-up domain and Python share are the same in both."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import native_link
import pytest

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


HEADERS = ["credits.h", "retry.h", "switch_loop.h", "endpoint_loop.h"]
DIRECTORIES = [
    Path(str(resources.files(package) / "native"))
    for package in ("testbed", "testbed.protocols.scale_up", "testbed.protocols.scale_up.domain")
]


def test_the_structures_agree(compile_layouts: Callable[..., None]) -> None:
    compile_layouts(HEADERS, DIRECTORIES, STRUCTS, CONSTANTS)


def test_a_structure_that_differs_is_found(compile_layouts: Callable[..., None]) -> None:
    class Moved(ctypes.Structure):
        _fields_ = [("added", ctypes.c_uint64), *binding.Completion._fields_]

    with pytest.raises(Exception, match="does not compile"):
        compile_layouts(HEADERS, DIRECTORIES, STRUCTS | {"completion": Moved}, CONSTANTS)


@pytest.mark.usefixtures("compile_layouts")
@pytest.mark.thorough
def test_the_compiler_has_nothing_to_say(tmp_path: Path) -> None:
    """The library is built without a warning, all of which are errors here."""
    scale_up_domain.build(tmp_path, "-Wextra", "-Werror")
