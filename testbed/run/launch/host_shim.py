"""The program that starts the ranks of one host, inside the host, and sees to it that nothing of them outlives it.

It is a program by itself: it stands on the standard library alone, and is handed to `python3 -c` where the host is a
container, whose files are its own. It speaks with the launch over its standard input and output, which reach into a
container, too, in frames: a letter, a rank and a length, and so many bytes.

Ranks are children of this program. Where it may, it is the first process of a PID namespace (pid_namespaces(7)): when
it ends, however it ends, the kernel kills all that was started in there, what has forked and left its parents too. In a
container, which may not make namespaces, it adopts orphans (PR_SET_CHILD_SUBREAPER) and kills all its descendants,
and ranks die with it (PR_SET_PDEATHSIG). When its input ends the launch is gone, and it kills all, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import json
import os
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

HEADER = struct.Struct("!cII")
"""Kind, rank (0 where a frame is the host's) and length of a frame."""
MAX_FRAME_BYTES = 1 << 24

START, PMI, SIGNAL, STARTED, OUT, ERR, ENDED = b"S", b"P", b"K", b"B", b"O", b"E", b"X"
"""START: JSON: `ranks` to start, each with the fields of `RankToStart`, and `restore`, files by path with what is
written into them in the end. PMI: bytes from or for a rank. SIGNAL: a number (1 byte) for all ranks. STARTED: a rank
runs. OUT, ERR: what it prints. ENDED: its status, as subprocess has it, and in words why it was not started."""
STATUS = struct.Struct("!i")
NO_PROGRAM, CANNOT_RUN = 127, 126
"""The exit codes of shells for a program that is not there, and for one that cannot be run."""

_CLONE_NEWPID, _CLONE_NEWNS = 0x20000000, 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHUNK = 1 << 16
_MOST_CHUNKS = 64
"""More than a pipe holds."""
_KILLING_S, _LOOK_S = 3.0, 0.01
"""Descendants are killed for so long, with so long a pause between two looks at what is still there."""


def frame(kind: bytes, rank: int, data: bytes = b"") -> bytes:
    """Put a message into a frame."""
    return HEADER.pack(kind, rank, len(data)) + data


class FrameReader:
    """Takes frames apart as they come in."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, int, bytes]]:
        """Return the frames that are whole by now: kind, rank and data. Raises `ValueError` for too long a one."""
        self._data += data
        found = []
        while len(self._data) >= HEADER.size:
            kind, rank, length = HEADER.unpack_from(self._data)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            end = HEADER.size + length
            if len(self._data) < end:
                break
            found.append((kind, rank, bytes(self._data[HEADER.size : end])))
            del self._data[:end]
        return found


# --- the program ---------------------------------------------------------------------------------------


class RankToStart:
    """A rank to start: its number, command, environment beside the host's own, directory, and whether it speaks PMI."""

    def __init__(self, *, rank: int, argv: list[str], env: dict[str, str], cwd: str | None, pmi: bool) -> None:
        self.rank = rank
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.pmi = pmi


class _Rank:
    """A rank while its process, or something that it has left behind, may still print."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes], pmi: socket.socket | None) -> None:
        self.rank = rank
        self.process = process
        self.pmi = pmi
        self.ended = False


class _Host:
    """The ranks of the host, and the connection with the launch."""

    def __init__(self) -> None:
        self._frames = FrameReader()
        self._ranks: dict[int, _Rank] = {}
        self._selector = selectors.DefaultSelector()
        self._restore: dict[str, str] = {}
        self._alone = False
        """This is the first process of a PID namespace."""

    def run(self) -> int:
        """Serve the launch until it is done or gone. Returns an exit code."""
        _raise_descriptors()
        self._alone = _be_first_process()
        if not self._alone:
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, lambda *_: None)  # the launch says when to end; ranks would inherit SIG_IGN
        self._selector.register(0, selectors.EVENT_READ, ("launch", None))
        self._selector.register(reader, selectors.EVENT_READ, ("signals", None))
        try:
            while self._turn():
                pass
        except BrokenPipeError:  # nobody hears us any more
            pass
        finally:
            self._kill_all()
            self._restore_settings()
        return 0

    def _turn(self) -> bool:
        """Do what there is to do; False once the launch is done with us."""
        for key, _ in self._selector.select():
            what, rank = key.data
            if what == "launch":
                data = os.read(0, _CHUNK)
                if not data:
                    return False
                for kind, number, content in self._frames.feed(data):
                    self._on_frame(kind, number, content)
            elif what == "signals":
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, _CHUNK)
                self._reap()
            elif what == "pmi":
                self._on_pmi(rank)
            else:
                assert isinstance(key.fileobj, io.BufferedReader)
                self._on_output(key.fileobj, rank, what)
        return True

    def _on_frame(self, kind: bytes, number: int, content: bytes) -> None:
        if kind == START:
            order = json.loads(content)
            self._restore = order["restore"]
            for each in order["ranks"]:
                self._start(RankToStart(**each))
        elif kind == PMI:
            self._to_rank(number, content)
        elif kind == SIGNAL:
            self._signal(content[0])

    def _start(self, order: RankToStart) -> None:
        number = order.rank
        ours = theirs = None
        env = {**os.environ, **order.env}
        descriptors: tuple[int, ...] = ()
        if order.pmi:
            ours, theirs = socket.socketpair()
            env["PMI_FD"] = str(theirs.fileno())
            descriptors = (theirs.fileno(),)
        try:
            process = subprocess.Popen(
                order.argv,
                env=env,
                cwd=order.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=descriptors,
                start_new_session=True,
                preexec_fn=_begin_rank,  # noqa: PLW1509 - there are no threads here
            )
        except OSError as error:
            if ours is not None:
                ours.close()
            self._tell(ENDED, number, STATUS.pack(_code_of(error)) + _why(error, order).encode())
            return
        finally:
            if theirs is not None:
                theirs.close()
        rank = self._ranks[number] = _Rank(number, process, ours)
        assert process.stdout is not None and process.stderr is not None
        for stream, kind in ((process.stdout, OUT), (process.stderr, ERR)):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, (kind, rank))
        if ours is not None:
            ours.setblocking(False)
            self._selector.register(ours, selectors.EVENT_READ, ("pmi", rank))
        self._tell(STARTED, number)

    def _on_output(self, stream: io.BufferedReader, rank: _Rank, kind: bytes) -> None:
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._tell(kind, rank.rank, data)
        else:
            self._selector.unregister(stream)
            stream.close()

    def _on_pmi(self, rank: _Rank) -> None:
        if rank.pmi is None:  # its end was seen a moment ago
            return
        try:
            data = rank.pmi.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._tell(PMI, rank.rank, data)
        else:
            self._close_pmi(rank)

    def _to_rank(self, number: int, content: bytes) -> None:
        """Hand an answer on. A rank that does not read what it has asked for is cut off."""
        rank = self._ranks.get(number)
        if rank is None or rank.pmi is None:
            return
        try:
            whole = rank.pmi.send(content) == len(content)
        except OSError:  # it is gone, or has not read for long
            whole = False
        if not whole:
            self._close_pmi(rank)

    def _close_pmi(self, rank: _Rank) -> None:
        if rank.pmi is not None:
            self._selector.unregister(rank.pmi)
            rank.pmi.close()
            rank.pmi = None

    def _reap(self) -> None:
        """Take leave of every child that has ended, orphans that were adopted too, and tell of ranks among them."""
        by_pid = {rank.process.pid: rank for rank in self._ranks.values() if not rank.ended}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            rank = by_pid.get(pid)
            if rank is not None:
                rank.ended = True
                rank.process.returncode = os.waitstatus_to_exitcode(status)
                self._drain(rank)
                self._tell(ENDED, rank.rank, STATUS.pack(rank.process.returncode))

    def _drain(self, rank: _Rank) -> None:
        """Hand on what a rank had printed, before it is told that it has ended. What it left behind may print on."""
        for key in list(self._selector.get_map().values()):
            if key.data[1] is rank and key.data[0] in (OUT, ERR):
                with contextlib.suppress(BlockingIOError):
                    for _ in range(_MOST_CHUNKS):
                        if not (data := os.read(key.fd, _CHUNK)):
                            break
                        self._tell(key.data[0], rank.rank, data)
            elif key.data[1] is rank and key.data[0] == "pmi":
                self._on_pmi(rank)

    def _signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            self._kill_all()
            return
        for rank in self._ranks.values():
            if not rank.ended:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(rank.process.pid, number)  # each leads a session

    def _kill_all(self) -> None:
        """Kill all that was started here, in a container as long as there is anything."""
        if self._alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # all but us
            return
        end = time.monotonic() + _KILLING_S
        while (found := _descendants()) and time.monotonic() < end:
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
            with contextlib.suppress(BrokenPipeError):
                self._reap()

    def _restore_settings(self) -> None:
        for path, value in self._restore.items():
            with contextlib.suppress(OSError), open(path, "w") as file:  # noqa: PTH123
                file.write(value)

    def _tell(self, kind: bytes, rank: int, data: bytes = b"") -> None:
        """Write a frame. Raises `BrokenPipeError` where the launch is gone."""
        rest = memoryview(frame(kind, rank, data))
        while rest:
            rest = rest[os.write(1, rest) :]


def _code_of(error: OSError) -> int:
    return NO_PROGRAM if error.errno in (errno.ENOENT, errno.ENOTDIR) else CANNOT_RUN


def _why(error: OSError, order: RankToStart) -> str:
    """Say what could not be done, as a shell does; the working directory may be what is missing."""
    if order.cwd is not None and error.filename == order.cwd:
        return f"{order.cwd}: {error.strerror}"
    return f"{order.argv[0]}: {'command not found' if _code_of(error) == NO_PROGRAM else error.strerror}"


def _descendants() -> list[int]:
    """The processes below this one that have not ended, by /proc (CONFIG_PROC_CHILDREN is not everywhere)."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents.setdefault(int(parent), []).append(int(name))
    found, todo = [], [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


# --- system calls --------------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, value, 0, 0, 0)


_usual_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)


def _raise_descriptors() -> None:
    """Let this program have as many descriptors as it may: three for each rank."""
    _, most = _usual_descriptors
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _die_with_parent() -> None:
    """Be killed with the process that started us. Between fork and exec, where little may be done."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _begin_rank() -> None:
    """Do what a rank does before its program."""
    _die_with_parent()
    resource.setrlimit(resource.RLIMIT_NOFILE, _usual_descriptors)


def _be_first_process() -> bool:
    """Go on as the first process of a PID namespace, with a /proc of it; False where this may not make one.

    The process that was here waits for it, and ends as it ends. It takes it along when it is killed.
    """
    if _libc.unshare(_CLONE_NEWPID | _CLONE_NEWNS):
        return False
    child = os.fork()
    if child:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        os.close(0)
        os.close(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status < 0:
            os.kill(os.getpid(), signal.SIGKILL)  # which alone ends a first process
        os._exit(status)
    _die_with_parent()
    _libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
    return True


if __name__ == "__main__":
    sys.exit(_Host().run())
