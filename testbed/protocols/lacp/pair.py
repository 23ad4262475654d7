"""Two leaves that are one LACP partner (MLAG), without I/O: what they tell each other, and what follows for a leaf.

Both have the MACs and the gateway addresses of one, and a link group (LAG) with each host. A leaf tells its peer which
groups are in sync at its own ports, and which MACs and addresses it has heard behind them. From that follows:

* **split horizon**: what comes over the peer link is kept from the port of a group that is in sync at the peer, which
  has delivered it there itself;
* **detour**: frames for a group that is in sync at the peer alone go over the peer link;
* **leaving**: a leaf without a way to the fabric holds its members back (its peer has one), so that hosts use the peer;
* **split brain**: when the peer link is dead while the peer lives, the secondary leaves and takes its gateways down.
  That the peer lives is what it answers over the fabric to a question asked after the link's death: a peer that died
  with the link answers nothing, and nobody leaves. One that answered with its last breath counts for half a second, or
  until BGP has taken it out of the fabric.

State is told whole and again each second, so that nothing depends on a message that was lost. What has been heard of is
told in parts that fit a frame, until the peer says that it has them. With it goes what a peer that was lost had heard:
one that comes back would have to ask hosts, whose answers may go to the other leaf.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HELLO_PERIOD_S = 1.0
SILENCE_S = 3.0
QUESTION_PERIOD_S = 0.1
ANSWER_HOLDS_S = 0.5
"""So long after its last answer a peer counts as alive, whose links may have died one after the other."""
ENTRIES_IN_PART = 16
TAG_BYTES = 16
"""The part of the HMAC-SHA-256 (RFC 2104, 5) that each message begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """The state of a leaf and its peer. `reason` is why the leaf has left its groups, "" where it has not."""

    peer: str
    peer_link: str
    primary: bool
    left: bool
    reason: str
    blocked: tuple[str, ...]
    detoured: tuple[str, ...]


@dataclass(slots=True)
class _Heard:
    """The stations that a leaf has heard behind its groups: MAC -> group, and address -> MAC.

    MACs and addresses are what the leaves call them, together with the bridge that they are on.
    """

    stations: dict[str, str] = field(default_factory=dict)
    neighbours: dict[str, str] = field(default_factory=dict)

    def followed_by(self, later: _Heard) -> _Heard:
        """This and `later`, which counts where both say something."""
        return _Heard(self.stations | later.stations, self.neighbours | later.neighbours)

    def parts(self) -> list[dict[str, dict[str, str]]]:
        """The whole in parts that fit a frame; at least one."""
        items = [("stations", *item) for item in self.stations.items()]
        items += [("neighbours", *item) for item in self.neighbours.items()]
        parts: list[dict[str, dict[str, str]]] = []
        for start in range(0, max(1, len(items)), ENTRIES_IN_PART):
            part: dict[str, dict[str, str]] = {"stations": {}, "neighbours": {}}
            for kind, key, value in items[start : start + ENTRIES_IN_PART]:
                part[kind][key] = value
            parts.append(part)
        return parts


class Pair:
    """A leaf's view of the pair. Every call takes the time (seconds, never backwards)."""

    def __init__(self, *, name: str, peer: str, primary: bool, groups: Sequence[str], secret: bytes) -> None:
        self._name, self._peer, self.primary = name, peer, primary
        self._groups = frozenset(groups)
        self._secret = secret
        self._carrier = False
        self.reaches_fabric = False
        """True where the leaf was last said to have a way to the fabric."""
        self._active: frozenset[str] = frozenset()
        self._heard = _Heard()
        self._number = 1
        self._seen_of_peer = 0
        """The number of the peer's heard entries that have come whole."""
        self._seen_by_peer = 0
        self._peer_active: frozenset[str] = frozenset()
        self._peer_fabric = False
        self._peer_until = 0.0
        """When the peer counts as silent over the peer link."""
        self._parts: dict[int, dict[str, dict[str, str]]] = {}
        self._parts_of = 0
        self.of_peer = _Heard()
        """The stations that the peer has heard."""
        self._inherited = _Heard()
        """The stations that the peer had heard when it was lost."""
        self._asked_at: float | None = None
        """Since when the peer link is dead, and the peer is asked over the fabric."""
        self._answered_until = 0.0
        self._hello_due = 0.0
        self._answer_due = False

    # ------------------------------------------------------------------ what happens

    def peer_link(self, up: bool, now: float) -> None:
        """Take note of the peer link's carrier."""
        if up != self._carrier:
            self._carrier = up
            self._hello_due = now
            if not up:
                self._lose_peer(now)

    def serve(self, groups: Sequence[str], now: float) -> None:
        """Have these groups and no others. What the peer has heard behind a new one it is asked for once more."""
        served = frozenset(groups)
        if served - self._groups:
            self._seen_of_peer = self._parts_of = 0
        self._groups = served
        self._active &= served
        self._peer_active &= served
        for heard in (self._heard, self.of_peer, self._inherited):
            heard.stations = {mac: group for mac, group in heard.stations.items() if group in served}
        self._number += 1
        self._hello_due = now

    def fabric(self, reached: bool, now: float) -> None:
        """Take note whether the leaf has a way to the fabric."""
        if reached != self.reaches_fabric:
            self.reaches_fabric, self._hello_due = reached, now

    def lost_over_fabric(self) -> None:
        """Take note that no way leads to the peer over the fabric: what it answered before counts no more."""
        self._answered_until = 0.0

    def in_sync(self, groups: Sequence[str], now: float) -> None:
        """Take note of the groups that are in sync at this leaf's ports."""
        active = frozenset(groups)
        if active != self._active:
            self._active, self._hello_due = active, now

    def heard_station(self, mac: str, group: str | None, now: float) -> None:
        """Take note that a MAC is behind a group, or (None) that it is no more."""
        self._note(self._heard.stations, mac, group, now)

    def heard_neighbour(self, address: str, mac: str | None, now: float) -> None:
        """Take note that an address has this MAC, or (None) none any more."""
        self._note(self._heard.neighbours, address, mac, now)

    def _note(self, table: dict[str, str], key: str, value: str | None, now: float) -> None:
        if table.get(key) == value:
            return
        if value is None:
            del table[key]
        else:
            table[key] = value
        self._number += 1
        self._hello_due = now

    def received(self, data: bytes, now: float, *, over_fabric: bool = False) -> None:
        """Take a message of the peer; one that is not the peer's, or no message, is not heard."""
        message = self._open(data)
        if message is None:
            return
        if over_fabric:
            if message.get("question"):
                self._answer_due = True
            elif self._asked_at is not None:
                self._answered_until = now + ANSWER_HOLDS_S
            return
        if not self._carrier:
            return
        if self._peer_until <= now:
            self._hello_due = now  # it is there again, and must know of us
        self._peer_until = now + SILENCE_S
        self._asked_at = None
        if "part" in message:
            self._take_part(message, now)
            return
        self._peer_fabric = bool(message.get("fabric"))
        self._peer_active = self._groups & frozenset(map(str, message.get("in_sync", ())))
        self._seen_by_peer = int(message.get("seen", 0))

    def _take_part(self, message: Mapping[str, Any], now: float) -> None:
        number, part, parts = int(message["number"]), int(message["part"]), int(message["parts"])
        if number != self._parts_of:
            self._parts_of, self._parts = number, {}
        self._parts[part] = {
            kind: {str(key): str(value) for key, value in dict(message.get(kind, {})).items()}
            for kind in ("stations", "neighbours")
        }
        if len(self._parts) == parts and self._seen_of_peer != number:
            stations: dict[str, str] = {}
            neighbours: dict[str, str] = {}
            for each in self._parts.values():
                stations |= {mac: group for mac, group in each["stations"].items() if group in self._groups}
                neighbours |= each["neighbours"]
            self.of_peer = _Heard(stations, neighbours)
            self._seen_of_peer = number
            self._hello_due = now

    def time_out(self, now: float) -> None:
        """Do what has become due."""
        if self._carrier and self._asked_at is None and 0 < self._peer_until <= now:
            self._lose_peer(now)

    def _lose_peer(self, now: float) -> None:
        self._peer_until = 0.0
        self._peer_active = frozenset()
        self._asked_at, self._answered_until = now, 0.0
        self._hello_due = now
        self._seen_of_peer = self._seen_by_peer = self._parts_of = 0
        self._inherited = self._inherited.followed_by(self.of_peer)
        self._number += 1

    # ------------------------------------------------------------------ what follows from it

    def messages(self, now: float) -> tuple[list[bytes], list[bytes]]:
        """Return what is to be sent now over the peer link, and over the fabric."""
        over_link: list[bytes] = []
        over_fabric: list[bytes] = []
        if self._answer_due:
            self._answer_due = False
            over_fabric.append(self._seal({"question": False}))
        if self._hello_due <= now:
            self._hello_due = now + (HELLO_PERIOD_S if self._asked_at is None else QUESTION_PERIOD_S)
            if self._asked_at is not None:
                over_fabric.append(self._seal({"question": True}))
            if self._carrier:
                hello = {"fabric": self.reaches_fabric, "in_sync": sorted(self._active), "seen": self._seen_of_peer}
                over_link.append(self._seal(hello))
                if self._seen_by_peer != self._number:
                    parts = self._inherited.followed_by(self._heard).parts()
                    over_link += [
                        self._seal({"number": self._number, "part": number, "parts": len(parts), **part})
                        for number, part in enumerate(parts)
                    ]
        return over_link, over_fabric

    def next_due(self) -> float:
        """When `time_out` and `messages` have something to do."""
        if self._answer_due:
            return 0.0
        due = self._hello_due
        if self._carrier and self._asked_at is None and self._peer_until > 0:
            due = min(due, self._peer_until)
        return due

    def peer_alive(self, now: float) -> bool:
        """Tell whether the peer is heard over the peer link."""
        return self._carrier and self._peer_until > now

    def leaving(self, now: float) -> str:
        """Why the leaf holds its members back; "" where it does not."""
        if self.split_brain(now):
            return "the peer link is dead and the primary lives"
        worse = self.peer_alive(now) and not self._peer_fabric and self.primary
        if not self.reaches_fabric and not worse:
            return "no way to the fabric"
        return ""

    def split_brain(self, now: float) -> bool:
        """Tell whether this leaf is the secondary of a pair whose peer link is dead while its primary lives."""
        return not self.primary and self._asked_at is not None and self._answered_until > now

    def blocked(self, now: float) -> frozenset[str]:
        """The groups that what comes over the peer link is kept from."""
        return self._peer_active if self.peer_alive(now) else frozenset()

    def detoured(self, now: float) -> frozenset[str]:
        """The groups that are reached over the peer link alone."""
        return self.blocked(now) - self._active

    def stations(self) -> dict[str, str]:
        """MAC -> group, as both leaves have heard; what this one has heard counts first."""
        return self._inherited.followed_by(self.of_peer).followed_by(self._heard).stations

    def neighbours(self) -> dict[str, str]:
        """Address -> MAC, as both leaves have heard."""
        return self._inherited.followed_by(self.of_peer).followed_by(self._heard).neighbours

    def status(self, now: float) -> PairStatus:
        reason = self.leaving(now)
        return PairStatus(
            peer=self._peer,
            peer_link="up" if self.peer_alive(now) else "silent" if self._carrier else "down",
            primary=self.primary,
            left=bool(reason),
            reason=reason,
            blocked=tuple(sorted(self.blocked(now))),
            detoured=tuple(sorted(self.detoured(now))),
        )

    # ------------------------------------------------------------------ messages

    def _seal(self, message: Mapping[str, Any]) -> bytes:
        body = json.dumps({"from": self._name, **message}, separators=(",", ":")).encode()
        return self._tag(body) + body

    def _open(self, data: bytes) -> dict[str, Any] | None:
        tag, body = data[:TAG_BYTES], data[TAG_BYTES:].rstrip(b"\0")  # short frames are padded
        if not hmac.compare_digest(tag, self._tag(body)):
            return None
        message: dict[str, Any] = json.loads(body)
        return message if message.get("from") == self._peer else None

    def _tag(self, body: bytes) -> bytes:
        return hmac.new(self._secret, body, hashlib.sha256).digest()[:TAG_BYTES]
