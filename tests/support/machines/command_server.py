"""Runs the commands of tests in the lab VM, one after another, by a process that has Python and our modules loaded.

A start of our command line takes an emulated machine seconds of its CPU, nearly all of it for imports. Here a verb that
reads, or a script, is a fork of this process; every other command is started as ever. Each has a session of its own,
pipes for its output, an input that is at its end, and the signals of a program that has just begun; nothing of this
process's connection is open in it.

Run there as a script. Frames go both ways: a letter, four bytes of length, big-endian, and the content. A request `R`
is JSON; what the command writes comes as `O` and `E`, and when it has ended and nobody has its output open any more,
its exit status as `X`. The end of the requests interrupts a command that runs, as `tethered_command` does.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import struct
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHUNK = 65536
THREADS = "OPENBLAS_NUM_THREADS"
"""A process with a second thread, as numpy's library starts one for each CPU, is not to be forked."""
GRACE_S = 60.0
"""For a command to undo its work after SIGINT, and again after SIGTERM."""
NO_SUCH_PROGRAM = 127
REQUEST, OUTPUT, ERRORS, STATUS = b"R", b"O", b"E", b"X"
HEADER = struct.Struct(">cI")


def frame(kind: bytes, content: bytes) -> bytes:
    """Return the frame that carries `content`."""
    return HEADER.pack(kind, len(content)) + content


READING_VERBS = frozenset({"doctor", "inspect", "list", "stats", "validate"})
"""Verbs that are forks. Those that start processes of a lab, or end them, are begun as a user begins them."""


def python_words(command: Sequence[str]) -> list[str] | None:
    """Return the words that a command gives to the checkout's Python; None for a program of its own."""
    program, *words = command
    if program == ".venv/bin/testbed" and words and words[0] in READING_VERBS:
        return [program, *words]
    if program == ".venv/bin/python" and words and (words[0] == "-c" or not words[0].startswith("-")):
        return words
    return None


def run_as_main(words: list[str]) -> None:
    """Run a script, or the code after `-c`, as a Python that is started for it does."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if words[0] == "-c":
        _, source, *arguments = words
        name, sys.argv, sys.path[0] = "<string>", ["-c", *arguments], ""
    else:
        name, sys.argv = str(Path(words[0]).absolute()), words
        source, sys.path[0] = Path(name).read_text(), str(Path(name).resolve().parent)
        main.__file__ = name
    sys.modules["__main__"] = main
    importlib.invalidate_caches()
    exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)


class CommandServer:
    """Takes requests from one descriptor and answers on another."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = requests
        self._answers = answers

    def serve(self) -> list[str] | None:
        """Run what is asked for until the requests end; then None. In a fork, return what that has to run."""
        while (request := self._receive()) is not None:
            command: list[str] = request["command"]
            output, errors = os.pipe(), os.pipe()
            words = python_words(command)
            program, pid = None, 0
            try:
                os.chdir(request["directory"])
                if words:
                    pid = os.fork()
                else:
                    program = _start(command, output[1], errors[1])
                    pid = program.pid
            except OSError as error:
                os.write(errors[1], f"{error.filename or command[0]}: {error.strerror}\n".encode())
                words = None
            if words and not pid:
                self._become(command[0], output, errors)
                return words
            os.close(output[1])
            os.close(errors[1])
            if not self._attend(pid, {output[0]: OUTPUT, errors[0]: ERRORS}):
                return None
            if program:
                code = program.wait()
            else:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else NO_SUCH_PROGRAM
            self._send(STATUS, json.dumps(code if code >= 0 else 128 - code).encode())
        return None

    def _receive(self) -> dict[str, Any] | None:
        header = _read(self._requests, HEADER.size)
        content = _read(self._requests, HEADER.unpack(header)[1]) if header else None
        return json.loads(content) if content else None

    def _send(self, kind: bytes, content: bytes) -> None:
        rest = memoryview(frame(kind, content))
        with contextlib.suppress(BrokenPipeError):  # the requests have ended, too, then
            while rest:
                rest = rest[os.write(self._answers, rest) :]

    def _become(self, name: str, output: tuple[int, int], errors: tuple[int, int]) -> None:
        """Let go of the server's connection, in a fork."""
        os.setsid()
        os.dup2(output[1], 1)
        os.dup2(errors[1], 2)
        for descriptor in (*output, *errors, self._requests, self._answers):
            os.close(descriptor)
        Path("/proc/self/comm").write_text(Path(name).name)

    def _attend(self, pid: int, outputs: dict[int, bytes]) -> bool:
        """Pass on what a command writes until it has ended and its output, too; False if the requests end before."""
        process = os.pidfd_open(pid) if pid else -1
        with selectors.DefaultSelector() as waiting:
            for descriptor in (self._requests, *outputs, process):
                if descriptor >= 0:
                    waiting.register(descriptor, selectors.EVENT_READ)
            while len(waiting.get_map()) > 1:
                for key, _ in waiting.select():
                    if key.fd == self._requests:
                        for descriptor in outputs.keys() & waiting.get_map().keys():
                            os.close(descriptor)  # as nobody reads it
                        if process in waiting.get_map():
                            _end(pid, process)
                        return False
                    if key.fd != process and (content := os.read(key.fd, CHUNK)):
                        self._send(outputs[key.fd], content)
                        continue
                    waiting.unregister(key.fd)
                    os.close(key.fd)
        return True


def _read(descriptor: int, size: int) -> bytes | None:
    """Read so many bytes; None if they end before."""
    content = b""
    while len(content) < size:
        if not (more := os.read(descriptor, size - len(content))):
            return None
        content += more
    return content


def _start(command: list[str], output: int, errors: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True)


def _end(pid: int, process: int) -> None:
    """Interrupt a command; terminate and kill it where that does not help."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        if select.select([process], [], [], GRACE_S)[0]:
            return


def main() -> None:
    """Serve on standard input and output, which commands do not get."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `tethered_command`: the end of the requests tells
    server = CommandServer(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    gc.disable()
    os.environ[THREADS] = "1"
    for name in sys.argv[1:]:
        importlib.import_module(name)
    del os.environ[THREADS]
    gc.freeze()  # what is loaded is looked at by no collection, and its memory stays shared
    gc.enable()
    if words := server.serve():
        run_as_main(words)


if __name__ == "__main__":
    main()
