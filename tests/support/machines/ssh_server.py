"""An SSH server of this process that runs commands here: for tests of what happens at the other end of a connection."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import paramiko

from testbed.vm.machine import Keys, make_keys
from testbed.vm.remote.ssh import Login

CHUNK = 4096


class SshServer:
    """Listens on a port of the loopback, 0 for a free one; its keys are new ones in `directory`, or `keys`.

    `drop()` breaks all connections. Leave the context and it is gone.
    """

    def __init__(self, directory: Path, *, keys: Keys | None = None, port: int = 0) -> None:
        self.keys = keys or make_keys(directory)
        self._listener = socket.create_server(("127.0.0.1", port))
        self._transports: list[paramiko.Transport] = []
        self.commands: list[subprocess.Popen[bytes]] = []
        self.login = Login(
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            user="root",
            key=self.keys.client,
            host_key=self.keys.host,
        )

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone leaves it open for as long as the thread waits in accept(2): one more connection would get in.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for command in self.commands:
            command.kill()
            command.wait()

    def drop(self) -> None:
        """Break all connections, as a cut cable does."""
        for transport in self._transports:
            transport.sock.close()
            transport.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                transport = paramiko.Transport(connection)
                self._transports.append(transport)
                transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(str(self.keys.host)))
                with contextlib.suppress(paramiko.SSHException, EOFError):
                    transport.start_server(server=_Door(self))

    def start(self, channel: paramiko.Channel, line: str) -> None:
        command = subprocess.Popen(
            ["sh", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.commands.append(command)
        asked = threading.Event()
        """The client sends, or ends, its input once it has been told that the command runs: nothing may come before."""

        def pump() -> None:
            asked.wait()
            assert command.stdout is not None
            assert command.stderr is not None
            with contextlib.suppress(OSError, EOFError):
                while content := command.stdout.read1(CHUNK):  # type: ignore[attr-defined]
                    channel.sendall(content)
                channel.sendall_stderr(command.stderr.read())
                channel.send_exit_status(command.wait())
                channel.close()

        def feed() -> None:
            assert command.stdin is not None
            with contextlib.suppress(OSError, EOFError, ValueError):
                while content := channel.recv(CHUNK):
                    asked.set()
                    command.stdin.write(content)
                    command.stdin.flush()
            asked.set()
            with contextlib.suppress(OSError):
                command.stdin.close()

        threading.Thread(target=pump, daemon=True).start()
        threading.Thread(target=feed, daemon=True).start()


class _Door(paramiko.ServerInterface):
    def __init__(self, server: SshServer) -> None:
        self._server = server

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = self._server.keys.authorized.read_text().split()[1]
        return paramiko.AUTH_SUCCESSFUL if key.get_base64() == known else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._server.start(channel, command.decode())
        return True
