"""FRR configuration of one switch, or of a host that speaks BGP.

It is one integrated file for people, and the same sections split for the daemons.

Sources: FRR user guide, chapters Basic Commands, Zebra, BGP and BFD; RFC 5549 (IPv4 routes over link-local next
hops), RFC 4456 (reflection). Checked against FRR 8.4.4 and 10.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from testbed.lab.core.model import Protocol
from testbed.lab.core.plan.lab_plan import Neighbor, SwitchPlan

if TYPE_CHECKING:
    from jinja2 import Template

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class FrrVersion:
    """A release of FRR, ordered."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "8.4.4", "10.3" or "bgpd version 10.5.1-dev". Raises `ValueError`."""
        match = _VERSION.search(text)
        if match is None:
            raise ValueError(f"{text!r} is not a version of FRR such as 8.4.4")
        major, minor, patch = match.groups()
        return cls(int(major), int(minor), int(patch or 0))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch else "")


MANAGED_SINCE = FrrVersion(10, 0)
"""From here on interfaces and VRFs are mgmtd's: zebra refuses their sections in a file ("No such command", FRR pull
request 15181), and without mgmtd it spends a tenth of a core on looking for it."""


ANYBODY = tuple(
    f"bgp listen range {half} peer-group strangers" for half in ("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1")
)
"""That whoever is no neighbour is a stranger, of whom a password is asked, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchConfig:
    """`integrated` is what vtysh would show as frr.conf; `daemons` has the part of each daemon by its name."""

    integrated: str
    daemons: Mapping[str, str]
    modules: Mapping[str, tuple[str, ...]]
    """The modules that a daemon has to load to know its part (`-M`)."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A BGP peer group: what is the same for its neighbours is written, and parsed by bgpd, once."""

    name: str
    neighbors: tuple[Neighbor, ...]
    clients: bool = False

    @property
    def bfd(self) -> bool:
        return self.neighbors[0].bfd

    @property
    def told(self) -> tuple[IPv4Network, ...] | None:
        """The prefixes that all of them are told; None: everything."""
        return self.neighbors[0].told


def daemons_of(switch: SwitchPlan, version: FrrVersion) -> tuple[str, ...]:
    """The daemons that a switch runs, in the order in which they are to be started."""
    managed = ("mgmtd",) if version >= MANAGED_SINCE else ()
    bfd = ("bfdd",) if switch.bfd is not None and any(n.bfd for n in switch.neighbors) else ()
    return (*managed, "zebra", *bfd, "bgpd")


def render_switch(
    switch: SwitchPlan, *, lab: str, version: FrrVersion, log_directory: str, password: str = ""
) -> SwitchConfig:
    """Write the configuration of one switch. Each daemon logs to `log_directory`/<daemon>.log.

    `password` is that of its BGP sessions, of at most 80 bytes (TCP_MD5SIG_MAXKEYLEN of linux/tcp.h). Raises
    `ValueError` where the switch is to have one and there is none.
    """
    if switch.password and not password:
        raise ValueError(f"{switch.node} is to have a BGP password, and there is none")
    templates = _templates()
    names = daemons_of(switch, version)
    managed = version >= MANAGED_SINCE
    context = {
        "switch": switch,
        "groups": _groups(switch),
        "ibgp": switch.protocol is Protocol.IBGP,
        "managed": managed,
        "password": password,
        "anybody": ANYBODY,
        "bfd": "bfdd" in names,
        "bfd_interval_ms": switch.bfd.interval.ns // 1_000_000 if switch.bfd is not None else 0,
    }
    sections = {name: templates[name].render(context) if name in templates else "" for name in names}
    settings = "mgmtd" if managed else "zebra"
    sections[settings] += templates["l3vnis"].render(context) + templates["interfaces"].render(context)

    def header(log_name: str) -> str:
        return templates["header"].render(
            switch=switch,
            lab=lab,
            version=version,
            log_directory=log_directory,
            log_name=log_name,
            log_level="debugging" if log_name == "bfdd" else "informational",
        )

    return SwitchConfig(
        integrated=header("frr") + "".join(sections.values()),
        daemons=MappingProxyType({name: header(name) + section for name, section in sections.items()}),
        modules=MappingProxyType({"bgpd": ("bmp",)} if switch.monitoring is not None else {}),
    )


def _groups(switch: SwitchPlan) -> tuple[_Group, ...]:
    clients = set(switch.reflector_client_interfaces)
    fabric = [n for n in switch.neighbors if n.remote_role is not None]
    groups = (
        _Group("clients", tuple(n for n in fabric if n.interface in clients), clients=True),
        _Group("fabric", tuple(n for n in fabric if n.interface not in clients)),
        _Group("hosts", tuple(n for n in switch.neighbors if n.remote_role is None)),
    )
    return tuple(group for group in groups if group.neighbors)


@cache
def _templates() -> Mapping[str, Template]:
    """The templates, compiled once per process."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("testbed.lab.core.render"),
        undefined=StrictUndefined,
        autoescape=False,  # not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return {
        name: environment.get_template(f"{name}.j2")
        for name in ("header", "zebra", "l3vnis", "interfaces", "bfdd", "bgpd")
    }
