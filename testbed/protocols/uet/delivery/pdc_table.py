"""All PDCs of one endpoint: how they are opened, from here and by a SYN, and what is kept of those that have ended.

Source: UE Specification 1.0, section 3.5.8: an initiator finds its PDC by {peer, job, mode}, a target by {source
address, SPDCID}; once both PDCIDs are known, a packet names the PDC of its receiver. Who of the peers is let in is told
in `admission`, who chooses the Start_PSN in `start_psn`.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final, Protocol

from testbed.protocols.datagram import Incoming
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.congestion.registry import make_context
from testbed.protocols.uet.delivery.admission import TargetTable, as_earlier
from testbed.protocols.uet.delivery.pdc import Establishment, Pdc, PdcOwner
from testbed.protocols.uet.delivery.receiver import encode_nack
from testbed.protocols.uet.delivery.start_psn import StartPsnDemands, choose_start_psn
from testbed.protocols.uet.packets.codes import Mode, NackCode, NackFlag, RequestFlag
from testbed.protocols.uet.packets.pds import Request
from testbed.protocols.uet.packets.psn import psn_add
from testbed.protocols.uet.paths import PathKind, make_paths
from testbed.protocols.uet.peers import PeerCounters

_NACK_RETX: Final = int(NackFlag.RETX)
_REQ_RETX: Final = int(RequestFlag.RETX)
_COUNTED: Final = {code: code.name.lower().replace("_", "-") for code in NackCode}

PeerKey = tuple[str, int, Mode]
"""Address of a peer, job and mode: what an initiator finds its PDC by."""


class PdcTableOwner(PdcOwner, Protocol):
    """The endpoint whose PDCs these are."""

    peers: PeerCounters

    def count(self, what: str) -> None:
        """Something has happened."""


class PdcTable:
    """The PDCs of one endpoint, by PDCID, by peer and by identity. `secret`: a key that nobody else knows."""

    def __init__(self, owner: PdcTableOwner, config: UetConfig, random: Random, secret: bytes) -> None:
        self._owner = owner
        self._config = config
        self._random = random
        self._nscc = {remote: config.nscc(remote) for remote in ("", *config.least_rtts_ns)}
        """Parameters of congestion control by the peer; "" for those of which nothing is known."""
        self.by_pdcid: dict[int, Pdc] = {}
        self.targets = TargetTable(config)
        self._demands = StartPsnDemands(secret, config.syn_memory_ns)
        self._initiators: dict[PeerKey, list[Pdc]] = {}
        self._keys: dict[int, PeerKey] = {}
        """Key of each initiator's PDC, by PDCID."""
        self._last_psns: dict[int, int] = {}
        """The PSN that was used last with a PDCID of ours, which the next Start_PSN keeps away from."""
        self._turn: Counter[PeerKey] = Counter()

    def retained(self) -> dict[str, int]:
        """Return how many PDCs are kept, and how many entries by which they are found."""
        return {
            "pdcs": len(self.by_pdcid),
            "targets": self.targets.retained(),
            "initiators": len(self._initiators) + len(self._keys),
        }

    # --- opened from here --------------------------------------------------------------------------------

    def submit(self, remote: str, job_id: int, mode: Mode, now: int) -> Pdc:
        """The PDC for the next message to a peer: an open one, or a new one; `UsageError` if there are too many."""
        key = (remote, job_id, mode)
        most = self._config.pdcs_per_peer
        usable = self._initiators.get(key)
        if usable is None:
            usable = []
        elif most == 1 and usable[0].open:
            return usable[0]
        usable = [pdc for pdc in usable if pdc.open]
        if len(usable) < most:
            pdc = self._open(remote, mode, now)
            before = self._initiators.setdefault(key, [])
            # Order is that of one PDC: the next one waits for the end of one that is closing.
            pdc.held = mode == Mode.ROD and most == 1 and len(before) > 0
            before.append(pdc)
            self._keys[pdc.local_pdcid] = key
            return pdc
        self._turn[key] += 1
        return usable[self._turn[key] % len(usable)]

    def _open(self, remote: str, mode: Mode, now: int) -> Pdc:
        pdcid = self._new_pdcid()
        stranger = self.targets.oldest_unconfirmed
        if pdcid == 0 and stranger is not None:
            stranger.fail("its place is needed", now)
            pdcid = self._new_pdcid()
        if pdcid == 0:
            raise UsageError(f"{len(self.by_pdcid)} PDCs are open; no more fit")
        start_psn = choose_start_psn(self._random, self._last_psns.get(pdcid))
        return self._add(Establishment(mode, remote, pdcid, 0, start_psn, initiator=True), now)

    def _add(self, establishment: Establishment, now: int) -> Pdc:
        config = self._config
        kind = PathKind.SINGLE if establishment.mode == Mode.ROD else PathKind(config.paths)
        congestion = make_context(config.cc, self._nscc.get(establishment.remote, self._nscc[""]), now)
        paths = make_paths(
            kind,
            config.entropies,
            self._random,
            config.base_rtt_ns,
            config.recycled_entropy_uses,
            config.packets_per_ack,
        )
        pdc = self.by_pdcid[establishment.local_pdcid] = Pdc(self._owner, establishment, congestion, paths, now)
        return pdc

    def _new_pdcid(self) -> int:
        """A free PDCID (1 to 65535) that nobody can guess, or 0."""
        if len(self.by_pdcid) >= self._config.max_pdcs:
            return 0
        pdcid = self._random.randrange(1, 0x10000)
        while pdcid in self.by_pdcid:
            pdcid = pdcid % 0xFFFF + 1
        return pdcid

    # --- opened by a SYN ---------------------------------------------------------------------------------

    def find(self, syn: Request, incoming: Incoming) -> Pdc | None:
        """Return the PDC that a packet with SYN belongs to; None: it is not open, or was begun with another
        Start_PSN."""
        pdc = self.targets.get((incoming.remote, syn.spdcid))
        return pdc if pdc is not None and pdc.start_psn == psn_add(syn.psn, -syn.psn_offset) else None

    def accept(self, syn: Request, incoming: Incoming, mode: Mode, now: int) -> Pdc | None:
        """Open the PDC that a packet with SYN asks for, of which `find` knows none; None: it is refused or ignored."""
        targets = self.targets
        identity = (incoming.remote, syn.spdcid)
        start_psn = psn_add(syn.psn, -syn.psn_offset)
        earlier = targets.remembered(identity, now)
        if earlier is not None and earlier.start_psn == start_psn:
            self._owner.count("late-syn")
            return None
        before = targets.get(identity)
        if before is not None:
            earlier = as_earlier(before)
        if targets.crowded:
            self._demands.hold_on(now)
        proven = self._owner.encrypts or self._demands.are_made(now)
        if proven:
            demanded = self._demands.demand(start_psn, identity, mode, earlier, now)
            if demanded != start_psn:
                self._demands.hold_on(now)
                self.refuse(NackCode.NEW_START_PSN, syn, incoming, demanded)
                return None
        elif before is not None and not targets.has_begun_anew(before, now):
            self.refuse(NackCode.NO_PDC_AVAIL, syn, incoming)
            return None
        if incoming.trimmed:
            self.refuse_trimmed(syn, incoming)
            return None
        if syn.psn_offset > self._config.mp_range:
            self.refuse(NackCode.INVALID_SYN, syn, incoming)
            return None
        if before is not None:
            before.fail("its initiator has begun anew", now)
        full = len(self.by_pdcid) >= self._config.max_pdcs
        if (full or not targets.has_room) and not targets.make_room(now, full=full) and full:
            self._close_idlest(now)
        pdcid = self._new_pdcid() if targets.has_room else 0
        if pdcid == 0:
            self.refuse(NackCode.NO_PDC_AVAIL, syn, incoming)
            return None
        pdc = self._add(Establishment(mode, incoming.remote, pdcid, syn.spdcid, start_psn, initiator=False), now)
        if proven:
            pdc.unconfirmed_since = -1
        targets.add(pdc)
        return pdc

    def take_back(self, pdc: Pdc) -> None:
        """Forget a PDC that was opened by a packet which turned out to be malformed: as if it had never been."""
        self.targets.remove(pdc)
        self._owner.peers.end(self.by_pdcid.pop(pdc.local_pdcid))

    def _close_idlest(self, now: int) -> None:
        """Close one that we have opened ourselves, and that has nothing to send, for the sake of a peer."""
        idle = (pdc for pdc in self.by_pdcid.values() if pdc.initiator and pdc.open and pdc.sender.idle)
        pdc = min(idle, key=lambda pdc: pdc.last_used, default=None)
        if pdc is not None:
            pdc.close(now)

    def refuse(self, code: NackCode, request: Request, incoming: Incoming, payload: int = 0) -> None:
        """NACK of a packet that has no PDC here."""
        self._owner.count(_COUNTED[code])
        self._nack(code, request, incoming, payload)

    def refuse_trimmed(self, request: Request, incoming: Incoming) -> None:
        """NACK of a packet that has no PDC here, and of which a switch has left the beginning only."""
        self._owner.peers.count("trimmed", (incoming.remote, False))
        self._nack(NackCode.TRIMMED_LASTHOP if incoming.last_hop else NackCode.TRIMMED, request, incoming)

    def _nack(self, code: NackCode, request: Request, incoming: Incoming, payload: int = 0) -> None:
        flags = _NACK_RETX if request.flags & _REQ_RETX else 0
        self._owner.emit(encode_nack(code, request.psn, 0, request.spdcid, incoming, flags, payload))

    # --- ended -------------------------------------------------------------------------------------------

    def end(self, pdc: Pdc, now: int) -> None:
        """Forget a PDC; its identity is kept for a while, so that a late SYN does not open it again."""
        if self.by_pdcid.pop(pdc.local_pdcid, None) is not None:
            self._owner.peers.end(pdc)
        pdc.deadline = 0  # no timer of it counts any more
        if not pdc.initiator:
            if not self.targets.close(pdc, now):
                self._demands.revoke()
            return
        self._last_psns[pdc.local_pdcid] = psn_add(pdc.sender.window.next_psn, -1)
        key = self._keys.pop(pdc.local_pdcid)
        pdcs = self._initiators[key]
        pdcs.remove(pdc)
        if not pdcs:
            del self._initiators[key]
        elif pdcs[0].held:
            pdcs[0].held = False
            self._owner.wake(pdcs[0])
