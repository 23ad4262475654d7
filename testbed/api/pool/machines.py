"""A machine of a pool while it is one: reached over SSH, or this machine itself; its station runs until it is ended.

All machines are reached at once, each in a thread of its own, and their stations import while this machine gets ready.

The station there is a command under a tether (`vm.remote.tethered_command`): when its input ends, or the connection
breaks, it ends all that runs there for us.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from testbed.api.pool.file import PoolMachine
from testbed.base.errors import TestbedError
from testbed.vm.errors import ConnectionLost
from testbed.vm.remote.ssh import SshSession
from testbed.vm.remote.target import RemoteTarget, check_version, open_session, root_words_there

if TYPE_CHECKING:
    from testbed.api.pool.about import AboutMachine

Done = TypeVar("Done")
Each = TypeVar("Each")
STATION = "testbed.api.pool.station"
MOST_AT_ONCE = 16
"""Machines that something is done with at the same time."""
_MAKE_WORK = 'mkdir -p .testbed-work/pool && cd .testbed-work/pool && mkdir -m 700 "$1" && cd "$1" && pwd -P'
"""Makes the directory of a station: in the home directory, as `--on` has those of verbs."""
KEPT_WORDS = 20
"""Lines of a station's last words that are kept."""
SILENT_S = 45.0
"""A machine that does not acknowledge what it is sent for so long, such as a keepalive, is lost."""
REFUSED_S = 10.0
"""The time in which a station ends that was never told to begin: it may be importing still."""
END_S = 150.0
"""The time that a machine has to end what it does: a lab is removed in seconds, and a large one in a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StationOrder:
    """An order to a station, in the first line of its input. Keys go no other way, so that nobody there sees them.

    `port` is that of the scheduler at `address`, as it is reached there; `seats` the number of runs at once, by what
    they are (`simulation` or `emulation`).
    """

    name: str
    port: int
    certificate: str
    key: str = field(repr=False)
    seats: Mapping[str, int]


class MachineAtWork(ABC):
    """A machine of a pool. It is reached (`begin`), says what it is (`ask`), and is told what to do (`start`)."""

    def __init__(self, machine: PoolMachine) -> None:
        self.machine = machine
        self.name = machine.name
        self.about: AboutMachine | None = None
        self.seats = 0
        """The number of its runs at once; 0 before it is known, and once it is lost."""
        self._station: threading.Thread | None = None
        self._input: BinaryIO | None = None
        self._said: deque[str] = deque(maxlen=KEPT_WORDS)
        self._heard = b""
        self._told: Future[AboutMachine] = Future()
        self._changing = threading.Lock()
        self._on_end: Callable[[MachineAtWork, str], None] | None = None
        self._ended: str | None = None
        """Why its station has ended; None before."""

    @property
    def last_words(self) -> str:
        """Return the last lines that its station has said."""
        return "\n".join(self._said)

    @abstractmethod
    def put(self, archive: bytes, name: str) -> None:
        """Unpack an archive into a directory of this name beside its station."""

    def begin(self, kind: str) -> None:
        """Reach the machine and start its station, for runs of this kind, or with "" to be asked alone. It waits for
        none of that."""
        reader, writer = os.pipe()
        self._input = os.fdopen(writer, "wb", buffering=0)
        self._input.write(f"{kind}\n".encode())

        def run() -> None:
            error: Exception | None = None
            with os.fdopen(reader, "rb", buffering=0) as source:
                try:
                    code = self._run(source)
                    why = "" if code == 0 else f"its station ended with {code}"
                except TestbedError as known:
                    error, why = known, known.message
                except Exception as unforeseen:  # whatever it is, nothing comes from there any more
                    why = f"{type(unforeseen).__name__}: {unforeseen}"
            self.seats = 0
            if not self._told.done():
                words = f": {self._said[-1]}" if self._said else ""
                self._told.set_exception(error or TestbedError(f"{why or 'it says nothing of itself'}{words}"))
            with self._changing:
                self._ended, on_end = why, self._on_end
            if on_end is not None:
                on_end(self, why)

        self._station = threading.Thread(target=run, name=f"station of {self.name}", daemon=True)
        self._station.start()

    def ask(self) -> AboutMachine:
        """Return what the machine says that it is. Raises `TestbedError`."""
        self.about = self._told.result()
        return self.about

    def start(self, order: StationOrder, on_end: Callable[[MachineAtWork, str], None]) -> None:
        """Tell its station to begin; `on_end` is told when it has ended, and why."""
        line = _line(self._as_reached(order))
        with contextlib.suppress(OSError):  # it has ended, and so it is told
            if self._input is not None:
                self._input.write(line)
        with self._changing:
            self._on_end, ended = on_end, self._ended
        if ended is not None:
            self.seats = 0
            on_end(self, ended)

    def end(self) -> None:
        """Have its station end all and itself; returns at once."""
        if self._input is not None:
            with contextlib.suppress(OSError):
                self._input.close()
            self._input = None

    def wait(self, timeout_s: float = END_S) -> bool:
        """Wait until its station has ended; whether it has."""
        if self._station is not None:
            self._station.join(timeout_s)
        return self._station is None or not self._station.is_alive()

    @abstractmethod
    def close(self) -> None:
        """Let go of the machine, which may never have been told to begin: what still runs there is ended."""

    def _as_reached(self, order: StationOrder) -> StationOrder:
        return order

    @abstractmethod
    def _run(self, source: BinaryIO) -> int:
        """Run the station until it ends; its exit code. Its input comes from `source`."""

    def _hear(self, content: bytes) -> None:
        self._said.extend(content.decode(errors="replace").splitlines())

    def _take(self, content: bytes) -> None:
        """Take what the station prints: first what the machine is, and whatever else are words."""
        from testbed.api.pool.about import ABOUT, decode_about  # machines are reached before records are known here

        if self._told.done():
            self._hear(content)
            return
        *lines, self._heard = (self._heard + content).split(b"\n")
        for line in lines:
            if self._told.done() or not line.startswith(ABOUT):
                self._hear(line)
                continue
            try:
                self._told.set_result(decode_about(line.removeprefix(ABOUT), self.name))
            except TestbedError as error:
                self._told.set_exception(error)


class FarMachine(MachineAtWork):
    """A machine that is reached over SSH."""

    def __init__(self, machine: PoolMachine, target: RemoteTarget) -> None:
        super().__init__(machine)
        self._target = target
        self._session: SshSession | None = None
        self._prefix: tuple[str, ...] = ()
        self._work = ""
        self._tidy = False
        """Its station has ended in order, and removed its files."""

    @property
    def _connected(self) -> SshSession:
        if self._session is None:
            raise ConnectionLost(f"{self.name} is not connected")
        return self._session

    def put(self, archive: bytes, name: str) -> None:
        self._connected.send_tree(archive, f"{self._work}/parcels/{name}")

    def close(self) -> None:
        self.end()
        if self._session is None:  # it may be connecting still, and will see that nobody wants it
            return
        ended = self.wait(REFUSED_S)
        session, self._session = self._session, None
        if self._work and ended and not self._tidy:
            with contextlib.suppress(TestbedError):
                session.check([*self._prefix, "rm", "-rf", "--", self._work])
        session.__exit__(None, None, None)

    def _as_reached(self, order: StationOrder) -> StationOrder:
        return replace(order, port=self._connected.listen_there(order.port))

    def _run(self, source: BinaryIO) -> int:
        self._session = session = open_session(self._target)
        if self._input is None:
            session.__exit__()
            raise ConnectionLost(f"{self.name} was let go before it was reached")
        session.lose_after(SILENT_S)
        self._prefix = root_words_there(session, self._target)
        self._work = session.check(["sh", "-c", _MAKE_WORK, "sh", secrets.token_hex(4)]).decode().strip()
        code = session.run(
            [f"{self._target.path}/.venv/bin/python", "-m", STATION],
            errand_path=self._target.errand_path,
            directory=self._work,
            prefix=self._prefix,
            stdin=source,
            stdout=self._take,
            stderr=self._hear,
        )
        self._tidy = code == 0
        if not self._told.done():
            check_version(session, self._target)  # which says what is wrong where there is no testbed at all
        return code


class OwnMachine(MachineAtWork):
    """This machine, as one of a pool."""

    def __init__(self, machine: PoolMachine) -> None:
        super().__init__(machine)
        self._work = tempfile.TemporaryDirectory(prefix="testbed-pool-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None

    def put(self, archive: bytes, name: str) -> None:
        from testbed.api.pool.parcel import unpack_parcel

        unpack_parcel(archive, Path(self._work.name) / "parcels" / name)

    def close(self) -> None:
        self.end()
        self.wait(REFUSED_S)
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._work.cleanup()

    def _run(self, source: BinaryIO) -> int:
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", STATION],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._work.name,
            start_new_session=True,  # an interrupt at the keyboard is for us alone
        )
        assert process.stdout is not None
        for line in process.stdout:
            self._take(line)
        return process.wait()


def machine_at_work(machine: PoolMachine) -> MachineAtWork:
    """Return the machine, which is not reached yet."""
    return OwnMachine(machine) if machine.target is None else FarMachine(machine, machine.target)


def with_each(machines: Iterable[Each], do: Callable[[Each], Done]) -> list[Done]:
    """Do something with all machines, with several at a time; what came of each, in their order.

    Raises what is raised for the first of them. An interrupt waits for none: their threads end with the process.
    """
    waiting = deque((machine, Future[Done]()) for machine in machines)
    outcomes = [outcome for _, outcome in waiting]

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                machine, outcome = waiting.popleft()
                try:
                    outcome.set_result(do(machine))
                except BaseException as error:  # for whoever waits
                    outcome.set_exception(error)

    for _ in outcomes[:MOST_AT_ONCE]:
        threading.Thread(target=work, daemon=True).start()
    return [outcome.result() for outcome in outcomes]


def _line(order: StationOrder) -> bytes:
    return json.dumps({field: getattr(order, field) for field in StationOrder.__slots__}).encode() + b"\n"


def named(names: Sequence[str]) -> str:
    """Return names as a sentence has them."""
    unique = list(dict.fromkeys(names))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} and {unique[-1]}"
