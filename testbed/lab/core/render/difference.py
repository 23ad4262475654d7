"""The commands that make a running FRR daemon's configuration another one: a line each, as at its prompt.

What stays is not touched, so that sessions that a change does not concern stay up; a value that is only replaced is not
taken away first, so that nothing is without it in between. FRR's own `frr-reload.py` does the same with two vtysh
processes of a second each for a switch, and without saying which lines it cannot change: `only_at_start` has those,
which are what counts when a session or a neighbour is made, and all that is not known here to be taken back by `no`.

Source: FRR user guide, chapters Basic Commands (contexts, `no`), BGP, Filtering and Route Maps.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from testbed.lab.core.render.config_text import (
    ConfigTree,
    in_force,
    kind_of,
    leaving,
    opens_context,
    parse_configuration,
    replaced_part,
    rule_of,
)

_HEADER = re.compile(r"(frr (version|defaults)|hostname|log (file|timestamp)) ")
"""The beginning of every file: it is the lab's own, and the same for a switch as long as its lab is up."""
_DEFAULTS = re.compile(r"^frr defaults .*$", re.MULTILINE)
_OWNERS = re.compile(r"neighbor (\S+) (interface|peer-group$)")
"""The command that makes a neighbour or a group; without it all else that is said of it is gone."""
_OWNED = re.compile(r"neighbor (\S+) ")
_ADDRESS = re.compile(r"[0-9.]+$|[0-9a-f:]*:[0-9a-f:.]*$", re.IGNORECASE)
"""A neighbour that is no interface: any command about it makes it, and `no neighbor ADDRESS` takes it away."""
_RESET = (
    (re.compile(r"description |bandwidth "), r"no \1"),
    (re.compile(r"(neighbor \S+ (?:description|password)) "), r"no \1"),
    (re.compile(r"(ipv6 nd ra-interval) "), r"no \1"),
    (re.compile(r"(on-match (?:next|goto)|continue)( |$)"), r"no \1"),
    (re.compile(r"(redistribute \S+) "), r"no \1"),
    (re.compile(r"(detect-multiplier) "), r"\1 3"),
    (re.compile(r"((?:receive|transmit)-interval) "), r"\1 300"),
)
"""The commands that are not taken back by `no` and the whole of them: what they are set to instead."""

_ON = re.compile(
    r"(?:bgp (?:ebgp-requires-policy|default ipv4-unicast|network import-check|fast-external-failover"
    r"|client-to-client reflection)|ipv6 nd suppress-ra|zebra nexthop kernel enable|link-detect"
    r"|neighbor \S+ send-community.*)$"
)
"""The lines that hold without a word, in `frr defaults traditional`: a `no` of it is taken back by saying it."""
_BY_DEFAULTS = re.compile(r"bgp (?:ebgp-requires-policy|network import-check|deterministic-med|log-neighbor-changes)$")
"""The lines in which FRR's sets of defaults differ (bgpd/bgp_vty.c, `match_profile`)."""
_OFF = re.compile(
    r"(?:debug |shutdown$|coalesce-time|timers |maximum-paths|bgp (?:suppress-fib-pending|log-neighbor-changes"
    r"|always-compare-med|deterministic-med|reject-as-sets|bestpath )|neighbor \S+ (?:shutdown|activate|timers|bfd"
    r"|weight|next-hop-self|soft-reconfiguration|password|description|advertisement-interval|ttl-security|prefix-list"
    r"|route-map|filter-list|maximum-prefix|allowas-in|route-reflector-client|default-originate)"
    r"|advertise|redistribute |network )"
)
"""The lines that do not hold without a word: a `no` of it says nothing, and may go."""
_BY_THEIR_KIND = ("set ", "match ", "on-match ", "call ", "continue ")
"""The commands of route maps that are taken back without their values: an entry has one of each kind."""
_ANEW = ("redistribute ",)
_NAMED_FIRST = "route-map "
"""Contexts that others name: a neighbour whose route map is not there yet is refused all routes."""
_LISTS = r"(?:ip |ipv6 )prefix-list |(?:ipv6 |mac )?access-list |bgp (?:large-|ext)?community-list |bgp as-path access-"
_IN_PLACE = {
    "": re.compile(
        rf"(?:{_LISTS}|ip(?:v6)? (?:route|protocol|nht) |zebra (?:zapi-packets|work-queue|nexthop kernel enable)"
        r"|debug |route-map |interface |vrf |bfd$|router bgp )"
    ),
    "router": re.compile(
        r"(?:neighbor (?!\S+ (?:local-role|enforce-first-as|capability (?:dynamic|orf|software-version)))"
        r"|bgp (?:router-id|cluster-id|log-neighbor-changes|bestpath|ebgp-requires-policy|network import-check"
        r"|suppress-fib-pending|listen (?:range|limit)|always-compare-med|deterministic-med|client-to-client reflection"
        r"|default local-preference|fast-external-failover|enforce-first-as|reject-as-sets)"
        r"|coalesce-time |timers bgp |address-family |bmp targets |distance bgp )"
    ),
    "address-family": re.compile(
        r"(?:network |aggregate-address |neighbor |maximum-paths |redistribute |advertise-all-vni$|advertise |vni "
        r"|rd |route-target |distance bgp |table-map )"
    ),
    "vni": re.compile(r"(?:rd |route-target )"),
    "bmp": re.compile(r"bmp "),
    "interface": re.compile(r"(?:description |bandwidth |ip address |ipv6 (?:address|nd) |shutdown$|link-detect$)"),
    "route-map": re.compile(r"(?:match |set |call |on-match |continue|description )"),
    "vrf": re.compile(r"(?:vni \d+$|ip(?:v6)? route )"),
    "bfd": re.compile(r"profile "),
    "profile": re.compile(r"(?:detect-multiplier|receive-interval|transmit-interval) "),
}
"""The commands that a daemon takes, and takes back, while it runs, by the first word of their context."""


def difference(old: str, new: str, leaving: Collection[str] | None = None) -> list[str]:
    """Return the commands, below `configure terminal`, that make `new` of a daemon that runs `old`; none if all is the
    same. `leaving` are the interfaces that a node will have no more, None for all that are not named any more; of
    others only what is said of them goes."""
    return list(_Commands(leaving).between(_tree(old), _tree(new)))


def only_at_start(old: str, new: str) -> list[str]:
    """Return the lines of two configurations of a daemon that only starting it anew brings about, or takes back."""
    defaults = [found[0] if (found := _DEFAULTS.search(text)) else "" for text in (old, new)]
    lines = [defaults[1]] if defaults[0] != defaults[1] else []
    trees = _tree(old), _tree(new)
    if "frr defaults datacenter" in defaults:
        lines += _by_defaults(*trees)
    return list(dict.fromkeys([*lines, *_at_start(*trees, ())]))


def _by_defaults(old: ConfigTree, new: ConfigTree) -> Iterator[str]:
    """The lines that go and whose contrary may be the default, which is another one in a data centre."""
    for opening in old.keys() & new.keys():
        gone = (line for line in old[opening] if line not in new[opening])
        yield from (line for line in gone if _BY_DEFAULTS.match(line.removeprefix("no ")))


@lru_cache(maxsize=4)
def _tree(text: str) -> ConfigTree:
    return in_force(line for line in parse_configuration(text) if not _HEADER.match(line.top.removeprefix("no ")))


def _at_start(old: ConfigTree, new: ConfigTree, within: tuple[str, ...]) -> Iterator[str]:
    """The lines of one context that differ and cannot be told to a daemon that runs."""
    known = _IN_PLACE.get(kind_of(within))
    for line in (*(line for line in old if line not in new), *(line for line in new if line not in old)):
        body = line.removeprefix("no ")
        is_unknown = body != line and line in old and not (_ON.match(body) or _OFF.match(body))
        if known is None or is_unknown or not known.match(body):
            yield line
    yield from _new_instances(old, new)
    yield from _moved(old, new)
    for line, inner in new.items():
        if old.get(line, inner) != inner:
            yield from _at_start(old[line], inner, (*within, line))


def _new_instances(old: ConfigTree, new: ConfigTree) -> Iterator[str]:
    """The instances of BGP that have another AS number: there is one for each VRF, and sessions are an instance's."""
    before = {_instance(line) for line in old if line.startswith("router bgp ") and line not in new}
    added = (line for line in new if line.startswith("router bgp ") and line not in old)
    yield from (line for line in added if _instance(line) in before)


def _instance(line: str) -> str:
    """Return the VRF of a line that begins an instance of BGP; "" for the default one."""
    return " ".join(line.split()[3:])


def _moved(old: ConfigTree, new: ConfigTree) -> Iterator[str]:
    """The neighbours with an address of their own that go from one group to another."""
    before = {name for line in old if line not in new and (name := _member(line))}
    yield from (line for line in new if line not in old and _member(line) in before)


def _member(line: str) -> str:
    """Return the address of the neighbour that a line puts into a group; "" for any other line."""
    found = _OWNED.match(line)
    return found[1] if found and _ADDRESS.match(found[1]) and line.startswith(f"{found[0]}peer-group ") else ""


class _Commands:
    """The commands between two configurations of one daemon."""

    def __init__(self, leaving: Collection[str] | None) -> None:
        self._leaving = leaving

    def between(
        self, old: ConfigTree, new: ConfigTree, within: tuple[str, ...] = (), gone: frozenset[str] = frozenset()
    ) -> Iterator[str]:
        """The commands of one context: first what is new, which others may name, then changes inside, then removals.

        `gone` are the neighbours and groups that are taken away further out: nothing else of them has to be.
        """
        lost = {found[1]: line for line in old if line not in new and (found := _OWNERS.match(line))}
        for name, line in lost.items():
            if any((found := _OWNERS.match(other)) and found[1] == name for other in new):  # by another group now
                yield f"no {line}"
                old = _without(old, name)
        lost_addresses = _addresses(old) - _addresses(new) if kind_of(within) == "router" else frozenset()
        gone |= lost.keys() | lost_addresses
        moving = [*_moving_entries(old, new), *_made_anew(old, new)]
        yield from map(taken_back, moving)
        yield from (line for line in new if line not in old and not opens_context(within, line))
        for line, inner in sorted(new.items(), key=lambda item: not item[0].startswith(_NAMED_FIRST)):
            if old.get(line) != inner and opens_context(within, line):
                commands = self.between(old.get(line, {}), inner, (*within, line), gone)
                yield from _entered(line, commands, always=line not in old)
        told = {line for line in new if line not in old}
        replaced = {part for line in told if (part := replaced_part(line, within)) is not None}
        for line in reversed([line for line in old if line not in new and line not in moving]):
            if replaced_part(line, within) not in replaced and not _is_owned(line, gone):
                yield from (one for one in self._removal(line, old[line], within, gone) if one not in told)
        yield from (f"no neighbor {name}" for name in sorted(lost_addresses))

    def _removal(self, line: str, inner: ConfigTree, within: tuple[str, ...], gone: frozenset[str]) -> Iterator[str]:
        """The commands that take a line away, with all that is in the context that it opens."""
        if not opens_context(within, line):
            if not _is_default(line):
                yield taken_back(line)
            return
        kind = line.partition(" ")[0]
        stays = kind == "address-family" or (kind == "interface" and not self._leaves(line.split()[1]))
        if stays or kind == "vrf":
            yield from _entered(line, self.between(inner, {}, (*within, line), gone))
        if not stays:
            yield f"no {line}"

    def _leaves(self, interface: str) -> bool:
        return self._leaving is None or interface in self._leaving


def _is_default(line: str) -> bool:
    """Tell whether a line says what is so without it, so that nothing is to be done where it goes."""
    if line.startswith("no "):
        return not _ON.match(line.removeprefix("no "))
    return _ON.match(line) is not None


def taken_back(line: str) -> str:
    """Return the command that takes a line back."""
    if line.startswith("no "):
        return line.removeprefix("no ")
    for pattern, instead in _RESET:
        if (found := pattern.match(line)) is not None:
            return found.expand(instead) if found.re.groups else f"no {found[0].rstrip()}"
    if line.startswith(_BY_THEIR_KIND) and (part := replaced_part(line)) is not None:
        return f"no {part}"
    return f"no {line}"


def _is_owned(line: str, gone: frozenset[str]) -> bool:
    """Tell whether a line goes with the neighbour that it is about."""
    found = _OWNED.match(line)
    return found is not None and found[1] in gone and not _OWNERS.match(line)


def _addresses(tree: ConfigTree) -> frozenset[str]:
    names = (found[1] for line in tree if (found := _OWNED.match(line.removeprefix("no "))))
    return frozenset(name for name in names if _ADDRESS.match(name))


def _moving_entries(old: ConfigTree, new: ConfigTree) -> Sequence[str]:
    """The entries of lists that stand in the new ones with another number: a list has each rule once."""
    added = {rule for line in new if line not in old and (rule := rule_of(line)) is not None}
    return [line for line in old if line not in new and rule_of(line) in added]


def _made_anew(old: ConfigTree, new: ConfigTree) -> Sequence[str]:
    """The lines that are taken back before they are said otherwise: FRR keeps what it has been told first."""
    said = {replaced_part(line) for line in new if line not in old and line.startswith(_ANEW)}
    return [line for line in old if line not in new and line.startswith(_ANEW) and replaced_part(line) in said]


def _without(tree: ConfigTree, neighbour: str) -> ConfigTree:
    """The lines that say nothing of a neighbour, in all contexts."""
    return {
        line: _without(inner, neighbour)
        for line, inner in tree.items()
        if not ((found := _OWNED.match(line)) and found[1] == neighbour)
    }


def _entered(context: str, commands: Iterator[str], *, always: bool = False) -> Iterator[str]:
    """Enter a context for its commands, and leave it; nothing where there are none, unless `always`."""
    inner = list(commands)
    if inner or always:
        yield context
        yield from inner
        yield leaving(context)
