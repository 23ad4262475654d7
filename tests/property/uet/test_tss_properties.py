"""Whatever is sealed opens once, where it was sent, and nothing else opens; the CRC finds every flipped bit."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.crc import append_crc, check_crc
from testbed.protocols.uet.security.key_derivation import DomainKey
from testbed.protocols.uet.security.replay import ReplayVerdict, ReplayWindow
from testbed.protocols.uet.security.tss import SecureDomain, SecurityError, SecurityMode, SecurityReason
from testbed.protocols.uet.security.tss_header import Tsc, TssHeader

CHECKED = settings(deadline=None)

keys = st.binary(min_size=32, max_size=32).filter(lambda key: len(set(key)) > 1).map(DomainKey)
pairs = st.one_of(
    st.tuples(st.ip_addresses(v=4).map(str), st.ip_addresses(v=4).map(str)),
    st.tuples(st.ip_addresses(v=6).map(str), st.ip_addresses(v=6).map(str)),
)
ports = st.integers(1, 0xFFFF)
modes = st.sampled_from(SecurityMode)
payloads = st.binary(max_size=200)
headers = st.builds(
    TssHeader,
    an=st.integers(0, 1),
    sdi=st.integers(0, 0xFF_FFFF),
    ssi=st.none() | st.integers(0, 0xFFFF_FFFF),
    epoch=st.integers(0, 0xFFFF),
    counter=st.integers(0, 0xFFFF_FFFF_FFFF),
)
A = "10.0.0.1"
B = "10.0.0.2"


def member(header: TssHeader, key: DomainKey, mode: SecurityMode) -> SecureDomain:
    """An endpoint whose first packet has `header`."""
    return SecureDomain(
        header.sdi,
        key,
        first_tsc=Tsc(epoch=header.epoch, counter=header.counter),
        mode=mode,
        ssi=header.ssi,
        an=header.an,
    )


def other_member(header: TssHeader, key: DomainKey, mode: SecurityMode) -> SecureDomain:
    """One for whom a packet with `header` is somebody else's."""
    ssi = None if header.ssi is None else header.ssi ^ 1
    return member(header._replace(ssi=ssi), key, mode)


def usable(header: TssHeader, mode: SecurityMode, pair: tuple[str, str]) -> TssHeader:
    """IPv6 needs an SSI in direct mode."""
    if mode is SecurityMode.DIRECT and ":" in pair[0] and header.ssi is None:
        return header._replace(ssi=1)
    return header


@CHECKED
@given(headers, st.binary(max_size=40))
def test_header_survives_the_wire(header: TssHeader, rest: bytes) -> None:
    assert TssHeader.decode(header.encode() + rest) == header


@CHECKED
@given(st.binary(max_size=40))
def test_any_bytes_decode_to_a_header_or_a_decode_error(data: bytes) -> None:
    try:
        header = TssHeader.decode(data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data)
    else:
        reserved = data[0] & 2
        assert header.encode() == bytes([data[0] ^ reserved]) + data[1 : header.size]


@CHECKED
@given(headers, keys, modes, pairs, ports, payloads)
def test_round_trip(
    header: TssHeader, key: DomainKey, mode: SecurityMode, pair: tuple[str, str], port: int, plain: bytes
) -> None:
    header = usable(header, mode, pair)
    sealed = member(header, key, mode).seal(*pair, port, plain)
    assert sealed[: header.size] == header.encode()
    receiver = other_member(header, key, mode)
    assert receiver.hint(*pair, sealed[:-16]) == plain
    assert receiver.open(*pair, port, sealed) == plain


@CHECKED
@given(headers, keys, modes, pairs, ports, payloads, st.data())
def test_any_flipped_bit_is_refused(
    header: TssHeader,
    key: DomainKey,
    mode: SecurityMode,
    pair: tuple[str, str],
    port: int,
    plain: bytes,
    data: st.DataObject,
) -> None:
    header = usable(header, mode, pair)
    sealed = member(header, key, mode).seal(*pair, port, plain)
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    forged = bytearray(sealed)
    forged[bit // 8] ^= 0x80 >> bit % 8
    receiver = other_member(header, key, mode)
    with pytest.raises((SecurityError, DecodeError)):
        receiver.open(*pair, port, bytes(forged))
    assert receiver.opened == 0
    assert receiver.open(*pair, port, sealed) == plain


def flipped(address: str, bit: int) -> str:
    """`address` with another bit in it."""
    if ":" in address:
        return str(IPv6Address(int(IPv6Address(address)) ^ 1 << bit % 128))
    return str(IPv4Address(int(IPv4Address(address)) ^ 1 << bit % 32))


@CHECKED
@given(headers, keys, modes, pairs, ports, payloads, st.integers(0, 127))
def test_other_addresses_and_ports_are_refused(
    header: TssHeader, key: DomainKey, mode: SecurityMode, pair: tuple[str, str], port: int, plain: bytes, bit: int
) -> None:
    header = usable(header, mode, pair)
    sealed = member(header, key, mode).seal(*pair, port, plain)
    source, destination = pair
    receiver = other_member(header, key, mode)
    for where in (
        (flipped(source, bit), destination, port),
        (source, flipped(destination, bit), port),
        (source, destination, port ^ 1 << bit % 16),
    ):
        with pytest.raises(SecurityError) as raised:
            receiver.open(*where, sealed)
        assert raised.value.reason is SecurityReason.BAD_ICV
    assert receiver.open(source, destination, port, sealed) == plain


@CHECKED
@given(headers, keys, keys, modes, ports, payloads)
def test_wrong_key_is_refused(
    header: TssHeader, key: DomainKey, other: DomainKey, mode: SecurityMode, port: int, plain: bytes
) -> None:
    sealed = member(header, key, mode).seal(A, B, port, plain)
    receiver = other_member(header, other, mode)
    if key == other:
        assert receiver.open(A, B, port, sealed) == plain
        return
    with pytest.raises(SecurityError) as raised:
        receiver.open(A, B, port, sealed)
    assert raised.value.reason is SecurityReason.BAD_ICV


@CHECKED
@given(headers, keys, modes, ports, payloads, st.data())
def test_packet_cut_anywhere_is_refused(
    header: TssHeader, key: DomainKey, mode: SecurityMode, port: int, plain: bytes, data: st.DataObject
) -> None:
    sealed = member(header, key, mode).seal(A, B, port, plain)
    kept = data.draw(st.integers(0, len(sealed) - 1))
    with pytest.raises((SecurityError, DecodeError)):
        other_member(header, key, mode).open(A, B, port, sealed[:kept])


@CHECKED
@given(keys, modes, st.lists(st.integers(0, 63), min_size=1, max_size=200), st.permutations(range(64)))
def test_reordering_within_the_window_is_accepted_exactly_once(
    key: DomainKey, mode: SecurityMode, replays: list[int], order: list[int]
) -> None:
    header = TssHeader(0, 1, None, 0, 0)
    sender = member(header, key, mode)
    receiver = other_member(header, key, mode)
    sealed = [sender.seal(A, B, 1 + i, bytes([i])) for i in range(64)]
    opened: set[int] = set()
    for i in [*replays, *order, *replays]:
        if i in opened:
            with pytest.raises(SecurityError) as raised:
                receiver.open(A, B, 1 + i, sealed[i])
            assert raised.value.reason is SecurityReason.REPLAY
        else:
            assert receiver.open(A, B, 1 + i, sealed[i]) == bytes([i])
            opened.add(i)
    assert opened == set(range(64))


@CHECKED
@example(64, [0, 129, 128])  # one bit of two blocks: it would show if the second one was not cleared
@given(st.integers(1, 70), st.lists(st.integers(0, 200) | st.integers(0, 0xFFFF_FFFF_FFFF), max_size=100))
def test_window_agrees_with_a_set_of_all_counters(size: int, counters: list[int]) -> None:
    window = ReplayWindow(size)
    accepted: set[int] = set()
    for counter in counters:
        if accepted and counter <= max(accepted) - size:
            expected = ReplayVerdict.TOO_OLD
        elif counter in accepted:
            expected = ReplayVerdict.SEEN
        else:
            expected = ReplayVerdict.FRESH
        assert window.verdict(counter) is expected
        assert window.accept(counter) is expected
        if expected is ReplayVerdict.FRESH:
            accepted.add(counter)


@CHECKED
@given(pairs, ports, payloads, st.data())
def test_crc_survives_the_wire_and_finds_every_flipped_bit(
    pair: tuple[str, str], port: int, payload: bytes, data: st.DataObject
) -> None:
    whole = append_crc(*pair, port, payload)
    assert check_crc(*pair, port, whole) == payload
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    wrong = bytearray(whole)
    wrong[bit // 8] ^= 0x80 >> bit % 8
    with pytest.raises(DecodeError):
        check_crc(*pair, port, bytes(wrong))
