"""RDMA devices over netlink: making, finding and removing soft RoCEv2 (rxe) devices inside namespaces.

pyroute2 (0.9) has no RDMA netlink. Formats: rdma/rdma_netlink.h; a message has attributes alone, no header of its own.
Devices are made in the machine's mode "shared" (rdma-system(8)): in mode "exclusive" they would be seen in the initial
namespace alone (measured on 7.2).
"""

from __future__ import annotations

import contextlib
import platform
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from testbed.base.errors import CapabilityError, DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.modules import ModuleState, load_module, module_state
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.rtnetlink import NLM_F_DUMP, RouteSocket, fields, message, text, u32
from testbed.lab.core.drivers.probing.machine_probe import RXE_IN_NAMESPACES, kernel_version
from testbed.lab.core.plan.operations import CreateRdma

NETLINK_RDMA = 20
_NLDEV = 5 << 10
"""RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, 0)."""
GET_DEVICE, NEW_LINK, DEL_LINK, GET_PORT = _NLDEV | 1, _NLDEV | 3, _NLDEV | 4, _NLDEV | 5
DEV_INDEX, DEV_NAME, NDEV_INDEX, NDEV_NAME, LINK_TYPE = 1, 2, 50, 51, 65

DEVICES = Path("/sys/class/infiniband")
SHARED_MODE = Path("/sys/module/ib_core/parameters/netns_mode")
MODULES = ("rdma_rxe", "ib_uverbs", "rdma_cm", "rdma_ucm")
"""The modules that the devices, verbs in user space, and perftest need."""
ELSEWHERE = "run the lab in the lab VM (testbed --on vm), whose kernel has it"


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaDevice:
    """A device that sits on an interface of the namespace it was asked about."""

    index: int
    name: str
    interface: str


def new_rxe_device(name: str, interface: str) -> bytes:
    """`rdma link add NAME type rxe netdev INTERFACE`, in the namespace of the socket it is sent on."""
    return message(NEW_LINK, 0, text(DEV_NAME, name) + text(LINK_TYPE, "rxe") + text(NDEV_NAME, interface))


def delete_device(index: int) -> bytes:
    """`rdma link delete`, of a device that was made by `new_rxe_device`."""
    return message(DEL_LINK, 0, u32(DEV_INDEX, index))


def require_rxe(release: str = "", shared_mode: Path = SHARED_MODE) -> None:
    """Load what soft RDMA needs. Raises `CapabilityError` where nodes cannot have it, naming the reason."""
    release = release or platform.release()
    if kernel_version(release) < RXE_IN_NAMESPACES:
        needed = ".".join(map(str, RXE_IN_NAMESPACES))
        raise CapabilityError(
            f"rdma: rxe needs Linux {needed} or newer, and this is {release}: before, rxe received on a UDP port of"
            " the machine's own namespace alone, and never in a node",
            missing=f"Linux {needed}",
            hint=ELSEWHERE,
        )
    _load_modules()
    with contextlib.suppress(FileNotFoundError):
        if shared_mode.read_text().strip() not in ("Y", "1"):
            raise CapabilityError(
                "RDMA devices of this machine belong to one namespace each (mode exclusive), and nodes would not see"
                " theirs",
                missing="RDMA namespace mode shared",
                hint="rdma system set netns shared, before any other namespace exists",
            )


def _load_modules() -> None:
    absent = [name for name in MODULES if module_state(name) is ModuleState.ABSENT]
    if absent:
        raise CapabilityError(f"this kernel has no {', '.join(absent)}", missing=absent[0], hint=ELSEWHERE)
    for name in MODULES:
        if module_state(name) is ModuleState.AVAILABLE:
            load_module(name, hint=ELSEWHERE)


def rdma_socket() -> RouteSocket:
    """An RDMA netlink socket of the calling thread's namespace."""
    return RouteSocket(protocol=NETLINK_RDMA)


def create_devices(operations: Sequence[CreateRdma], namespaces: Mapping[str, int]) -> None:
    """Make the devices; `namespaces` are descriptors of the nodes' namespaces. Raises `DriverError`."""
    by_node: dict[str, list[CreateRdma]] = {}
    for operation in operations:
        by_node.setdefault(operation.node, []).append(operation)

    def create() -> None:
        for node, items in by_node.items():
            syscalls.setns(namespaces[node], syscalls.CLONE_NEWNET)
            with contextlib.closing(rdma_socket()) as route:
                for item in items:
                    what = f"create rxe device {item.device} on {node}:{item.name}"
                    route.expect([new_rxe_device(item.device, item.name)], [what])

    syscalls.in_thread(create)


def devices_here(route: RouteSocket) -> list[RdmaDevice]:
    """The devices on interfaces of the socket's namespace; in mode shared it sees those of others too."""
    names: dict[int, str] = {}
    for body in route.dump(GET_DEVICE, b""):
        found = fields(body)
        names[struct.unpack("=I", found[DEV_INDEX])[0]] = found[DEV_NAME].rstrip(b"\0").decode()
    devices = []
    for index, name in names.items():
        for body in route.dump(GET_PORT, u32(DEV_INDEX, index), NLM_F_DUMP):
            found = fields(body)
            if NDEV_NAME in found:  # the kernel says it in the interface's own namespace alone (fill_port_info)
                interface = found[NDEV_NAME].rstrip(b"\0").decode()
                devices.append(RdmaDevice(index=index, name=name, interface=interface))
    return devices


def gid_index(device: str, address: IPv4Address, devices: Path = DEVICES) -> int:
    """The index of the RoCEv2 GID of `address` in a device's table. Raises `DriverError` where it has none.

    Read in the machine's own namespace, where mode shared shows every device.
    """
    wanted = IPv6Address(f"::ffff:{address}")
    port = devices / device / "ports/1"
    for entry in port.glob("gids/*"):
        with contextlib.suppress(OSError, ValueError):  # unused entries have no type
            kind = (port / "gid_attrs/types" / entry.name).read_text().strip()
            if kind == "RoCE v2" and IPv6Address(entry.read_text().strip()) == wanted:
                return int(entry.name)
    raise DriverError(f"the RDMA device {device} has no RoCEv2 GID of {address}", operation="gid")


def counters(device: str, devices: Path = DEVICES) -> dict[str, int]:
    """A device's own counters since it was made, such as `completer_retry_err`. Empty where it is gone."""
    found = {}
    for entry in (devices / device / "ports/1/hw_counters").glob("*"):
        with contextlib.suppress(OSError, ValueError):
            found[entry.name] = int(entry.read_text())
    return found


CONFIGFS = Path("/sys/kernel/config")


def mark_connections(devices: Iterable[str], traffic_class: int) -> None:
    """Set the IPv4 type of service of what rdma_cm connects from now on over these devices, for programs that do not
    say. Raises `DriverError`.

    Source: Documentation/ABI/testing/configfs-rdma_cm, `default_roce_tos`.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-configfs-") as directory:
        mounted = CONFIGFS / "rdma_cm"
        root = mounted if mounted.is_dir() else Path(directory)
        if root is not mounted:
            syscalls.mount("configfs", directory, "configfs", 0)
            root = Path(directory) / "rdma_cm"
        try:
            for device in devices:
                entry = root / device
                entry.mkdir(exist_ok=True)  # which opens the device's settings; they last without it
                try:
                    (entry / "ports/1/default_roce_tos").write_text(str(traffic_class))
                finally:
                    entry.rmdir()
        except OSError as error:
            raise DriverError(
                f"the RDMA devices do not take a type of service: {error}", operation="default_roce_tos"
            ) from error
        finally:
            if root is not mounted:
                syscalls.umount(directory)


RETRANSMISSIONS = ("completer_retry_err", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err")
"""Counters of rxe that grow where a request is sent again or given up (drivers/infiniband/sw/rxe/rxe_hw_counters.c)."""


def remove_devices(namespaces: Iterable[str]) -> list[str]:
    """Remove every device on interfaces of these published namespaces, which are ours; their names.

    They go before their namespaces: a namespace that ends under a device leaves its removal to the kernel's workers.
    """
    names = list(namespaces)
    if not names or not DEVICES.is_dir() or not any(DEVICES.iterdir()):
        return []  # and no socket is opened, which would load the kernel's RDMA core

    def remove() -> list[str]:
        removed: list[str] = []
        for name in names:
            enter_namespace(name)
            with contextlib.closing(rdma_socket()) as route:
                for device in devices_here(route):
                    route.expect([delete_device(device.index)], [f"delete rxe device {device.name}"])
                    removed.append(device.name)
        return removed

    return syscalls.in_thread(remove)
