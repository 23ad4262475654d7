"""The ideal of a pattern of transfers: the time in which its bytes, with headers, pass the busiest NIC, and a base RTT.

Nothing can be faster; nothing of the fabric between the NICs is considered. N:1 incast of S bytes: N * S * 8 / B plus
the base RTT, S with the headers of its packets (workload of htsim; HPCC's standalone FCT for one flow). Where NICs are
not equally far from each other, a NIC waits for the nearest one before it is busy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

Nic = TypeVar("Nic", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """The cost of a message on a link: every packet carries up to `payload_bytes` and `overhead_bytes` beside.

    `first_bytes` come on top in a message's first packet (RoCEv2: the RETH). What belongs to the overhead is what the
    link's rate counts: with preamble and gap on a real wire, with the Ethernet header alone on a shaped port.
    """

    payload_bytes: int
    overhead_bytes: int
    first_bytes: int = 0

    def __post_init__(self) -> None:
        if self.payload_bytes < 1 or self.overhead_bytes < 0 or self.first_bytes < 0:
            raise ValueError(f"a packet of {self.payload_bytes} bytes with {self.overhead_bytes} of headers")

    @property
    def efficiency(self) -> float:
        """Payload over all bytes of a full packet."""
        return self.payload_bytes / (self.payload_bytes + self.overhead_bytes)

    def wrapped(self, more_bytes: int) -> Framing:
        """Return what it costs where every packet is wrapped in another's headers of so many bytes."""
        return replace(self, overhead_bytes=self.overhead_bytes + more_bytes)

    def packets(self, size_bytes: int) -> int:
        """An empty message still is a packet."""
        if size_bytes < 0:
            raise ValueError(f"a message of {size_bytes} bytes")
        return max(1, -(-size_bytes // self.payload_bytes))

    def wire_bytes(self, size_bytes: int) -> int:
        """The bytes of a message with all its headers."""
        return size_bytes + self.packets(size_bytes) * self.overhead_bytes + self.first_bytes


UNFRAMED = Framing(payload_bytes=1 << 62, overhead_bytes=0)
"""Bytes that are counted without headers, or with them already."""
WIRE_GAP_BYTES = 20
"""Preamble, start delimiter and inter-packet gap (IEEE 802.3 clauses 3.1, 4.4.2)."""


def tcp_framing(mtu_bytes: int) -> Framing:
    """Count the framing on a shaped port: Ethernet 14, IPv4 20, TCP 20 and its timestamps 12 (RFC 7323)."""
    return Framing(payload_bytes=mtu_bytes - 52, overhead_bytes=66)


def serialisation_s(wire_bytes: float, rate_bps: float) -> float:
    """Return how long a link sends these bytes."""
    if rate_bps <= 0:
        raise ValueError(f"a rate of {rate_bps} bit/s")
    return 8 * wire_bytes / rate_bps


def pattern_ideal_s(
    transfers: Iterable[tuple[Nic, Nic, int]],
    rates_bps: Mapping[Nic, float] | float,
    *,
    base_rtt_s: Callable[[Nic, Nic], float] | float,
    framing: Framing,
) -> float:
    """Transfers (source, destination, bytes) that all begin at once: the busiest NIC, sending or receiving.

    `rates_bps` is each NIC's, or one for all; `base_rtt_s` that of each pair, or one for all. An incast is the special
    case of one busy receiver.
    """
    load: defaultdict[tuple[str, Nic], int] = defaultdict(int)
    nearest_s: dict[tuple[str, Nic], float] = {}
    for source, destination, size_bytes in transfers:
        wire = framing.wire_bytes(size_bytes)
        away_s = base_rtt_s(source, destination) if callable(base_rtt_s) else base_rtt_s
        for end in (("sends", source), ("receives", destination)):
            load[end] += wire
            nearest_s[end] = min(away_s, nearest_s.get(end, away_s))
    rate_of = rates_bps.__getitem__ if isinstance(rates_bps, Mapping) else lambda _: rates_bps
    return max((nearest_s[end] + serialisation_s(sent, rate_of(end[1])) for end, sent in load.items()), default=0.0)
