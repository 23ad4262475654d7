"""Captures as tests make them: frames around UDP payloads, and pcap and pcapng files around frames."""

import struct
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

ETHERNET, RAW, COOKED, COOKED_2 = 1, 101, 113, 276
UET_PORT = 4793


def udp(payload: bytes, *, source_port: int = 50_000, port: int = UET_PORT, length: int | None = None) -> bytes:
    """`length` is that of the payload as UDP announces it."""
    announced = 8 + (len(payload) if length is None else length)
    return struct.pack("!HHHH", source_port, port, announced, 0) + payload


def ipv4(
    body: bytes, *, tos: int = 0, options: bytes = b"", fragment: int = 0, protocol: int = 17, length: int | None = None
) -> bytes:
    """From 10.0.0.1 to 10.0.0.2."""
    header = 20 + len(options)
    total = header + len(body) if length is None else length
    addresses = ip_address("10.0.0.1").packed + ip_address("10.0.0.2").packed
    first = 0x40 | header // 4
    return struct.pack("!BBHHHBBH", first, tos, total, 7, fragment, 64, protocol, 0) + addresses + options + body


def ipv6(
    body: bytes,
    *,
    traffic_class: int = 0,
    extensions: Sequence[tuple[int, bytes]] = (),
    length: int | None = None,
    protocol: int = 17,
) -> bytes:
    """From fd00::1 to fd00::2. Extensions are (number, header after its next-header byte)."""
    numbers = [number for number, _ in extensions] + [protocol]
    chain = b"".join(bytes([following]) + rest for (_, rest), following in zip(extensions, numbers[1:], strict=True))
    addresses = ip_address("fd00::1").packed + ip_address("fd00::2").packed
    total = len(chain) + len(body) if length is None else length
    return struct.pack("!IHBB", 6 << 28 | traffic_class << 20, total, numbers[0], 64) + addresses + chain + body


def ethernet(packet: bytes, *, tags: Sequence[int] = (), pad: bool = False) -> bytes:
    """`tags` are the TPIDs of VLAN tags, outermost first; `pad` fills up to 60 bytes, as a NIC does."""
    kind = 0x86DD if packet[0] >> 4 == 6 else 0x0800
    tagged = b"".join(struct.pack("!HH", tpid, 42) for tpid in tags)
    frame = b"\x02" * 5 + b"\x02" + b"\x02" * 5 + b"\x01" + tagged + struct.pack("!H", kind) + packet
    return frame.ljust(60, b"\0") if pad else frame


def vxlan(frame: bytes, vni: int = 5010, *, flags: int = 0x08, port: int = 4789) -> bytes:
    """A datagram around an Ethernet frame (RFC 7348)."""
    return udp(struct.pack("!II", flags << 24, vni << 8) + frame, source_port=61_000, port=port)


def geneve(body: bytes, protocol: int = 0x6558, *, options: bytes = b"") -> bytes:
    """A datagram around an Ethernet frame or an IP packet (RFC 8926), with VNI 77."""
    return udp(struct.pack("!BBHI", len(options) // 4, 0, protocol, 77 << 8) + options + body, port=6081)


def gre(
    body: bytes, protocol: int, *, key: int | None = None, sequence: int | None = None, sums: bool = False
) -> bytes:
    """A GRE header and what is behind it (RFC 2784, 2890); below it is IP protocol 47."""
    flags = 0x8000 * sums | 0x2000 * (key is not None) | 0x1000 * (sequence is not None)
    words = [word for word in (0 if sums else None, key, sequence) if word is not None]
    return struct.pack(f"!HH{len(words)}I", flags, protocol, *words) + body


def erspan_2(frame: bytes, *, session: int = 9, truncated: bool = False) -> bytes:
    """A mirror's copy of a frame that came in VLAN 100 with priority 3; below it is IP protocol 47."""
    header = struct.pack("!HHI", 1 << 12 | 100, 3 << 13 | 0x400 * truncated | session, 5)
    return gre(header + frame, 0x88BE, sequence=1)


def erspan_3(body: bytes, *, kind: int = 0, subheader: bytes = b"") -> bytes:
    """Return such a frame of type III, with session 8; `kind` is the frame type."""
    last = 0x8000 | kind << 10 | bool(subheader)
    header = struct.pack("!HHIHH", 2 << 12 | 100, 8, 1_000, 0, last)
    return gre(header + subheader + body, 0x22EB, sequence=1)


def cooked(packet: bytes) -> bytes:
    """Linux cooked capture, version 1."""
    return struct.pack("!HHH8sH", 0, 1, 6, b"\x02" * 6, 0x0800) + packet


def cooked_2(packet: bytes) -> bytes:
    """Linux cooked capture, version 2."""
    return struct.pack("!HHIHBB8s", 0x0800, 0, 3, 1, 0, 6, b"\x02" * 6) + packet


def pcap(
    frames: Iterable[bytes], *, link_type: int = ETHERNET, order: str = "<", ns: bool = True, snaplen: int = 262_144
) -> bytes:
    """Frame i at second 1000 + i and fraction i."""
    parts = [struct.pack(f"{order}IHHiIII", 0xA1B23C4D if ns else 0xA1B2C3D4, 2, 4, 0, 0, snaplen, link_type)]
    for number, frame in enumerate(frames):
        held = frame[:snaplen]
        parts.append(struct.pack(f"{order}IIII", 1000 + number, number, len(held), len(frame)) + held)
    return b"".join(parts)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A pcapng block."""
    body += b"\0" * (-len(body) % 4)
    length = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + length + body + length


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def section(order: str = "<", options: bytes = b"") -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1) + options, order)


def interface(link_type: int = ETHERNET, order: str = "<", options: bytes = b"", snaplen: int = 0) -> bytes:
    return block(1, struct.pack(f"{order}HHI", link_type, 0, snaplen) + options, order)


def enhanced(
    frame: bytes, ticks: int = 0, order: str = "<", index: int = 0, *, length: int | None = None, options: bytes = b""
) -> bytes:
    head = struct.pack(
        f"{order}IIIII", index, ticks >> 32, ticks & 0xFFFF_FFFF, len(frame), len(frame) if length is None else length
    )
    return block(6, head + frame + b"\0" * (-len(frame) % 4) + options, order)
