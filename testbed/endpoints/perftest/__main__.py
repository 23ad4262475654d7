"""`python -m testbed.endpoints.perftest uet_write_bw ...`: the tools where nothing is installed."""

from __future__ import annotations

import sys

from testbed.endpoints.perftest.registry import TOOLS
from testbed.endpoints.perftest.tools import run_tool

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TOOLS:
        print(f"usage: python -m testbed.endpoints.perftest {{{','.join(TOOLS)}}} [options] [host]", file=sys.stderr)
        raise SystemExit(2)
    raise SystemExit(run_tool(TOOLS[sys.argv[1]], sys.argv[2:]))
