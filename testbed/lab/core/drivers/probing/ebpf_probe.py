"""The abilities of the kernel and this machine in eBPF: libbpf asks the kernel by loading minimal programs of its own.

The last question is the real thing: whether the programs of a port compile, load and attach.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path
from typing import Any

from testbed.base.errors import TestbedError
from testbed.base.linux import syscalls
from testbed.lab.core.drivers.probing.status import Answers

_SCHED_CLS, _TRACING, _XDP = 3, 26, 6
_HELPERS = {
    "bpf_redirect": 23,
    "bpf_skb_change_tail": 38,
    "bpf_set_hash": 48,
    "bpf_skb_ecn_set_ce": 97,
    "bpf_ringbuf_reserve": 131,
}
"""Numbers of enum bpf_func_id (linux/bpf.h)."""
_ARRAY, _RING_BUFFER = 2, 27
_RAW_TRACEPOINT = 23
"""BPF_TRACE_RAW_TP of enum bpf_attach_type."""
TRACEPOINTS = ("qdisc_dequeue", "kfree_skb")
_NO_LIBRARY = "libbpf.so.1 is not installed"
_NOT_ROOT = "not tried: needs root"

NAMES = (
    "ebpf.libbpf",
    "ebpf.JIT",
    "ebpf.BTF",
    "ebpf.array map",
    "ebpf.ring buffer",
    "ebpf.classifier program",
    *(f"ebpf.{name}" for name in _HELPERS),
    *(f"ebpf.tp_btf {name}" for name in TRACEPOINTS),
    "ebpf.port programs",
    "ebpf.paths of packets",
)


def probe_ebpf(*, root: bool, jit: Path = Path("/proc/sys/net/core/bpf_jit_enable")) -> Answers:
    """Every answer of `NAMES`: "" where it works, else why not."""
    answers = dict.fromkeys(NAMES, _NOT_ROOT)
    answers["ebpf.JIT"] = _jit(jit)
    answers["ebpf.BTF"] = "" if Path("/sys/kernel/btf/vmlinux").exists() else "no /sys/kernel/btf/vmlinux"
    library = _library()
    answers["ebpf.libbpf"] = "" if library is not None else _NO_LIBRARY
    if library is None:
        return answers | {name: _NO_LIBRARY for name, answer in answers.items() if answer == _NOT_ROOT}
    if not root:
        return answers
    answers["ebpf.array map"] = _said(library.libbpf_probe_bpf_map_type(_ARRAY, None))
    answers["ebpf.ring buffer"] = _said(library.libbpf_probe_bpf_map_type(_RING_BUFFER, None))
    answers["ebpf.classifier program"] = _said(library.libbpf_probe_bpf_prog_type(_SCHED_CLS, None))
    for name, number in _HELPERS.items():
        answers[f"ebpf.{name}"] = _said(library.libbpf_probe_bpf_helper(_SCHED_CLS, number, None))
    for name in TRACEPOINTS:
        found = library.libbpf_find_vmlinux_btf_id(name.encode(), _RAW_TRACEPOINT) > 0
        answers[f"ebpf.tp_btf {name}"] = "" if found else "the kernel's BTF has no such tracepoint"
    answers["ebpf.port programs"] = probe_port_programs()
    answers["ebpf.paths of packets"] = answers["ebpf.port programs"] or probe_port_programs(asks_kernel=True)
    return answers


def libbpf_version() -> str:
    """Return the version, for example "1.1"; "" where there is no libbpf."""
    library = _library()
    if library is None:
        return ""
    library.libbpf_version_string.restype = ctypes.c_char_p
    version: bytes = library.libbpf_version_string()
    return version.decode().removeprefix("v")


@functools.cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError:
        return None
    library.libbpf_set_print(None)  # answers, no complaints
    return library


def _said(result: int) -> str:
    """The answer of a libbpf probe: 1, 0 or a negative errno."""
    return "" if result == 1 else "this kernel does not have it"


def _jit(path: Path) -> str:
    try:
        return "" if path.read_text().strip() != "0" else "off: sysctl net.core.bpf_jit_enable=1 switches it on"
    except OSError:
        # Linux, net/core/sysctl_net_core.c: it is in the machine's first network namespace alone.
        return "not seen here: this kernel has none, or this is not the machine's first network namespace"


def probe_port_programs(*, asks_kernel: bool = False) -> str:
    """Compile the data path (once for each version of it), load it into maps of one port and attach its tracepoints;
    with `asks_kernel` the one that reads the paths of packets, too.

    Pinned in a BPF file system of a mount namespace that ends with the call, and with it everything.
    """
    from testbed.base.datapath import build, load, pins
    from testbed.base.datapath.abi import CLASSES
    from testbed.base.datapath.maps import MAPS

    sizes = {name: 2 * CLASSES if name in ("queues", "ingress", "pauses") else 2 for name in MAPS}

    def try_it() -> str:
        syscalls.unshare(syscalls.CLONE_FS | syscalls.CLONE_NEWNS)
        syscalls.mount("", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        try:
            program_object = build.program_object()
            with tempfile.TemporaryDirectory(prefix="testbed-") as scratch:
                directory = Path(scratch) / "bpf"
                pins.mount(directory)
                try:
                    load.load_programs(program_object, directory, sizes).close()
                    if asks_kernel:
                        load.attach_paths(program_object, directory)
                finally:
                    pins.unmount(directory)
        except TestbedError as error:
            return error.message
        except OSError as error:
            return str(error)
        return ""

    return syscalls.in_thread(try_it)
