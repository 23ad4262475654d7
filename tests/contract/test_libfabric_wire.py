"""The provider in C and the endpoints in Python mean the same by each byte between them."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from testbed.endpoints.libfabric import wire
from testbed.protocols.uet.memory import Access

ADDRESS = ("address", "u1", 16)
NAME = np.dtype([ADDRESS, ("pid", "<u2"), ("index", "<u2")])
STRUCTS = {
    "wire_name": NAME,
    "wire_place": np.dtype([("address", "<u8"), ("length", "<u8")]),
    "wire_request": np.dtype(
        [
            ("kind", "<u2"),
            ("flags", "<u2"),
            ("body", "<u4"),
            *((name, "<u8") for name in ("id", "length", "tag", "ignore", "data")),
            ("endpoint", "<u2"),
            ("places", "<u2"),
            ("peer", NAME),
        ]
    ),
    "wire_reply": np.dtype(
        [
            ("kind", "<u2"),
            ("flags", "<u2"),
            ("error", "<u4"),
            *((name, "<u8") for name in ("id", "length", "tag", "data", "offset")),
            ("endpoint", "<u2"),
            ("code", "<u2"),
            ("peer", NAME),
        ]
    ),
}
CONSTANTS = {
    "WIRE_VERSION": wire.VERSION,
    "WIRE_INLINE_BYTES": wire.INLINE_BYTES,
    "WIRE_PLACES": wire.PLACES,
    "WIRE_BODY_BYTES": wire.BODY_BYTES,
    "WIRE_TRANSMITS": wire.TRANSMITS,
    "WIRE_RECEIVES": wire.RECEIVES,
    "WIRE_ENDPOINTS": wire.ENDPOINTS,
    "WIRE_MESSAGE_BYTES": wire.MESSAGE_BYTES,
    "WIRE_KEY_BITS": wire.KEY_BITS,
    **{f"WIRE_{item.name}": item.value for item in wire.RequestKind},
    **{f"WIRE_{item.name}": item.value for item in wire.ReplyKind},
    **{f"WIRE_{item.name}": item.value for item in wire.WireFlag},
    **{f"WIRE_{item.name}": item.value for item in Access if item is not Access.LOCAL},
}
NATIVE = Path(str(resources.files("testbed") / "native" / "libfabric"))


def test_structures_and_numbers_agree(compile_layouts: Callable[..., None]) -> None:
    compile_layouts(["wire.h"], [NATIVE], STRUCTS, CONSTANTS)


def test_a_number_that_differs_is_found(compile_layouts: Callable[..., None]) -> None:
    with pytest.raises(Exception, match="does not compile"):
        compile_layouts(["wire.h"], [NATIVE], STRUCTS, {"WIRE_SEND": wire.RequestKind.SEND + 1})


def test_what_python_packs_has_the_sizes_of_the_structures() -> None:
    assert wire.REQUEST.size == STRUCTS["wire_request"].itemsize
    assert wire.REPLY.size == STRUCTS["wire_reply"].itemsize
    assert wire.PLACE.size == STRUCTS["wire_place"].itemsize
    assert len(wire.ProviderRequest._fields) == len(wire.REQUEST.unpack(bytes(wire.REQUEST.size)))


def test_two_operands_and_all_places_are_a_body() -> None:
    assert 2 * wire.INLINE_BYTES + wire.PLACES * wire.PLACE.size <= wire.BODY_BYTES
