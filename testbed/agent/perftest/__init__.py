"""Measuring tools in the manner of perftest, over the UET agent: bandwidth and latency of operations between two hosts.

A tool without a host argument is the server, with one the client; both need the same options. They stand on the
standard library, `testbed.agent` and `testbed.transport` alone.
"""

from testbed.agent.perftest.options import TOOLS, Options, Tool, parse_options
from testbed.agent.perftest.tools import atomic_lat, read_bw, run_tool, send_bw, send_lat, write_bw, write_lat

__all__ = [
    "TOOLS",
    "Options",
    "Tool",
    "atomic_lat",
    "parse_options",
    "read_bw",
    "run_tool",
    "send_bw",
    "send_lat",
    "write_bw",
    "write_lat",
]
