"""The programs: from options to what is printed and the exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.endpoints.perftest.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Interrupted,
    PeerGoneError,
    PerftestError,
)
from testbed.endpoints.perftest.json_results import json_document, write_json
from testbed.endpoints.perftest.options import Options, parse_options
from testbed.endpoints.perftest.registry import TOOLS
from testbed.endpoints.perftest.results import Result
from testbed.endpoints.perftest.runs import BandwidthRun, PingPong, SizeRun
from testbed.endpoints.perftest.session import PerftestSession
from testbed.endpoints.perftest.table import RULE, address_block, header_block, table_head, table_row
from testbed.endpoints.perftest.tool import Tool


def run_tool(tool: Tool, argv: Sequence[str] | None = None) -> int:
    """Run a tool with these arguments (without its name), by default those of the process; its exit code."""
    options = parse_options(tool, sys.argv[1:] if argv is None else argv)
    measurement = Measurement(options)
    try:
        measurement.run()
    except (Interrupted, KeyboardInterrupt):
        measurement.conclude()
        print(f"{tool.name}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except PerftestError as error:
        measurement.conclude()
        print(f"{tool.name}: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


class Measurement:
    """All sizes of one run, and what is printed of them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._results: list[Result] = []
        self._run: SizeRun | None = None
        self._address = ""
        self._found: dict[str, Any] = {}
        self._begun = False
        self._json_file: Path | None = None
        self._cpu_s = self._wall_s = 0.0

    def run(self) -> None:
        """Meet the other side, measure, print. Raises `PerftestError`."""
        options = self._options
        with PerftestSession.open(options, self._announce) as session:
            session.endpoint.prepare()
            self._json_file = session.json_file
            print(address_block(session.endpoint.ends))
            for remark in session.endpoint.remarks:
                print(f" {remark}")
            if session.json_file != options.json_file:
                print(f" JSON results of this side: {session.json_file}, as the client writes {options.json_file}")
            print(table_head(options), flush=True)
            self._begun = True
            self._wall_s, self._cpu_s = time.monotonic(), time.process_time()
            for size in options.sizes:
                result = self._measure(session, size)
                self._results.append(result)
                print(table_row(options, result), flush=True)
            self._found, objection = session.endpoint.found(), session.endpoint.objection
            session.finish()
        self._run = None
        self.conclude()
        if objection:
            raise PerftestError(f"invalid: {objection}")

    def _announce(self, address: str) -> None:
        options = self._options
        self._address = address
        if options.server:
            print(f"\n{'*' * 36}\n* Waiting for client to connect... *\n{'*' * 36}")
        print(header_block(options, address), flush=True)

    def _measure(self, session: PerftestSession, size: int) -> Result:
        run = (PingPong if self._options.tool.latency else BandwidthRun)(session, size)
        if self._options.server:
            if session.ask("begin")["begin"] != size:
                raise PeerGoneError("the other side begins with another size")
            session.channel.send({"ready": size})
            return run.serve()
        session.channel.send({"begin": size})
        session.ask("ready")
        self._run = run
        return run.measure_as_client()

    def conclude(self) -> None:
        """Print what a run that ended too soon has measured, and write the JSON."""
        if not self._begun:
            return
        self._begun = False
        options = self._options
        partial = None if self._run is None else self._run.result
        if partial is not None and all(result.size != partial.size for result in self._results):
            self._results.append(partial)
            print(table_row(options, partial))
        print(RULE, flush=True)
        if self._json_file is not None and self._results:
            cpu = 100 * (time.process_time() - self._cpu_s) / max(time.monotonic() - self._wall_s, 1e-6)
            write_json(self._json_file, json_document(options, self._address, self._results, cpu, self._found))


def main() -> int:
    """The program by whose name this one was called, as packages install them; its exit code."""
    name = Path(sys.argv[0]).name
    if name not in TOOLS:
        print(f"{name} is none of {', '.join(TOOLS)}", file=sys.stderr)
        return EXIT_USAGE
    return run_tool(TOOLS[name])
