"""Everything probed of this machine, once for each boot and kernel, and kept in a file.

Kernel, eBPF and devices are asked again after a reboot, with another kernel, another clang or libbpf, by a version that
asks in another way, or on request; programs whenever their file has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.base.datapath.markers import KERNEL_MARKERS
from testbed.base.files import write_atomically
from testbed.lab.core.drivers.probing import ebpf_probe, machine_probe
from testbed.lab.core.drivers.probing.status import Answers
from testbed.lab.core.drivers.probing.tools import Installed, find_programs
from testbed.lab.core.plan.link_delays import WireCapabilities

SCHEMA = 1
FILE_NAME = "capabilities.json"
_PORT_PROGRAMS = "ebpf.port programs"
_ALWAYS_ASKED = {_PORT_PROGRAMS, *(marker.capability for marker in KERNEL_MARKERS)}
"""A file without one of these answers is of a version that did not ask for it."""
_ASKING = ("ebpf_probe.py", "kernel_probe.py", "machine_probe.py")
"""The modules beside this one that ask: answers to another text of theirs are not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`answers` by name ("qdisc.netem"): "" where the thing works, else why not. `programs` by name."""

    answers: Mapping[str, str]
    programs: Mapping[str, Installed]
    libbpf: str
    kernel: str

    def why(self, name: str) -> str:
        """ "" if `name` works, else why not. Raises `KeyError` for what is never probed."""
        return self.answers[name]

    def works(self, name: str) -> bool:
        return not self.answers[name]

    def lacking(self, *names: str) -> list[str]:
        """Return those of `names` that do not work."""
        return [name for name in names if self.answers[name]]

    def group(self, prefix: str) -> dict[str, str]:
        """The answers whose names begin with `prefix` and a dot, by the rest of the name."""
        start = prefix + "."
        return {name.removeprefix(start): why for name, why in self.answers.items() if name.startswith(start)}

    @property
    def wire(self) -> WireCapabilities:
        old = machine_probe.kernel_version(self.kernel) < machine_probe.REDIRECT_TO_IFB
        return WireCapabilities(
            netem=self.answers["qdisc.netem"],
            ifb=self.answers["link.ifb"],
            mirred=self.answers["action.mirred"],
            redirect=f"this is {self.kernel}" if old else "",
        )


def probe_capabilities(directory: Path | None, *, refresh: bool = False) -> Capabilities:
    """Return what this machine can do, from `directory` where it was kept there, and kept there now. None: neither.

    Only what root found is kept. Never raises for a thing that is missing.
    """
    root = os.geteuid() == 0
    path = directory / FILE_NAME if directory is not None else None
    kept = _read(path) if path is not None and not refresh else {}
    programs = find_programs(_programs(kept))
    libbpf = ebpf_probe.libbpf_version()
    key = _key(programs, libbpf)
    answers: Answers
    if kept.get("key") == key and root:
        answers = dict(kept["answers"]) | machine_probe.probe_packages()
        if answers[_PORT_PROGRAMS]:  # headers or a library may have been installed since
            answers[_PORT_PROGRAMS] = ebpf_probe.probe_port_programs()
    else:
        from testbed.lab.core.drivers.probing.kernel_probe import probe_kernel

        answers = probe_kernel() | ebpf_probe.probe_ebpf(root=root) | machine_probe.probe_devices()
    found = Capabilities(answers=answers, programs=programs, libbpf=libbpf, kernel=platform.release())
    if path is not None and root:
        document = {
            "schema": SCHEMA,
            "key": key,
            "answers": answers,
            "programs": {name: asdict(item) for name, item in programs.items()},
        }
        if document != kept:
            _write(path, document)
    return found


def _key(programs: Mapping[str, Installed], libbpf: str) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    asked = _asked(Path(__file__).parent)
    return f"{boot} {platform.release()} clang {programs['clang'].identity} libbpf {libbpf} asked {asked:08x}"


def _asked(directory: Path) -> int:
    """Tell one text of the modules that ask from another; 0 for modules without their text beside them."""
    found = 0
    for name in _ASKING:
        with contextlib.suppress(OSError):
            found = zlib.crc32((directory / name).read_bytes(), found)
    return found


def _read(path: Path) -> dict[str, Any]:
    """Return what was kept; nothing where it is of another version or damaged."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if (
        not isinstance(kept, dict)
        or kept.get("schema") != SCHEMA
        or not kept.get("answers", {}).keys() >= _ALWAYS_ASKED
    ):
        return {}
    return kept


def _programs(kept: Mapping[str, Any]) -> dict[str, Installed]:
    try:
        return {name: Installed(**item) for name, item in kept.get("programs", {}).items()}
    except TypeError:
        return {}


def _write(path: Path, document: Mapping[str, Any]) -> None:
    """Keep it where that is possible; what cannot be kept is probed again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(document), durable=False)
