"""Keys of a secure domain: how they are read, kept out of sight, and derived.

Source: UE Specification 1.0, section 3.7 (SDK, KDF); NIST SP 800-108r1, section 4.1 (counter mode) with CMAC-AES-256.

What the specification fixes is known from one implementation, the reference provider, and is therefore isolated here:
counter i of 8 bits before the fixed input, then `label || 0x00 || context || L` with L the output length in bits as 32
bits; label "U1" for the cluster mode (older revisions of that provider used "UE1", and "U2" is that of the server
mode); output 352 bits, of which the first 256 are the AES-GCM key and the other 96 the IV mask.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple, NoReturn

from testbed.protocols.errors import UsageError

KEY_BYTES: Final = 32
IV_BYTES: Final = 12
CLUSTER_LABEL: Final = b"U1"

_COUNTER_BYTES: Final = 1
_LENGTH_BYTES: Final = 4
_NO_REKEY: Final = bytes(4)


class DomainKey:
    """A key of 256 bits that shows in no repr, log, comparison time or pickle."""

    def __init__(self, material: bytes) -> None:
        if len(material) != KEY_BYTES:
            raise UsageError(f"a domain key has {KEY_BYTES} bytes, not {len(material)}")
        if material == material[:1] * KEY_BYTES:
            raise UsageError("a domain key whose bytes are all the same protects nothing")
        self._material = bytes(material)

    def reveal(self) -> bytes:
        """The secret itself, for a cipher and for nothing else."""
        return self._material

    def fingerprint(self) -> bytes:
        """SHA-256 of the key: tells keys apart without keeping them."""
        return hashlib.sha256(self._material).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DomainKey) and hmac.compare_digest(self._material, other._material)

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    def __repr__(self) -> str:
        return "DomainKey(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a domain key is not pickled")


class DerivedKey(NamedTuple):
    """The key and the IV mask that the packets of one source are protected with."""

    key: DomainKey
    iv_mask: int
    """96 bits that are XORed into the IV; a secret as well, hence the repr."""

    def __repr__(self) -> str:
        return "DerivedKey(hidden)"


def load_key(text: str) -> DomainKey:
    """Reads 64 hexadecimal digits, as from a key file: white space and lines that begin with # are skipped.

    UsageError otherwise; it does not quote the text.
    """
    digits = "".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    try:
        material = bytes.fromhex("".join(digits.split()))
    except ValueError:
        raise UsageError("a domain key is written in hexadecimal digits") from None
    return DomainKey(material)


def derive(key: bytes, label: bytes, context: bytes, length_bytes: int) -> bytes:
    """KDF in counter mode over CMAC-AES: `length_bytes` bytes (at most 255 * 16) out of `key`."""
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFCMAC, CounterLocation, Mode

    return KBKDFCMAC(
        algorithm=AES,
        mode=Mode.CounterMode,
        length=length_bytes,
        rlen=_COUNTER_BYTES,
        llen=_LENGTH_BYTES,
        location=CounterLocation.BeforeFixed,
        label=label,
        context=context,
        fixed=None,
    ).derive(key)


def cluster_context(source: bytes, ssi: int | None, epoch: int) -> bytes:
    """Context of the cluster mode, 10 bytes for IPv4 and 26 for IPv6; `source` is the packed source address.

        IPv4: epoch:16 | rekey:32 | (SSI, or source):32
        IPv6: 0:32 | epoch:16 | rekey:32 | source:128

    Over IPv6 the address stands there even if there is an SSI. `rekey`, by which
    the key may change every 2**n packets, is held at 0: a deterministic 96-bit IV sets no limit of 2**32 packets
    (NIST SP 800-38D, section 8.3), and its mask is not known.
    """
    if len(source) == 4:
        identity = source if ssi is None else ssi.to_bytes(4, "big")
        return epoch.to_bytes(2, "big") + _NO_REKEY + identity
    return bytes(4) + epoch.to_bytes(2, "big") + _NO_REKEY + source


def derive_cluster_key(domain: DomainKey, source: bytes, ssi: int | None, epoch: int) -> DerivedKey:
    """The key and IV mask of one source in one epoch (`epoch` 16 bits, `source` 4 or 16 bytes)."""
    material = derive(domain.reveal(), CLUSTER_LABEL, cluster_context(source, ssi, epoch), KEY_BYTES + IV_BYTES)
    return DerivedKey(DomainKey(material[:KEY_BYTES]), int.from_bytes(material[KEY_BYTES:], "big"))
