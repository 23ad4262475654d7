"""The rows of a change put together for people: a threshold that changes on 1,024 ports is one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.base.rows import column
from testbed.lab.core.plan.changes import ChangeRow, Effect

_NAMES_SHOWN = 3
"""Nodes that are named; of more, the first and the last are."""
_PARTS_SHOWN = 4
_ORDER = (Effect.REMADE, Effect.RESTARTED, Effect.MADE, Effect.CHANGED, Effect.REMOVED)
"""The order in which people are told: what costs something is first."""
_DAEMONS = frozenset({"mgmtd", "zebra", "bfdd", "bgpd", "staticd"})
"""The kinds of rows whose details are lines for a routing daemon, which name other neighbours on each node."""
_LINES_SHOWN = 2
"""Lines that a routing daemon is told and people see; of more they see how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeGroup:
    """Rows of a change that say the same of several things: `things` of them, on the nodes `where`."""

    effect: str = column("change")
    what: str
    where: str
    detail: str = column(heading="difference", sparse=True, default="")
    reason: str = column(heading="because", sparse=True, default="")
    at_stake: str = column(sparse=True, default="")
    allow: str = column(heading="needs", sparse=True, default="")
    things: int = column(hidden=True, default=1)


def grouped(rows: Iterable[ChangeRow]) -> list[ChangeGroup]:
    """Put rows together that differ only in what they are about. What comes with another thing is told there."""
    rows = list(rows)
    things = {(row.effect, row.what) for row in rows if not row.part_of}
    parts: dict[tuple[Effect, str], Counter[str]] = {}
    groups: dict[tuple[str, ...], list[ChangeRow]] = {}
    for row in rows:
        if row.part_of and (row.effect, row.part_of) in things:
            parts.setdefault((row.effect, row.part_of), Counter())[row.kind or row.what] += 1
        else:
            groups.setdefault(_same(row), []).append(row)
    found = sorted(groups.values(), key=lambda each: (not each[0].allow, _ORDER.index(each[0].effect)))
    return [_group(each, parts) for each in found]


def counts(rows: Iterable[ChangeRow]) -> dict[str, int]:
    """Count the things of a change by what becomes of them; what comes with another thing does not count."""
    found = Counter(row.effect for row in rows if not row.part_of)
    return {str(effect): found[effect] for effect in Effect if found[effect]}


def summary(rows: Iterable[ChangeRow]) -> str:
    """Say how many things of a change are made, changed and removed."""
    return ", ".join(f"{count:,} {effect}" for effect, count in counts(rows).items()) or "nothing to change"


def plural(noun: str) -> str:
    """Return the plural of a noun, which may be one; of several words, that of the one before "of"."""
    first, of, rest = noun.partition(" of ")
    if of:
        return f"{plural(first)} of {rest}"
    if noun.endswith("s") and not noun.endswith("ss"):
        return noun
    if noun.endswith(("ss", "x", "ch", "sh")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"


def counted(count: int, noun: str) -> str:
    """Return a number of things with their noun: "1 key", "1,024 ports"."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def node_names(nodes: Sequence[str]) -> str:
    """Name nodes, the first and the last of many."""
    if len(nodes) <= _NAMES_SHOWN:
        return ", ".join(nodes)
    return f"{len(nodes):,} nodes: {nodes[0]} ... {nodes[-1]}"


def _same(row: ChangeRow) -> tuple[str, ...]:
    detail = "" if row.kind in _DAEMONS else row.detail
    return (row.effect, row.kind or row.what, detail, row.reason, row.at_stake, row.allow, row.part_of)


def _group(rows: Sequence[ChangeRow], parts: dict[tuple[Effect, str], Counter[str]]) -> ChangeGroup:
    first, count = rows[0], len(rows)
    kind = first.kind
    if count == 1 or not kind:
        what = first.what
    else:
        is_of_nodes = kind in _DAEMONS or plural(kind) == kind
        what = f"{kind} of {count:,} nodes" if is_of_nodes else f"{count:,} {plural(kind)}"
    own = sum((parts.get((row.effect, row.what), Counter()) for row in rows), Counter[str]())
    return ChangeGroup(
        effect=first.effect,
        what=what,
        where=node_names(list(dict.fromkeys(name for row in rows for name in row.node.split()))),
        detail=_lines(rows) if kind in _DAEMONS else _with_parts(first.detail, own),
        reason=first.reason,
        at_stake=first.at_stake,
        allow=f"--allow {first.allow}" if first.allow else "",
        things=count,
    )


def _with_parts(detail: str, parts: Counter[str]) -> str:
    if not parts:
        return detail
    shown = [counted(count, kind) for kind, count in parts.most_common(_PARTS_SHOWN)]
    more = sum(parts.values()) - sum(count for _, count in parts.most_common(_PARTS_SHOWN))
    text = f"with {', '.join(shown)}" + (f" and {more:,} more things" if more else "")
    return f"{detail}; {text}" if detail else text


def _lines(rows: Sequence[ChangeRow]) -> str:
    every = [line for row in rows for line in row.detail.split("; ")]
    if len(set(every)) <= _LINES_SHOWN:
        return "; ".join(dict.fromkeys(every))
    return f"{every[0]}; ... ({len(every):,} lines)"
