"""Transport security sublayer (TSS): a datagram is encrypted and authenticated with AES-GCM-256.

Source: UE Specification 1.0, section 3.7 (header: table 3-90) and, where it is not public, the reference provider.

    IP | UDP | TSS header (12 or 16 bytes) | PDS, SES, payload: encrypted | ICV (16 bytes)

Authenticated beside the ciphertext: the IP addresses, the UDP header (`covered_header`) and the TSS header.

IV of 96 bits: SSI, or the IPv4 source address, followed by the TSC (epoch and counter); in cluster mode XORed with the
IV mask. Over IPv6 without an SSI the reference provider puts the SDI there. That is safe in cluster mode, where the key
belongs to the source; in direct mode it would let two senders use one IV under one key, so such packets are neither
sent nor accepted.

An IV used twice under one key gives the key stream and the authentication key away. Hence: a counter never goes back
under a key, all members of a domain have an SSI or none has (an SSI may equal somebody's address), and whoever starts a
sender says where its counter starts (`first_tsc`); key and epoch of a domain stay until its end. Two processes behind
one address need an SSI each. Two members with one SSI is a mistake that nothing can prevent, so it is looked for (NIST
SP 800-38D, section 8: IVs are unique over all who use the key): a genuine packet with our IV source that is not ours
is refused, and nothing more is sent with that key (IV_SHARED). That finds out who hears the other one; two that have
the same SSI and never hear each other go unnoticed.

Replay: a window of counters per source, association number and epoch. A receiver that starts anew has empty windows, so
it accepts once more what was recorded before. What is on a PDC does nothing then, for its Start_PSN is none that this
life of the receiver has demanded (`delivery.start_psn`). RUDI and UUD have no PDC: a recorded RUDI WRITE may be
executed and a datagram delivered again, unless the epoch or the key is another one after a restart.

Trimming: what a switch trims cannot be authenticated, as its ICV is gone, and its PDS header is encrypted. `hint`
decrypts that header nevertheless (GCM is a counter mode). Anybody on the path can flip bits in it, or forge it whole;
it may at most hasten a NACK, and must create no context, acknowledge nothing and move no window.

It costs what `packet_cipher` says, and 7 MiB of memory from the first packet on. A packet that claims a source not yet
heard costs 16 us more in cluster mode, genuine or not.

Server mode, rekeying and the latch by which the reference provider closes a domain after 1000 bad
ICVs (a gift to whoever can send 1001 bad packets) are left out.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.errors import DecodeError, TransportError, UsageError
from testbed.protocols.uet.packets.covered_header import MAX_UDP_PAYLOAD_BYTES, covered_addresses
from testbed.protocols.uet.security.key_derivation import IV_BYTES, DerivedKey, DomainKey, derive_cluster_key
from testbed.protocols.uet.security.packet_cipher import ICV_BYTES, MAX_UDP_PORT, make_cipher
from testbed.protocols.uet.security.replay import ReplayVerdict, ReplayWindow
from testbed.protocols.uet.security.tss_header import (
    COUNTER_BITS,
    LONG_BYTES,
    MAX_COUNTER,
    SHORT_BYTES,
    TSC_BITS,
    Tsc,
    TssHeader,
    is_protected,
)

_MAX_SENDING: Final = 4096
"""Pairs of addresses whose associations are kept for sending."""
EPOCH_LIFETIME: Final = 16
"""Packets are accepted up to this many epochs behind the domain's own (reference provider)."""

_COUNTER_ORIGIN_NS: Final = 1_735_689_600_000_000_000
"""2025-01-01, UTC."""
_COUNTER_TICK_BITS: Final = 10

_FRESH: Final = ReplayVerdict.FRESH


class SecurityMode(Enum):
    """Which key protects a packet."""

    DIRECT = "direct"
    """The domain key itself, for all sources."""
    CLUSTER = "cluster"
    """A key derived for each source and epoch."""


class SecurityReason(IntEnum):
    """Why a packet was neither sealed nor opened."""

    NOT_PROTECTED = 0
    UNKNOWN_SDI = 1
    WRONG_AN = 2
    """The domain's key has another association number."""
    SSI_MISSING = 3
    SSI_UNEXPECTED = 4
    STALE_EPOCH = 5
    BAD_ICV = 6
    REPLAY = 7
    BEHIND_WINDOW = 8
    """Genuine, but so late that it may be a replay."""
    COUNTER_EXHAUSTED = 9
    IV_SHARED = 10
    """Somebody else has our key and our IV source (SSI or address): some IV was used twice, or soon will be."""


class SecurityError(TransportError):
    """A packet that this domain refuses."""

    def __init__(self, reason: SecurityReason) -> None:
        super().__init__(reason.name)
        self.reason = reason


def first_counter(now: int) -> int:
    """Return where the counter of a sender that starts at `now` begins, so that it continues none of its predecessors.

    `now` is wall-clock time in nanoseconds since 1970. The counter ticks every 1.024 us from 2025 until 2034, so it is
    ahead of any predecessor that sent fewer than 976,000 packets/s on average, unless the clock went back. UsageError
    outside those years.
    """
    counter = (now - _COUNTER_ORIGIN_NS) >> _COUNTER_TICK_BITS
    if not 0 <= counter <= MAX_COUNTER:
        raise UsageError("the clock is outside the years in which it yields packet counters")
    return counter


class _Association:
    """The cipher, window and key of the packets between one pair of addresses in one epoch."""

    def __init__(self, key: DomainKey, iv: bytes, addresses: bytes, header: TssHeader) -> None:
        """`iv` and `header` are those of the packet with counter 0."""
        self.key = key
        self.iv = iv
        self.cipher = make_cipher(key.reveal(), iv, addresses, header.encode())
        self.window = ReplayWindow()
        self.destination_ip = ""
        """As it was written where a packet of it arrived last."""


class SecureDomain:
    """The keys, counters and windows that one endpoint holds of a secure domain.

    `ssi` is this endpoint's own (32 bits); with None all members of the domain are told apart by their addresses.
    `first_tsc` is that of the first packet: its counter must be greater than any that was ever used with the same key
    by the same SSI or address (see `first_counter`).
    """

    def __init__(
        self,
        sdi: int,
        key: DomainKey,
        *,
        first_tsc: Tsc,
        mode: SecurityMode = SecurityMode.DIRECT,
        ssi: int | None = None,
        an: int = 0,
    ) -> None:
        TssHeader(an, sdi, ssi, first_tsc.epoch, first_tsc.counter).encode()
        self.sdi = sdi
        self.sealed = 0
        """Packets sealed."""
        self.opened = 0
        """Packets opened."""
        self.counters: dict[SecurityReason, int] = dict.fromkeys(SecurityReason, 0)
        """Packets refused, by reason."""
        self._mode = mode
        self._ssi = ssi
        self._header_bytes = SHORT_BYTES if ssi is None else LONG_BYTES
        self._epoch = first_tsc.epoch
        self._first_counter = first_tsc.counter
        self._an = an
        self._key = key
        self._next_counter = first_tsc.counter
        self._own: set[str] = set()
        """Addresses that this endpoint has sent from."""
        self.shared = False
        """True where nothing is sent any more, as somebody else has our IVs (IV_SHARED).

        Give one of the two another SSI, and both another key.
        """
        self._sending: dict[tuple[str, str], _Association] = {}
        self._receiving: dict[tuple[int, int | None, bytes], _Association] = {}
        self._latest: dict[str, _Association] = {}
        """The one of `_receiving` that a source's last packet belonged to, by the source as it was written."""

    def __repr__(self) -> str:
        return f"SecureDomain(sdi={self.sdi}, mode={self._mode.value}, an={self._an}, epoch={self._epoch})"

    @property
    def overhead_bytes(self) -> int:
        """Return what `seal` adds to a packet."""
        return self._header_bytes + ICV_BYTES

    def seal(
        self, source_ip: str, destination_ip: str, source_port: int, header: bytes, payload: bytes | memoryview = b""
    ) -> bytes:
        """Return the UDP payload that carries `header` (that of PDS, and what follows it) and `payload`.

        Raises as `seal_all` does.
        """
        sealed: list[Outgoing] = []
        self.seal_all(source_ip, [Outgoing(destination_ip, source_port, Priority.DATA, header, payload)], sealed)
        return sealed[0].header

    def seal_all(self, source_ip: str, datagrams: list[Outgoing], out: list[Outgoing]) -> None:
        """Append to `out` what is to be sent from `source_ip` in the place of `datagrams`, up to one that raises.

        SecurityError COUNTER_EXHAUSTED when the counter has come to its end, IV_SHARED when somebody else uses our IVs:
        only another key helps. SecurityError SSI_MISSING over IPv6 in direct mode without an SSI. UsageError for
        addresses, ports and lengths that are none.
        """
        at = 0
        while at < len(datagrams):
            remote = datagrams[at].remote
            association = self._sending.get((source_ip, remote)) or self._begin_sending(source_ip, remote)
            counter = self._next_counter
            most = min(len(datagrams) - at, MAX_COUNTER + 1 - counter)
            if most < 1:
                raise self._refuse(SecurityReason.COUNTER_EXHAUSTED)
            # Counted before the cipher runs: whatever happens in there, these IVs are spent.
            self._next_counter = counter + most
            count = association.cipher.seal(datagrams, at, most, counter, out)
            self._next_counter = counter + count  # those after them were not begun with
            self.sealed += count
            at += count
            if not count:
                item = datagrams[at]
                length = self.overhead_bytes + len(item.header) + len(item.payload)
                raise UsageError(f"no UDP header holds port {item.entropy} and {length} bytes of payload")

    def _begin_sending(self, source_ip: str, destination_ip: str) -> _Association:
        if self.shared:
            raise self._refuse(SecurityReason.IV_SHARED)
        addresses = covered_addresses(source_ip, destination_ip)
        association = self._associate(TssHeader(self._an, self.sdi, self._ssi, self._epoch, 0), addresses)
        self._own.add(source_ip)
        if len(self._sending) >= _MAX_SENDING:
            self._sending.clear()
        self._sending[source_ip, destination_ip] = association
        return association

    def open(self, source_ip: str, destination_ip: str, source_port: int, data: bytes | memoryview) -> bytes:
        """Return what was sealed into the UDP payload `data`, which arrived whole from `source_ip`.

        SecurityError with the reason, which is counted; DecodeError if the packet is too short to be one.
        """
        length = len(data)
        if length < self._header_bytes + ICV_BYTES:
            self._admit(data)
            raise DecodeError(length, "the ICV is cut short")
        if not 0 <= source_port <= MAX_UDP_PORT or length > MAX_UDP_PAYLOAD_BYTES:
            raise UsageError(f"no UDP header holds port {source_port} and {length} bytes of payload")
        association = self._latest.get(source_ip)
        counter = -1
        if association is not None and association.destination_ip == destination_ip:
            # What is in the table has been admitted: no need to ask again.
            counter = association.cipher.counter_of(data)
        if association is None or counter < 0:
            return self._open_other(source_ip, destination_ip, source_port, data)
        plain = association.cipher.open(source_port, data)
        if plain is None:
            raise self._refuse(SecurityReason.BAD_ICV)
        verdict = association.window.accept(counter)
        if verdict is not _FRESH:
            raise self._refuse(_REPLAYS[verdict])
        self.opened += 1
        return plain

    def _open_other(self, source_ip: str, destination_ip: str, source_port: int, data: bytes | memoryview) -> bytes:
        """Do as `open` for a packet of another association than the last one of its source."""
        header = self._admit(data)
        addresses = covered_addresses(source_ip, destination_ip)
        place = (header.epoch, header.ssi, addresses)
        known = self._receiving.get(place)
        association = known or self._associate(header, addresses)
        plain = association.cipher.open(source_port, data)
        if plain is None:
            raise self._refuse(SecurityReason.BAD_ICV)
        verdict = association.window.accept(header.counter)
        if verdict is not _FRESH:
            raise self._refuse(_REPLAYS[verdict])
        if known is None:
            # Only now: nobody without the key can fill this table, or make us stop.
            self._check_iv_source(source_ip, header)
            self._receiving[place] = association
        association.destination_ip = destination_ip
        self._latest[source_ip] = association
        self.opened += 1
        return plain

    def hint(self, source_ip: str, destination_ip: str, data: bytes | memoryview) -> bytes:
        """Decrypts the start of a trimmed packet, unverified: as much of PDS header and payload as is left.

        It may have been forged by anybody, see the head of this file. Raises as `open` does; nothing is recorded.
        """
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import CTR

        header = self._admit(data)
        addresses = covered_addresses(source_ip, destination_ip)
        association = self._receiving.get((header.epoch, header.ssi, addresses))
        if association is None:
            association = self._associate(header, addresses)
        verdict = association.window.verdict(header.counter)
        if verdict is not ReplayVerdict.FRESH:
            raise self._refuse(_REPLAYS[verdict])
        iv = (int.from_bytes(association.iv, "big") ^ header.counter).to_bytes(IV_BYTES, "big")
        # GCM encrypts the tag with block counter 1 and the text from block counter 2 on (NIST SP 800-38D, section 7.1).
        decryptor = Cipher(AES(association.key.reveal()), CTR(iv + b"\0\0\0\2")).decryptor()
        return decryptor.update(bytes(data[header.size :])) + decryptor.finalize()

    def _check_iv_source(self, source_ip: str, header: TssHeader) -> None:
        """Refuse a genuine packet whose IV is one of ours, but which is not; what it tells is that IVs are used twice.

        One from before our first counter may be our own, of an earlier life, and replayed: it stops nothing.
        """
        ssi, counter = header.ssi, header.counter
        own = source_ip in self._own
        by_address = ssi is None or (self._mode is SecurityMode.CLUSTER and ":" in source_ip)
        if not (own if by_address else ssi == self._ssi) or (own and counter < self._next_counter):
            return
        if counter >= self._first_counter:
            self.shared = True
            self._sending.clear()
        raise self._refuse(SecurityReason.IV_SHARED)

    def _admit(self, data: bytes | memoryview) -> TssHeader:
        """The header of a packet that this domain has a key for. Nothing in it is to be trusted yet."""
        if not is_protected(data):
            raise self._refuse(SecurityReason.NOT_PROTECTED)
        header = TssHeader.decode(data)
        if header.sdi != self.sdi:
            raise self._refuse(SecurityReason.UNKNOWN_SDI)
        if header.an != self._an:
            raise self._refuse(SecurityReason.WRONG_AN)
        if (header.ssi is None) is not (self._ssi is None):
            unexpected = self._ssi is None
            raise self._refuse(SecurityReason.SSI_UNEXPECTED if unexpected else SecurityReason.SSI_MISSING)
        if self._epoch - header.epoch > EPOCH_LIFETIME:  # later ones pass: the peer may have begun after this endpoint
            raise self._refuse(SecurityReason.STALE_EPOCH)
        return header

    def _associate(self, header: TssHeader, addresses: bytes) -> _Association:
        """Return how a packet with this header is protected, if it is genuine; its counter does not matter.

        Costs a key derivation in cluster mode (some 20 us), which is why its result is kept.
        """
        ssi = header.ssi
        source = addresses[: len(addresses) // 2]
        if ssi is not None:
            identity = ssi.to_bytes(4, "big")
        elif len(source) == 4:
            identity = source
        elif self._mode is SecurityMode.CLUSTER:
            identity = self.sdi.to_bytes(4, "big")
        else:
            raise self._refuse(SecurityReason.SSI_MISSING)
        if self._mode is SecurityMode.CLUSTER:
            derived = derive_cluster_key(self._key, source, ssi, header.epoch)
        else:
            derived = DerivedKey(self._key, 0)
        first = header._replace(counter=0)
        iv = int.from_bytes(identity, "big") << TSC_BITS | first.epoch << COUNTER_BITS
        return _Association(derived.key, (iv ^ derived.iv_mask).to_bytes(IV_BYTES, "big"), addresses, first)

    def _refuse(self, reason: SecurityReason) -> SecurityError:
        self.counters[reason] += 1
        return SecurityError(reason)


_REPLAYS: Final = {ReplayVerdict.SEEN: SecurityReason.REPLAY, ReplayVerdict.TOO_OLD: SecurityReason.BEHIND_WINDOW}
