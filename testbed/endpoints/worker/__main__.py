"""`python -m testbed.endpoints.worker [--transport NAME] [--shared]`: a worker, driven by lines on its standard input,
that answers on its output.

With `--shared` it is one process for the workers of many hosts. Each line then names its `host`; `join` (with the path
of the host's network namespace) makes a worker for it, and `leave` ends it. Without, it works for the host that it was
started in.

It ends when its input does. That is also how it learns of its starter's death: unlike PR_SET_PDEATHSIG, which is
about the thread that started it (prctl(2)), the end of a pipe cannot be missed. With `--transport` it waits in the way
that this transport's sockets need; without, as sockets of the kernel do.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import select
import signal
import sys
from dataclasses import dataclass

from testbed.base.cleanup import on_failure
from testbed.endpoints import namespace
from testbed.endpoints.loop import Loop
from testbed.endpoints.worker.domain import Domains
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.transport_registry import transport_names, worker_transport
from testbed.endpoints.worker.worker import Event, Worker

LONGEST_LINE = 1 << 28
"""The longest line in bytes: more than a program of `MAX_STEPS` steps has."""
_CHUNK = 1 << 20


@dataclass(slots=True, eq=False)
class Host:
    """A host that this process works for."""

    worker: Worker
    namespace: int = -1
    """A descriptor."""


class CommandLine:
    """Carries out each line of standard input as a command, and writes events to what standard output was."""

    def __init__(self, loop: WatchingLoop, *, shared: bool = False) -> None:
        self.ended = False
        # What anything else prints goes to standard error.
        self._output = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._input = sys.stdin.fileno()
        self._parts: list[bytes] = []
        self._length = 0
        self._loop = loop
        self._shared = shared
        self._domains = Domains()
        if isinstance(loop, Loop):
            self._domains.endpoints.watch(loop.fileno())
        self._hosts: dict[str, Host] = {}
        """By name; the only one of a process that is not shared is called ""."""
        if not shared:
            self._hosts[""] = Host(Worker(loop, self._tell, self._domains))
        os.set_blocking(self._input, False)
        loop.watch(self._input, self._read, select.EPOLLIN)

    # --- what a main loop asks of it ---------------------------------------------------------------------

    def greet(self) -> None:
        """Say hello for the host that this process was started in."""
        for host in self._hosts.values():
            host.worker.greet()

    def deadline(self) -> int | None:
        """Return when the next worker is to be looked after, though nothing has happened by then."""
        soonest: int | None = None
        for host in self._hosts.values():
            due = host.worker.deadline()
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def wait(self, loop: Loop) -> None:
        """Wait for what `loop` and the endpoints of scale-up domains have to do, and do it."""
        endpoints = self._domains.endpoints
        if not endpoints.live:
            loop.run_once(self.deadline())
        elif loop.run_once(0) or loop.arm():
            endpoints.wait(0)
        else:
            endpoints.wait(self.deadline())

    def turn(self) -> None:
        for host in self._hosts.values():
            host.worker.turn()

    def fail(self, error: Exception) -> None:
        """Say of every host that its worker cannot go on, since something was raised that nobody foresaw."""
        from traceback import format_exception

        for host in self._hosts.values():
            host.worker.fail(f"internal error: {error!r}", "".join(format_exception(error)))

    def close(self) -> None:
        for name in list(self._hosts):
            self._leave(name)
        self._domains.endpoints.close()

    # --- lines -------------------------------------------------------------------------------------------

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
        if not self._shared:
            self._hosts[""].worker.execute(command)
            return
        name = command.get("host") if isinstance(command, dict) else None
        if not isinstance(name, str):
            self._tell({"event": "refused", "reason": "host: a shared worker's command names one"})
            return
        match command.get("do"):
            case "join":
                self._join(name, command.get("namespace"))
            case "leave":
                self._leave(name)
                self._tell({"event": "left", "host": name})
            case _ if name in self._hosts:
                host = self._hosts[name]
                namespace.enter(host.namespace)
                host.worker.execute(command)
            case _:
                self._tell({"event": "refused", "host": name, "reason": "it has not joined"})

    def _join(self, name: str, path: object) -> None:
        def tell(event: Event) -> None:
            self._tell({**event, "host": name})

        try:
            if name in self._hosts or not isinstance(path, str):
                raise ValueError("it has joined already, or names no namespace")
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            with on_failure(os.close, fd):
                namespace.enter(fd)
        except (OSError, ValueError) as error:
            tell({"event": "refused", "reason": f"join: {error}"})
            return
        host = self._hosts[name] = Host(Worker(self._loop, tell, self._domains), fd)
        host.worker.greet()

    def _leave(self, name: str) -> None:
        host = self._hosts.pop(name, None)
        if host is not None:
            host.worker.close()
            if host.namespace >= 0:
                namespace.forget(host.namespace)


def main() -> None:
    """Run a worker until its input ends."""
    parser = argparse.ArgumentParser(prog="python -m testbed.endpoints.worker", allow_abbrev=False)
    parser.add_argument("--transport", choices=transport_names(), help="what it is to move data over")
    parser.add_argument("--shared", action="store_true", help="work for all hosts that join")
    arguments = parser.parse_args()
    transport: str | None = arguments.transport
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy would start threads for each CPU
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever started us
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = Loop() if transport is None else worker_transport(transport).make_loop()
    line = CommandLine(loop, shared=arguments.shared)
    line.greet()
    if arguments.shared:
        _import_ahead()
    _settle_memory()
    try:
        while not line.ended:
            if isinstance(loop, Loop):
                line.wait(loop)
            else:
                loop.run_once(line.deadline())
            line.turn()
    except Exception as error:
        # A fault of ours: told before our sockets break the others' connections.
        line.fail(error)
        raise
    line.close()
    loop.close()


def _import_ahead() -> None:
    """Import what hosts may ask for while nobody waits yet."""
    import testbed.endpoints.worker.buffers
    import testbed.endpoints.worker.transports.tcp
    import testbed.endpoints.worker.transports.uet  # noqa: F401 - so that they are there


def _settle_memory() -> None:
    """Tell the garbage collector that all modules stay, so that it does not look at them again and again."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
