"""Asking services whether they answer, from inside a network namespace: by a port, by DNS, by a program of theirs."""

from __future__ import annotations

import json
import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

TIMEOUT_S = 2.0
"""Only one that hangs takes so long: a port without a listener refuses at once."""
_ESTABLISHED, _SYN_SENT = "01", "02"
_DNS_HEADER = struct.Struct("!HHHHHH")
_RECURSION_DESIRED, _TYPE_A, _CLASS_IN = 0x0100, 1, 1


def greeting(address: IPv4Address, port: int, *, prefix: bytes = b"") -> str | None:
    """The first line that a server at a TCP port says by itself; "" where no `prefix` is awaited, None for silence."""
    try:
        with socket.create_connection((str(address), port), TIMEOUT_S) as stream:
            if not prefix:
                return ""
            said = stream.recv(256)
    except OSError:
        return None
    return said.splitlines()[0].decode("ascii", "replace") if said.startswith(prefix) else None


def exchange(address: IPv4Address, port: int, question: bytes) -> bytes | None:
    """Send a datagram and return the answer; None where there is none."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        asking.settimeout(TIMEOUT_S)
        asking.connect((str(address), port))
        asking.send(question)
        return asking.recv(4096)
    return None


def resolve(server: IPv4Address, name: str) -> IPv4Address | None:
    """The first address (A record) that a DNS server has for a name (RFC 1035); None where it has none or is silent."""
    number = secrets.randbits(16)
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = _DNS_HEADER.pack(number, _RECURSION_DESIRED, 1, 0, 0, 0) + labels + b"\0"
    question += struct.pack("!HH", _TYPE_A, _CLASS_IN)
    answer = exchange(server, 53, question)
    if answer is None or len(answer) < len(question) + 16:
        return None
    theirs, flags, _, answers, _, _ = _DNS_HEADER.unpack_from(answer)
    # One name was asked for, so its first record follows the question: a pointer, type, class, TTL, length, address.
    kind, _, _, length = struct.unpack_from("!HHIH", answer, len(question) + 2)
    if theirs != number or not flags & 0x8000 or flags & 0xF or not answers or (kind, length) != (_TYPE_A, 4):
        return None
    return IPv4Address(answer[len(question) + 12 : len(question) + 16])


def get_json(address: IPv4Address, port: int, path: str) -> Any:
    """GET a path of an HTTP server and return the JSON of its answer; None for any other answer."""
    asking = HTTPConnection(str(address), port, timeout=TIMEOUT_S)
    try:
        asking.request("GET", path)
        answer = asking.getresponse()
        return json.loads(answer.read()) if answer.status == HTTPStatus.OK else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        asking.close()


def connections(address: IPv4Address, port: int) -> list[bool]:
    """The TCP connections that the calling thread's network namespace has to a server: whether each is established."""
    peer = f"{int.from_bytes(address.packed, sys.byteorder):08X}:{port:04X}"
    lines = [line.split() for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]]
    return [line[3] == _ESTABLISHED for line in lines if line[2] == peer and line[3] in (_ESTABLISHED, _SYN_SENT)]


def is_bound(kind: str, port: int) -> bool:
    """Tell whether somebody has a UDP or TCP port of the calling thread's network namespace (`kind`: udp or tcp)."""
    lines = Path(f"/proc/thread-self/net/{kind}").read_text().splitlines()[1:]
    return any(int(line.split()[1].partition(":")[2], 16) == port for line in lines)


def output_of(arguments: Sequence[str], *, timeout_s: float = 5.0) -> str | None:
    """Run a program and return what it prints; None where it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            list(arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "replace")
    return None
