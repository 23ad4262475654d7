"""`--on ssh://HOST console`: the console of another machine, at an address of this one.

It runs there, listens at that machine's loopback address, and is reached through the SSH connection. The link that it
prints is shown with the address here, by which browsers know it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from testbed.api.console.browser import LinkFile, tell_on_standard_error
from testbed.api.console.listening import ListenAt, open_socket, parse_bind
from testbed.base.errors import TestbedError
from testbed.vm.errors import ConnectionLost
from testbed.vm.remote.target import RemoteTarget, open_session, prepare_there, program_of

if TYPE_CHECKING:
    from testbed.vm.remote.ssh import SshSession

_LINK = re.compile(r"(?P<what>console|for another browser): (?P<at>http://[^/]+)(?P<path>/\S*)(?P<rest>.*)")
_CHUNK = 65536


def forward_console(target: RemoteTarget, arguments: Sequence[str]) -> int:
    """Start the console there, and forward connections to it until Ctrl-C; return its exit code."""
    from testbed.cli.machine.console import console

    asked = console.make_context("console", list(arguments)).params
    if asked["tls"] is not None or asked["of_lab"] is not None or asked["known_as"] is not None:
        raise TestbedError("--on: the console is reached through SSH", hint="leave --tls, --known-as and --of-lab out")
    if asked["also"]:
        raise TestbedError(
            "--on: a console there lists that machine's labs", hint="console --also ssh://HOST, without --on"
        )
    bind = parse_bind(asked["bind"])
    if bind.path is not None:
        raise TestbedError(f"--bind {bind}: a browser wants an address here", hint="for example 127.0.0.1:9470")
    with closing(open_socket(bind, None)) as listener, open_session(target) as session:
        host, port = listener.getsockname()[:2]
        here = ListenAt(host=str(host), port=int(port))
        prefix = prepare_there(session, target)
        link = _Link(session, listener, here, opens=asked["opens"])
        words = [program_of(target), "console", "--bind", "127.0.0.1:0", "--known-as", str(here)]
        words += ["--write"] if asked["write"] else []
        words += [asked["target"]] if asked["target"] else []
        with contextlib.closing(link):
            return session.run(words, errand_path=target.errand_path, directory=target.path, prefix=prefix, stderr=link)


class _Link:
    """Takes what the console there tells, line by line. With the first link it begins to forward."""

    def __init__(self, session: SshSession, listener: socket.socket, here: ListenAt, *, opens: bool) -> None:
        self._session = session
        self._listener = listener
        self._here = here
        self._opens = opens
        self._file = LinkFile()
        self._rest = b""
        self._forwards = False

    def __call__(self, content: bytes) -> None:
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            self._tell(line.decode(errors="replace"))

    def _tell(self, line: str) -> None:
        match = _LINK.fullmatch(line)
        if match is None:
            tell_on_standard_error(line)
            return
        if not self._forwards:
            self._forwards = True
            port = int(match["at"].rpartition(":")[2])
            threading.Thread(target=_accept, args=(self._session, self._listener, port), daemon=True).start()
        link = f"http://{self._here}{match['path']}"
        tell_on_standard_error(f"{match['what']} of {self._session.login}: {link}{match['rest']}")
        self._file.remove()  # the link before was used
        if self._opens:
            self._opens = False
            self._file.open(link, tell_on_standard_error)

    def close(self) -> None:
        """Leave nothing of a link behind."""
        self._file.remove()


def _accept(session: SshSession, listener: socket.socket, port: int) -> None:
    """Forward each connection to a port there, until the listener is closed."""
    while True:
        try:
            here, _ = listener.accept()
        except OSError:
            return
        try:
            there = session.connect_there("127.0.0.1", port)
        except ConnectionLost:
            here.close()
            continue
        for source, sink in ((here, there), (there, here)):
            threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: Any, sink: Any) -> None:
    """Pass bytes on in one direction to their end; then the other end hears of it."""
    with suppress(OSError, EOFError):
        while content := source.recv(_CHUNK):
            sink.sendall(content)
    for end in (source, sink):
        with suppress(OSError, EOFError):
            end.shutdown(socket.SHUT_RDWR) if isinstance(end, socket.socket) else end.close()
