"""Protection of an endpoint's packets on their way: TSS, or a CRC (UE Specification 1.0, sections 3.7 and 3.5.25).

An endpoint that has neither has no `Protection` either, and its packets pass as they are.
"""

from __future__ import annotations

from collections import Counter

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.packets.crc import CRC_BYTES, append_crc, check_crc
from testbed.protocols.uet.security.tss import SecureDomain, SecurityError


class Protection:
    """The protection of the endpoint with address `own`: by the keys of `security`, or, with None, by a CRC."""

    def __init__(self, own: str, security: SecureDomain | None) -> None:
        self._own = own
        self._security = security
        self.overhead_bytes = CRC_BYTES if security is None else security.overhead_bytes
        """The bytes that it adds to each packet."""

    def seal(self, datagrams: list[Outgoing], counters: Counter[str]) -> list[Outgoing]:
        """Return what is to be sent in the place of `datagrams`. What cannot be protected is not sent, but counted."""
        own = self._own
        out: list[Outgoing] = []
        security = self._security
        if security is None:
            for remote, entropy, priority, header, payload in datagrams:
                out.append(Outgoing(remote, entropy, priority, append_crc(own, remote, entropy, header + payload), b""))
            return out
        try:
            security.seal_all(own, datagrams, out)
        except SecurityError as error:
            # No key to send with is left (COUNTER_EXHAUSTED, IV_SHARED), or it may not be used so (SSI_MISSING).
            count_refusal(error, counters, len(datagrams) - len(out))
        return out

    def open(self, incoming: Incoming) -> bytes | memoryview:
        """The packet in a datagram that arrived whole. Raises `DecodeError`, `SecurityError`."""
        if self._security is None:
            return check_crc(incoming.remote, self._own, incoming.entropy, incoming.data)
        return self._security.open(incoming.remote, self._own, incoming.entropy, incoming.data)

    def open_trimmed(self, incoming: Incoming) -> bytes | memoryview:
        """Return as much of a packet as a switch has left of it. Nothing proves it. Raises as `open` does."""
        if self._security is None:
            return incoming.data  # its CRC is lost, and so is the packet
        return self._security.hint(incoming.remote, self._own, incoming.data)


def count_refusal(error: SecurityError, counters: Counter[str], packets: int = 1) -> None:
    """Count a refused packet, as `security-bad-icv` and the like."""
    counters[f"security-{error.reason.name.lower().replace('_', '-')}"] += packets
