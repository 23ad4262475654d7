"""The commands that make a running FRR daemon's configuration another one: a line each, as at its prompt.

Both configurations are those of `render_switch`, whose contexts are told by their indentation. What stays is not
touched, so that sessions that a change does not concern stay up; a value that is only replaced is not taken away
first, so that nothing is without it in between. FRR's own `frr-reload.py` does the same for any configuration, with two
vtysh processes of a second each for a switch.

Source: FRR user guide, chapter Basic Commands (contexts, `no`) and BGP.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_Tree = Mapping[str, "_Tree"]
"""The lines of a context in their order, and below each the lines of its own context: empty for a command."""

_ENDS = re.compile(r"exit(-address-family|-vni|-vrf)?$")
_HEADER = re.compile(r"(frr (version|defaults)|hostname|log) ")
"""The beginning of every file: it is the same for a switch as long as its lab is up."""
_REPLACED = re.compile(
    r"bgp (router-id|cluster-id) |coalesce-time |maximum-paths (ibgp )?(?=\d)|rd |description |vni (?=\d+$)"
    r"|neighbor \S+ (description|timers connect|timers(?= \d)|advertisement-interval|password|ttl-security hops) "
    r"|neighbor \S+ (interface )?remote-as "
    r"|(detect-multiplier|receive-interval|transmit-interval|bmp stats interval|ipv6 nd ra-interval) "
    r"|ip prefix-list \S+ seq \d+ |zebra (zapi-packets|work-queue) |bmp connect \S+ port \d+ "
)
"""The part of a command that stays where its value is replaced by another one: entering it anew is enough."""
_OWNERS = re.compile(r"neighbor (\S+) (interface|peer-group$)")
"""The command that makes a neighbour or a group; without it all else that is said of it is gone."""
_OWNED = re.compile(r"neighbor (\S+) ")
_ALWAYS_THERE = ("address-family ",)
"""Contexts of which only what is in them goes."""


def difference(old: str, new: str) -> list[str]:
    """Return the commands, below `configure terminal`, that make `new` of a daemon that runs `old`; none if all is the
    same."""
    return list(_commands(_parse(old), _parse(new)))


def _parse(text: str) -> _Tree:
    root: dict[str, _Tree] = {}
    open_contexts: list[tuple[int, dict[str, _Tree]]] = [(-1, root)]
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("!") or _ENDS.match(line) or _HEADER.match(line):
            continue
        depth = len(raw) - len(raw.lstrip())
        while open_contexts[-1][0] >= depth:
            open_contexts.pop()
        inner: dict[str, _Tree] = {}
        open_contexts[-1][1][line] = inner
        open_contexts.append((depth, inner))
    return root


def _commands(old: _Tree, new: _Tree, gone: frozenset[str] = frozenset()) -> Iterator[str]:
    """The commands of one context: what is new first, which the others may name, then changes inside, then removals.

    `gone` are the neighbours and groups that are taken away further out: nothing else of them has to be.
    """
    lost = {found[1]: line for line in old if line not in new and (found := _OWNERS.match(line))}
    for name, line in lost.items():
        if any((found := _OWNERS.match(other)) and found[1] == name for other in new):  # it goes by another group now
            yield f"no {line}"
            old = _without(old, name)
    gone |= lost.keys()
    yield from (line for line, inner in new.items() if line not in old and not inner)
    for line, inner in new.items():
        if inner or old.get(line):
            yield from _within(line, _commands(old.get(line, {}), inner, gone), always=line not in old)
    replaced = {found[0] for line in new if line not in old and (found := _REPLACED.match(line))}
    for line in reversed([line for line in old if line not in new]):
        is_owned = (owned := _OWNED.match(line)) and owned[1] in gone and not _OWNERS.match(line)
        if is_owned or ((found := _REPLACED.match(line)) and found[0] in replaced):
            continue
        if line.startswith(_ALWAYS_THERE):
            yield from _within(line, _commands(old[line], {}, gone))
        else:
            yield line.removeprefix("no ") if line.startswith("no ") else f"no {line}"


def _without(tree: _Tree, neighbour: str) -> _Tree:
    """The lines that say nothing of a neighbour, in all contexts."""
    return {
        line: _without(inner, neighbour)
        for line, inner in tree.items()
        if not ((found := _OWNED.match(line)) and found[1] == neighbour)
    }


def _within(context: str, commands: Iterator[str], *, always: bool = False) -> Iterator[str]:
    """Enter a context for its commands, and leave it; nothing where there are none, unless `always`."""
    inner = list(commands)
    if inner or always:
        yield context
        yield from inner
        yield "exit-address-family" if context.startswith("address-family ") else "exit"
