"""Leading TCP of a lab's hosts to the carrier, and taking that back whoever has done it.

What is led stands in the lab's journal before it is (`testbed.lab.core.deploy.records.journal`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses, ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import DriverError
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.records.journal import Journal

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.plan.lab_plan import PortPlan


def carried_prefixes(nics: Sequence[PortPlan]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the fewest prefixes that have the addresses of these NICs, and no others."""
    addresses = [address for nic in nics for address in nic.addresses]
    four = collapse_addresses(IPv4Network(item) for item in addresses if isinstance(item, IPv4Address))
    six = collapse_addresses(IPv6Network(item) for item in addresses if isinstance(item, IPv6Address))
    return (*four, *six)


def steer(lab: RunningLab, nics: Sequence[PortPlan]) -> None:
    """Lead TCP to the addresses of these NICs to the carrier, on all of their hosts. Raises `DriverError`."""
    from testbed.lab.core.drivers.nodes.netns import NetnsKernel
    from testbed.lab.core.plan.operations import SteerTcp

    prefixes = carried_prefixes(nics)
    operations = [SteerTcp(node=host, prefixes=prefixes) for host in dict.fromkeys(nic.node for nic in nics)]
    Journal(lab.state_directory).steering({item.node: list(map(str, item.prefixes)) for item in operations})
    with contextlib.closing(NetnsKernel(lab.name, [item.node for item in operations])) as kernel:
        kernel.apply(operations)


def unsteer(lab: str, directory: Path) -> None:
    """Lead TCP of a lab to no carrier any more, as far as its journal, in `directory`, says that it is. What is gone,
    with its host or without, is passed over.

    Raises `DriverError` where the kernel refuses; the journal still says what is left then.
    """
    journal = Journal(directory)
    steered = journal.read().steered
    if not steered:
        return
    from testbed.lab.core.drivers.nodes.netns import NetnsKernel
    from testbed.lab.core.plan.operations import SteerTcp

    left: dict[str, list[str]] = {}
    refused: DriverError | None = None
    for node, prefixes in steered.items():
        operation = SteerTcp(node=node, prefixes=tuple(map(ip_network, prefixes)))
        try:
            with contextlib.closing(NetnsKernel(lab, [node], again=True)) as kernel:
                kernel.undo([operation])
        except DriverError as error:
            if (NETNS_DIRECTORY / namespace_name(lab, node)).exists():  # else the host has gone, and all that was in it
                left[node] = prefixes
                refused = refused or error
    if directory.is_dir():  # else the lab has gone meanwhile
        journal.steering(left)
    if refused is not None:
        raise refused
