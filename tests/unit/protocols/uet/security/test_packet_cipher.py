"""The ciphers of packets: that of `cryptography` composes what table 3-90 says, and the one in C does the same."""

import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.uet.packets.codes import UDP_PORT
from testbed.protocols.uet.packets.covered_header import MAX_UDP_PAYLOAD_BYTES, covered_udp_header
from testbed.protocols.uet.security import packet_cipher
from testbed.protocols.uet.security.packet_cipher import ICV_BYTES, PacketCipher, has_native_cipher, make_cipher

Maker = Callable[[bytes, bytes, bytes, bytes], PacketCipher]
NEEDS_NATIVE = pytest.mark.skipif(not has_native_cipher(), reason="the cipher in C is there in a build alone")
LAST = (1 << 48) - 1


def python_cipher(key: bytes, iv: bytes, addresses: bytes, header: bytes) -> PacketCipher:
    return packet_cipher._PythonCipher(key, iv, addresses, header)


both = pytest.mark.parametrize("make", [python_cipher, pytest.param(make_cipher, marks=NEEDS_NATIVE)])


@both
@pytest.mark.parametrize(("addresses", "header"), [(8, 12), (8, 16), (32, 12), (32, 16)])
def test_packets_are_sealed_as_the_library_does_it_and_open(make: Maker, addresses: int, header: int) -> None:
    random = Random(1)
    key, iv, covered, tss = (random.randbytes(size) for size in (32, 12, addresses, header - 6))
    cipher = make(key, iv, covered, tss + bytes(6))
    longest = MAX_UDP_PAYLOAD_BYTES - header - ICV_BYTES
    sizes = ((0, 0), (44, 0), (0, 44), (1, 1), (44, 4068), (15, 17), (12, longest - 12))
    for first in (0, 1 << 40, LAST - len(sizes) + 1):
        datagrams = [
            Outgoing("b", random.randrange(1 << 16), Priority.RETRANSMISSION, random.randbytes(front), payload)
            for front, rest in sizes
            for payload in (memoryview(random.randbytes(rest)),)
        ]
        out: list[Outgoing] = []
        assert cipher.seal(datagrams, 0, len(datagrams), first, out) == len(out) == len(datagrams)
        for counter, (before, after) in enumerate(zip(datagrams, out, strict=True), first):
            assert type(after) is Outgoing and after[:3] == before[:3] and after.payload == b""
            sealed, port, plain = after.header, before.entropy, before.to_bytes()
            head = tss + counter.to_bytes(6, "big")
            masked = (int.from_bytes(iv, "big") ^ counter).to_bytes(12, "big")
            authenticated = covered + covered_udp_header(port, len(sealed)) + head
            assert sealed == head + AESGCM(key).encrypt(masked, plain, authenticated)
            assert cipher.counter_of(sealed) == cipher.counter_of(memoryview(sealed)) == counter
            assert cipher.open(port, memoryview(sealed)) == plain
            assert cipher.open(port ^ 1, sealed) is None
            for at in {0, header - 1, header, len(sealed) - 1}:
                forged = bytearray(sealed)
                forged[at] ^= 0x80
                assert cipher.open(port, bytes(forged)) is None
            assert cipher.open(port, sealed) == plain, "a forged packet before it changes nothing"


@both
def test_a_run_ends_with_its_address_and_before_what_no_udp_header_holds(make: Maker) -> None:
    cipher = make(bytes(range(32)), bytes(12), bytes(8), bytes(12))
    long = bytes(MAX_UDP_PAYLOAD_BYTES - 12 - ICV_BYTES + 1)
    for end in (("c", 1, b""), ("b", -1, b""), ("b", 1 << 16, b""), ("b", 1 << 70, b""), ("b", 1, long)):
        remotes = ["".join("b") for _ in range(3)]
        datagrams = [Outgoing(remote, 1, Priority.DATA, b"x", b"y") for remote in remotes]
        datagrams.append(Outgoing(end[0], end[1], Priority.DATA, end[2], b""))
        out: list[Outgoing] = []
        assert cipher.seal(datagrams, 1, 3, 7, out) == len(out) == 2
        assert [cipher.counter_of(item.header) for item in out] == [7, 8]
        assert cipher.seal(datagrams, 0, 1, 9, out) == 1, "no more than it may"
        assert cipher.seal(datagrams, 3, 1, 0, out) == (end[0] == "c")


@both
def test_the_counter_is_that_of_its_own_packets_alone(make: Maker) -> None:
    header = bytes(range(1, 11)) + bytes(6)
    cipher = make(bytes(range(32)), bytes(12), bytes(8), header)
    for at in range(10):
        other = bytearray(header)
        other[at] ^= 1
        assert cipher.counter_of(bytes(other)) == -1
    assert cipher.counter_of(header[:-1]) == -1
    assert cipher.counter_of(header + b"more") == 0


@NEEDS_NATIVE
def test_the_cipher_in_c_takes_nothing_that_no_packet_has() -> None:
    from testbed.protocols.uet.security import aes_gcm

    key, iv, addresses, header = bytes(32), bytes(12), bytes(8), bytes(12)
    for wrong in (
        (key[1:], iv, addresses, header),
        (key, iv[1:], addresses, header),
        (key, iv, bytes(33), header),
        (key, iv, addresses, bytes(17)),
        (key, iv, addresses, bytes(5)),
    ):
        with pytest.raises(ValueError, match="no key"):
            aes_gcm.Cipher(*wrong[:3], UDP_PORT, wrong[3])
    cipher = aes_gcm.Cipher(key, iv, addresses, UDP_PORT, header)
    for port, length in ((1, 12 + ICV_BYTES - 1), (1, MAX_UDP_PAYLOAD_BYTES + 1), (-1, 60), (1 << 16, 60)):
        with pytest.raises(ValueError, match="no UDP header holds that, or it is no sealed packet"):
            cipher.open(port, bytes(length))
    two = [Outgoing("b", 1, Priority.DATA, b"", b"")] * 2
    with pytest.raises(ValueError, match="no such counters"):
        cipher.seal(two, 0, 2, LAST, [])
    with pytest.raises(TypeError, match="no datagram"):
        cipher.seal([("b", 1)], 0, 1, 0, [])  # type: ignore[list-item]
    assert key.hex() not in repr(cipher)


@pytest.mark.process
def test_cipher_library_is_loaded_only_when_a_packet_is_sealed() -> None:
    script = (
        "import sys\n"
        "from testbed.protocols.uet.security.key_derivation import load_key\n"
        "from testbed.protocols.uet.security.tss import SecureDomain\n"
        "from testbed.protocols.uet.security.tss_header import Tsc\n"
        "d = SecureDomain(1, load_key('0123456789abcdef' * 4), first_tsc=Tsc(counter=0))\n"
        "ciphers = {'cryptography', 'testbed.protocols.uet.security.aes_gcm'}\n"
        "before = not ciphers.isdisjoint(sys.modules)\n"
        "d.seal('10.0.0.1', '10.0.0.2', 1, b'')\n"
        "print(before, not ciphers.isdisjoint(sys.modules))\n"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).split() == ["False", "True"]
