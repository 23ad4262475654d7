"""Loss recovery of a requester: which packet is sent next, and what a gap at the responder makes it send again.

`go-back-n` (default) is the recovery of the specification (section 9.7.5), of soft RDMA and of NICs up to ConnectX-4:
the responder drops what does not come in order and says once from where on it wants everything again.

`go-back-0` is that of the first RoCE NICs (Guo et al., "RDMA over Commodity Ethernet at Scale", SIGCOMM 2016, section
4.1): the responder forgets what it has of a message of which a packet is missing, and the requester sends the message
again from its first packet on. A message in which some packet is lost at each attempt is never through. Within a
message nothing is acknowledged, so a window would never open: only a rate may control it.

`selective` is that of IRN (Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018): the responder keeps
what comes out of order and tells which packets it has; the requester sends again what is missing, has no more than a
bandwidth-delay product in flight, and falls back on a timeout alone.

Packets are numbered without wrapping over the life of the queue pair; the PSN is the lower 24 bits of that number.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final


class Recovery:
    """Go-back-N: after a gap or a timeout, everything from the first missing packet on is sent again."""

    restarts: ClassVar[bool] = False
    """A message with a packet missing begins anew."""
    keeps: ClassVar[bool] = False
    """The responder keeps what comes out of order."""

    def __init__(self, start: int) -> None:
        self.rewinds: bool = True
        """Whatever was sent after a packet that is missing is taken for lost with it."""
        self.next: int = start
        """The packet to be sent next, unless `lost` says otherwise."""
        self.top: int = start
        """Above every packet that was ever sent."""

    def sequence(self) -> int:
        """The packet to be sent next."""
        return self.next

    def on_sent(self, sequence: int, packets: int) -> None:
        """A packet was sent, or the request of a response of so many packets."""
        self.next = sequence + packets
        self.top = max(self.top, self.next)

    def on_acknowledged(self, una: int) -> None:
        """All packets below `una` have arrived."""
        self.next = max(self.next, una)

    def on_gap(self, sequence: int) -> None:
        """The responder is missing this packet."""
        self.next = min(self.next, sequence)

    def on_response_missing(self, sequence: int) -> None:
        """The responder has the request, but this packet of its response has not arrived."""
        self.next = min(self.next, sequence)

    def on_selective(self, first: int, bitmap: int) -> None:
        """The responder has the packets whose bits are set, counted from `first` on."""

    def on_timeout(self, una: int) -> None:
        """Nothing was heard for too long, and this packet is the oldest that is not acknowledged."""
        self.next = una

    def holds(self, sequence: int) -> bool:
        """Tell whether the responder is known to have this packet, though not all before it."""
        return False


class MessageRecovery(Recovery):
    """Go-back-0: after a gap or a timeout, the whole message is sent again, as the responder asks for its first packet
    and acknowledges none before the last."""

    restarts: ClassVar[bool] = True


class SelectiveRecovery(Recovery):
    """IRN: only what is missing is sent again, once for each time it was found missing."""

    keeps: ClassVar[bool] = True

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.rewinds = False
        self.lost: list[int] = []
        """To be sent again, in order."""
        self._held: set[int] = set()
        """Known to have arrived out of order."""
        self._again: int = start
        """Packets below this were found missing in this recovery already: they are sent again after a timeout only."""

    def sequence(self) -> int:
        return self.lost[0] if self.lost else self.next

    def on_sent(self, sequence: int, packets: int) -> None:
        if self.lost and self.lost[0] == sequence:
            while self.lost and self.lost[0] < sequence + packets:
                del self.lost[0]
            return
        super().on_sent(sequence, packets)

    def on_acknowledged(self, una: int) -> None:
        super().on_acknowledged(una)
        while self.lost and self.lost[0] < una:
            del self.lost[0]
        if self._held:
            self._held = {held for held in self._held if held >= una}
        self._again = max(self._again, una)

    def on_gap(self, sequence: int) -> None:
        """One packet, and not what follows it."""
        if sequence < self.top and sequence >= self._again and sequence not in self.lost:
            insort(self.lost, sequence)
            self._again = sequence + 1

    def on_response_missing(self, sequence: int) -> None:
        self._held.discard(sequence)
        if sequence not in self.lost:
            insort(self.lost, sequence)

    def on_selective(self, first: int, bitmap: int) -> None:
        sequence = first
        highest = first - 1
        while bitmap and sequence < self.top:
            if bitmap & 1:
                self._held.add(sequence)
                highest = sequence
            bitmap >>= 1
            sequence += 1
        # What lies below the highest that arrived, and has not been asked for, is taken for lost.
        for missing in range(max(first, self._again), highest):
            if missing not in self._held and missing not in self.lost:
                insort(self.lost, missing)
        self._again = max(self._again, highest)

    def on_timeout(self, una: int) -> None:
        self._held.discard(una)  # a request may have arrived, and its response not
        self.lost = [missing for missing in range(una, self.top) if missing not in self._held]
        self._again = self.top

    def holds(self, sequence: int) -> bool:
        return sequence in self._held


RECOVERIES: Final[Mapping[str, type[Recovery]]] = MappingProxyType(
    {"go-back-n": Recovery, "go-back-0": MessageRecovery, "selective": SelectiveRecovery}
)
"""By the name that `recovery` gives it."""
DEFAULT_RECOVERY: Final = "go-back-n"
