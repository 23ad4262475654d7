"""Records of ERF, the extensible record format of Endace, by which captures carry frames of InfiniBand.

LINKTYPE_INFINIBAND (247) is the link type of such frames, which tshark does not read; it does read LINKTYPE_ERF (197)
with records of type 21, which have a frame from its LRH to its VCRC. Source: Endace, "ERF Types Reference Guide"
(EDM11-01): a header of 16 bytes, whose time stamp alone is little-endian, in units of 2^-32 s since 1970.
"""

from __future__ import annotations

import struct
from typing import Final

LINK_TYPE: Final = 197
INFINIBAND: Final = 21
HEADER_BYTES: Final = 16
EXTENSION_BYTES: Final = 8
MORE: Final = 0x80
"""The bit of a type, or of an extension's, behind which another extension header follows."""
MOST_EXTENSIONS: Final = 16
_TIME: Final = struct.Struct("<Q")
_REST: Final = struct.Struct("!BBHHH")
"""Type, flags, bytes of the record, records that were lost before it, bytes of the frame on the wire."""
_VARYING = 0x04
"""A flag: records have the length of their frames."""
_MOST = 0xFFFF


def encode_record(time_ns: int, frame: bytes, *, interface: int, lost: int) -> bytes:
    """Return the record of a frame of InfiniBand, LRH to VCRC, that was seen at an interface (0 to 3) behind `lost`
    frames that were not kept."""
    seconds, rest = divmod(time_ns, 10**9)
    time = _TIME.pack(seconds << 32 | (rest << 32) // 10**9)
    length = HEADER_BYTES + len(frame)
    return time + _REST.pack(INFINIBAND, _VARYING | interface & 3, length, min(lost, _MOST), len(frame)) + frame
