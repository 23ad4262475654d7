"""TSS against published vectors and an independent composition of AES-GCM, and what a domain refuses."""

import pickle
import struct
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.uet.security.key_derivation import DomainKey, derive_cluster_key, load_key
from testbed.protocols.uet.security.tss import SecureDomain, SecurityError, SecurityMode, SecurityReason, first_counter
from testbed.protocols.uet.security.tss_header import MAX_COUNTER, Tsc, TssHeader, is_protected

KEY_TEXT = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"
KEY = load_key(KEY_TEXT)
OTHER_KEY = load_key("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
A, B = "10.0.0.1", "10.0.0.2"
A6, B6 = "2001:db8::1", "2001:db8::2"
PORT = 50000
PLAIN = b"a PDS header and what follows"

MCGREW_16_PLAIN = bytes.fromhex(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
    "b16aedf5aa0de657ba637b39"
)
MCGREW_16_CIPHERTEXT = bytes.fromhex(
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
    "c5f61e6393ba7a0abcc9f662"
)
"""Test case 16 of McGrew and Viega, The Galois/Counter Mode of Operation: IV cafebabe facedbaddecaf888."""


def domain(key: DomainKey = KEY, *, sdi: int = 1, first: int = 0, epoch: int = 0, **settings: Any) -> SecureDomain:
    return SecureDomain(sdi, key, first_tsc=Tsc(epoch=epoch, counter=first), **settings)


def refusal(receiver: SecureDomain, data: bytes, source: str = A, destination: str = B) -> SecurityReason:
    """The reason for which `receiver` does not open `data`; it is counted once."""
    before = dict(receiver.counters)
    with pytest.raises(SecurityError) as raised:
        receiver.open(source, destination, PORT, data)
    reason = raised.value.reason
    assert receiver.counters == before | {reason: before[reason] + 1}
    return reason


def aes_block(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(AES(key), ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def gf128_multiply(x: int, y: int) -> int:
    """NIST SP 800-38D, algorithm 1."""
    product = 0
    for bit in range(127, -1, -1):
        if x >> bit & 1:
            product ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return product


def gcm(key: bytes, iv: bytes, plain: bytes, covered: bytes) -> bytes:
    """Ciphertext and tag of AES-GCM composed from AES blocks, by NIST SP 800-38D sections 6.4 and 7.1."""
    text = bytearray()
    for start in range(0, len(plain), 16):
        stream = aes_block(key, iv + (start // 16 + 2).to_bytes(4, "big"))
        text += bytes(a ^ b for a, b in zip(plain[start : start + 16], stream, strict=False))
    hash_key = int.from_bytes(aes_block(key, bytes(16)), "big")
    padded = covered + bytes(-len(covered) % 16) + bytes(text) + bytes(-len(text) % 16)
    digest = 0
    for block in (*(padded[i : i + 16] for i in range(0, len(padded), 16)), lengths(covered, text)):
        digest = gf128_multiply(digest ^ int.from_bytes(block, "big"), hash_key)
    tag = digest ^ int.from_bytes(aes_block(key, iv + b"\0\0\0\1"), "big")
    return bytes(text) + tag.to_bytes(16, "big")


def lengths(covered: bytes, text: bytes | bytearray) -> bytes:
    return struct.pack(">QQ", 8 * len(covered), 8 * len(text))


def expected_datagram(key: bytes, mask: int, header: bytes, prefix: bytes, source: str, destination: str) -> bytes:
    length = len(header) + len(PLAIN) + 16
    covered = (
        ip_address(source).packed
        + ip_address(destination).packed
        + struct.pack(">HHHH", PORT, 4793, 8 + length, 0)
        + header
    )
    iv = int.from_bytes(prefix + header[-8:], "big") ^ mask
    return header + gcm(key, iv.to_bytes(12, "big"), PLAIN, covered)


def test_the_composition_of_this_test_agrees_with_a_published_vector() -> None:
    covered = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    sealed = gcm(KEY.reveal(), bytes.fromhex("cafebabefacedbaddecaf888"), MCGREW_16_PLAIN, covered)
    assert sealed == MCGREW_16_CIPHERTEXT + bytes.fromhex("76fc6ece0f4e1768cddf8853bb2d551b")


def test_ciphertext_is_that_of_the_published_vector_when_ssi_epoch_and_counter_spell_its_iv() -> None:
    sender = domain(ssi=0xCAFEBABE, epoch=0xFACE, first=0xDBADDECAF888)
    sealed = sender.seal(A, B, PORT, MCGREW_16_PLAIN)
    assert sealed[16:-16] == MCGREW_16_CIPHERTEXT


def test_direct_datagram_over_ipv4_is_composed_of_address_tsc_and_domain_key() -> None:
    sender = domain(sdi=0x123456, an=1, epoch=0x0102, first=0x030405060708)
    header = bytes.fromhex("09123456") + bytes.fromhex("0102030405060708")
    assert sender.seal(A, B, PORT, PLAIN) == expected_datagram(KEY.reveal(), 0, header, ip_address(A).packed, A, B)


def test_direct_datagram_over_ipv6_is_composed_of_ssi_tsc_and_domain_key() -> None:
    sender = domain(ssi=0xA1B2C3D4)
    header = bytes.fromhex("0c000001a1b2c3d4") + bytes(8)
    assert sender.seal(A6, B6, PORT, PLAIN) == expected_datagram(KEY.reveal(), 0, header, header[4:8], A6, B6)


def test_cluster_datagram_over_ipv6_without_ssi_has_the_masked_sdi_in_its_iv() -> None:
    sender = domain(mode=SecurityMode.CLUSTER, sdi=0x0A0B0C, epoch=5, first=9)
    derived = derive_cluster_key(KEY, ip_address(A6).packed, None, 5)
    header = bytes.fromhex("080a0b0c") + struct.pack(">Q", 5 << 48 | 9)
    expected = expected_datagram(derived.key.reveal(), derived.iv_mask, header, bytes.fromhex("000a0b0c"), A6, B6)
    assert sender.seal(A6, B6, PORT, PLAIN) == expected


def test_header_bytes_of_both_forms() -> None:
    short = TssHeader(an=1, sdi=0x123456, ssi=None, epoch=0xABCD, counter=0x010203040506)
    long = short._replace(an=0, ssi=0xDEADBEEF)
    assert short.encode() == bytes.fromhex("09123456 abcd010203040506")
    assert long.encode() == bytes.fromhex("0c123456 deadbeef abcd010203040506")
    assert (short.size, long.size) == (12, 16)
    assert TssHeader.decode(short.encode()) == short
    assert TssHeader.decode(memoryview(long.encode() + b"more")) == long


def test_header_decoder_ignores_the_reserved_bit() -> None:
    assert TssHeader.decode(bytes.fromhex("0a123456") + bytes(8)) == TssHeader(0, 0x123456, None, 0, 0)


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (bytes.fromhex("10000001") + bytes(8), 0),
        (bytes.fromhex("08000001") + bytes(7), 11),
        (bytes.fromhex("0c000001") + bytes(11), 15),
    ],
)
def test_header_that_is_none_is_a_decode_error_with_its_offset(data: bytes, offset: int) -> None:
    with pytest.raises(DecodeError) as raised:
        TssHeader.decode(data)
    assert raised.value.offset == offset


@pytest.mark.parametrize(
    "header",
    [
        TssHeader(2, 0, None, 0, 0),
        TssHeader(0, 1 << 24, None, 0, 0),
        TssHeader(0, 0, 1 << 32, 0, 0),
        TssHeader(0, 0, None, 1 << 16, 0),
        TssHeader(0, 0, None, 0, 1 << 48),
        TssHeader(0, 0, None, 0, -1),
    ],
)
def test_header_with_a_value_too_large_is_not_encoded(header: TssHeader) -> None:
    with pytest.raises(UsageError):
        header.encode()


@pytest.mark.parametrize("mode", list(SecurityMode))
@pytest.mark.parametrize(("source", "destination", "ssi"), [(A, B, None), (A, B, 7), (A6, B6, 7)])
def test_what_is_sealed_opens_at_the_receiver(
    mode: SecurityMode, source: str, destination: str, ssi: int | None
) -> None:
    sender = domain(mode=mode, ssi=ssi)
    receiver = domain(mode=mode, ssi=None if ssi is None else 8)
    for plain in (PLAIN, b"", bytes(4096)):
        sealed = sender.seal(source, destination, PORT, plain)
        assert len(sealed) == len(plain) + sender.overhead_bytes
        assert is_protected(sealed)
        assert receiver.open(source, destination, PORT, memoryview(sealed)) == plain
    assert (sender.sealed, receiver.opened) == (3, 3)
    assert sum(receiver.counters.values()) == 0


def sealed_by(**settings: Any) -> bytes:
    return domain(**settings).seal(A, B, PORT, PLAIN)


@pytest.mark.parametrize(
    ("receiver", "data", "reason"),
    [
        ({}, sealed_by(mode=SecurityMode.CLUSTER), SecurityReason.BAD_ICV),
        ({}, bytes.fromhex("1000") + bytes(60), SecurityReason.NOT_PROTECTED),
        ({}, b"", SecurityReason.NOT_PROTECTED),
        ({"sdi": 2}, sealed_by(sdi=1), SecurityReason.UNKNOWN_SDI),
        ({"an": 0}, sealed_by(an=1), SecurityReason.WRONG_AN),
        ({"ssi": 1}, sealed_by(), SecurityReason.SSI_MISSING),  # all members of a domain have an SSI, or none has
        ({}, sealed_by(ssi=1), SecurityReason.SSI_UNEXPECTED),
    ],
)
def test_what_is_no_packet_of_this_domain_is_refused(
    receiver: dict[str, Any], data: bytes, reason: SecurityReason
) -> None:
    assert refusal(domain(**receiver), data) is reason


def test_ipv6_without_ssi_is_refused_in_direct_mode_on_both_sides() -> None:
    sender = domain()
    with pytest.raises(SecurityError) as raised:
        sender.seal(A6, B6, PORT, PLAIN)
    assert raised.value.reason is SecurityReason.SSI_MISSING
    forged = TssHeader(0, 1, None, 0, 0).encode() + bytes(40)
    assert refusal(domain(), forged, A6, B6) is SecurityReason.SSI_MISSING


def test_replayed_packet_is_refused_and_its_forgery_does_not_use_the_counter_up() -> None:
    sender, receiver = domain(), domain()
    sealed = sender.seal(A, B, PORT, PLAIN)
    forged = sealed[:-1] + bytes([sealed[-1] ^ 1])
    assert refusal(receiver, forged) is SecurityReason.BAD_ICV
    assert receiver.open(A, B, PORT, sealed) == PLAIN
    assert refusal(receiver, sealed) is SecurityReason.REPLAY


def test_reserved_bit_opens_no_window_of_its_own() -> None:
    prefix = ip_address(A).packed
    plain_bit, reserved_bit = (
        expected_datagram(KEY.reveal(), 0, bytes.fromhex(start) + bytes(8), prefix, A, B)
        for start in ("08000001", "0a000001")
    )
    receiver = domain()
    assert receiver.open(A, B, PORT, reserved_bit) == PLAIN
    assert refusal(receiver, plain_bit) is SecurityReason.REPLAY


def test_packet_behind_the_window_is_told_from_a_replay() -> None:
    receiver = domain()
    newest, oldest, behind = (domain(first=first).seal(A, B, PORT, PLAIN) for first in (5000, 905, 904))
    receiver.open(A, B, PORT, newest)
    assert refusal(receiver, behind) is SecurityReason.BEHIND_WINDOW
    assert receiver.open(A, B, PORT, oldest) == PLAIN
    assert refusal(receiver, oldest) is SecurityReason.REPLAY


def test_forged_packet_with_a_huge_counter_does_not_move_the_window() -> None:
    sender, receiver = domain(), domain()
    receiver.open(A, B, PORT, sender.seal(A, B, PORT, PLAIN))
    forged = TssHeader(0, 1, None, 0, MAX_COUNTER).encode() + bytes(40)
    assert refusal(receiver, forged) is SecurityReason.BAD_ICV
    assert receiver.open(A, B, PORT, sender.seal(A, B, PORT, PLAIN)) == PLAIN


def test_sources_have_windows_of_their_own() -> None:
    receiver = domain()
    receiver.open(A, B, PORT, domain(first=100_000).seal(A, B, PORT, PLAIN))
    assert receiver.open("10.0.0.3", B, PORT, domain().seal("10.0.0.3", B, PORT, PLAIN)) == PLAIN


def test_another_spelling_of_the_source_address_has_no_other_window() -> None:
    sender, receiver = domain(ssi=1), domain(ssi=2)
    sealed = sender.seal(A6, B6, PORT, PLAIN)
    receiver.open(A6, B6, PORT, sealed)
    assert refusal(receiver, sealed, "2001:0db8:0::0001", B6) is SecurityReason.REPLAY


@pytest.mark.parametrize(
    ("mode", "source", "destination"),
    [(SecurityMode.DIRECT, A, B), (SecurityMode.DIRECT, A6, B6), (SecurityMode.CLUSTER, A, B)],
)
def test_two_members_with_one_ssi_stop_when_one_hears_the_other(
    mode: SecurityMode, source: str, destination: str
) -> None:
    one, two = domain(mode=mode, ssi=7), domain(mode=mode, ssi=7)
    two.seal(destination, source, PORT, PLAIN)
    packet = one.seal(source, destination, PORT, PLAIN)
    assert refusal(two, packet, source, destination) is SecurityReason.IV_SHARED
    assert two.shared and two.sealed == 1
    for remote in (source, destination.replace("2", "3")):  # one that was sent to before, and another one
        with pytest.raises(SecurityError) as raised:
            two.seal(destination, remote, PORT, PLAIN)
        assert raised.value.reason is SecurityReason.IV_SHARED
    assert two.counters[SecurityReason.IV_SHARED] == 3 and two.sealed == 1
    assert refusal(two, one.seal(source, destination, PORT, PLAIN), source, destination) is SecurityReason.IV_SHARED


def test_in_cluster_mode_over_ipv6_keys_are_those_of_addresses_whatever_the_ssi() -> None:
    one, two = domain(mode=SecurityMode.CLUSTER, ssi=7), domain(mode=SecurityMode.CLUSTER, ssi=7)
    assert two.open(A6, B6, PORT, one.seal(A6, B6, PORT, PLAIN)) == PLAIN
    assert not two.shared


@pytest.mark.parametrize("ssi", [None, 7])
def test_what_we_send_to_ourselves_from_another_address_is_ours(ssi: int | None) -> None:
    ours = domain(ssi=ssi, first=100)
    packet = ours.seal(A, B, PORT, PLAIN)
    assert ours.open(A, B, PORT, packet) == PLAIN and not ours.shared


@pytest.mark.parametrize("ssi", [None, 7])
def test_a_packet_from_our_address_that_we_have_not_sent_is_not_ours(ssi: int | None) -> None:
    ours, theirs = domain(ssi=ssi, first=100), domain(ssi=ssi, first=500)
    ours.seal(A, B, PORT, PLAIN)
    assert refusal(ours, theirs.seal(A, B, PORT, PLAIN)) is SecurityReason.IV_SHARED
    assert ours.shared


def test_packets_of_our_own_earlier_life_stop_nothing_when_they_are_replayed() -> None:
    before, now = domain(ssi=7), domain(ssi=7, first=1000)
    assert refusal(now, before.seal("10.0.0.9", B, PORT, PLAIN), "10.0.0.9") is SecurityReason.IV_SHARED
    assert not now.shared and now.seal(B, A, PORT, PLAIN)


def test_who_has_no_key_stops_nobody() -> None:
    ours = domain(ssi=7)
    assert refusal(ours, domain(OTHER_KEY, ssi=7).seal(A, B, PORT, PLAIN)) is SecurityReason.BAD_ICV
    assert not ours.shared and ours.seal(B, A, PORT, PLAIN)


def test_counter_increases_over_destinations() -> None:
    sender = domain(first=41)
    headers = [TssHeader.decode(sender.seal(A, peer, PORT, b"")) for peer in (B, "10.0.0.9", B)]
    assert [header.counter for header in headers] == [41, 42, 43]


def test_exhausted_counter_refuses() -> None:
    sender, receiver = domain(first=MAX_COUNTER), domain()
    receiver.open(A, B, PORT, sender.seal(A, B, PORT, PLAIN))
    for _ in range(2):
        with pytest.raises(SecurityError) as raised:
            sender.seal(A, B, PORT, PLAIN)
        assert raised.value.reason is SecurityReason.COUNTER_EXHAUSTED
    assert sender.counters[SecurityReason.COUNTER_EXHAUSTED] == 2


@pytest.mark.parametrize("mode", list(SecurityMode))
def test_epochs_behind_by_more_than_their_lifetime_are_stale_and_later_ones_pass(mode: SecurityMode) -> None:
    receiver = domain(mode=mode, epoch=20)
    for epoch in (4, 20, 22, 0xFFFF):
        assert receiver.open(A, B, PORT, domain(mode=mode, epoch=epoch).seal(A, B, PORT, PLAIN)) == PLAIN
    assert refusal(receiver, domain(mode=mode, epoch=3).seal(A, B, PORT, PLAIN)) is SecurityReason.STALE_EPOCH


@pytest.mark.parametrize("mode", list(SecurityMode))
def test_hint_shows_the_start_of_a_trimmed_packet_and_records_nothing(mode: SecurityMode) -> None:
    sender, receiver = domain(mode=mode), domain(mode=mode)
    first = sender.seal(A, B, PORT, PLAIN)
    second = sender.seal(A, B, PORT, PLAIN)
    assert receiver.hint(A, B, first[: 12 + 16]) == PLAIN[:16]
    assert receiver.open(A, B, PORT, first) == PLAIN
    assert receiver.hint(A, B, memoryview(second)[: 12 + 24]) == PLAIN[:24]
    assert receiver.open(A, B, PORT, second) == PLAIN


def test_hint_of_a_packet_that_arrived_already_is_a_replay() -> None:
    sender, receiver = domain(), domain()
    sealed = sender.seal(A, B, PORT, PLAIN)
    receiver.open(A, B, PORT, sealed)
    with pytest.raises(SecurityError) as raised:
        receiver.hint(A, B, sealed[:28])
    assert raised.value.reason is SecurityReason.REPLAY


def test_first_counter_advances_by_about_a_million_per_second() -> None:
    now = 1_800_000_000_000_000_000
    assert 970_000 < first_counter(now + 1_000_000_000) - first_counter(now) < 1_000_000
    for outside in (0, 1 << 61):
        with pytest.raises(UsageError):
            first_counter(outside)


def test_secrets_show_in_no_text_and_no_pickle() -> None:
    sender = domain(mode=SecurityMode.CLUSTER)
    sender.seal(A, B, PORT, PLAIN)
    derived = derive_cluster_key(KEY, ip_address(A).packed, None, 0)
    secrets = [KEY.reveal(), derived.key.reveal(), derived.iv_mask.to_bytes(12, "big")]
    for thing in (KEY, sender, derived, [KEY], {"key": derived}):
        for text in (repr(thing), str(thing), f"{thing}"):
            for secret in secrets:
                assert secret.hex() not in text
                assert repr(secret) not in text
                assert str(int.from_bytes(secret, "big")) not in text
    for secret_holder in (KEY, derived):
        with pytest.raises(TypeError):
            pickle.dumps(secret_holder)


@pytest.mark.parametrize(
    ("source", "destination", "port", "size"),
    [("nowhere", B, PORT, 1), (A, B6, PORT, 1), (A, B, 1 << 16, 1), (A, B, -1, 1), (A, B, PORT, 65_500)],
)
def test_addresses_ports_and_lengths_that_are_none_are_usage_errors(
    source: str, destination: str, port: int, size: int
) -> None:
    with pytest.raises(UsageError):
        domain().seal(source, destination, port, bytes(size))


@pytest.mark.parametrize(("key", "value"), [("sdi", 1 << 24), ("an", 2), ("ssi", -1), ("epoch", -1), ("first", -1)])
def test_domain_parameters_out_of_range_are_usage_errors(key: str, value: int) -> None:
    with pytest.raises(UsageError):
        domain(**{key: value})  # type: ignore[arg-type]
