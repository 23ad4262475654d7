"""`python -m testbed.worker [--rdma]`: a worker, driven by lines on its standard input, that answers on its output.

It ends when its input does. That is also how it learns of its starter's death: unlike PR_SET_PDEATHSIG, which is
about the thread that started it (prctl(2)), the end of a pipe cannot be missed. With `--rdma` it waits in a way that
streams over RDMA need, and moves data over these, or TCP.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys

from testbed.agent.loop import Loop
from testbed.worker.poll_loop import PollLoop
from testbed.worker.worker import Event, Worker

RDMA_FLAG = "--rdma"
LONGEST_LINE = 1 << 28
"""Bytes: more than a program of `MAX_STEPS` steps has."""
_CHUNK = 1 << 20


class CommandLine:
    """Standard input as lines, and events to what standard output was."""

    def __init__(self, loop: Loop | PollLoop) -> None:
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
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy would start threads for each CPU
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever started us
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = PollLoop() if RDMA_FLAG in sys.argv[1:] else Loop()
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
