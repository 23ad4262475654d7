"""PDCs that peers have opened at one endpoint: who is let in, who makes room, and whom a SYN may replace.

Source: UE Specification 1.0, section 3.5.8 (a target looks a PDC up by {source address, SPDCID}; one that is not
confirmed within New_PDC_Time is ended), and 1.0.3 for Syn_Retx_Safety_Time. What keeps strangers out is ours: anybody
can forge the source of a SYN, and a SYN is all that it takes to open a PDC. So a PDC counts as unconfirmed until
something comes that only an initiator can send who hears us: a Start_PSN that we have demanded (`start_psn`), or the
PDCID that our ACK told. An initiator of ours probes as soon as it has heard that ACK, until it is heard.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.delivery.pdc import Pdc
from testbed.protocols.uet.delivery.start_psn import EarlierPdc, Identity

MOST_UNCONFIRMED: Final = 1024
"""Some 10 KB each. With so many, who is not known has to show first that he hears us."""
MOST_RESPONSES_UNCONFIRMED = 1 << 13
"""The responses that all unconfirmed PDCs share, some 200 bytes each. The earlier ones had more: 1024 PDCs, opened one
after the other, keep 7.5 times as many (the 1024th harmonic number)."""
_LOOKED_AT: Final = 64
"""PDCs among which one is chosen to be closed."""
_DOUBT_RTTS: Final = 16
"""The time that an initiator which may have begun anew has to answer for its old PDC, in base RTTs."""


class TargetTable:
    """PDCs of which this endpoint is the target. They may be three quarters of all, so that we can open some too."""

    def __init__(self, config: UetConfig) -> None:
        self._config = config
        self._most = config.max_pdcs - config.max_pdcs // 4
        self._most_unconfirmed = min(MOST_UNCONFIRMED, max(self._most // 2, 1))
        self._pdcs: OrderedDict[Identity, Pdc] = OrderedDict()
        self._unconfirmed: OrderedDict[Identity, Pdc] = OrderedDict()
        """Oldest first."""
        self._doubted: set[Identity] = set()
        """Confirmed once, but their initiators may have begun anew."""
        self._closed: OrderedDict[Identity, tuple[EarlierPdc, int]] = OrderedDict()
        """PDCs that have ended, and until when they are remembered."""

    def get(self, identity: Identity) -> Pdc | None:
        return self._pdcs.get(identity)

    def retained(self) -> int:
        """Return how many entries there are of PDCs that have not ended."""
        return len(self._pdcs) + len(self._unconfirmed) + len(self._doubted)

    def add(self, pdc: Pdc) -> None:
        """It has just been opened by a SYN."""
        identity = (pdc.remote, pdc.remote_pdcid)
        self._pdcs[identity] = pdc
        if pdc.unconfirmed_since >= 0:
            self._unconfirmed[identity] = pdc

    def remove(self, pdc: Pdc) -> None:
        """It is as if it had never been."""
        identity = (pdc.remote, pdc.remote_pdcid)
        if self._pdcs.get(identity) is pdc:
            del self._pdcs[identity]
            self._unconfirmed.pop(identity, None)
            self._doubted.discard(identity)

    def close(self, pdc: Pdc, now: int) -> bool:
        """It has ended; a late SYN must not open it again. False: for that, another one is forgotten too early."""
        self.remove(pdc)
        identity = (pdc.remote, pdc.remote_pdcid)
        closed = self._closed
        closed[identity] = (as_earlier(pdc), now + self._config.syn_memory_ns)
        closed.move_to_end(identity)
        if len(closed) <= self._config.max_pdcs:
            return True
        _, (_, until) = closed.popitem(last=False)
        return until <= now

    def remembered(self, identity: Identity, now: int) -> EarlierPdc | None:
        """Return the PDC of this identity that has ended not long ago."""
        closed = self._closed
        while closed:
            oldest, (_, until) = next(iter(closed.items()))
            if until > now:
                break
            del closed[oldest]
        remembered = closed.get(identity)
        return None if remembered is None else remembered[0]

    def confirm(self, pdc: Pdc) -> None:
        """Note that its initiator knows our PDCID, so it is where its packets say that they come from."""
        pdc.unconfirmed_since = -1
        identity = (pdc.remote, pdc.remote_pdcid)
        self._unconfirmed.pop(identity, None)
        self._doubted.discard(identity)

    @property
    def oldest_unconfirmed(self) -> Pdc | None:
        return next(iter(self._unconfirmed.values())) if self._unconfirmed else None

    @property
    def crowded(self) -> bool:
        """Tell whether so many are unconfirmed that somebody may be making them up."""
        return len(self._unconfirmed) >= self._most_unconfirmed

    @property
    def most_responses_unconfirmed(self) -> int:
        """Return how many guaranteed responses an unconfirmed PDC may keep."""
        return max(MOST_RESPONSES_UNCONFIRMED // max(len(self._unconfirmed), 1), 1)

    @property
    def has_room(self) -> bool:
        return len(self._pdcs) < self._most

    def make_room(self, now: int, *, full: bool) -> bool:
        """End the oldest unconfirmed PDC if it had a time-out's time to confirm itself; or else, if there are too many
        (`full`: with those that we have opened), ask for the end of one that is idle. Whether there was one."""
        oldest = self.oldest_unconfirmed
        if oldest is not None and now - oldest.unconfirmed_since >= self._config.rto_ns:
            oldest.fail("its initiator has never answered", now)
            return True
        if len(self._pdcs) < self._most and not full:
            return False
        longest: Pdc | None = None
        for _ in range(min(len(self._pdcs), _LOOKED_AT)):
            identity, pdc = next(iter(self._pdcs.items()))
            self._pdcs.move_to_end(identity)
            if pdc.sender.idle and not pdc.close_wanted and (longest is None or pdc.last_used < longest.last_used):
                longest = pdc
        if longest is not None:
            longest.ask_to_close(now)
        return longest is not None

    def has_begun_anew(self, pdc: Pdc, now: int) -> bool:
        """Tell whether the initiator of `pdc`, of which a SYN with another Start_PSN has come, no longer knows it.

        It is probed first: if it answers for the old PDC, the SYN was forged (compare the challenge of RFC 5961,
        section 4). A genuine one is repeated until there was time for that.
        """
        if pdc.unconfirmed_since < 0:
            pdc.unconfirmed_since = now
            self._doubted.add((pdc.remote, pdc.remote_pdcid))
        elif now - pdc.unconfirmed_since >= min(self._config.rto_ns, _DOUBT_RTTS * self._config.base_rtt_ns):
            return True
        pdc.sender.probing.send(now)
        return False

    # --- New_PDC_Time ------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        """Return when the oldest unconfirmed PDC has had its time; None for never."""
        oldest = self.oldest_unconfirmed
        return None if oldest is None else oldest.unconfirmed_since + self._config.new_pdc_wait_ns

    def handle_timer(self, now: int) -> None:
        """End the PDCs that were not confirmed within New_PDC_Time."""
        oldest = self.oldest_unconfirmed
        while oldest is not None and now - oldest.unconfirmed_since >= self._config.new_pdc_wait_ns:
            oldest.count("unconfirmed-pdc")
            oldest.fail("its initiator has never answered", now)
            oldest = self.oldest_unconfirmed


def as_earlier(pdc: Pdc) -> EarlierPdc:
    """Return what is remembered of a PDC."""
    return EarlierPdc(pdc.start_psn, pdc.receiver.tracker.highest)
