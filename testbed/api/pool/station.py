"""The process on a machine of a pool that starts its workers, and ends them: `python -m testbed.api.pool.station`.

The first line of its input says of which kind its runs are to be; it is empty for somebody who only asks. The station
answers with one line, which says what this machine is (`testbed.api.pool.about`), and meanwhile imports what such runs
need. The second line says where the scheduler is and how many runs there are to be at once. For each of these it forks
a worker and, beside it, a seat (`testbed.api.pool.seat`): the worker talks to the scheduler, and the seat does the
runs. All of them have been forked from this process, which has imported what they need, and has no thread. A pair of
which one dies is ended and started once more. When its input ends, or at SIGINT or SIGTERM, it ends all, and itself,
and removes its files. When it is killed all die with it, but for a seat with a lab, which removes that first.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from testbed.api.pool.children import PARCELS, WORKERS, as_child
from testbed.base.quick_start import start_quickly

SIMULATION = "simulation"
NEEDED = {
    SIMULATION: ("testbed.api.pool.pairs",),
    "emulation": ("testbed.api.pool.pairs", "testbed.api.pool.emulating"),
}
"""The modules that runs of each kind need, all of which are imported before anything is forked."""
_PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def _signals_told() -> Iterator[int]:
    """Have signals write their numbers into a pipe, whose reading end this gives."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    yield reader


def main() -> int:
    """Run the station of this machine."""
    start_quickly()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with _signals_told() as wake:
        try:
            if (kind := _read_line(wake)) is None:
                return 0
            if not _say_what_it_is(kind.decode().strip()):
                return 1
            if (order := _read_line(wake)) is None:
                return 0
            from testbed.api.pool.pairs import Pairs

            gc.freeze()  # what is forked from here shares it, and need not look through it
            return Pairs(json.loads(order), wake).run()
        finally:
            _remove_files()


def _say_what_it_is(kind: str) -> bool:
    """Have a child say what this machine is, and import meanwhile what runs of this kind need; whether it was said."""
    from testbed.api.pool.about import ABOUT, about_this_machine, encode_about

    child = os.fork()
    if not child:
        as_child(lambda: os.write(1, ABOUT + encode_about(about_this_machine(probed=kind != SIMULATION))))
    try:
        if kind in NEEDED:
            for module in NEEDED[kind]:
                import_module(module)
            from testbed.api.pool.answers import prepare_answers

            prepare_answers(simulated=kind == SIMULATION)
    finally:
        _, status = os.waitpid(child, 0)
    return status == 0


def _remove_files() -> None:
    """Remove what is left of parcels and workers, and the directory itself if there is nothing else in it: whoever
    started this may have been killed.
    """
    for name in (PARCELS, WORKERS):
        shutil.rmtree(name, ignore_errors=True)
    with suppress(OSError):
        Path.cwd().rmdir()


def _read_line(wake: int) -> bytes | None:
    """Read a line of the input, and no more; None where it has ended, or a signal is to end this."""
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready and any(number != signal.SIGCHLD for number in os.read(wake, 64)):
            return None
        if 0 not in ready:
            continue
        byte = os.read(0, 1)
        if not byte:
            return None
        line += byte
    return line


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # to take all that was imported apart would take longer than to end what ran
