"""Soft RDMA of a lab: whether this machine can give it, before anything is made."""

from __future__ import annotations

from testbed.drivers.netlink.rdma import require_rxe
from testbed.model import Lab, Rdma


def require_rdma(lab: Lab) -> None:
    """Raise `CapabilityError` where a host of `lab` has RDMA devices that this machine's kernel cannot make.

    Loads the modules that they need, which stay.
    """
    if any(node.rdma is Rdma.RXE for node in lab.nodes):
        require_rxe()
