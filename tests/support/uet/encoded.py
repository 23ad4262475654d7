"""UET headers and packets as bytes, laid out once more by the tables of UE Specification 1.0.1.

The product packs what it sends where it sends it, and nothing else; tests need every header, those of a peer included.
"""

from struct import pack

from testbed.protocols.uet.packets.codes import CcType, PdsType, RequestBit, RequestFlag
from testbed.protocols.uet.packets.packet import Packet
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
)
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
    SesHeader,
    SmallRequest,
    StandardRequest,
)


def encoded(header: PdsHeader | SesHeader | Packet) -> bytes:
    """The bytes of `header`, whose fields must fit; reserved bits are 0."""
    match header:
        case Packet():
            return encoded(header.pds) + (b"" if header.ses is None else encoded(header.ses)) + header.payload
        case Request():
            return _request(header)
        case Ack():
            return _ack(header)
        case Nack(kind, flags, code, vendor, psn, spdcid, dpdcid, payload, state):
            ccx = b"" if state is None else (state.ccx_type << 124 | state.state).to_bytes(16, "big")
            return pack("!HBBIHHI", kind << 11 | flags, code, vendor, psn, spdcid, dpdcid, payload) + ccx
        case ControlPacket() | RudiPacket() | Uud():
            return header.encode()
        case Response(place, opcode, code, message_id, job_id, length, generation):
            return pack("!BBHII", place << 6 | opcode, code, message_id, generation << 24 | job_id, length)
        case ResponseData():
            return pack("!BBHIHHII", header.list << 6 | header.opcode, *header[2:])
        case ResponseDataSmall():
            return pack("!BBHII", header.list << 6 | header.opcode, *header[2:])
        case _:
            return _ses_request(header) + _extension(header.extension)


def _request(header: Request) -> bytes:
    kind, next_header, flags, clear, psn, spdcid, dpdcid, info, offset, state = header
    last = info << 12 | offset if flags & RequestFlag.SYN else dpdcid
    credit = b"" if state is None else pack("!I", state.ccc_id << 24 | state.credit_target)
    return pack("!HhIHH", kind << 11 | next_header << 7 | flags, clear, psn, spdcid, last) + credit


def _ack(header: Ack) -> bytes:
    kind, next_header, flags, offset, cack, spdcid, dpdcid, mpr, base, bitmap, state = header
    data = pack("!HhIHH", kind << 11 | next_header << 7 | flags, offset, cack, spdcid, dpdcid)
    match state:
        case None:
            return data
        case NsccState(service, restore, pend, received, disorder):
            cc_type, bits = CcType.NSCC, service << 48 | restore << 47 | pend << 40 | received << 16 | disorder
        case CreditState(credit, disorder):
            cc_type, bits = CcType.CREDIT, credit << 40 | disorder
        case CcxState(cc_type, bits):
            pass
    width = 16 if kind is PdsType.ACK_CCX else 8
    return data + pack("!BBhQ", cc_type << 4, mpr, base, bitmap) + bits.to_bytes(width, "big")


def _ses_request(header: RequestHeader) -> bytes:
    flags = header.flags
    job = header.ri_generation << 24 | header.job_id
    place = (job, header.pid_on_fep, header.resource_index)
    match header:
        case StandardRequest():
            word = header.payload_length << 32 | header.message_offset
            word = header.header_data if flags & RequestBit.SOM else word
            body = (header.buffer_offset, header.initiator, header.memory_key, word, header.request_length)
            return pack("!BBHIHHQIQQI", header.opcode, flags, header.message_id, *place, *body)
        case MediumRequest():
            word = header.header_data if flags & RequestBit.HD else header.buffer_offset
            end = (word, header.initiator, header.memory_key)
            return pack("!BBHIHHQIQ", header.opcode, flags, header.request_length, *place, *end)
        case SmallRequest():
            return pack("!BBHIHHQ", header.opcode, flags, header.request_length, *place, header.buffer_offset)


def _extension(extension: Extension | None) -> bytes:
    match extension:
        case None:
            return b""
        case RendezvousExtension():
            return extension.encode()
        case AtomicExtension(operation, datatype, control):
            return pack("!BBBB", operation, datatype, control, 0)
        case CswapExtension(operation, datatype, control, compare, swap):
            return pack("!BBBB", operation, datatype, control, 0) + compare + swap
