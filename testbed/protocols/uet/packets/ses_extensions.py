"""Extension headers that follow SES requests of some opcodes: rendezvous and atomic operations.

Source: UE Specification 1.0.1, section 3.4 (rendezvous 24 bytes, atomic 4, compare-and-swap 36). They are in every
packet of such a request, whichever header it has.

Two layouts are disputed, and are decided here alone:

* The second word of the rendezvous extension is `ri_generation:8 | PIDonFEP:12 | resource_index:12`, as in the newest
  reference provider and xdp2: a READ of a resource index needs its generation. The Wireshark dissector (1.0.1) has
  `rsvd:4 | PIDonFEP:12 | rsvd:4 | resource_index:12`.
* Bits of `semantic_control`: cacheable 0x01 and cpu_coherent 0x02, as in the reference provider and Wireshark. xdp2 has
  0x80 and 0x40, and three bits for vendors at the other end.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from testbed.protocols.errors import truncated
from testbed.protocols.uet.errors import UnsupportedRequest
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Opcode, ReturnCode
from testbed.protocols.uet.packets.prologue import Data

_RENDEZVOUS: Final = struct.Struct("!IIQQ")
_ATOMIC: Final = struct.Struct("!BBBB")
_CSWAP: Final = struct.Struct("!BBBB16s16s")

CACHEABLE: Final = 0x01
CPU_COHERENT: Final = 0x02

_COMPARING: Final[frozenset[int]] = frozenset(range(AmoOpcode.CSWAP, AmoOpcode.MSWAP + 1))
_AMO_OPCODES: Final[dict[int, AmoOpcode]] = {int(code): code for code in AmoOpcode}
_AMO_TYPES: Final[dict[int, AmoType]] = {int(code): code for code in AmoType}
RENDEZVOUS_OPCODES: Final[frozenset[int]] = frozenset((Opcode.RENDEZVOUS_SEND, Opcode.RENDEZVOUS_TSEND))
ATOMIC_OPCODES: Final[frozenset[int]] = frozenset(
    (Opcode.ATOMIC, Opcode.FETCHING_ATOMIC, Opcode.TSEND_ATOMIC, Opcode.TSEND_FETCH_ATOMIC)
)


class RendezvousExtension(NamedTuple):
    """The place from which the target reads the rest of a RENDEZVOUS_SEND or RENDEZVOUS_TSEND."""

    eager_length: int
    """Bytes that come with the request, 32 bits."""
    ri_generation: int
    """8 bits."""
    pid_on_fep: int
    """12 bits; with `resource_index` where the READ goes."""
    resource_index: int
    """12 bits."""
    read_offset: int
    """Buffer offset of the READ."""
    read_key: int
    """Memory key or match bits of the READ."""

    def encode(self) -> bytes:
        word = self.ri_generation << 24 | self.pid_on_fep << 12 | self.resource_index
        return _RENDEZVOUS.pack(self.eager_length, word, self.read_offset, self.read_key)


class AtomicExtension(NamedTuple):
    """The extension of an atomic operation without a compare operand: what it does."""

    amo_opcode: AmoOpcode
    datatype: AmoType
    semantic_control: int = 0
    """8 bits: `CACHEABLE`, `CPU_COHERENT`."""


class CswapExtension(NamedTuple):
    """The extension of an atomic operation with a compare operand: CSWAP to CSWAP_GT, and MSWAP."""

    amo_opcode: AmoOpcode
    datatype: AmoType
    semantic_control: int
    """As in `AtomicExtension`."""
    compare: bytes
    """16 bytes, of which the first ones are used: as many as an element has."""
    swap: bytes
    """Likewise."""


Extension = RendezvousExtension | AtomicExtension | CswapExtension


def decode_extension(opcode: Opcode, data: Data, offset: int) -> tuple[Extension | None, int]:
    """The extension at `offset` that `opcode` calls for, if any, and the offset behind it. Raises `DecodeError`,
    and `UnsupportedRequest` where it is whole and its operation or data type is not known."""
    if opcode in ATOMIC_OPCODES:
        return _decode_atomic(opcode, data, offset)
    if opcode not in RENDEZVOUS_OPCODES:
        return None, offset
    try:
        eager_length, word, read_offset, read_key = _RENDEZVOUS.unpack_from(data, offset)
    except struct.error:
        raise truncated(f"the extension of {opcode.name}", _RENDEZVOUS.size, len(data), offset) from None
    extension = RendezvousExtension(eager_length, word >> 24, word >> 12 & 0xFFF, word & 0xFFF, read_offset, read_key)
    return extension, offset + _RENDEZVOUS.size


def _decode_atomic(opcode: Opcode, data: Data, offset: int) -> tuple[AtomicExtension | CswapExtension, int]:
    try:
        number, type_number, control, _ = _ATOMIC.unpack_from(data, offset)
    except struct.error:
        raise truncated(f"the extension of {opcode.name}", _ATOMIC.size, len(data), offset) from None
    amo_opcode = _AMO_OPCODES.get(number)
    if amo_opcode is None:
        whose = "a vendor's" if 0xE0 <= number <= 0xFE else "reserved"
        raise UnsupportedRequest(offset, f"amo_opcode 0x{number:02x} is {whose}", ReturnCode.AMO_UNSUPPORTED_OP)
    datatype = _AMO_TYPES.get(type_number)
    if datatype is None:
        raise UnsupportedRequest(offset + 1, f"datatype 0x{type_number:02x} is unknown", ReturnCode.AMO_UNSUPPORTED_DT)
    if number not in _COMPARING:
        return AtomicExtension(amo_opcode, datatype, control), offset + _ATOMIC.size
    try:
        _, _, _, _, compare, swap = _CSWAP.unpack_from(data, offset)
    except struct.error:
        raise truncated(f"the extension of {opcode.name}", _CSWAP.size, len(data), offset) from None
    return CswapExtension(amo_opcode, datatype, control, compare, swap), offset + _CSWAP.size
