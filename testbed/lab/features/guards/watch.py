"""The packets that the guards of a live lab have dropped since its deploy."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.base.linux.nftables import NetfilterSocket
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.plan.operations import GuardSwitch
from testbed.lab.features.guards.apply import GuardCounter, read_guards


def guard_counters(lab: RunningLab) -> Mapping[str, list[GuardCounter]]:
    """Drops of the guards of each switch since the deploy; switches without guards are left out."""
    # tenants whose VRFs are devices have their ports in one namespace
    guarded = {item.vrf or item.node: item.node for item in lab.plan.operations if isinstance(item, GuardSwitch)}
    found: dict[str, list[GuardCounter]] = {}
    for place, counters in ask_inside(lab.name, guarded, NetfilterSocket, lambda _, item: read_guards(item)).items():
        found.setdefault(guarded[place], []).extend(counters)
    return found
