"""The state of a lab at one moment: its nodes, links and sessions. Values; what changed is told as a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class LinkWord(IntEnum):
    """The condition of a port, in a word."""

    DOWN = 0
    UP = 1
    CHANGED = 2
    """It is up, and somebody has changed its rate, its delay or what it loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenState:
    """`nodes` are the words of `NodeStatus` by node number, `links` those of ports by number; both are empty at first.

    `conditions` say how a port differs from what is declared, by "NODE:IF"; `sessions` the state of each BGP session by
    the interface that it is on, with its BFD peer's behind a slash.
    """

    nodes: tuple[str, ...] = ()
    links: tuple[int, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    sessions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what a page gets of it."""
        return {
            "nodes": self.nodes,
            "links": self.links,
            "conditions": dict(self.conditions),
            "sessions": dict(self.sessions),
            "sessions_up": sum(map(is_up, self.sessions.values())),
            "sessions_planned": len(self.sessions),
        }


def is_up(session: str) -> bool:
    """Tell whether a session is established, and its BFD peer up where it has one."""
    return session in ("Established", "Established/up")


def state_differences(before: SeenState, after: SeenState) -> dict[str, Any]:
    """Return what a page has to know that knew the state before; {} where nothing changed. What is gone is None."""
    found: dict[str, Any] = {}
    for name in ("nodes", "links"):
        old, new = getattr(before, name), getattr(after, name)
        changed = {number: value for number, value in enumerate(new) if number >= len(old) or old[number] != value}
        if changed:
            found[name] = changed
    for name in ("conditions", "sessions"):
        old, new = getattr(before, name), getattr(after, name)
        differing: dict[str, Any] = {key: value for key, value in new.items() if old.get(key) != value}
        differing |= dict.fromkeys(old.keys() - new.keys())
        if differing:
            found[name] = differing
    if "sessions" in found:
        found["sessions_up"] = sum(map(is_up, after.sessions.values()))
        found["sessions_planned"] = len(after.sessions)
    return found
