"""Datagrams of somebody hostile: made up, or made out of those that were captured on the wire."""

from __future__ import annotations

from collections import deque
from random import Random

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.packets.codes import PdsType

POOL = 400
"""Captured datagrams that are kept to work from."""
PEERS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
TYPES = [kind for kind in PdsType if kind not in (PdsType.RESERVED, PdsType.TSS)]

_FIELDS: dict[int, tuple[tuple[int, int], ...]] = {
    PdsType.ACK: ((2, 2), (4, 4), (8, 2), (10, 2)),
    PdsType.ACK_CC: ((2, 2), (4, 4), (8, 2), (10, 2), (12, 1), (13, 1), (14, 2), (16, 8), (24, 2), (26, 4), (30, 2)),
    PdsType.NACK: ((2, 1), (4, 4), (8, 2), (10, 2), (12, 4)),
    PdsType.CP: ((2, 2), (4, 4), (8, 2), (10, 2), (12, 4)),
    PdsType.RUDI_REQ: ((4, 4),),
    PdsType.RUDI_RESP: ((4, 4),),
    PdsType.UUD_REQ: (),
}
_REQUEST_FIELDS = ((2, 2), (4, 4), (8, 2), (10, 2))
_HEADER_BYTES = {
    PdsType.ACK: 12,
    PdsType.ACK_CC: 32,
    PdsType.NACK: 16,
    PdsType.CP: 16,
    PdsType.RUDI_REQ: 8,
    PdsType.RUDI_RESP: 8,
    PdsType.UUD_REQ: 4,
    PdsType.RUD_CC_REQ: 16,
    PdsType.ROD_CC_REQ: 16,
}
_SES_FIELDS: dict[int, tuple[tuple[int, int], ...]] = {
    # length, job, PID, index, offset, initiator, key
    1: ((0, 1), (1, 1), (2, 2), (4, 4), (8, 2), (10, 2), (12, 8)),
    2: ((0, 1), (1, 1), (2, 2), (4, 4), (8, 2), (10, 2), (12, 8), (20, 4), (24, 8)),
    # and for the standard header: header data or payload length and message offset, request length, extension
    3: (
        *((0, 1), (1, 1), (2, 2), (4, 4), (8, 2), (10, 2), (12, 8), (20, 4), (24, 8)),
        *((32, 4), (36, 4), (40, 4), (44, 4), (44, 1), (45, 1), (48, 4), (52, 8), (60, 8)),
    ),
    4: ((0, 1), (1, 1), (2, 2), (4, 4), (8, 4)),
    5: ((0, 1), (1, 1), (2, 2), (4, 4), (8, 2), (10, 2), (12, 4), (16, 4)),
    6: ((0, 1), (1, 1), (2, 2), (4, 4), (8, 4)),
}


class Hostile:
    """Knows what it has captured, and nothing else: no key of memory, PDCID or PSN but those it has seen."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._seen: deque[tuple[str, str, bytes]] = deque(maxlen=POOL)

    def capture(self, source: str, datagram: Outgoing) -> None:
        """Look at what passes."""
        self._seen.append((source, datagram.remote, datagram.to_bytes()))

    def captured(self) -> list[tuple[str, str, bytes]]:
        return list(self._seen)

    def remember(self, captured: list[tuple[str, str, bytes]]) -> None:
        """Datagrams of earlier connections."""
        self._seen.extend(captured)

    def datagram(self, victim: str) -> Incoming:
        """One for `victim`, of any kind."""
        random = self._random
        choice = random.random()
        source = PEERS[0] if victim == PEERS[1] else PEERS[1]
        if choice < 0.1 or not self._seen:
            data = random.randbytes(random.randrange(200))
            if data and choice < 0.08:
                data = bytes([random.choice(TYPES) << 3 | data[0] & 7]) + data[1:]
        else:
            source, to, data = self._seen[random.randrange(len(self._seen))]
            if to != victim and random.random() < 0.8:
                source, to, data = self._seen[random.randrange(len(self._seen))]
            if choice < 0.55:
                data = self._with_other_fields(data)
            elif choice < 0.8:
                data = self._damaged(data)
        if random.random() < 0.1:
            source = random.choice(PEERS)
        return self._incoming(source, data)

    def _incoming(self, source: str, data: bytes) -> Incoming:
        random = self._random
        length = 0
        kept: bytes | memoryview = data
        choice = random.random()
        if choice < 0.06:
            length = len(data)
            kept = data[: random.choice((12, 16, 24, 64, random.randrange(len(data) + 1)))]
        elif choice < 0.08:
            length = random.choice((1, len(data), len(data) + 1, 0xFFFF))
        if random.random() < 0.5:
            kept = memoryview(kept)
        entropy = random.choice((1, 49152, 49153, 0xFFFF))
        return Incoming(source, entropy, kept, random.random() < 0.2, length, random.random() < 0.1)

    def _with_other_fields(self, data: bytes) -> bytes:
        """Fields of the headers set to extremes, to neighbours of their values, or to those of another datagram."""
        if len(data) < 4:
            return data
        random = self._random
        changed = bytearray(data)
        kind = data[0] >> 3
        head = _HEADER_BYTES.get(PdsType(kind) if kind in TYPES else PdsType.RESERVED, 12)
        ses = (changed[0] << 8 | changed[1]) >> 7 & 15
        places = list(_FIELDS.get(kind, _REQUEST_FIELDS))
        places += [(head + at, size) for at, size in _SES_FIELDS.get(ses, ())]
        if random.random() < 0.3:
            places.append((0, 1))
            places.append((1, 1))
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            at, size = random.choice(places) if places else (0, 1)
            if at + size > len(changed):
                continue
            value = int.from_bytes(changed[at : at + size], "big")
            top = (1 << 8 * size) - 1
            choice = random.randrange(9)
            if choice == 0:
                value = random.choice((0, 1, top, top - 1, top >> 1, (top >> 1) + 1))
            elif choice <= 3:
                value += random.choice((-1, 1, -2, 2, 63, 64, 65, -64))
            elif choice == 4:
                value += random.randrange(-2000, 2000)
            elif choice == 5:
                value ^= 1 << random.randrange(8 * size)
            elif choice == 6:
                value = random.getrandbits(8 * size)
            else:
                other = self._seen[random.randrange(len(self._seen))][2]
                value = int.from_bytes(other[at : at + size].ljust(size, b"\0"), "big")
            changed[at : at + size] = (value & top).to_bytes(size, "big")
        return bytes(changed)

    def _damaged(self, data: bytes) -> bytes:
        """Bits flipped, bytes replaced, cut short, prolonged, or joined with another one."""
        random = self._random
        changed = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 4))):
            if not changed:
                break
            choice = random.randrange(6)
            at = random.randrange(min(len(changed), 96))
            if choice <= 1:
                changed[at] ^= 1 << random.randrange(8)
            elif choice == 2:
                changed[at] = random.choice((0, 0xFF, random.randrange(256)))
            elif choice == 3:
                del changed[at:]
            elif choice == 4:
                changed += random.randbytes(random.randrange(1, 40))
            else:
                changed[at:] = random.choice(self._seen)[2][at:]
        return bytes(changed)
