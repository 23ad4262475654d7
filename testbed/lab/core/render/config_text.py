"""FRR's configuration as text: which context each of its lines stands in, and which of them are in force.

FRR reads a file from its first line to its last. A line opens a context, says something within one, or leaves it; what
is said later replaces what was said before, and `no` takes it back. What FRR writes itself is indented by context; what
people write may not be, and may go back to the top without `exit`.

Source: FRR user guide, chapter Basic Commands; lib/command.c (`command_config_read_one_line`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

_COMMENT = ("!", "#")
_OPENS = {
    "": re.compile(
        r"(router|interface|vrf|nexthop-group|pbr-map|segment-routing|line|key chain|affinity-map) "
        r"|route-map \S+ (permit|deny) \d+$|(bfd|rpki|mpls ldp|segment-routing)$"
    ),
    "router": re.compile(r"address-family |bmp targets |vnc "),
    "address-family": re.compile(r"vni \d+$"),
    "bfd": re.compile(r"(peer|profile) "),
}
"""The lines that open a context, by the first word of the one that they stand in."""
_LEAVES = {"exit-address-family": "address-family", "exit-vni": "vni", "exit-vrf": "vrf", "exit-vnc": "vnc"}
_TOP = re.compile(
    r"(no )?((router|interface|route-map|vrf|line|service|hostname|password|log|frr|debug|rpki|zebra) "
    r"|(bfd|rpki)$|(ip|ipv6) (route|prefix-list|nht|protocol|forwarding)|(ip |ipv6 |mac )?access-list "
    r"|bgp (as-path access-list|community-list|large-community-list|extcommunity-list) )"
)
"""The commands that stand in no context, where indentation does not say so."""

_SEQUENCED = re.compile(
    r"(?P<list>(?:(?:ip |ipv6 )prefix-list|(?:ipv6 |mac )?access-list"
    r"|bgp (?:large-|ext)?community-list(?: standard| expanded)?|bgp as-path access-list) \S+)"
    r"(?: seq (?P<number>\d+))? (?P<rule>(?:permit|deny) .+)$"
)
"""An entry of a list, which has a number: the next multiple of five where the line names none (lib/plist.c)."""
_STEP = 5

_REPLACED = tuple(
    map(
        re.compile,
        (
            r"bgp (?:router-id|cluster-id|listen limit|default local-preference|maxaspath|maximum-med \S+) ",
            r"bgp graceful-restart (?:restart-time|stalepath-time|select-defer-time|rib-stale-time) ",
            r"timers bgp |coalesce-time |maximum-paths (?:ibgp )?(?=\d)|distance bgp |rd |vni (?=\d+$)",
            r"(?:read|write)-quanta |update-delay |bgp conditional-advertisement timer ",
            r"neighbor \S+ (?:description|timers (?:connect|delayopen)|timers(?= \d)|advertisement-interval|password"
            r"|ttl-security hops|ebgp-multihop|update-source|local-as|port|local-role|bfd profile|bfd(?= \d))(?= |$)",
            r"neighbor \S+ (?:interface )?remote-as ",
            r"neighbor \S+ (?:weight|maximum-prefix|maximum-prefix-out|allowas-in|unsuppress-map|addpath-\S+)(?= |$)",
            r"neighbor \S+ soft-reconfiguration ",
            r"(neighbor \S+ (?:prefix-list|route-map|filter-list|distribute-list)) \S+ (in|out)$",
            r"(neighbor \S+ default-originate)",
            r"((?:network|aggregate-address|redistribute) \S+)",
            r"(advertise (?:ipv4|ipv6) unicast)",
            r"(?:detect-multiplier|receive-interval|transmit-interval|minimum-ttl) ",
            r"echo (?:receive-interval|transmit-interval|interval) |echo-interval ",
            r"description |bandwidth |ipv6 nd (?:ra-interval|ra-lifetime|reachable-time|home-agent-\S+|mtu) ",
            r"bmp stats interval |bmp connect \S+ port \d+ |zebra (?:zapi-packets|work-queue) ",
            r"(ip(?:v6)? protocol \S+) route-map ",
            r"(ip(?:v6)? route \S+ \S+)(?: |$)",
            r"set (?:local-preference|metric|weight|origin|tag|community|large-community"
            r"|as-path (?:prepend|exclude|replace)|extcommunity (?:rt|soo|bandwidth)|extcommunity(?= none)|ip next-hop"
            r"|ipv6 next-hop \S+|src|distance|aggregator as|originator-id|label-index|table|(?:large-)?comm-list) ",
            r"match (?:ip(?:v6)? (?:address|next-hop|route-source)(?: prefix-list| prefix-len| address| type)?"
            r"|interface|community|large-community|extcommunity|as-path|metric|local-preference|tag|origin|peer|probability"
            r"|source-protocol|source-instance|source-vrf|mac address|evpn (?:route-type|vni|rd|default-route)) ",
            r"call ",
        ),
    )
)
"""The part of a command that stays where its value is replaced by another one: the last one of a context is in force.
Its groups are that part where the value stands in its midst."""

_GOING_ON = ("on-match", "continue")
"""Two words for one thing: where a route map goes on behind an entry that matches."""

_IMPLIES = re.compile(r"(neighbor \S+ bfd) profile ")
"""A command that says another one, too, which stays when it is taken back."""

ConfigTree = Mapping[str, "ConfigTree"]
"""The lines of a context that are in force, in their order, and below each that opens one those of its own."""


@dataclass(frozen=True, slots=True)
class WrittenLine:
    """A command of a configuration: its words, the number of its line from 1, and the lines that opened the contexts
    that it stands in. `opens` says that it opens one itself."""

    text: str
    number: int
    within: tuple[str, ...] = ()
    opens: bool = False

    @property
    def top(self) -> str:
        """The line of the outermost context that it stands in, or itself where it stands in none."""
        return self.within[0] if self.within else self.text


def parse_configuration(text: str) -> list[WrittenLine]:
    """Return the commands of a configuration, each with its contexts, without comments and without what leaves them."""
    return list(_parse(text.splitlines()))


def _parse(raws: Sequence[str]) -> Iterator[WrittenLine]:
    indented = any(raw[:1].isspace() and raw.strip() and not raw.lstrip().startswith(_COMMENT) for raw in raws)
    contexts: list[tuple[int, str]] = []
    for number, raw in enumerate(raws, 1):
        line = " ".join(raw.split())
        if not line or line.startswith(_COMMENT):
            continue
        if line in ("exit", "quit"):
            del contexts[-1:]
        elif line == "end":
            contexts.clear()
        elif line in _LEAVES:
            _leave(contexts, _LEAVES[line])
        else:
            depth = len(raw.expandtabs()) - len(raw.expandtabs().lstrip())
            _return(contexts, line, depth if indented else None)
            within = tuple(opening for _, opening in contexts)
            opens = opens_context(within, line)
            yield WrittenLine(line, number, within, opens)
            if opens:
                contexts.append((depth, line))


def _leave(contexts: list[tuple[int, str]], word: str) -> None:
    """Leave contexts up to the innermost one whose first word this is."""
    for place in range(len(contexts) - 1, -1, -1):
        if _first_word(contexts[place][1]) == word:
            del contexts[place:]
            return


def _return(contexts: list[tuple[int, str]], line: str, depth: int | None) -> None:
    """Leave the contexts that a line does not stand in: by its indentation, or without any by what it is."""
    if depth is not None:
        while contexts and contexts[-1][0] >= depth:
            contexts.pop()
        return
    within = [opening for _, opening in contexts]
    if opens_context(within, line):
        return
    if _TOP.match(line):
        contexts.clear()
        return
    outer = next((n for n in range(len(within) - 1, 0, -1) if opens_context(within[:n], line)), None)
    if outer is not None:
        del contexts[outer:]


def opens_context(within: Sequence[str], line: str) -> bool:
    """Tell whether a line that stands in some contexts opens one."""
    pattern = _OPENS.get(kind_of(within))
    return pattern is not None and pattern.match(line) is not None


def _first_word(line: str) -> str:
    return line.partition(" ")[0]


def kind_of(within: Sequence[str]) -> str:
    """Return the first word of the innermost of some contexts; "" where there is none."""
    return _first_word(within[-1]) if within else ""


def replaced_part(line: str, within: Sequence[str] = ()) -> str | None:
    """Return the part of a command that stays where another value replaces its own; None where none does."""
    return None if opens_context(within, line) else _part(line)


@lru_cache(maxsize=4096)
def _part(line: str) -> str | None:
    sequenced = _SEQUENCED.match(line)
    if sequenced is not None:
        return f"{sequenced['list']} seq {sequenced['number']}" if sequenced["number"] else None
    if line.startswith(_GOING_ON):
        return _GOING_ON[0]
    for pattern in _REPLACED:
        if (found := pattern.match(line)) is not None:
            parts = [part for part in found.groups() if part is not None]
            return " ".join(parts) if parts else found[0].rstrip()
    return None


def rule_of(line: str) -> tuple[str, str] | None:
    """Return the list that a line is an entry of, and what the entry says; None for any other line."""
    found = _SEQUENCED.match(line)
    return None if found is None else (found["list"], found["rule"])


@dataclass(slots=True)
class _Context:
    """The lines of a context as they are read: `_last` has the last number of each list."""

    within: tuple[str, ...] = ()
    lines: dict[str, _Context] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _of_parts: dict[str, str] = field(default_factory=dict)
    """The line that is in force of those that replace each other, by the part that stays, and the `no` of it."""

    def say(self, line: str) -> _Context:
        """Take a line, and return the context that it opens, if it does."""
        line = self._numbered(line)
        if line.startswith("no "):
            return self._take_back(line)
        if (implied := _IMPLIES.match(line)) is not None and implied[1] not in self.lines:
            self.say(implied[1])
        part = replaced_part(line, self.within)
        if line in self.lines and part is None:
            return self.lines[line]
        inner = self.lines.pop(line, None) or _Context((*self.within, line))
        self.lines.pop(f"no {line}", None)
        if part is not None:
            self.lines.pop(self._of_parts.get(part, line), None)
            self._of_parts[part] = line
        self.lines[line] = inner
        return inner

    def _take_back(self, line: str) -> _Context:
        """Take a line that takes others back; it stays, as what it says may be a default otherwise."""
        body = line.removeprefix("no ")
        taken = _Context((*self.within, line))
        entry = rule_of(body)
        if entry is not None or any(_list_of(other) == body for other in self.lines):
            self._drop(lambda other: _list_of(other) == body if entry is None else rule_of(other) == entry)
            return taken
        self.lines.pop(body, None)
        part = replaced_part(f"{body} ", self.within) or body
        self.lines.pop(self._of_parts.get(part, line), None)
        self._of_parts[part] = line
        return self.lines.setdefault(line, taken)

    def _drop(self, is_meant: Callable[[str], bool]) -> None:
        for other in [other for other in self.lines if is_meant(other)]:
            del self.lines[other]

    def _numbered(self, line: str) -> str:
        """Return an entry of a list with its number."""
        found = _SEQUENCED.match(line)
        if found is None:
            return line
        name, rule = found["list"], found["rule"]
        if found["number"]:
            self._last[name] = max(self._last.get(name, 0), int(found["number"]))
            return line
        same = next((other for other in self.lines if rule_of(other) == (name, rule)), None)
        if same is not None:
            return same
        number = self._last.get(name, 0) // _STEP * _STEP + _STEP
        self._last[name] = number
        return f"{name} seq {number} {rule}"

    def tree(self) -> ConfigTree:
        """Return the lines as plain data."""
        return {line: inner.tree() for line, inner in self.lines.items()}


def _list_of(line: str) -> str:
    """Return the list that a line is an entry of; "" for any other line."""
    found = rule_of(line)
    return "" if found is None else found[0]


def in_force(lines: Iterable[WrittenLine]) -> ConfigTree:
    """Return what is in force of lines that are read one after the other.

    Lines of one context stand together, of values that replace each other the last one stands, and entries of lists
    have their numbers.
    """
    root = _Context()
    for line in lines:
        context = root
        for opening in line.within:
            context = context.say(opening) if opening not in context.lines else context.lines[opening]
        context.say(line.text)
    return root.tree()


def written_out(lines: Sequence[WrittenLine]) -> Iterator[tuple[str, int]]:
    """Write lines as FRR does, indented and with every context left, each with the number that it had; 0 for an end."""
    within: tuple[str, ...] = ()
    for line in lines:
        same = next((n for n, (a, b) in enumerate(zip(within, line.within, strict=False)) if a != b), None)
        same = min(len(within), len(line.within)) if same is None else same
        yield from _ends(within, same)
        within = within[:same]
        for opening in line.within[same:]:
            yield " " * len(within) + opening, line.number
            within = (*within, opening)
        yield " " * len(within) + line.text, line.number
        if line.opens:
            within = (*within, line.text)
    yield from _ends(within, 0)


def _ends(within: tuple[str, ...], outer: int) -> Iterator[tuple[str, int]]:
    for depth in range(len(within) - 1, outer - 1, -1):
        yield " " * depth + leaving(within[depth]), 0


def leaving(opening: str) -> str:
    """Return the command that leaves a context."""
    return {"address-family": "exit-address-family", "vni": "exit-vni", "vrf": "exit-vrf"}.get(
        _first_word(opening), "exit"
    )
