"""The congestion controls of TCP by the names that Linux has for them. A new one is a module, and its line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.tcp.congestion.control import TcpControl
from testbed.protocols.tcp.congestion.cubic import Cubic
from testbed.protocols.tcp.congestion.dctcp import Dctcp

TCP_CONTROLS: Final[Mapping[str, Callable[[], TcpControl]]] = MappingProxyType(
    {"cubic": Cubic, "reno": TcpControl, "dctcp": Dctcp}
)


def make_tcp_control(name: str) -> TcpControl:
    """Return the congestion control of a new connection. Raises `UsageError` for one that there is not."""
    make = TCP_CONTROLS.get(name)
    if make is None:
        raise UsageError(f"congestion control {name!r} is none of {', '.join(TCP_CONTROLS)}")
    return make()
