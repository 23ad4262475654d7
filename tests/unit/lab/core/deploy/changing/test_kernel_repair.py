"""Repairs of namespaces: what the kernel has made by itself meanwhile is no mistake, and what it refuses is told."""

import errno
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux.rtnetlink import Failure, RouteSocket
from testbed.lab.core.deploy.changing.drift import kernel_repair
from testbed.lab.core.deploy.changing.drift.kernel_drift import KernelDrift, NodeMessages


class Answering(RouteSocket):
    """A socket to a kernel that has one answer."""

    def __init__(self, code: int) -> None:
        self._code = code

    def submit(self, batch: Sequence[bytes]) -> list[Failure]:
        return [Failure(0, self._code, "")]


def repaired(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Repair an address of which the kernel says `code`."""
    route = Answering(code)
    kernel = SimpleNamespace(namespace=lambda place: SimpleNamespace(route=route), apply=list, close=lambda: None)
    monkeypatch.setattr(kernel_repair, "NetnsKernel", lambda name, nodes: kernel)
    lab: Any = SimpleNamespace(name="a", plan=SimpleNamespace(tables=None))
    address = NodeMessages(place="leaf1", batch=(b"",), what="address leaf1:uplink1 fe80::1/64 is missing")
    kernel_repair.repair_kernel(lab, KernelDrift(rows=(Any,), set=(address,)))  # type: ignore[arg-type]


def test_an_address_that_the_kernel_has_made_meanwhile_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    repaired(monkeypatch, errno.EEXIST)


def test_what_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DriverError, match="fe80::1/64"):
        repaired(monkeypatch, errno.EPERM)
