"""A node's own configuration of FRR: its variables filled in, and its lines dealt out to the daemons that know them.

vtysh sends each line of an integrated file to the daemons that have its command, and is a second's work for a switch.
Here the daemons are given files of their own, so it is decided by a table which of them a line is for. A line that no
daemon of a lab knows is a problem of the file that it stands in (`find_strangers`).

Sources: FRR user guide, chapter VTYSH; vtysh/vtysh.h (which daemons have prefix lists, route maps and interfaces).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.lab.core.model import ConfigText
from testbed.lab.core.plan.lab_plan import SwitchPlan
from testbed.lab.core.render.config_text import WrittenLine, parse_configuration, written_out

VARIABLES = ("node", "role", "asn", "router_id", "loopback")
"""The names that may stand in braces: {{node}}. What they mean is a node's own, so that many share a text."""
_SOME_NODE = {"node": "node", "role": "rail", "asn": "65000", "router_id": "192.0.2.1", "loopback": "192.0.2.1"}
"""Values to ask vtysh with: whatever they are, a command is the same."""
_VARIABLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")

LEFT_OUT = re.compile(
    r"(frr (version|defaults) |hostname |domainname |log (file|timestamp) ?|service integrated-vtysh-config$|line vty$"
    r"|agentx$|(enable )?password |banner |(Building|Current) configuration)"
)
"""The lines that a lab has its own for (names and logs, by which it hears of sessions), or that are vtysh's."""

_ZEBRA, _BGP, _BFD, _STATIC = "zebra", "bgpd", "bfdd", "staticd"
_OWNERS = (
    (re.compile(r"router bgp |bgp |debug (bgp|bmp) "), _BGP),
    (re.compile(r"bfd$|debug bfd "), _BFD),
    (re.compile(r"ip(v6)? route |debug static "), _STATIC),
    (re.compile(r"interface |vrf |zebra |ip(v6)? (forwarding$|nht |protocol |router-id |import-table )"), _ZEBRA),
    (re.compile(r"debug zebra |router-id |log |service |table-range |allow-external-route-update$"), _ZEBRA),
)
_MANAGER = "mgmtd"
_MANAGED = re.compile(r"interface |vrf ")
_SHARED = re.compile(r"(ip |ipv6 )prefix-list |(ip |ipv6 |mac )?access-list |route-map |debug route-map")
"""The lines that several daemons have, each for itself: bgpd, and zebra where it has a route map applied."""
_EVERYWHERE = re.compile(r"log |service ")
_FILTERED = re.compile(r"ip(?:v6)? (?:protocol \S+|import-table \d+.*) route-map (\S+)|ip(?:v6)? nht .*route-map (\S+)")
_OF_ZEBRA = re.compile(
    r"(match (ip(v6)? (address|next-hop)|interface|source-protocol|source-instance|tag) |set src |call |on-match "
    r"|continue|description )"
)
"""The lines of a route map that zebra knows: the rest is about BGP."""
_OF_OTHERS = {
    "ospf": "ospfd",
    "ospf6": "ospf6d",
    "isis": "isisd",
    "rip": "ripd",
    "ripng": "ripngd",
    "eigrp": "eigrpd",
    "babel": "babeld",
    "openfabric": "fabricd",
    "pim": "pimd",
    "igmp": "pimd",
    "vrrp": "vrrpd",
    "pbr-map": "pbrd",
    "nhrp": "nhrpd",
    "ldp": "ldpd",
}
"""The daemons of FRR that no lab runs, by a word that their commands have."""
_OF_INTERFACE = re.compile(
    r"(description |bandwidth |ip address |ipv6 (address|nd) |shutdown$|multicast|link-detect$|link-params|evpn mh "
    r"|mpls )"
)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A line that no daemon of a lab takes: its number, from 1, and whose it is ("" where that is not known)."""

    line: WrittenLine
    daemon: str = ""


def find_unknown_variables(text: str) -> list[tuple[int, int, str]]:
    """Return the names in braces that mean nothing, each with its line and column, from 1."""
    return [
        (number, found.start() + 1, found[1])
        for number, line in enumerate(text.splitlines(), 1)
        for found in _VARIABLE.finditer(line)
        if found[1] not in VARIABLES
    ]


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the values of its variables; one that has none stays as it is."""
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def variables_of(switch: SwitchPlan) -> dict[str, str]:
    """Return what the variables mean on a node. A host and a router outside have no role: it is "host"."""
    return {
        "node": switch.node,
        "role": switch.role.value if switch.role is not None else "host",
        "asn": str(switch.asn),
        "router_id": str(switch.router_id),
        "loopback": str(switch.loopback.ip),
    }


def find_strangers(lines: Iterable[WrittenLine]) -> list[Stranger]:
    """Return the lines that no daemon of a lab takes; of a context that is not known, the line that opens it."""
    found: dict[int, Stranger] = {}
    unknown: set[str] = set()
    for line in lines:
        if line.within and line.top in unknown:
            continue
        if LEFT_OUT.match(line.top.removeprefix("no ")) or _owners(line):
            continue
        if not line.within:
            unknown.add(line.text)
        found[line.number] = Stranger(line, _other_daemon(line.text.removeprefix("no ")))
    return list(found.values())


def _other_daemon(line: str) -> str:
    words = line.split()
    named = (word for word in words[:3] if word in _OF_OTHERS)
    return next((_OF_OTHERS[word] for word in named), "")


def _owners(line: WrittenLine) -> tuple[str, ...]:
    """Return the daemons that a line is for, as far as that is up to the line."""
    top = line.top.removeprefix("no ")
    text = line.text.removeprefix("no ")
    if _EVERYWHERE.match(top):
        return (_ZEBRA, _BGP)
    if _SHARED.match(top):
        return (_BGP, _ZEBRA) if not line.within or _OF_ZEBRA.match(text) else (_BGP,)
    if top.startswith("vrf ") and line.within and text.startswith(("ip route ", "ipv6 route ")):
        return (_STATIC,)
    if top.startswith("interface ") and line.within:
        if text.startswith("mpls bgp "):
            return (_BGP,)
        return (_ZEBRA,) if _OF_INTERFACE.match(text) else ()
    return next(((owner,) for pattern, owner in _OWNERS if pattern.match(top)), ())


def deal_out(texts: Sequence[ConfigText], values: Mapping[str, str], *, managed: bool) -> dict[str, str]:
    """Return the sections of the daemons that the lines of some texts are for. `managed`: interfaces, VRFs and static
    routes are mgmtd's."""
    lines = [line for one in texts for line in parse_configuration(fill_in(one.text, values))]
    lines = [line for line in lines if not LEFT_OUT.match(line.top.removeprefix("no "))]
    filtered = {name for line in lines for found in _FILTERED.finditer(line.text) for name in found.groups() if name}
    owned: dict[str, list[WrittenLine]] = {}
    for line in lines:
        for owner in _owners(line):
            if owner == _ZEBRA and _SHARED.match(line.top) and not filtered:
                continue
            manager = managed and (owner == _STATIC or _MANAGED.match(line.top))
            owned.setdefault(_MANAGER if manager else owner, []).append(line)
    return {owner: "".join(f"{text}\n" for text, _ in written_out(mine)) for owner, mine in owned.items()}


def daemons_asked_for(texts: Sequence[ConfigText]) -> frozenset[str]:
    """Return the daemons beside zebra and bgpd that some texts have lines for."""
    lines = [line for one in texts for line in parse_configuration(one.text)]
    owners = {owner for line in lines for owner in _owners(line)}
    if any(re.match(r"neighbor \S+ bfd( |$)", line.text) for line in lines):
        owners.add(_BFD)
    return frozenset(owners & {_BFD, _STATIC})


def defaults_of(texts: Sequence[ConfigText]) -> str:
    """Return the set of defaults that the first line of a file may choose (`frr defaults`), else FRR's own."""
    found = (re.search(r"^frr defaults (\S+)", one.text, re.MULTILINE) for one in texts)
    return next((match[1] for match in found if match is not None), "traditional")


def has_monitoring(texts: Sequence[ConfigText]) -> bool:
    """Tell whether lines need the module of bgpd that speaks BMP."""
    return any(re.search(r"^\s*bmp targets ", one.text, re.MULTILINE) for one in texts)


def log_neighbours(section: str) -> str:
    """Return a section of bgpd in which every instance says which of its sessions come and go: the lab listens."""
    return re.sub(r"^(router bgp .*)$", r"\1\n bgp log-neighbor-changes", section, flags=re.MULTILINE)


def checked_text(text: ConfigText) -> Iterator[tuple[str, ConfigText, int]]:
    """The lines of a text that daemons are told, with some node's values for its variables and every context left.

    Each comes with the text and the number of the line that it is from: 0 for one that ends a context.
    """
    lines = parse_configuration(fill_in(text.text, _SOME_NODE))
    for line, number in written_out([line for line in lines if not LEFT_OUT.match(line.top.removeprefix("no "))]):
        yield line, text, number
