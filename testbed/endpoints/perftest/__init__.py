"""Measuring tools in the manner of perftest: bandwidth and latency of operations between two hosts, over the transports
in user space.

A tool without a host argument is the server, with one the client; both need the same options. They stand on the
standard library, `testbed.endpoints` and `testbed.protocols` alone.
"""

from testbed.endpoints.perftest.options import Options, parse_options
from testbed.endpoints.perftest.registry import TOOLS, TRANSPORTS
from testbed.endpoints.perftest.tool import Tool
from testbed.endpoints.perftest.tools import main, run_tool

__all__ = ["TOOLS", "TRANSPORTS", "Options", "Tool", "main", "parse_options", "run_tool"]
