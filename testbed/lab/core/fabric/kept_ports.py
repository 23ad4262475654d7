"""The names of the ports between switches of a lab that is up, kept by a changed file.

A generator numbers them by position: the port of a spine follows from how many rail switches, and how many parallel
links to each, stand before it. A rail more, or a parallel link more, renumbers all ports behind it, and a port's name
decides its interface index, its MAC and the name of its BGP neighbour. So links of a lab that is up keep the names that
they have, told apart by their two switches and which of the parallel links they are. What is new has the name that a
deploy would give it where that is free, else the lowest number that is. A name that is given up is free from the next
change on: until this one is through, the old port is still there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from testbed.lab.core.model import End, Lab, Link, QosPolicy

_Key = tuple[str, str, int]
"""The lower switch of a link, the upper one, and which of the links between both it is, from 1."""


def keep_ports(old: Lab, new: Lab) -> Lab:
    """Return `new` with the names that ports of numbered links have in `old`, the lab of its name that is up.

    Ports that a file names itself are called so, whatever had that name before. Settings of the QoS of single ports go
    with their links.
    """
    before = dict(_numbered(old.links))
    links = list(_numbered(new.links))
    if not before or not links:
        return new
    renamed = _Names(old, new).given(before, links)
    if not renamed:
        return new
    return replace(
        new,
        links=tuple(
            replace(link, a=renamed.get(link.a, link.a), b=renamed.get(link.b, link.b)) if link.numbered else link
            for link in new.links
        ),
        qos=_of_renamed(new.qos, renamed),
        networks=tuple(replace(network, qos=_of_renamed(network.qos, renamed)) for network in new.networks),
    )


def _numbered(links: Sequence[Link]) -> Iterator[tuple[_Key, Link]]:
    """Yield the links whose ports are numbered, each with what it is known by."""
    met: Counter[tuple[str, str]] = Counter()
    for link in links:
        if link.numbered:
            pair = (link.a.node, link.b.node)
            met[pair] += 1
            yield (*pair, met[pair]), link


class _Names:
    """The names of a switch's interfaces that nothing new may have."""

    def __init__(self, old: Lab, new: Lab) -> None:
        self._said: set[End] = {end for link in new.links if not link.numbered for end in (link.a, link.b)}
        """Names of the ports of hosts' links, and of links that the file names."""
        self._taken = self._said | {end for link in old.links for end in (link.a, link.b)}
        self._searched: defaultdict[tuple[str, str], Iterator[int]] = defaultdict(lambda: count(1))

    def given(self, before: Mapping[_Key, Link], links: Sequence[tuple[_Key, Link]]) -> dict[End, End]:
        """Return the ends that are called otherwise than a deploy would call them."""
        renamed: dict[End, End] = {}
        new = []
        for key, link in links:
            was = before.get(key)
            if was is None or was.a in self._said or was.b in self._said:
                new.append(link)
            else:
                renamed |= {link.a: was.a, link.b: was.b}
        for end in (end for link in new for end in (link.a, link.b)):
            renamed[end] = self._free(end)
        return {end: name for end, name in renamed.items() if end != name}

    def _free(self, end: End) -> End:
        found = end
        stem = end.interface.rstrip("0123456789")
        while found in self._taken:
            found = replace(end, interface=f"{stem}{next(self._searched[end.node, stem])}")
        self._taken.add(found)
        return found


def _of_renamed(policy: QosPolicy | None, renamed: Mapping[End, End]) -> QosPolicy | None:
    """Return a policy whose ports are called by their new names."""
    if policy is None or not policy.of_port:
        return policy
    names = {str(end): str(name) for end, name in renamed.items()}
    return replace(policy, of_port={names.get(port, port): index for port, index in policy.of_port.items()})
