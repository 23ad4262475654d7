"""Which congestion control TCP has in the hosts of a lab where nothing else is said."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.lab.core.deploy.live import RunningLab

_SETTING = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def read_congestion_controls(lab: RunningLab, hosts: Iterable[str]) -> dict[str, str]:
    """Return the kernel's name of it in the namespace of each of these hosts. Raises `DriverError`."""

    def read() -> dict[str, str]:
        found = {}
        for host in hosts:
            enter_namespace(lab.namespace(host))
            found[host] = _SETTING.read_text().strip()
        return found

    try:
        return syscalls.in_thread(read)
    except OSError as error:
        raise DriverError(f"{_SETTING}: {error.strerror}", operation="sysctl", errno=error.errno or 0) from error
