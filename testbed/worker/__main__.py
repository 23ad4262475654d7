"""`python -m testbed.worker [--transport NAME]`: a worker, driven by lines on its standard input, that answers on its
output.

It ends when its input does. That is also how it learns of its starter's death: unlike PR_SET_PDEATHSIG, which is
about the thread that started it (prctl(2)), the end of a pipe cannot be missed. With `--transport` it waits in the way
that this transport's sockets need; without, as sockets of the kernel do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import sys

from testbed.agent.loop import Loop
from testbed.worker.poll_loop import WatchingLoop
from testbed.worker.transport_registry import transport_names, worker_transport
from testbed.worker.worker import Event, Worker

LONGEST_LINE = 1 << 28
"""The longest line in bytes: more than a program of `MAX_STEPS` steps has."""
_CHUNK = 1 << 20


class CommandLine:
    """Carries out each line of standard input as a command, and writes events to what standard output was."""

    def __init__(self, loop: WatchingLoop) -> None:
        self.ended = False
        # What anything else prints goes to standard error.
        self._output = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._input = sys.stdin.fileno()
        self._parts: list[bytes] = []
        self._length = 0
        self.worker = Worker(loop, self._tell)
        os.set_blocking(self._input, False)
        loop.watch(self._input, self._read, select.EPOLLIN)

    def _tell(self, event: Event) -> None:
        """Written whole: whoever started us reads all the time."""
        data = memoryview(json.dumps(event, separators=(",", ":")).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._output, data) :]
        except BrokenPipeError:
            self.ended = True

    def _read(self, events: int) -> None:
        try:
            chunk = os.read(self._input, _CHUNK)
        except BlockingIOError:
            return
        self._length += len(chunk)
        if not chunk or self._length > LONGEST_LINE:
            self.ended = True
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._carry_out(b"".join((*self._parts, line)))
            self._parts = []
        if rest:
            self._parts.append(rest)
        self._length = sum(map(len, self._parts)) if lines else self._length

    def _carry_out(self, line: bytes) -> None:
        try:
            command = json.loads(line)
        except (ValueError, RecursionError) as error:
            self._tell({"event": "refused", "reason": f"no JSON: {error}"})
            return
        self.worker.execute(command)


def main() -> None:
    """Run a worker until its input ends."""
    parser = argparse.ArgumentParser(prog="python -m testbed.worker", allow_abbrev=False)
    parser.add_argument("--transport", choices=transport_names(), help="what it is to move data over")
    transport = parser.parse_args().transport
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy would start threads for each CPU
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever started us
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = Loop() if transport is None else worker_transport(transport).make_loop()
    line = CommandLine(loop)
    line.worker.greet()
    try:
        while not line.ended:
            loop.run_once(line.worker.deadline())
            line.worker.turn()
    except Exception as error:
        # A fault of ours: told before our sockets break the others' connections.
        line.worker.fail(f"internal error: {error!r}")
        raise
    line.worker.close()
    loop.close()


if __name__ == "__main__":
    main()
