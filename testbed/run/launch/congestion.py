"""The congestion control of TCP in hosts for as long as a program runs, and what it was before afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.cleanup import closed_at_end
from testbed.base.errors import DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.names import all_names_hint
from testbed.daemons.kit import lock
from testbed.lab.core.deploy.congestion_control import read_congestion_controls
from testbed.run.launch.options import LaunchRefused

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab

SETTING = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_AVAILABLE = SETTING.with_name("tcp_available_congestion_control")
_LOCK = ".launch-cc"
"""In the run directory of a lab: held by the one launch that has changed it."""


@contextlib.contextmanager
def congestion_control(lab: RunningLab, hosts: Sequence[str], name: str) -> Iterator[Mapping[str, str]]:
    """Set it in these hosts, and put back what each had; yields that. With "" nothing is changed.

    Raises `LaunchRefused` where the kernel does not have it, or another launch has changed it in this lab.
    """
    if not name:
        yield {}
        return
    lab.processes_directory.mkdir(parents=True, exist_ok=True)
    descriptor = lock.hold(lab.processes_directory / _LOCK, create=True)
    if descriptor is None:
        raise LaunchRefused(f"another launch on {lab.name} has set the congestion control of its hosts")
    with closed_at_end(descriptor):
        before = read_congestion_controls(lab, hosts)
        try:
            _write(lab, dict.fromkeys(hosts, name))
            yield before
        finally:
            with contextlib.suppress(DriverError):  # the lab may be gone, and its hosts with it
                _write(lab, before)


def _write(lab: RunningLab, wanted: Mapping[str, str]) -> None:
    def write() -> None:
        for host, name in wanted.items():
            enter_namespace(lab.namespace(host))
            try:
                SETTING.write_text(name)
            except FileNotFoundError as error:  # the kernel's answer for one that it does not have (tcp_cong.c)
                known = _AVAILABLE.read_text().split()
                raise LaunchRefused(
                    f"this kernel has no congestion control {name!r}", hint=all_names_hint(name, known)
                ) from error

    try:
        syscalls.in_thread(write)
    except OSError as error:
        raise DriverError(f"{SETTING}: {error.strerror}", operation="sysctl", errno=error.errno or 0) from error
