"""The packets that the guards of a live lab have dropped since its deploy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.nftables import NetfilterSocket
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.operations import GuardSwitch
from testbed.lab.features.guards.apply import GuardCounter, read_guards


def guard_counters(lab: RunningLab) -> Mapping[str, list[GuardCounter]]:
    """Drops of the guards of each switch since the deploy; switches without guards are left out."""
    guarded = {(item.node, item.vrf): None for item in lab.plan.operations if isinstance(item, GuardSwitch)}

    def read() -> dict[str, list[GuardCounter]]:
        found: dict[str, list[GuardCounter]] = {}
        for node, vrf in guarded:  # tenants whose VRFs are devices have their ports in one namespace
            enter_namespace(namespace_name(lab.name, vrf or node))
            with closing(NetfilterSocket()) as socket:
                found.setdefault(node, []).extend(read_guards(socket))
        return found

    return syscalls.in_thread(read)
