"""Link groups as `inspect` shows them, a row for each of their members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.base.rows import for_programs
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.features.mlag.apply import read_link_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """A member of a link group: whether it is in sync, with whom, and what its leaf does with it."""

    node: str
    group: str
    member: str
    in_sync: bool
    lacp: str
    partner: str
    partner_port: int = for_programs()
    peer_link: str
    note: str


def member_rows(lab: RunningLab, wanted: Callable[[str], bool]) -> list[MemberRow]:
    """Make a row for each member of each link group of the nodes that are `wanted`."""
    rows = []
    for status in read_link_groups(lab):
        pair = status.pair
        for group in status.groups if wanted(status.node) else ():
            detour = "over the peer link" if pair is not None and group.name in pair.detoured else ""
            rows += [
                MemberRow(
                    node=status.node,
                    group=group.name,
                    member=member.name,
                    in_sync=member.in_sync,
                    lacp=str(member.receive),
                    partner=member.partner,
                    partner_port=member.partner_port,
                    peer_link="" if pair is None else pair.peer_link,
                    note=(pair.reason if pair is not None else "") or detour,
                )
                for member in group.members
            ]
    return rows
