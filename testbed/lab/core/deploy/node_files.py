"""The view that a node's programs have in place of this machine's: files (the names of all nodes, its own, FRR's), and
shared memory.

A deploy writes them into the lab's run directory, with which they go, and a change of the lab writes them again: what
runs in nodes sees the new names at once. What a node has is told by what is there, so that to start a program takes
neither model nor plan.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.linux.node_memory import NodeMemory, forget_memory
from testbed.base.linux.views import NodeView
from testbed.base.linux.vty import OWN_CONFIGURATION, OWN_RUN_DIRECTORY, shell_directory
from testbed.lab.core.deploy.records.journal import writing_state

if TYPE_CHECKING:
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan

DIRECTORY = ".etc"
"""In the lab's run directory, among directories that have the names of nodes: no node's name has a dot."""
MEMORY_DIRECTORY = ".shm"
"""Beside it: the shared memory of nodes."""
LIBFABRIC_DIRECTORY = ".libfabric"
"""Beside both: the provider of libfabric and its sockets, while a launch has them. Hosts that are containers see it."""
HOSTS = Path("/etc/hosts")
HOSTNAME = Path("/etc/hostname")
_LOCALHOST = ("127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback")

Address = IPv4Address | IPv6Address


def hosts_path(run: Path) -> Path:
    """Return where the names and addresses of all nodes are, in the run directory of a lab."""
    return run / DIRECTORY / "hosts"


def libfabric_directory(run: Path) -> Path:
    """Return where programs on hosts find the provider of libfabric, made if it is not there yet."""
    directory = run / LIBFABRIC_DIRECTORY
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    return directory


def hosts_text(plan: LabPlan) -> str:
    """The names of all addresses of a lab, as hosts(5) has them.

    A node's name is that of its address of management, where it has one, or else of its loopback or first NIC, and so
    is NODE.LAB; every address has the name INTERFACE.NODE. One that several nodes have, such as the gateway of a
    tenant, is no single node's: its first name, by which programs call it, says so.
    """
    names: dict[Address, list[str]] = defaultdict(list)
    for node, address in _node_addresses(plan).items():
        names[address] += [node, f"{node}.{plan.lab}"]
    owners: dict[Address, list[str]] = defaultdict(list)
    for node, interface, address in _interface_addresses(plan):
        names[address].append(f"{interface}.{node}")
        owners[address].append(node)
    for address, nodes in owners.items():
        if len(set(nodes)) > 1:
            names[address].insert(0, f"shared-{str(address).replace('.', '-').replace(':', '-')}")
    lines = [f"{address} {' '.join(dict.fromkeys(of_it))}" for address, of_it in names.items()]
    return "".join(f"{line}\n" for line in (*_LOCALHOST, *lines))


def _node_addresses(plan: LabPlan) -> dict[str, Address]:
    """The address that the name of each node stands for."""
    found: dict[str, Address] = {}
    if plan.management is not None:
        found |= {node: address.ip for node, address in plan.management.addresses.items()}
    for speaker in plan.speakers:
        found.setdefault(speaker.node, speaker.loopback.ip)
    nics = [nic for host in plan.hosts for nic in host.nics]  # of a link group its aggregate, which is no port
    for port in sorted([*nics, *plan.ports], key=lambda port: bool(port.tenant)):  # a tenant's may be another's, too
        if port.address is not None and not port.vrf:
            found.setdefault(port.node, port.address.ip)
    return found


def _interface_addresses(plan: LabPlan) -> Iterator[tuple[str, str, Address]]:
    """Yield the node (of a VRF that is a namespace, its own), the interface and the address of each that is planned."""
    from testbed.lab.core.plan.operations import AddAddress

    for port in plan.ports:
        for address in port.addresses:
            yield port.place, port.name, address
    for item in plan.operations:
        if isinstance(item, AddAddress):
            yield item.node, item.name, item.address.ip


def write_node_files(lab: Lab, plan: LabPlan, run: Path) -> None:
    """Write the files of all nodes below the run directory of a lab. Raises `StateError`."""
    from testbed.lab.core.model import NETNS

    hosts = hosts_path(run)
    routing = {speaker.node for speaker in plan.speakers}
    own = [node.name for node in lab.nodes if node.runtime == NETNS]
    directories = [hosts.with_name("hostname")]
    directories += [shell_directory(run / node) if node in routing else no_daemons(run, node) for node in own]
    with writing_state(hosts):
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # no node is without daemons
            for directory in _without_daemons(run).iterdir():
                if directory.name in routing:  # it had none before
                    shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):  # others have none
            _without_daemons(run).rmdir()
        _rewrite(hosts, hosts_text(plan))
        for node in lab.nodes:
            path, text = _hostname_path(run, node.name), f"{node.name}\n"
            if not path.exists() or path.stat().st_size != len(text):  # one that was cut short is empty
                _rewrite(path, text)


def remove_node_files(run: Path, nodes: Collection[str]) -> None:
    """Remove the files of nodes that a lab has no more, and what their daemons left below its run directory."""
    for node in nodes:
        for path in (_hostname_path(run, node), hosts_path(run).with_name("config") / node):
            path.unlink(missing_ok=True)
        for directory in (run / node, no_daemons(run, node)):
            shutil.rmtree(directory, ignore_errors=True)
    release_memory(run, nodes)


def release_memory(run: Path, nodes: Iterable[str] | None = None) -> None:
    """Let go of the shared memory of nodes that have ended or go, or with None of a whole lab."""
    forget_memory(run / MEMORY_DIRECTORY, nodes)


def _rewrite(path: Path, text: str) -> None:
    """Write a file whole where it lies: shells of nodes have this one over their own, and would not see another.

    Whoever reads it meanwhile finds the old text or the new one: it is one write, and what is left behind it is cut
    off. Raises `OSError`.
    """
    data = text.encode()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644), "wb", buffering=0) as file:  # noqa: PTH123
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file.truncate()


def view_of(run: Path, node: str) -> NodeView:
    """Return what programs of a node see that is no container, by the files in the run directory of its lab.

    A lab of an earlier version has none of them.
    """
    binds = {HOSTS: hosts_path(run), HOSTNAME: _hostname_path(run, node)}
    shell = shell_directory(run / node)
    if shell.is_dir():
        binds |= {OWN_RUN_DIRECTORY: run / node, OWN_CONFIGURATION: shell}
    elif OWN_RUN_DIRECTORY.is_dir():
        binds[OWN_RUN_DIRECTORY] = no_daemons(run, node)
    return NodeView(
        hostname=node,
        binds={target: source for target, source in binds.items() if source.exists()},
        memory=memory_of(run, node),
    )


def no_daemons(run: Path, node: str) -> Path:
    """Return what a node without daemons of FRR has in the place of those of this machine: a directory of its own."""
    return _without_daemons(run) / node


def _without_daemons(run: Path) -> Path:
    return hosts_path(run).with_name("frr")


def memory_of(run: Path, node: str) -> NodeMemory:
    """Return the shared memory of a node's programs, by the run directory of its lab."""
    return NodeMemory(directory=run / MEMORY_DIRECTORY, node=node)


def _hostname_path(run: Path, node: str) -> Path:
    return hosts_path(run).with_name("hostname") / node
