"""FRR configuration of one switch, or of a host that speaks BGP.

It is one integrated file for people, and the same sections split for the daemons.

Sources: FRR user guide, chapters Basic Commands, Zebra, BGP and BFD; RFC 5549 (IPv4 routes over link-local next
hops), RFC 4456 (reflection). Checked against FRR 8.4.4 and 10.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from testbed.base.files import cache_directory
from testbed.lab.core.model import ConfigText, Protocol
from testbed.lab.core.plan.lab_plan import Neighbor, SwitchPlan
from testbed.lab.core.plan.stable import stable_hash
from testbed.lab.core.render.startup import (
    daemons_asked_for,
    deal_out,
    defaults_of,
    has_monitoring,
    log_neighbours,
    variables_of,
)

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


OWN_NEXT_HOPS = "no zebra nexthop kernel enable\n!\n"
OWN_PEERS = "debug bfd peer\n!\n"
"""The lines that a lab needs beside a whole configuration of a user's own: why, the templates of zebra and bfdd say."""

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
    asked = daemons_asked_for(_own_texts(switch))
    is_watched = switch.bfd is not None and any(neighbor.bfd for neighbor in switch.neighbors)
    bfd = ("bfdd",) if is_watched or "bfdd" in asked else ()
    static = ("staticd",) if "staticd" in asked else ()
    return (*managed, "zebra", *static, *bfd, "bgpd")


def _own_texts(switch: SwitchPlan) -> tuple[ConfigText, ...]:
    """Return the configuration that a user wrote for a node."""
    return () if switch.startup is None else switch.startup.texts


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
        "bandwidths": sorted(
            {one for each in switch.neighbors for one in (each.tells_bandwidth, each.takes_bandwidth) if one}
        ),
        "bfd": switch.bfd is not None and any(neighbor.bfd for neighbor in switch.neighbors),
        "bfd_interval_ms": switch.bfd.interval.ns // 1_000_000 if switch.bfd is not None else 0,
    }
    own = _own_texts(switch)
    if switch.startup is None or switch.startup.whole is None:
        settings = "mgmtd" if managed else "zebra"
        sections = {name: templates[name].render(context) if _has_template(name, context) else "" for name in names}
        sections[settings] += templates["l3vnis"].render(context) + templates["interfaces"].render(context)
        for name, section in deal_out(own, variables_of(switch), managed=managed).items():
            sections[name] += section
    else:
        kept = {"zebra": OWN_NEXT_HOPS if switch.asks_kernel or not managed else "", "bfdd": OWN_PEERS}
        dealt = deal_out(own, variables_of(switch), managed=managed)
        sections = {name: kept.get(name, "") + dealt.get(name, "") for name in names}
        sections["bgpd"] = log_neighbours(sections["bgpd"])

    def header(log_name: str) -> str:
        return templates["header"].render(
            switch=switch,
            lab=lab,
            version=version,
            log_directory=log_directory,
            log_name=log_name,
            log_level="debugging" if log_name == "bfdd" else "informational",
            defaults=defaults_of(own),
        )

    return SwitchConfig(
        integrated=header("frr") + "".join(sections.values()),
        daemons=MappingProxyType({name: header(name) + section for name, section in sections.items()}),
        modules=MappingProxyType({"bgpd": ("bmp",)} if switch.monitoring is not None or has_monitoring(own) else {}),
    )


def _has_template(name: str, context: Mapping[str, object]) -> bool:
    """Tell whether there is something to render for a daemon."""
    return name in _templates() and (name != "bfdd" or bool(context["bfd"]))


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
    """The templates, compiled once for each version of their source, and kept in the cache."""
    from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
    from jinja2.bccache import Bucket

    class Kept(FileSystemBytecodeCache):
        """Who cannot write there, or has no room, compiles them each time."""

        def dump_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):
                Path(self.directory).mkdir(parents=True, exist_ok=True)
                super().dump_bytecode(bucket)

    written: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    kept = Kept(str(cache_directory() / "templates"), f"{stable_hash(repr(written), 32):08x}-%s.cache")
    environment = Environment(
        loader=PackageLoader("testbed.lab.core.render"),
        bytecode_cache=kept,
        undefined=StrictUndefined,
        autoescape=False,  # not HTML
        **written,
    )
    return {
        name: environment.get_template(f"{name}.j2")
        for name in ("header", "zebra", "l3vnis", "interfaces", "bfdd", "bgpd")
    }
