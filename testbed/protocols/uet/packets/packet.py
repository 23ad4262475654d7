"""Whole packets: both headers and the payload, for people and tools that look at traffic.

An endpoint decodes the headers one by one (`pds`, `ses`); this is for a decoder of captures. Field names in
descriptions are those of UE Specification 1.0.1, section 3 (`next_hdr`, `pkt_id`, `PIDonFEP`, ...).
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from enum import IntFlag
from typing import Final, NamedTuple, assert_never

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import (
    AckFlag,
    CcType,
    ControlFlag,
    ControlType,
    NackFlag,
    NextHeader,
    Opcode,
    PdsType,
    RequestBit,
    RequestFlag,
    RudiFlag,
)
from testbed.protocols.uet.packets.pds import (
    Ack,
    CcxState,
    ControlPacket,
    CreditState,
    Nack,
    NsccState,
    PdsHeader,
    Request,
    RudiPacket,
    Uud,
    decode_pds,
)
from testbed.protocols.uet.packets.prologue import Data
from testbed.protocols.uet.packets.ses import (
    AtomicExtension,
    CswapExtension,
    Extension,
    MediumRequest,
    RendezvousExtension,
    RequestHeader,
    Response,
    ResponseData,
    ResponseDataSmall,
    ResponseHeader,
    SesHeader,
    SmallRequest,
    StandardRequest,
    decode_ses,
)

Description = dict[str, object]
"""A document for `json.dumps`. Values that are patterns of bits, not numbers, are texts like "0x00ff"."""


class Packet(NamedTuple):
    """A UDP payload in its parts."""

    pds: PdsHeader
    ses: SesHeader | None
    """None where next_hdr is NONE, in NACKs and control packets, and where a switch trimmed it away."""
    payload: builtins.memoryview  # by its module: mypyc finds the type of a field there alone
    """The bytes behind the headers."""


def decode_packet(data: Data, *, trimmed: bool = False) -> Packet:
    """The packet in a UDP payload. Raises `DecodeError`.

    `trimmed`: a switch cut its end off (section 4.1); an SES header that is not whole is then no error.
    """
    view = memoryview(data)
    header, end = decode_pds(view)
    match header:
        case Nack() | ControlPacket():
            return Packet(header, None, view[end:])
        case _:
            next_header = header.next_header
    if next_header is NextHeader.NONE:
        return Packet(header, None, view[end:])
    try:
        ses, at = decode_ses(next_header, view, end)
    except DecodeError as error:
        if trimmed and error.offset == len(view):
            return Packet(header, None, view[end:])
        raise
    return Packet(header, ses, view[at:])


def describe(packet: Packet) -> Description:
    """Every field, by the specification's name."""
    return {
        "pds": _describe_pds(packet.pds),
        "ses": None if packet.ses is None else _describe_ses(packet.ses),
        "payload_length": len(packet.payload),
    }


def summary(packet: Packet) -> str:
    """One line: the PSNs, who it is between, what it is about, how long its payload is."""
    parts = [_summarise_pds(packet.pds)]
    if packet.ses is not None:
        parts.append(_summarise_ses(packet.ses))
    if packet.payload:
        parts.append(f"{len(packet.payload)} B")
    return " | ".join(parts)


def _flags(flags: int, kinds: Iterable[IntFlag]) -> list[str]:
    return [str(kind.name) for kind in kinds if flags & kind.value]


_FLAG_KINDS: Final[dict[type, type[IntFlag]]] = {
    Request: RequestFlag,
    Ack: AckFlag,
    Nack: NackFlag,
    ControlPacket: ControlFlag,
    RudiPacket: RudiFlag,
}


def _pds_flags(header: PdsHeader) -> list[str]:
    return [] if isinstance(header, Uud) else _flags(header.flags, _FLAG_KINDS[type(header)])


def _describe_pds(header: PdsHeader) -> Description:
    described: Description = {"type": header.type.name}
    if isinstance(header, ControlPacket):
        described["ctl_type"] = header.control_type.name
    else:
        described["next_hdr"] = "NONE" if isinstance(header, Nack) else header.next_header.name
    described["flags"] = _pds_flags(header)
    match header:
        case Request():
            described |= {"clear_psn_offset": header.clear_psn_offset, "psn": header.psn} | _describe_pdcids(header)
            if header.req_cc_state is not None:
                described["req_cc_state"] = header.req_cc_state._asdict()
        case Ack():
            if header.flags & AckFlag.PROBE.value:
                described["probe_opaque"] = header.probe_opaque
            else:
                described["ack_psn_offset"] = header.ack_psn_offset
            described |= {"cack_psn": header.cack_psn, "spdcid": header.spdcid, "dpdcid": header.dpdcid}
            described |= _describe_cc(header)
        case Nack():
            described |= {
                "nack_code": header.nack_code.name,
                "vendor_code": header.vendor_code,
                "nack_pkt_id" if header.flags & NackFlag.RUDI.value else "nack_psn": header.nack_psn,
                "spdcid": header.spdcid,
                "dpdcid": header.dpdcid,
                "payload": header.payload,
            }
            if header.ccx_state is not None:
                described["nccx_type"] = header.ccx_state.ccx_type
                described["nack_ccx_state"] = f"0x{header.ccx_state.state:031x}"
        case ControlPacket():
            if header.control_type is ControlType.PROBE:
                described["probe_opaque"] = header.probe_opaque
            described |= {"psn": header.psn} | _describe_pdcids(header) | {"payload": header.payload}
        case RudiPacket():
            described["pkt_id"] = header.packet_id
        case Uud():
            pass
        case _:
            assert_never(header)
    return described


def _describe_pdcids(header: Request | ControlPacket) -> Description:
    if header.flags & RequestFlag.SYN.value:
        return {"spdcid": header.spdcid, "pdc_info": header.pdc_info, "psn_offset": header.psn_offset}
    return {"spdcid": header.spdcid, "dpdcid": header.dpdcid}


def _describe_cc(ack: Ack) -> Description:
    state = ack.cc_state
    if state is None:
        return {}
    described: Description = {
        "mpr": ack.mpr,
        "sack_psn_offset": ack.sack_psn_offset,
        "sack_bitmap": f"0x{ack.sack_bitmap:016x}",
    }
    match state:
        case NsccState():
            described["cc_type"] = CcType.NSCC.name
            names = ("rc" if name == "restore_cwnd" else name for name in state._fields)
            described["ack_cc_state"] = dict(zip(names, state, strict=True))
        case CreditState():
            described["cc_type"] = CcType.CREDIT.name
            described["ack_cc_state"] = state._asdict()
        case CcxState() if ack.type is PdsType.ACK_CC:
            whose = "PROPRIETARY" if state.ccx_type >= 14 else "RESERVED"
            described["cc_type"] = f"{whose}_{state.ccx_type}"
            described["ack_cc_state"] = f"0x{state.state:016x}"
        case CcxState():
            described["ccx_type"] = state.ccx_type
            described["ack_ccx_state"] = f"0x{state.state:032x}"
        case _:
            assert_never(state)
    return described


def _describe_ses(header: SesHeader) -> Description:
    if isinstance(header, StandardRequest | MediumRequest | SmallRequest):
        return _describe_request(header)
    return _describe_response(header)


def _describe_request(header: RequestHeader) -> Description:
    described: Description = {"opcode": header.opcode.name, "flags": _flags(header.flags, RequestBit)}
    if isinstance(header, StandardRequest):
        described["message_id"] = header.message_id
    described |= {
        "ri_generation": header.ri_generation,
        "job_id": header.job_id,
        "PIDonFEP": header.pid_on_fep,
        "resource_index": header.resource_index,
    }
    has_header_data = bool(header.flags & RequestBit.HD.value)
    match header:
        case StandardRequest():
            described |= {"buffer_offset": header.buffer_offset, "initiator": header.initiator}
            described |= _describe_key(header)
            if not header.flags & RequestBit.SOM.value:
                described |= {"payload_length": header.payload_length, "message_offset": header.message_offset}
            elif has_header_data:
                described["header_data"] = f"0x{header.header_data:016x}"
            tokens = header.tokens
            if tokens is not None:
                described["restart_tokens"] = tokens._asdict()
        case MediumRequest():
            if has_header_data:
                described["header_data"] = f"0x{header.header_data:016x}"
            else:
                described["buffer_offset"] = header.buffer_offset
            described |= {"initiator": header.initiator} | _describe_key(header)
        case SmallRequest():
            described["buffer_offset"] = header.buffer_offset
        case _:
            assert_never(header)
    described["request_length"] = header.request_length
    if header.extension is not None:
        described["extension"] = _describe_extension(header.extension)
    return described


_MATCHED: Final = (
    Opcode.TAGGED_SEND,
    Opcode.RENDEZVOUS_TSEND,
    Opcode.DEFERRABLE_TSEND,
    Opcode.TSEND_ATOMIC,
    Opcode.TSEND_FETCH_ATOMIC,
)


def _describe_key(header: StandardRequest | MediumRequest) -> Description:
    return {"match_bits" if header.opcode in _MATCHED else "memory_key": f"0x{header.memory_key:016x}"}


def _describe_extension(extension: Extension) -> Description:
    if isinstance(extension, RendezvousExtension):
        return {
            "eager_length": extension.eager_length,
            "ri_generation": extension.ri_generation,
            "PIDonFEP": extension.pid_on_fep,
            "resource_index": extension.resource_index,
            "read_offset": extension.read_offset,
            "read_key": f"0x{extension.read_key:016x}",
        }
    described: Description = {
        "amo_opcode": extension.amo_opcode.name,
        "datatype": extension.datatype.name,
        "semantic_control": extension.semantic_control,
    }
    match extension:
        case AtomicExtension():
            pass
        case CswapExtension():
            described |= {"compare": extension.compare.hex(), "swap": extension.swap.hex()}
        case _:
            assert_never(extension)
    return described


_RESPONSE_FIELDS: Final = (
    *("message_id", "ri_generation", "read_request_message_id", "payload_length", "message_offset"),
    *("original_request_psn", "job_id", "modified_length"),
)


def _describe_response(header: ResponseHeader) -> Description:
    names = {"list": header.list.name, "opcode": header.opcode.name, "return_code": header.return_code.name}
    return names | {name: getattr(header, name) for name in _RESPONSE_FIELDS if name in header._fields}


def _summarise_pds(header: PdsHeader) -> str:
    text = header.type.name
    match header:
        case Request():
            to = f"{header.spdcid}>SYN+{header.psn_offset}" if header.flags & RequestFlag.SYN.value else ""
            text += f" {to or f'{header.spdcid}>{header.dpdcid}'} PSN {header.psn} CLEAR {header.clear_psn}"
            if header.req_cc_state is not None:
                text += f" credit target {header.req_cc_state.credit_target}"
        case Ack():
            text += f" {header.spdcid}>{header.dpdcid}"
            if header.flags & AckFlag.PROBE.value:
                text += f" probe {header.probe_opaque} CACK {header.cack_psn}"
            else:
                text += f" ACK {header.ack_psn} CACK {header.cack_psn}"
            if header.sack_bitmap:
                text += f" SACK {header.sack_base_psn}+0x{header.sack_bitmap:x}"
        case Nack():
            what = "packet" if header.flags & NackFlag.RUDI.value else "PSN"
            text += f" {header.spdcid}>{header.dpdcid} {header.nack_code.name} {what} {header.nack_psn}"
        case ControlPacket():
            text += f" {header.control_type.name} {header.spdcid}>{header.dpdcid} PSN {header.psn}"
            text += f" payload {header.payload}"
        case RudiPacket():
            text += f" packet {header.packet_id}"
        case Uud():
            pass
        case _:
            assert_never(header)
    flags = _pds_flags(header)
    return f"{text} [{' '.join(flags)}]" if flags else text


def _summarise_ses(header: SesHeader) -> str:
    match header:
        case StandardRequest():
            where = "" if header.flags & RequestBit.SOM.value else f" at {header.message_offset}"
            text = f"{header.opcode.name} message {header.message_id}{where} of {header.request_length}"
        case MediumRequest() | SmallRequest():
            text = f"{header.opcode.name} of {header.request_length}"
        case Response():
            return f"{header.opcode.name} {header.return_code.name} message {header.message_id}"
        case ResponseData():
            request = header.read_request_message_id
            return f"{header.opcode.name} {header.return_code.name} request {request} at {header.message_offset}"
        case ResponseDataSmall():
            return f"{header.opcode.name} {header.return_code.name} request PSN {header.original_request_psn}"
        case _:
            assert_never(header)
    flags = _flags(header.flags, RequestBit)
    return f"{text} [{' '.join(flags)}]" if flags else text
