"""Links as they are written, of the back end (`topology.links`) and of a hand-written network beside it alike.

What is wrong with a link in any network is found here: a port that is used twice or reserved, two ends at one node, two
switches of one tier.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from testbed.base.errors import Problem
from testbed.base.validation.fields import Length, Name, RateField, Section, Text, Written
from testbed.base.validation.model import SpecModel
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, format_path, quote
from testbed.lab.core.model import End, Link, Node
from testbed.lab.core.schema.endpoints import EndpointField
from testbed.lab.core.schema.fabric import DelayField, LossField, Mtu

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?")
_BRIDGE = re.compile(r"br-rail\d+")
"""The bridge of a rail on a rail switch."""


def is_reserved_interface(name: str) -> bool:
    """Tell whether an interface of a switch may not have this name, since the bridge of a rail has it."""
    return _BRIDGE.fullmatch(name) is not None


def _check_label_name(name: str) -> None:
    if not _LABEL_NAME.fullmatch(name):
        raise ValueError(f"{quote(name)} cannot name a label: letters, digits, '_', '.', '/' and '-', at most 63")


LabelName = Annotated[str, Name(_check_label_name, f"^{_LABEL_NAME.pattern}$")]
Labels = Section[dict[LabelName, Annotated[str, Text(256)]]]


class LinkSettings(SpecModel):
    """The keys that every written link has."""

    endpoints: Annotated[list[EndpointField], Length(2, 2)] = Field(
        description='Names the two ends, such as ["h1:eth1", "leaf1:eth3"].'
    )
    rate: Written[RateField] = Field(default=None, description="Gives the rate in each direction, such as 400G.")
    delay: Written[DelayField] = Field(
        default=None, description="Gives the one-way delay: 500ns, or {value: 500ns, by: auto}."
    )
    loss: Written[LossField] = Field(
        default=None, description="Gives the share of packets lost each way, such as 0.1%."
    )
    mtu: Written[Mtu] = Field(
        default=None, description="Gives the MTU in bytes; the default is that of the fabric or network."
    )
    labels: Labels = Field(default={}, description="Gives labels.")


@dataclass(slots=True)
class UsedPorts:
    """The ports of nodes that have a link, with what has it."""

    document: Document
    _users: dict[End, str] = field(default_factory=dict)

    def add(self, link: Link, user: str) -> None:
        """Note both ends of a link that is there."""
        self._users[link.a] = self._users[link.b] = user

    def take(self, end: End, where: Path) -> Problem | None:
        """Use the port that is written at `where`. What stands against it comes back, and it is as it was then."""
        if is_reserved_interface(end.interface):
            message = f"{end.interface!r} is reserved for the bridge of a rail"
            return self.document.problem("bad-name", where, message, hint="choose another interface name")
        if end in self._users:
            message = f"{end} is used already, by {self._users[end]}"
            return self.document.problem("interface-taken", where, message, hint=self._free(end))
        self._users[end] = format_path(where)
        return None

    def _free(self, end: End) -> str:
        stem = end.interface.rstrip("0123456789") if end.interface.startswith("eth") else "extra"
        number = next(n for n in range(1, 10_000) if End(node=end.node, interface=f"{stem}{n}") not in self._users)
        return f"{end.node}:{stem}{number} is free"


def find_wrong_ends(
    document: Document, path: Path, first: Node, second: Node, *, tiered: bool = True
) -> Problem | None:
    """Return a problem where both nodes of the link that is written at `path` are the same, or of one tier.

    Switches that do not speak BGP are not `tiered`: they may stand in a ring."""
    if first.name == second.name:
        message = f"both ends are at {first.name!r}; a link joins two nodes"
        return document.problem("self-link", (*path, "endpoints"), message, hint="name another node at one end")
    if not tiered or first.role is None or second.role is None or first.role.tier != second.role.tier:
        return None
    message = (
        f"{first.name!r} and {second.name!r} are both {first.role} switches;"
        " a link between switches joins two tiers (RFC 7938 section 3)"
    )
    hint = "give one of them another role, or join both to a switch of the tier above"
    return document.problem("same-tier", (*path, "endpoints"), message, hint=hint)
