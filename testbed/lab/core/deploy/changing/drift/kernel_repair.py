"""The namespaces of a lab that is up, looked at beside its plan, and brought back to it."""

from __future__ import annotations

import errno
from collections.abc import Collection
from contextlib import closing
from functools import partial

from testbed.base.datapath import pins
from testbed.base.linux.namespaces import in_namespace, published
from testbed.base.linux.nftables import NetfilterSocket, delete_table
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.names import namespace_name
from testbed.daemons.kit.lock import is_held
from testbed.lab.core.deploy.changing.drift.kernel_drift import KernelDrift, PlacedInterface, kernel_drift, worth_asking
from testbed.lab.core.deploy.links.recorded import read_link_state
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.pausing.attachment import attach
from testbed.lab.core.deploy.records.journal import CARRIER_LOCK, Journal
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.nodes.seen import read_place
from testbed.lab.core.model import NETNS
from testbed.lab.core.plan.operations import InstallPort


def look_at_kernel(lab: RunningLab, renewed: Collection[PlacedInterface] = ()) -> tuple[KernelDrift, list[str]]:
    """Return how namespaces differ from the plan, and those that are gone. Touches nothing.

    `renewed` are interfaces that were made anew since filters were told of them. Raises `DriverError`, `StateError`.
    """
    wanted = worth_asking(lab.plan)
    there = set(published(namespace_name(lab.name, place) for place in wanted))
    places = [place for place in wanted if namespace_name(lab.name, place) in there]
    seen = ask_inside(lab.name, places, RouteSocket, lambda place, item: read_place(item, wanted[place]))
    changes = read_link_state(lab.state_directory).changes
    return kernel_drift(lab.plan, seen, changes, renewed, _open_to_others(lab), _steered(lab)), [
        place for place in wanted if place not in seen
    ]


def _open_to_others(lab: RunningLab) -> list[str]:
    """The nodes in which others than the plan have their hands: commands of its file, or a program with Mininet."""
    everywhere = lab.record.runtime != NETNS
    return [node.name for node in lab.model.nodes if node.exec or everywhere]


def _steered(lab: RunningLab) -> Collection[str]:
    """The nodes whose TCP is led to a carrier at work; what one has left behind that was killed is a drift."""
    if not is_held(lab.processes_directory / CARRIER_LOCK):
        return ()
    return Journal(lab.state_directory).read().steered


def repair_kernel(lab: RunningLab, drift: KernelDrift) -> None:
    """Bring namespaces back to the plan. Raises `DriverError` for the first that the kernel refuses."""
    if not drift:
        return
    plan = lab.plan
    kernel = NetnsKernel(lab.name, nodes=drift.places)
    with closing(kernel):
        if plan.tables is not None and any(isinstance(item, InstallPort) for item in drift.missing):
            kernel.use_data_path(PortInstaller.open(pins.lab_directory(lab.processes_directory), plan.tables))
        for removal in drift.first:
            for data in removal.batch:
                kernel.namespace(removal.place).route.submit([data])  # a part of it may be gone already
        for place, family, name in drift.tables:
            in_namespace(namespace_name(lab.name, place), partial(_remove_table, family, name))
        kernel.apply(drift.made)
        for value in drift.set:
            # The kernel may have made an address of a link that is up again meanwhile.
            kernel.namespace(value.place).route.expect(value.batch, [value.what] * len(value.batch), [errno.EEXIST])
        kernel.apply(drift.rest)
    if plan.tables is not None and drift.missing:
        attach(plan, lab.state.run, lab.processes_directory, lab.state_directory)


def _remove_table(family: int, name: str) -> None:
    with closing(NetfilterSocket()) as item:
        item.commit([delete_table(family, name)], f"remove table {name}")
