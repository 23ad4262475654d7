"""UET packets of every type, with every header and extension that may follow, and random values in all fields."""

from collections.abc import Iterator
from random import Random

from testbed.protocols.uet.packets.codes import (
    AmoOpcode,
    AmoType,
    ControlType,
    NackCode,
    NextHeader,
    Opcode,
    PdsType,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)
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
    RequestCcState,
    RudiPacket,
    Uud,
)
from testbed.protocols.uet.packets.ses import (
    AtomicExtension,
    CswapExtension,
    Extension,
    MediumRequest,
    RendezvousExtension,
    Response,
    ResponseData,
    ResponseDataSmall,
    SesHeader,
    SmallRequest,
    StandardRequest,
)

SYN = 0x04
PROBE = 0x08
HD, SOM, WHOLE = 0x04, 0x01, 0x03
RENDEZVOUS = (Opcode.RENDEZVOUS_SEND, Opcode.RENDEZVOUS_TSEND)
ATOMIC = (Opcode.ATOMIC, Opcode.FETCHING_ATOMIC, Opcode.TSEND_ATOMIC, Opcode.TSEND_FETCH_ATOMIC)
REQUESTS = (PdsType.RUD_REQ, PdsType.ROD_REQ, PdsType.RUD_CC_REQ, PdsType.ROD_CC_REQ)
ACKS = (PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX)
RESPONSES = (NextHeader.RESPONSE, NextHeader.RESPONSE_DATA, NextHeader.RESPONSE_DATA_SMALL)


class PacketSamples:
    """Packets from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def bits(self, count: int) -> int:
        """Often one of the ends, where signs and masks go wrong."""
        return self.chance.choice((0, (1 << count) - 1, 1 << count - 1, self.chance.getrandbits(count)))

    def pdcid(self) -> int:
        return self.bits(16) or 1

    def payload(self) -> memoryview:
        return memoryview(self.chance.randbytes(self.chance.choice((0, 1, 64))))

    def of_every_kind(self) -> Iterator[Packet]:
        """Each PDS type with each header that may follow; each opcode, code and operation at least once."""
        for kind in REQUESTS:
            for next_header in NextHeader:
                yield self.packet(self.request(kind, next_header), next_header)
        for kind in ACKS:
            for next_header in (NextHeader.NONE, *RESPONSES):
                for _ in range(3):
                    yield self.packet(self.ack(kind, next_header), next_header)
        for code in NackCode:
            yield Packet(self.nack(PdsType.NACK, code), None, memoryview(b""))
        yield Packet(self.nack(PdsType.NACK_CCX, NackCode.TRIMMED), None, memoryview(b""))
        for control in ControlType:
            for _ in range(3):
                yield Packet(self.control(control), None, memoryview(b""))
        for next_header in NextHeader:
            for kind in (PdsType.RUDI_REQ, PdsType.RUDI_RESP):
                header = RudiPacket(kind, next_header, self.bits(7) & 0x30, self.bits(32))
                if kind is PdsType.RUDI_REQ:
                    header = header._replace(flags=header.flags & 0x10)
                yield self.packet(header, next_header)
            yield self.packet(Uud(next_header), next_header)
        for opcode in Opcode:
            for _ in range(3):
                yield self.requesting(self.standard(opcode), NextHeader.REQUEST_STD)
            if opcode not in RENDEZVOUS:
                yield self.requesting(self.medium(opcode), NextHeader.REQUEST_MEDIUM)
                yield self.requesting(self.small(opcode), NextHeader.REQUEST_SMALL)
        for operation in AmoOpcode:
            for datatype in AmoType:
                header = self.standard(Opcode.ATOMIC)._replace(extension=self.atomic(operation, datatype))
                yield self.requesting(header, NextHeader.REQUEST_STD)
        for return_code in ReturnCode:
            for next_header in RESPONSES:
                ack = self.ack(PdsType.ACK, next_header)
                yield Packet(ack, self.response(next_header, return_code), self.payload())

    def requesting(self, header: SesHeader, next_header: NextHeader) -> Packet:
        return Packet(self.request(self.chance.choice(REQUESTS), next_header), header, self.payload())

    def packet(self, pds: PdsHeader, next_header: NextHeader) -> Packet:
        return Packet(pds, self.ses(next_header), self.payload())

    def request(self, kind: PdsType, next_header: NextHeader) -> Request:
        flags = self.bits(7) & 0x1C
        state = None
        if kind in (PdsType.RUD_CC_REQ, PdsType.ROD_CC_REQ):
            state = RequestCcState(self.bits(8), self.bits(24))
        return Request(
            kind,
            next_header,
            flags,
            -self.bits(15),
            self.bits(32),
            self.pdcid(),
            0 if flags & SYN else self.bits(16),
            self.bits(4) if flags & SYN else 0,
            self.bits(12) if flags & SYN else 0,
            state,
        )

    def ack(self, kind: PdsType, next_header: NextHeader) -> Ack:
        flags = self.chance.choice((0x00, 0x20, 0x30, 0x10, PROBE)) | self.chance.choice((0, 2, 4))
        offset = self.bits(16) - 0x8000
        head = (kind, next_header, flags, offset, self.bits(32), self.pdcid(), self.bits(16))
        if kind is PdsType.ACK:
            return Ack(*head)
        more = (self.bits(8), self.bits(16) - 0x8000, self.bits(64))
        state: NsccState | CreditState | CcxState
        if kind is PdsType.ACK_CCX:
            state = CcxState(self.bits(4), self.bits(128))
        elif self.chance.random() < 0.5:
            state = NsccState(self.bits(16), bool(self.bits(1)), self.bits(7), self.bits(24), self.bits(16))
        else:
            state = CreditState(self.bits(24), self.bits(16))
        return Ack(*head, *more, state)

    def nack(self, kind: PdsType, code: NackCode) -> Nack:
        state = CcxState(self.bits(4), self.bits(124)) if kind is PdsType.NACK_CCX else None
        flags = self.bits(7) & 0x38
        numbers = (self.bits(8), self.bits(32), self.bits(16), self.bits(16), self.bits(32))
        return Nack(kind, flags, code, *numbers, state)

    def control(self, kind: ControlType) -> ControlPacket:
        flags = self.bits(7) & 0x3C
        return ControlPacket(
            kind,
            flags,
            self.bits(16) if kind is ControlType.PROBE else 0,
            self.bits(32),
            self.pdcid(),
            0 if flags & SYN else self.bits(16),
            self.bits(4) if flags & SYN else 0,
            self.bits(12) if flags & SYN else 0,
            self.bits(32),
        )

    def ses(self, next_header: NextHeader) -> SesHeader | None:
        match next_header:
            case NextHeader.NONE:
                return None
            case NextHeader.REQUEST_STD:
                return self.standard(self.chance.choice(list(Opcode)))
            case NextHeader.REQUEST_MEDIUM:
                return self.medium(self.single_opcode())
            case NextHeader.REQUEST_SMALL:
                return self.small(self.single_opcode())
            case _:
                return self.response(next_header, self.chance.choice(list(ReturnCode)))

    def single_opcode(self) -> Opcode:
        return self.chance.choice([opcode for opcode in Opcode if opcode not in RENDEZVOUS])

    def extension(self, opcode: Opcode) -> Extension | None:
        if opcode in RENDEZVOUS:
            address = (self.bits(8), self.bits(12), self.bits(12))
            return RendezvousExtension(self.bits(32), *address, self.bits(64), self.bits(64))
        if opcode in ATOMIC:
            return self.atomic(self.chance.choice(list(AmoOpcode)), self.chance.choice(list(AmoType)))
        return None

    def atomic(self, operation: AmoOpcode, datatype: AmoType) -> AtomicExtension | CswapExtension:
        if AmoOpcode.CSWAP <= operation <= AmoOpcode.MSWAP:
            operands = (self.chance.randbytes(16), self.chance.randbytes(16))
            return CswapExtension(operation, datatype, self.bits(8), *operands)
        return AtomicExtension(operation, datatype, self.bits(8))

    def standard(self, opcode: Opcode) -> StandardRequest:
        flags = self.bits(6)
        first = bool(flags & SOM)
        address = (self.bits(8), self.bits(24), self.bits(12), self.bits(12))
        return StandardRequest(
            opcode,
            flags,
            self.bits(16),
            *address,
            self.bits(64),
            self.bits(32),
            self.bits(64),
            self.bits(64) if first else 0,
            0 if first else self.bits(14),
            0 if first else self.bits(32),
            self.bits(32),
            self.extension(opcode),
        )

    def medium(self, opcode: Opcode) -> MediumRequest:
        flags = self.bits(6) | WHOLE
        with_header_data = bool(flags & HD)
        address = (self.bits(8), self.bits(24), self.bits(12), self.bits(12))
        return MediumRequest(
            opcode,
            flags,
            self.bits(14),
            *address,
            0 if with_header_data else self.bits(64),
            self.bits(64) if with_header_data else 0,
            self.bits(32),
            self.bits(64),
            self.extension(opcode),
        )

    def small(self, opcode: Opcode) -> SmallRequest:
        address = (self.bits(8), self.bits(24), self.bits(12), self.bits(12))
        extension = self.extension(opcode)
        return SmallRequest(opcode, self.bits(6) | WHOLE, self.bits(14), *address, self.bits(64), extension)

    def response(self, kind: NextHeader, return_code: ReturnCode) -> SesHeader:
        head = (self.chance.choice(list(ResponseList)), self.chance.choice(list(ResponseOpcode)), return_code)
        if kind is NextHeader.RESPONSE:
            return Response(*head, self.bits(16), self.bits(24), self.bits(32), self.bits(8))
        if kind is NextHeader.RESPONSE_DATA:
            lengths = (self.bits(14), self.bits(32), self.bits(32))
            return ResponseData(*head, self.bits(16), self.bits(24), self.bits(16), *lengths)
        return ResponseDataSmall(*head, self.bits(14), self.bits(24), self.bits(32))
