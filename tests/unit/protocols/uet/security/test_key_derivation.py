"""Keys of a secure domain: the derivation against CMAC itself, and how keys are read."""

from ipaddress import ip_address

import pytest
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.security.key_derivation import cluster_context, derive, derive_cluster_key, load_key

KEY_TEXT = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"
KEY = load_key(KEY_TEXT)
OTHER_KEY = load_key("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
A = "10.0.0.1"
B = "10.0.0.2"
A6 = "2001:db8::1"


def test_key_derivation_is_cmac_over_counter_label_zero_context_and_length() -> None:
    context = bytes(range(10))
    expected = b""
    for counter in (1, 2, 3):
        mac = CMAC(AES(KEY.reveal()))
        mac.update(bytes([counter]) + b"U1" + b"\0" + context + (352).to_bytes(4, "big"))
        expected += mac.finalize()
    assert derive(KEY.reveal(), b"U1", context, 44) == expected[:44]


def test_cluster_key_is_derived_under_its_label() -> None:
    source = ip_address(A).packed
    derived = derive_cluster_key(KEY, source, None, 3)
    material = derive(KEY.reveal(), b"U1", cluster_context(source, None, 3), 44)
    assert derived.key.reveal() + derived.iv_mask.to_bytes(12, "big") == material


def test_cluster_context_of_each_address_family() -> None:
    four = ip_address(A).packed
    six = ip_address(A6).packed
    assert cluster_context(four, None, 0x0102) == bytes.fromhex("0102 00000000 0a000001")
    assert cluster_context(four, 7, 0x0102) == bytes.fromhex("0102 00000000 00000007")
    assert cluster_context(six, 7, 0x0102) == bytes.fromhex("00000000 0102 00000000") + six


def test_cluster_keys_differ_by_source_ssi_epoch_and_domain_key() -> None:
    four = ip_address(A).packed
    derived = [
        derive_cluster_key(KEY, four, None, 0),
        derive_cluster_key(KEY, ip_address(B).packed, None, 0),
        derive_cluster_key(KEY, four, 7, 0),
        derive_cluster_key(KEY, four, None, 1),
        derive_cluster_key(OTHER_KEY, four, None, 0),
        derive_cluster_key(KEY, ip_address(A6).packed, None, 0),
    ]
    assert len({value.key.reveal() for value in derived}) == len(derived)
    assert len({value.iv_mask for value in derived}) == len(derived)


def test_key_is_read_from_a_file_with_comments_and_white_space() -> None:
    text = f"# key of domain 1\n{KEY_TEXT[:32]} {KEY_TEXT[32:40]}\n  # more\n\t{KEY_TEXT[40:]}\n"
    assert load_key(text) == KEY
    assert load_key(KEY_TEXT) != OTHER_KEY


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 31 + "c", KEY_TEXT + "00", KEY_TEXT[:-1] + "x", "00" * 32])
def test_key_that_is_none_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_key(text)
    assert not text or text not in str(raised.value)
