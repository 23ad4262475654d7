"""Transport security sublayer (TSS): a datagram is encrypted and authenticated with AES-GCM-256.

Source: UE Specification 1.0, section 3.7 (header: table 3-90) and, where it is not public, the reference provider.

    IP | UDP | TSS header (12 or 16 bytes) | PDS, SES, payload: encrypted | ICV (16 bytes)

Authenticated beside the ciphertext: the IP addresses, the UDP header (`covered_header`) and the TSS header.

IV of 96 bits: SSI, or the IPv4 source address, followed by the TSC (epoch and counter); in cluster mode XORed with the
IV mask. Over IPv6 without an SSI the reference provider puts the SDI there. That is safe in cluster mode, where the key
belongs to the source; in direct mode it would let two senders use one IV under one key, so such packets are neither
sent nor accepted.

An IV used twice under one key gives the key stream and the authentication key away. Hence: a counter never goes back
under a key, a key never returns to a domain, all members of a domain have an SSI or none has (an SSI may equal
somebody's address), and whoever starts a sender says where its counter starts (`first_tsc`). Two processes behind
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

Server mode, rekeying by counter bits and the latch by which the reference provider closes a domain after 1000 bad
ICVs (a gift to whoever can send 1001 bad packets) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.errors import DecodeError, TransportError, UsageError
from testbed.protocols.uet.packets.covered_header import MAX_UDP_PAYLOAD_BYTES, covered_addresses
from testbed.protocols.uet.security.key_derivation import IV_BYTES, DerivedKey, DomainKey, derive_cluster_key
from testbed.protocols.uet.security.packet_cipher import ICV_BYTES, MAX_UDP_PORT, make_cipher
from testbed.protocols.uet.security.replay import DEFAULT_WINDOW, ReplayVerdict, ReplayWindow
from testbed.protocols.uet.security.tss_header import (
    COUNTER_BITS,
    LONG_BYTES,
    MAX_COUNTER,
    MAX_EPOCH,
    SHORT_BYTES,
    TSC_BITS,
    Tsc,
    TssHeader,
    is_protected,
)

_MAX_SENDING: Final = 4096
"""Pairs of addresses whose associations are kept for sending."""

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
    """No key is installed for that association number."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProtection:
    """The age up to which packets are accepted: one that is older may be a replay, and is refused."""

    epoch_lifetime: int = 16
    """Epochs behind the domain's own; the default is the reference provider's."""
    window: int = DEFAULT_WINDOW
    """Counters behind the newest one of the packet's source."""


_DEFAULT_REPLAY_PROTECTION: Final = ReplayProtection()


class _Association:
    """This is what protects the packets between one pair of addresses under one key and epoch."""

    __slots__ = ("cipher", "destination_ip", "iv", "key", "window")

    def __init__(self, key: DomainKey, iv: bytes, addresses: bytes, header: TssHeader, window: int) -> None:
        """`iv` and `header` are those of the packet with counter 0."""
        self.key = key
        self.iv = iv
        self.cipher = make_cipher(key.reveal(), iv, addresses, header.encode())
        self.window = ReplayWindow(window)
        self.destination_ip = ""
        """As it was written where a packet of it arrived last."""


class SecureDomain:
    """The keys, counters and windows that one endpoint holds of a secure domain.

    `ssi` is this endpoint's own (32 bits); with None all members of the domain are told apart by their addresses.
    `first_tsc` is that of the first packet: its counter must be greater than any that was ever used with the same key
    by the same SSI or address (see `first_counter`).
    """

    __slots__ = (
        "_active",
        "_epoch",
        "_fingerprints",
        "_first_counter",
        "_header_bytes",
        "_keys",
        "_latest",
        "_lifetime",
        "_mode",
        "_next_counters",
        "_own",
        "_receiving",
        "_sending",
        "_shared",
        "_ssi",
        "_window",
        "counters",
        "opened",
        "sdi",
        "sealed",
    )

    def __init__(
        self,
        sdi: int,
        key: DomainKey,
        *,
        first_tsc: Tsc,
        mode: SecurityMode = SecurityMode.DIRECT,
        ssi: int | None = None,
        an: int = 0,
        replay_protection: ReplayProtection = _DEFAULT_REPLAY_PROTECTION,
    ) -> None:
        TssHeader(an, sdi, ssi, first_tsc.epoch, first_tsc.counter).encode()
        if not 0 <= replay_protection.epoch_lifetime <= MAX_EPOCH:
            raise UsageError(f"an epoch lifetime of {replay_protection.epoch_lifetime}")
        ReplayWindow(replay_protection.window)
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
        self._lifetime = replay_protection.epoch_lifetime
        self._window = replay_protection.window
        self._first_counter = first_tsc.counter
        self._active = an
        self._keys: list[DomainKey | None] = [None, None]
        self._next_counters = [first_tsc.counter, first_tsc.counter]
        self._fingerprints: set[bytes] = set()
        self._own: set[str] = set()
        """Addresses that this endpoint has sent from."""
        self._shared: set[int] = set()
        self._sending: dict[tuple[str, str], _Association] = {}
        self._receiving: dict[tuple[int, int, int | None, bytes], _Association] = {}
        self._latest: dict[str, _Association] = {}
        """Of `_receiving`, by the source as it was written: that of its last packet."""
        self.install_key(an, key)

    def __repr__(self) -> str:
        return f"SecureDomain(sdi={self.sdi}, mode={self._mode.value}, an={self._active}, epoch={self._epoch})"

    @property
    def active_an(self) -> int:
        """Association number of the packets that are sent."""
        return self._active

    @property
    def epoch(self) -> int:
        """Epoch of the packets that are sent."""
        return self._epoch

    @property
    def shared(self) -> frozenset[int]:
        """Return the association numbers that are not sent with any more, as somebody else has our IVs (IV_SHARED).

        Give one of the two another SSI, and both another key.
        """
        return frozenset(self._shared)

    @property
    def overhead_bytes(self) -> int:
        """Return what `seal` adds to a packet."""
        return self._header_bytes + ICV_BYTES

    def install_key(self, an: int, key: DomainKey) -> None:
        """Accepts packets of association number `an` (0 or 1) from now on.

        UsageError if a key is installed there, or if this one was ever installed in the domain before: its windows
        and counters are gone, so replays would pass and IVs repeat.
        """
        if an not in (0, 1):
            raise UsageError(f"association number {an}")
        if self._keys[an] is not None:
            raise UsageError(f"association number {an} has a key; drop that first")
        fingerprint = key.fingerprint()
        if fingerprint in self._fingerprints:
            raise UsageError("this key has been used in the domain before")
        self._fingerprints.add(fingerprint)
        self._keys[an] = key
        self._next_counters[an] = self._first_counter

    def activate(self, an: int) -> None:
        """Sends with association number `an` from now on; UsageError if it has no key."""
        if an not in (0, 1) or self._keys[an] is None:
            raise UsageError(f"association number {an} has no key")
        self._active = an
        self._sending.clear()

    def drop_key(self, an: int) -> None:
        """Refuses packets of association number `an` from now on; UsageError if it is the one sent with."""
        if an == self._active or an not in (0, 1):
            raise UsageError(f"association number {an} is sent with, or is none")
        self._keys[an] = None
        self._shared.discard(an)
        self._receiving = {place: value for place, value in self._receiving.items() if place[0] != an}
        self._latest.clear()

    def advance_epoch(self, epoch: int) -> None:
        """Sends with `epoch` (16 bits) from now on, and refuses what is older than its lifetime.

        UsageError unless it is greater than the present one. Epochs do not wrap around here, as they do by the serial
        number arithmetic of the reference provider: with the windows of an epoch gone, its packets must stay refused.
        """
        if not self._epoch < epoch <= MAX_EPOCH:
            raise UsageError(f"epoch {epoch} is not later than {self._epoch}")
        self._epoch = epoch
        self._sending.clear()
        self._receiving = {place: value for place, value in self._receiving.items() if not self._is_stale(place[1])}
        self._latest.clear()

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
        an = self._active
        while at < len(datagrams):
            remote = datagrams[at].remote
            association = self._sending.get((source_ip, remote)) or self._begin_sending(source_ip, remote)
            counter = self._next_counters[an]
            most = min(len(datagrams) - at, MAX_COUNTER + 1 - counter)
            if most < 1:
                raise self._refuse(SecurityReason.COUNTER_EXHAUSTED)
            # Counted before the cipher runs: whatever happens in there, these IVs are spent.
            self._next_counters[an] = counter + most
            count = association.cipher.seal(datagrams, at, most, counter, out)
            self._next_counters[an] = counter + count  # those after them were not begun with
            self.sealed += count
            at += count
            if not count:
                item = datagrams[at]
                length = self.overhead_bytes + len(item.header) + len(item.payload)
                raise UsageError(f"no UDP header holds port {item.entropy} and {length} bytes of payload")

    def _begin_sending(self, source_ip: str, destination_ip: str) -> _Association:
        if self._active in self._shared:
            raise self._refuse(SecurityReason.IV_SHARED)
        addresses = covered_addresses(source_ip, destination_ip)
        association = self._associate(TssHeader(self._active, self.sdi, self._ssi, self._epoch, 0), addresses)
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
            # What is in the table has been admitted, and leaves it with its key or epoch: no need to ask again.
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
        place = (header.an, header.epoch, header.ssi, addresses)
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
        association = self._receiving.get((header.an, header.epoch, header.ssi, addresses))
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
        ssi, an, counter = header.ssi, header.an, header.counter
        own = source_ip in self._own
        by_address = ssi is None or (self._mode is SecurityMode.CLUSTER and ":" in source_ip)
        if not (own if by_address else ssi == self._ssi) or (own and counter < self._next_counters[an]):
            return
        if counter >= self._first_counter:
            self._shared.add(an)
            self._sending.clear()
        raise self._refuse(SecurityReason.IV_SHARED)

    def _admit(self, data: bytes | memoryview) -> TssHeader:
        """The header of a packet that this domain has a key for. Nothing in it is to be trusted yet."""
        if not is_protected(data):
            raise self._refuse(SecurityReason.NOT_PROTECTED)
        header = TssHeader.decode(data)
        if header.sdi != self.sdi:
            raise self._refuse(SecurityReason.UNKNOWN_SDI)
        if self._keys[header.an] is None:
            raise self._refuse(SecurityReason.WRONG_AN)
        if (header.ssi is None) is not (self._ssi is None):
            unexpected = self._ssi is None
            raise self._refuse(SecurityReason.SSI_UNEXPECTED if unexpected else SecurityReason.SSI_MISSING)
        if self._is_stale(header.epoch):
            raise self._refuse(SecurityReason.STALE_EPOCH)
        return header

    def _is_stale(self, epoch: int) -> bool:
        """Later ones pass: the peer may have heard of them before this endpoint."""
        return self._epoch - epoch > self._lifetime

    def _associate(self, header: TssHeader, addresses: bytes) -> _Association:
        """Return how a packet with this header is protected, if it is genuine; its counter does not matter.

        Costs a key derivation in cluster mode (some 20 us), which is why its result is kept.
        """
        domain_key = self._keys[header.an]
        assert domain_key is not None
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
            derived = derive_cluster_key(domain_key, source, ssi, header.epoch)
        else:
            derived = DerivedKey(domain_key, 0)
        first = header._replace(counter=0)
        iv = int.from_bytes(identity, "big") << TSC_BITS | first.epoch << COUNTER_BITS
        return _Association(
            derived.key, (iv ^ derived.iv_mask).to_bytes(IV_BYTES, "big"), addresses, first, self._window
        )

    def _refuse(self, reason: SecurityReason) -> SecurityError:
        self.counters[reason] += 1
        return SecurityError(reason)


_REPLAYS: Final = {ReplayVerdict.SEEN: SecurityReason.REPLAY, ReplayVerdict.TOO_OLD: SecurityReason.BEHIND_WINDOW}
