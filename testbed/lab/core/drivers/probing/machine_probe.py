"""The virtualisation and soft RDMA that the machine itself offers. Nothing is started or loaded."""

from __future__ import annotations

import fcntl
import os
import platform
import re
from pathlib import Path

from testbed.base.linux.modules import ModuleState, module_state
from testbed.lab.core.drivers.probing.mininet import find_mininet
from testbed.lab.core.drivers.probing.status import Answers

_KVM_GET_API_VERSION, _KVM_CREATE_VM = 0xAE00, 0xAE01
_KVM_API = 12
"""The only version there ever was since Linux 2.6.22 (Documentation/virt/kvm/api.rst, 4.1)."""
REDIRECT_TO_IFB = (6, 4)
"""eBPF's redirection reaches an ifb since then (net/core/filter.c, __bpf_tx_skb)."""
RXE_IN_NAMESPACES = (7, 1)
"""Before, rxe opened its UDP port in the initial namespace alone (drivers/infiniband/sw/rxe/rxe_net.c)."""


def probe_devices() -> Answers:
    """ "" where it is usable, else why not."""
    release = kernel_version(platform.release())
    return {
        "vm.KVM": kvm(),
        "rdma.rxe": rxe(),
        "storage.nvmet": nvmet(),
        "rdma.rxe in namespaces": ""
        if release >= RXE_IN_NAMESPACES
        else f"Linux {'.'.join(map(str, RXE_IN_NAMESPACES))} or newer, this is {platform.release()}",
        **probe_packages(),
    }


def probe_packages() -> Answers:
    """Optional Python packages: "" where it is installed, else why not."""
    return {"python.mininet": find_mininet()}


def kernel_version(release: str) -> tuple[int, int]:
    """The first two numbers of a kernel's release."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def kvm(device: Path = Path("/dev/kvm"), cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Tell whether a guest with a distribution's kernel boots under KVM, as far as can be known without booting one."""
    if not device.exists():
        return f"no {device}"
    try:
        fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return f"{device}: {error.strerror}"
    try:
        if fcntl.ioctl(fd, _KVM_GET_API_VERSION) != _KVM_API:
            return f"{device}: unknown version of the interface"
        os.close(fcntl.ioctl(fd, _KVM_CREATE_VM, 0))
    except OSError as error:
        return f"{device}: no machine can be made: {error.strerror}"
    finally:
        os.close(fd)
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    if platform.machine() == "x86_64" and not ({"vmx", "svm"} & set(flags[1].split() if flags else ())):
        return "KVM without VT-x or AMD-V (PVM): distribution kernels hang early in their boot under it"
    return ""


def rxe() -> str:
    """Tell whether the kernel has rdma_rxe, built in or as a module that loads on demand."""
    return "this kernel has no rdma_rxe" if module_state("rdma_rxe") is ModuleState.ABSENT else ""


NVMET_MODULES = ("nvmet_tcp", "null_blk")
"""The modules of the kernel's NVMe/TCP target: itself, and the memory that it serves."""


def nvmet() -> str:
    """Tell whether the kernel can serve NVMe/TCP targets, by what is built in or is a module that loads on demand."""
    absent = [name for name in NVMET_MODULES if module_state(name) is ModuleState.ABSENT]
    return f"this kernel has no {' and no '.join(absent)}" if absent else ""


def clock() -> str:
    """ "virtual" where time is counted in instructions, in the lab VM that says so; else "wall"."""
    return "virtual" if os.environ.get("TESTBED_VIRTUAL_TIME") == "1" else "wall"
