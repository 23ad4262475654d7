"""Frames of InfiniBand of a capture: the local routing header (LRH), perhaps a GRH, and what RoCE has behind UDP.

Addresses are LIDs; a document has the fields of the LRH, the P_Key, FECN, and whether the variant CRC, which each link
makes anew, is right. A frame that got its FECN counts as marked. What the capture has not all of is cut, and no
malformed frame: that is one whose headers contradict each other, or what was on the wire.

Source: InfiniBand Architecture Specification volume 1, release 1.4: 7.7 (LRH), 7.8 (CRCs), 8.3 (GRH), 9.2 (BTH).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from typing import ClassVar, Final

from testbed.protocols.captured.content import CE, INFINIBAND, CapturedDatagram, LinkFrame
from testbed.protocols.captured.packet import CapturedLink, Document
from testbed.protocols.errors import DecodeError, truncated
from testbed.protocols.infiniband.local_routing import (
    BTH_BYTES,
    FECN,
    GLOBAL,
    GRH_BYTES,
    ICRC_BYTES,
    LOCAL,
    LRH_BYTES,
    VCRC_BYTES,
    LocalHeader,
    compute_icrc,
    compute_vcrc,
    decode_local,
)
from testbed.protocols.roce.captured import RoceCapture, RoceDecoder

NAME: Final = "InfiniBand"
_PKEY_AT: Final = 2
_VARIANT_AT: Final = 4


@dataclass(frozen=True, slots=True)
class InfinibandCapture(RoceCapture):
    """A frame of InfiniBand. `datagram` has what follows LRH and GRH, to the ICRC, between LIDs."""

    local: LocalHeader | None = None
    """None: not all of it was captured, or it is none."""
    grh: bytes = b""
    vcrc_good: bool | None = None
    """None: not all of the frame is there."""
    transport: ClassVar[str] = NAME

    @property
    def carried(self) -> str:
        if self.local is None:
            return ""
        marks = [*(["FECN"] if self.datagram.marked else ()), *(["BAD VCRC"] if self.vcrc_good is False else ())]
        return " ".join((f"VL {self.local.vl} SL {self.local.sl}", *marks))

    def envelope(self) -> Document:
        found: Document = {}
        if self.local is not None:
            local, bth = self.local, self.datagram.payload
            found |= {"vl": local.vl, "sl": local.sl, "dlid": local.dlid, "slid": local.slid, "words": local.words}
            if len(bth) >= _PKEY_AT + 2:
                found["pkey"] = f"{int.from_bytes(bth[_PKEY_AT : _PKEY_AT + 2], 'big'):#06x}"
            if len(bth) > _VARIANT_AT:
                found["fecn"] = self.datagram.marked
        if len(self.grh) == GRH_BYTES:
            found |= {"sgid": str(IPv6Address(self.grh[8:24])), "dgid": str(IPv6Address(self.grh[24:40]))}
        seen = self.datagram
        return found | {"packet_length": seen.length, "captured_length": len(seen.payload), "vcrc_good": self.vcrc_good}


class InfinibandDecoder:
    """Decodes the frames of one capture, in their order."""

    def __init__(self) -> None:
        self._decoder = RoceDecoder(InfinibandCapture, has_icrc_for=self._has_icrc)
        self._routing = b""
        """LRH and GRH of the frame in hand."""

    def __call__(self, frame: LinkFrame) -> InfinibandCapture | None:
        """Return what a frame is; None for a raw one, which has no BTH."""
        seen = frame.seen
        data = seen.payload
        if len(data) < LRH_BYTES:
            wrong = None if seen.snapped else truncated("an LRH", LRH_BYTES, len(data))
            return InfinibandCapture(seen, wrong, None, 0, False)
        try:
            local = decode_local(data)
        except DecodeError as error:
            return InfinibandCapture(seen, error, None, 0, False)
        if local.lnh not in (LOCAL, GLOBAL):
            return None
        begin = LRH_BYTES + (GRH_BYTES if local.lnh == GLOBAL else 0)
        end = seen.length - VCRC_BYTES
        self._routing = data[:begin]
        payload = data[begin : max(begin, end)]
        inner = replace(
            seen,
            source=f"LID {local.slid}",
            destination=f"LID {local.dlid}",
            ecn=CE if len(payload) > _VARIANT_AT and payload[_VARIANT_AT] & FECN else 0,
            length=max(0, end - begin),
            payload=payload,
            snapped=len(payload) < end - begin,
        )
        wrong = _wrong_length(local, begin, end)
        found = InfinibandCapture(inner, wrong, None, 0, False) if wrong else self._decoder(inner)
        assert isinstance(found, InfinibandCapture)
        whole = not wrong and len(data) == seen.length
        good = compute_vcrc(data[:end]) == int.from_bytes(data[end:], "little") if whole else None
        return replace(found, local=local, grh=self._routing[LRH_BYTES:], vcrc_good=good)

    def _has_icrc(self, _identification: int, seen: CapturedDatagram) -> bool:
        """Tell whether the ICRC is right; there is no identification that it could cover."""
        covered = self._routing + seen.payload[:-ICRC_BYTES]
        return compute_icrc(covered) == int.from_bytes(seen.payload[-ICRC_BYTES:], "little")


def _wrong_length(local: LocalHeader, begin: int, end: int) -> DecodeError | None:
    """Return what is wrong with the lengths of a frame whose headers end at `begin`, and its ICRC at `end`."""
    if end < begin + BTH_BYTES + ICRC_BYTES:
        return truncated("headers, BTH and ICRC", begin + BTH_BYTES + ICRC_BYTES, max(0, end))
    if local.words * 4 != end:
        return DecodeError(4, f"the LRH announces {local.words * 4} bytes, and {end} were on the wire")
    return None


LINK: Final = CapturedLink(name=NAME, ethertype=INFINIBAND, make_decoder=InfinibandDecoder)
