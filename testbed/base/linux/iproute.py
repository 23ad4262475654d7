"""Netlink conversations with one network namespace, by pyroute2: reading back what it has, and single changes.

To import pyroute2 takes 0.3 s of CPU and 20 MB, and each of its sockets is an event loop with four descriptors. So the
first conversation imports it, and it is not for what asks hundreds of namespaces at once, listens, or runs as a process
of a lab: `rtnetlink` is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from testbed.base.errors import DriverError
from testbed.base.linux.namespaces import in_namespace

_T = TypeVar("_T")


def converse(namespace: str, talk: Callable[[Any], _T], what: str = "netlink") -> _T:
    """Hand `talk` a `pyroute2.IPRoute` of the published namespace, and return its result.

    The socket must not leave `talk`. What the kernel refuses raises `DriverError`, whose operation is `what`.
    """
    return in_namespace(namespace, lambda: converse_here(talk, what))


def converse_here(talk: Callable[[Any], _T], what: str = "netlink") -> _T:
    """Do as `converse`, in the namespace of the calling thread."""
    from pyroute2 import IPRoute, NetlinkError

    try:
        with IPRoute(ext_ack=True) as route:
            return talk(route)
    except NetlinkError as error:
        number, reason = error.args
        text = os.strerror(number)
        said = text if reason in (None, text) else f"{text}: {reason}"
        raise DriverError(f"{what}: {said}", operation=what, errno=number) from error
