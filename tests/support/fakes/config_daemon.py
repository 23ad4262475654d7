"""A routing daemon that has a configuration and nothing else: it takes commands, and refuses what FRR refuses.

It is written apart from what it checks: contexts are entered and left as vty does, a list has each rule once, an
instance of BGP is there once, and what is not there cannot be taken away where FRR says so.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from testbed.lab.core.render.config_text import in_force, parse_configuration

Tree = dict[str, "Tree"]
_LEAVES = re.compile(r"exit(-address-family|-vni|-vrf)?$")
_RULE = re.compile(r"(.+ )seq (\d+) ((?:permit|deny) .+)$")
_OPENS = re.compile(
    r"router bgp |interface |vrf |route-map \S+ (permit|deny) \d+$|bfd$|profile |peer |address-family |bmp targets "
    r"|vni \d"
)
_HEADER = re.compile(r"(frr |hostname |log |service )")
_HIDDEN = {
    *("detect-multiplier 3", "receive-interval 300", "transmit-interval 300"),
    *("link-detect", "ipv6 nd suppress-ra", "neighbor 192.0.2.1 send-community large"),
}
"""Lines that say what is so without them."""


class Refused(AssertionError):
    """A command that FRR would not take."""


class ConfiguredDaemon:
    """A daemon that was started with a file."""

    def __init__(self, text: str) -> None:
        self.tree = file_tree(text)

    def tell(self, commands: Iterable[str]) -> None:
        """Carry out commands below `configure terminal`."""
        way: list[tuple[str, Tree]] = [("", self.tree)]
        for command in commands:
            if _LEAVES.match(command):
                assert len(way) > 1, f"{command} outside of a context"
                way.pop()
                continue
            context, place = way[-1]
            if command.startswith("no "):
                self._take(context, place, command.removeprefix("no "))
                continue
            if _opens(context, command):
                self._refuse_second_instance(command)
                place.pop(f"no {command}", None)
                way.append((command, place.setdefault(command, {})))
            else:
                self._say(place, command)
        assert len(way) == 1, "every context is left"

    def _refuse_second_instance(self, command: str) -> None:
        words = command.split()
        if words[:2] == ["router", "bgp"]:
            others = [line.split() for line in self.tree if line.startswith("router bgp ") and line != command]
            if any(other[3:] == words[3:] for other in others):
                raise Refused(f"{command}: BGP is already running")

    def _say(self, place: Tree, command: str) -> None:
        rule = _RULE.match(command)
        if rule is not None:
            for line in [line for line in place if (found := _RULE.match(line)) and found[1] == rule[1]]:
                found = _RULE.match(line)
                assert found is not None
                if found[3] == rule[3] and found[2] != rule[2]:
                    raise Refused(f"{command}: there is {line}")
                if found[2] == rule[2]:
                    del place[line]
            place[command] = {}
            return
        owner = re.match(r"neighbor (\S+) ", command)
        if owner and not _makes(command) and not _made(self.tree, place, owner[1]):
            raise Refused(f"{command}: no such neighbour")
        part = _part(command)
        for line in [line for line in place if part is not None and _part(line) == part]:
            del place[line]
        place.pop(f"no {command}", None)
        place[command] = {}

    def _take(self, context: str, place: Tree, body: str) -> None:
        found = re.match(r"neighbor (\S+)(?: (?:interface.*|peer-group))?$", body)
        if found:
            mine = [line for line in place if line.startswith(f"neighbor {found[1]} ")]
            if not mine:
                raise Refused(f"no {body}: it is not there")
            for tree in _contexts(place):
                for line in [line for line in tree if re.match(rf"(no )?neighbor {re.escape(found[1])} ", line)]:
                    del tree[line]
            return
        if body in place:
            del place[body]
            return
        part = _part(f"{body} ") or body
        same = [line for line in place if _part(line) == part or line.startswith(f"{part} ")]
        for line in same:
            del place[line]
        if not same:
            if _RULE.match(body) or _opens(context, body):
                raise Refused(f"no {body}: it is not there")
            place[f"no {body}"] = {}


def file_tree(text: str) -> Tree:
    """Return what is in force in a daemon that is started with a file."""
    return _mutable(in_force(line for line in parse_configuration(text) if not _HEADER.match(line.top)))


def _opens(context: str, command: str) -> bool:
    return _OPENS.match(command) is not None and not (context.startswith("vrf ") and command.startswith("vni "))


def _makes(command: str) -> bool:
    """Tell whether a command may be the first about a neighbour."""
    return re.match(r"neighbor \S+ (interface|peer-group|remote-as)", command) is not None


def _made(tree: Tree, place: Tree, name: str) -> bool:
    instances = [inner for line, inner in tree.items() if line.startswith("router bgp ")]
    around = next((inner for inner in instances if inner is place or place in inner.values()), place)
    return any(line.startswith(f"neighbor {name} ") and _makes(line) for line in around)


def _contexts(place: Tree) -> Iterable[Tree]:
    yield place
    for inner in place.values():
        yield from _contexts(inner)


_PARTS = re.compile(
    r"((?:bgp (?:router-id|cluster-id)|coalesce-time|timers bgp|rd|vni|description|bandwidth"
    r"|maximum-paths(?: ibgp)?(?= \d)|maximum-paths|neighbor \S+ (?:description|timers connect|advertisement-interval"
    r"|password|ttl-security hops|remote-as|interface remote-as|weight|maximum-prefix|allowas-in|update-source"
    r"|ebgp-multihop|local-as|bfd profile)|detect-multiplier|receive-interval|transmit-interval|ipv6 nd ra-interval"
    r"|bmp stats interval|zebra zapi-packets|zebra work-queue|call"
    r"|set (?:local-preference|metric|weight|origin|community|as-path prepend|ip next-hop|extcommunity(?= none))"
    r"|match (?:ip address prefix-list|community|as-path|extcommunity|interface|tag))(?= )"
    r"|neighbor \S+ timers(?= \d| $)|(?:network|aggregate-address|redistribute) \S+"
    r"|ip route \S+ \S+|neighbor \S+ default-originate|advertise ipv[46] unicast)"
)
_DIRECTED = re.compile(r"(neighbor \S+ (?:prefix-list|route-map|filter-list)) \S+ (in|out)")


def _part(line: str) -> str | None:
    """Return what stays of a command whose value is replaced."""
    if line.startswith(("on-match", "continue")):
        return "on-match"
    directed = _DIRECTED.match(line)
    if directed is not None:
        return f"{directed[1]} {directed[2]}"
    found = _PARTS.match(line)
    return None if found is None else found[0].strip()


def _mutable(tree: Mapping[str, Any]) -> Tree:
    return {line: _mutable(inner) for line, inner in tree.items()}


def differing(
    has: Mapping[str, Any], new: Mapping[str, Any], old: Mapping[str, Any], within: tuple[str, ...] = ()
) -> list[tuple[str, ...]]:
    """Return the lines that a daemon has and should not, or has not and should, each with its contexts.

    `old` is what it ran before. A line that takes back a `no` of it may be a default, which FRR does not show, and so
    may a `no` that takes back a line of it; a context that is empty is as good as none.
    """
    found: list[tuple[str, ...]] = []
    for line in has.keys() - new.keys():
        if line.startswith(("address-family ", "interface ", "vrf ", "bfd")):
            found += differing(has[line], {}, old.get(line, {}), (*within, line))
        elif not (f"no {line}" in old or line in _HIDDEN):
            found.append((*within, f"+ {line}"))
    for line in new.keys() - has.keys():
        if not (line in _HIDDEN or (line.startswith("no ") and line.removeprefix("no ") in old)):
            found.append((*within, f"- {line}"))
    for line in has.keys() & new.keys():
        found += differing(has[line], new[line], old.get(line, {}), (*within, line))
    return found
