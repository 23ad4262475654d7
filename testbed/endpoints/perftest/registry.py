"""Every transport that can be measured, and every program by its name.

A further transport is a module of `transports`, and its line here; `pyproject.toml` and `images/host/Dockerfile` have a
line for each program, which a test holds to this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from testbed.endpoints.perftest.tool import Tool
from testbed.endpoints.perftest.transport import MeasuredTransport
from testbed.endpoints.perftest.transports import roce, scale_up, uet

TRANSPORTS: Final[tuple[MeasuredTransport, ...]] = (uet.TRANSPORT, roce.TRANSPORT, scale_up.TRANSPORT)
TOOLS: Final[Mapping[str, Tool]] = MappingProxyType(
    {
        tool.name: tool
        for transport in TRANSPORTS
        for tool in (Tool(transport, verb, latency) for verb, latency in transport.tools)
    }
)
"""By what they are called."""
