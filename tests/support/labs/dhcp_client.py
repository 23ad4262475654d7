"""A DHCP client that asks for a lease and uses it for nothing (RFC 2131), as firmware does when it boots by PXE."""

from __future__ import annotations

import secrets
import socket
import struct
from ipaddress import IPv4Address

_BOOTP = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
_COOKIE = b"\x63\x82\x53\x63"
_BROADCAST = 0x8000
MESSAGE_TYPE, REQUESTED, SERVER, NTP, HOST_NAME, END = 53, 50, 54, 42, 12, 255
DISCOVER, OFFER, REQUEST, ACKNOWLEDGE = 1, 2, 3, 5


def lease(interface: str, mac: str, *, timeout_s: float = 5.0) -> dict[int, bytes]:
    """The options of the lease that a MAC is given on an interface of the calling thread's namespace; 0: its address.

    Raises `TimeoutError` where nobody answers.
    """
    number = secrets.randbits(32)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        asking.settimeout(timeout_s)
        asking.bind(("0.0.0.0", 68))
        offer = _exchange(asking, number, mac, {MESSAGE_TYPE: bytes([DISCOVER])}, OFFER)
        wanted = {
            MESSAGE_TYPE: bytes([REQUEST]),
            REQUESTED: offer[0],
            SERVER: offer[SERVER],
            55: bytes([NTP, HOST_NAME]),
        }
        return _exchange(asking, number, mac, wanted, ACKNOWLEDGE)


def _exchange(asking: socket.socket, number: int, mac: str, options: dict[int, bytes], kind: int) -> dict[int, bytes]:
    nobody = IPv4Address(0).packed
    hardware = bytes.fromhex(mac.replace(":", "")).ljust(16, b"\0")
    head = _BOOTP.pack(1, 1, 6, 0, number, 0, _BROADCAST, nobody, nobody, nobody, nobody, hardware, b"", b"", _COOKIE)
    body = b"".join(bytes([code, len(value)]) + value for code, value in options.items())
    asking.sendto(head + body + bytes([END]), ("255.255.255.255", 67))
    while True:
        answer = asking.recv(2000)
        fields = _BOOTP.unpack_from(answer)
        found = _options(answer[_BOOTP.size :])
        if fields[4] == number and found.get(MESSAGE_TYPE) == bytes([kind]):
            return {0: fields[8], **found}


def _options(data: bytes) -> dict[int, bytes]:
    found = {}
    while data and data[0] != END:
        if data[0] == 0:
            data = data[1:]
            continue
        found[data[0]], data = data[2 : 2 + data[1]], data[2 + data[1] :]
    return found
