"""Starting the processes of daemons, and waiting until they are at work.

One that is a module of its own says so over a pipe (`start_ready`, `say_ready`). One that is forked for each node
(`fork_server`) goes on in its namespace when the command has long ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from testbed.base.cleanup import closed_at_end, end_at_once
from testbed.base.descriptors import wait_readable
from testbed.base.errors import TestbedError
from testbed.base.linux.processes import disown, launch, package_environment

_READY = b"ready\n"
_UNEXPECTED = 70
"""The exit code of a process that ended by an error that nobody has foreseen (EX_SOFTWARE of sysexits.h)."""


def start_module(
    module: str,
    run_directory: Path,
    log_name: str,
    arguments: Sequence[str],
    descriptors: Sequence[int],
    **options: str,
) -> subprocess.Popen[bytes]:
    """`python -m MODULE --run-directory DIR ARGUMENTS`, in a session of its own. Raises `OSError`.

    Linear algebra starts no threads: their stacks would be locked in memory.
    """
    return launch(
        module,
        ["--run-directory", str(run_directory), *arguments],
        run_directory / log_name,
        env=package_environment() | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        pass_fds=tuple(descriptors),
        start_new_session=True,
        **options,
    )


def start_ready(start: Callable[[int], subprocess.Popen[bytes]], timeout_s: float) -> tuple[int, int | None]:
    """Start a daemon that is handed a descriptor for `say_ready`, and wait until it has said so.

    Its process id comes back, and its exit code where it ended instead. Raises `TimeoutError` for one that does neither
    within `timeout_s`, which is killed.
    """
    reader, writer = os.pipe()
    with closed_at_end(reader):
        with closed_at_end(writer):
            process = start(writer)
        if not wait_readable(reader, timeout_s):
            end_at_once(process)
            raise TimeoutError
        if not os.read(reader, len(_READY)):
            return process.pid, process.wait()
    disown(process)
    return process.pid, None


def say_ready(descriptor: int) -> None:
    """Tell whoever called `start_ready`. Raises `BrokenPipeError` where nobody waits any more."""
    os.write(descriptor, _READY)
    os.close(descriptor)


def hear_signal(number: signal.Signals) -> int:
    """Have a signal wake this process instead of ending it: a descriptor comes back that is readable when it came.

    For the main thread, and one signal in a process (`signal.set_wakeup_fd`).
    """
    heard, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(number, lambda *_: None)
    return heard


def fork_server(name: str, prepare: Callable[[], Callable[[], object] | None]) -> int:
    """Fork a process that is called `name`, and ends when it is ended; a descriptor for `all_begun` comes back.

    It calls `prepare` and then what that returns, which works until the end; None where there is nothing to do.
    """
    ready, begun = os.pipe()
    if os.fork():
        os.close(begun)
        return ready
    status = 1
    try:
        os.close(ready)
        os.setsid()
        Path("/proc/self/comm").write_text(name)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work = prepare()
        os.write(begun, b".")
        os.close(begun)
        if work is not None:
            work()
        status = 0
    except (TestbedError, OSError):
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
        status = _UNEXPECTED
    finally:
        os._exit(status)


def all_begun(ready: Sequence[int]) -> bool:
    """Wait until every forked process has begun, or has ended; tell whether all have begun."""
    begun = [os.read(descriptor, 1) for descriptor in ready]
    return all(begun)
