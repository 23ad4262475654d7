"""Commands and files over SSH, by paramiko: output streams as it comes, exit codes come back, host keys are checked.

A connection that breaks raises `ConnectionLost`; what ran over it is interrupted at the far end (`errand`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import shlex
import signal
import socket
import sys
import tarfile
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from testbed.base.errors import DriverError
from testbed.base.installation.extras import extra_missing
from testbed.vm.archives import extract_member
from testbed.vm.errors import ConnectionLost, NotConnected
from testbed.vm.remote import tethered_command as errand

try:
    import paramiko
except ModuleNotFoundError as error:
    raise extra_missing("remote", "a lab on another machine or in the lab VM", error) from error

# It tells of every connection that fails, with a traceback, before it raises what we report.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)
CONNECT_TIMEOUT_S = 60.0
KEEPALIVE_S = 15
LOGIN_TRIED_EVERY_S = 0.3
DISK_FULL = ("No space left on device", "Wrote only")
"""The messages of tools on a full disk; the second is tar's when the last block fitted in part."""
CHUNK = 65536
Sink = Callable[[bytes], object]


class InputInterrupted(Exception):
    """The command that reads this input is to be interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A place to log in.

    `host_key` is the file of the host's own key where we made it, else it must be a known host.
    """

    host: str
    port: int = 22
    user: str | None = None
    key: Path | None = None
    host_key: Path | None = None

    def __str__(self) -> str:
        return f"{f'{self.user}@' if self.user else ''}{self.host}{f':{self.port}' if self.port != 22 else ''}"


class SshSession:
    """One connection. Use it in a `with`."""

    def __init__(self, login: Login, *, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self.login = login
        self._client = paramiko.SSHClient()
        self._client.set_missing_host_key_policy(paramiko.RejectPolicy())
        options: dict[str, object] = {}
        if login.host_key is not None:
            host_key = paramiko.Ed25519Key.from_private_key_file(str(login.host_key))
            name = login.host if login.port == 22 else f"[{login.host}]:{login.port}"
            self._client.get_host_keys().add(name, "ssh-ed25519", host_key)
        else:
            self._client.load_system_host_keys()
        if login.key is not None:
            options = {"key_filename": str(login.key), "look_for_keys": False, "allow_agent": False}
        try:
            self._client.connect(
                login.host,
                port=login.port,
                username=login.user,
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
                channel_timeout=timeout_s,
                **options,  # type: ignore[arg-type]
            )
        except paramiko.BadHostKeyException as error:
            raise NotConnected(
                f"{login} is not the machine it was: its host key differs",
                hint="if that is as it should be: ssh-keygen -R and log in once by hand",
            ) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            hint = "log in once by hand: ssh " + str(login) if "not found in known_hosts" in str(error) else None
            raise NotConnected(f"no SSH connection to {login}: {error}", hint=hint) from error
        transport = self._client.get_transport()
        assert transport is not None
        transport.set_keepalive(KEEPALIVE_S)
        # a short message behind another would wait for the far end's delayed acknowledgement (RFC 1122, 4.2.3.4)
        if isinstance(transport.sock, socket.socket):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = transport

    @property
    def far_address(self) -> str:
        """The IP address at which the far end was reached."""
        return str(self._transport.sock.getpeername()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(
        self,
        command: Sequence[str],
        *,
        errand_path: str,
        directory: str = "/",
        prefix: Sequence[str] = (),
        stdin: BinaryIO | None = None,
        stdout: Sink | None = None,
        stderr: Sink | None = None,
    ) -> int:
        """Run a command through the far end's `errand_path`; its exit code, or 130 if an interrupt here ended it.

        Output goes to `stdout` and `stderr` as it comes; default: ours. A `stdin` that raises `InputInterrupted`
        interrupts the command.
        """
        line = shlex.join([*prefix, "python3", "-I", errand_path, directory, *command])
        channel = self._open(line)
        threading.Thread(target=_feed, args=(channel, stdin), daemon=True).start()
        interrupted = False
        streams = threading.Thread(
            target=_copy, args=(channel.recv_stderr, stderr or writer(sys.stderr.buffer)), daemon=True
        )
        streams.start()
        out = stdout or writer(sys.stdout.buffer)
        while True:
            try:
                _copy(channel.recv, out)
                break
            except KeyboardInterrupt:
                interrupted = True
                channel.shutdown_write()
        streams.join()
        status = self._status(channel)
        return 130 if interrupted else status

    def check(self, line: Sequence[str], *, stdin: bytes = b"") -> bytes:
        """Return what a command of the far end prints that must succeed; `stdin` is its whole input."""
        channel = self._open(shlex.join(line))
        said = io.BytesIO()
        reader = threading.Thread(target=_copy, args=(channel.recv_stderr, said.write), daemon=True)
        reader.start()
        writer = threading.Thread(target=_send_all, args=(channel, stdin), daemon=True)
        writer.start()
        output = io.BytesIO()
        _copy(channel.recv, output.write)
        reader.join()
        if status := self._status(channel):
            words = said.getvalue().decode(errors="replace").strip()
            if any(sign in words for sign in DISK_FULL):
                raise DriverError(f"the disk of {self.login} is full: {words[-300:]}", operation=line[0])
            said_there = f"{self.login}: {line[0]} ended with status {status}: {words[-1000:]}"
            raise DriverError(said_there, operation=line[0])
        return output.getvalue()

    def interact(self, line: Sequence[str]) -> int:
        """Run a command, or the login shell, on a terminal there that is ours here. Its exit code."""
        channel = self._channel()
        size = os.get_terminal_size(sys.stdin.fileno())
        channel.get_pty(os.environ.get("TERM", "xterm"), size.columns, size.lines)
        if line:
            channel.exec_command(shlex.join(line))
        else:
            channel.invoke_shell()
        with _raw_terminal(channel):
            _exchange(channel)
        return self._status(channel)

    def connect_there(self, host: str, port: int) -> paramiko.Channel:
        """Return a connection to an address that the far end reaches (RFC 4254, 7.2). Raises `ConnectionLost`."""
        try:
            return self._transport.open_channel(
                "direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT_S
            )
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise ConnectionLost(f"{self.login} does not connect to {host}:{port}: {error}") from error

    def lose_after(self, silent_s: float) -> None:
        """Take the connection for broken once the far end has acknowledged nothing for so long (tcp(7),
        TCP_USER_TIMEOUT): a machine that was switched off does not say so."""
        if isinstance(self._transport.sock, socket.socket):
            self._transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silent_s * 1e3))

    def listen_there(self, port: int) -> int:
        """Have the far end's loopback listen, and connect whoever comes there to a port of our loopback (RFC 4254,
        7.1). Returns the port there. Raises `ConnectionLost` where the far end does not allow it."""

        def connect_here(channel: paramiko.Channel, origin: Any, address: Any) -> None:
            threading.Thread(target=exchange_with, args=(channel, port), daemon=True).start()

        try:
            return self._transport.request_port_forward("127.0.0.1", 0, connect_here)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise ConnectionLost(
                f"{self.login} does not forward a port to us: {error}",
                hint="its sshd_config needs AllowTcpForwarding yes (or remote)",
            ) from error

    def _channel(self) -> paramiko.Channel:
        try:
            return self._transport.open_session(timeout=CONNECT_TIMEOUT_S)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise ConnectionLost(f"the SSH connection to {self.login} broke: {error}") from error

    def _open(self, line: str) -> paramiko.Channel:
        channel = self._channel()
        try:
            channel.exec_command(line)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise ConnectionLost(f"the SSH connection to {self.login} broke: {error}") from error
        return channel

    def _status(self, channel: paramiko.Channel) -> int:
        status = channel.recv_exit_status()
        channel.close()
        if status < 0:
            raise ConnectionLost(
                f"the SSH connection to {self.login} broke", hint="what ran there has been interrupted"
            )
        return status

    # --- files ---------------------------------------------------------------------------------------

    def send_tree(self, archive: bytes, directory: str) -> None:
        """Unpack a tar archive in a directory there, which is made."""
        self.check(["sh", "-c", 'mkdir -p "$1" && tar -x -f - -C "$1"', "tar", directory], stdin=archive)

    def put(self, source: Path, target: str) -> None:
        """Copy a file or a directory there. `target` is its new name; or the directory it goes into, ending in /."""
        name = source.name if target.endswith("/") else target.rpartition("/")[2]
        parent = target.rpartition("/")[0] or ("/" if target.startswith("/") else ".")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(source, arcname=name)
        self.send_tree(buffer.getvalue(), parent)

    def get(self, source: str, target: Path) -> None:
        """Copy a file or a directory from there. If `target` is a directory, it goes into it."""
        parent, _, name = source.rstrip("/").rpartition("/")
        content = self.check(["tar", "-c", "-f", "-", "-C", parent or ("/" if source.startswith("/") else "."), name])
        base, new_name = (target, name) if target.is_dir() else (target.parent, target.name)
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            for member in tar.getmembers():
                member.name = new_name + member.name[len(name) :]
                extract_member(tar, member, base)


def wait_for_login(login: Login, *, timeout_s: float, alive: Callable[[], bool]) -> SshSession:
    """Log in to a machine that is just starting, as soon as it answers. None of its own errors before that counts.

    Raises `ConnectionLost` when the time is over or `alive` says that there is nothing to wait for.
    """
    end = time.monotonic() + timeout_s
    while True:
        try:
            return SshSession(login, timeout_s=max(5.0, end - time.monotonic()))
        except ConnectionLost:
            if not alive() or time.monotonic() > end:
                raise
        time.sleep(LOGIN_TRIED_EVERY_S)  # a port that nobody listens at tells nothing of when somebody will


def _feed(channel: paramiko.Channel, source: BinaryIO | None) -> None:
    """Send our input in frames to the errand at the far end, and say where it ends."""
    with contextlib.suppress(OSError, EOFError):
        try:
            if source is not None:
                read = getattr(source, "read1", source.read)
                while content := read(CHUNK):
                    channel.sendall(errand.frame(content))
        except InputInterrupted:
            channel.shutdown_write()  # the end of the frames is an interrupt
        else:
            channel.sendall(errand.frame(b""))


def _send_all(channel: paramiko.Channel, content: bytes) -> None:
    with contextlib.suppress(OSError, EOFError):
        channel.sendall(content)
        channel.shutdown_write()


def _copy(receive: Callable[[int], bytes], sink: Sink) -> None:
    while content := receive(CHUNK):
        sink(content)


def exchange_with(channel: paramiko.Channel, port: int) -> None:
    """Pass on what comes over a channel to a port of our loopback, and back, until either end closes."""
    with contextlib.suppress(OSError, EOFError), contextlib.closing(channel):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.closing(connection):
            ways: dict[int, tuple[Any, Any]] = {
                channel.fileno(): (channel, connection),
                connection.fileno(): (connection, channel),
            }
            poll = select.poll()  # select(2) knows no descriptor above 1023, and a pool may have many connections
            for number in ways:
                poll.register(number, select.POLLIN)
            while True:
                for number, _ in poll.poll():
                    source, sink = ways[number]
                    content = source.recv(CHUNK)
                    if not content:
                        return
                    sink.sendall(content)


def writer(stream: BinaryIO) -> Sink:
    """Return what writes to a stream at once."""

    def write(content: bytes) -> None:
        stream.write(content)
        stream.flush()

    return write


@contextlib.contextmanager
def _raw_terminal(channel: paramiko.Channel) -> Iterator[None]:
    """Our terminal passes every key on, and tells the far end its size."""

    def resize(*_: object) -> None:
        size = os.get_terminal_size(sys.stdin.fileno())
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            channel.resize_pty(size.columns, size.lines)

    before = termios.tcgetattr(sys.stdin)
    previous = signal.signal(signal.SIGWINCH, resize)
    try:
        tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed ahead is not lost
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, previous)


def _exchange(channel: paramiko.Channel) -> None:
    keyboard = sys.stdin.fileno()
    watched: list[Any] = [channel, keyboard]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if channel in ready:
            content = channel.recv(CHUNK)
            if not content:
                return
            os.write(sys.stdout.fileno(), content)
        if keyboard in ready:
            typed = os.read(keyboard, CHUNK)
            if typed:
                channel.sendall(typed)
            else:
                channel.shutdown_write()
                watched.remove(keyboard)
