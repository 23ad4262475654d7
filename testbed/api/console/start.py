"""Starts the console, prints the link to it, and serves until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from testbed.api.console.application import application
from testbed.api.console.browser import LinkFile
from testbed.api.console.connections import BrowserConnection, BrowserWebSocket
from testbed.api.console.console import Console, ConsoleSettings
from testbed.api.console.files import StartDirectories
from testbed.api.console.guard import ConsoleGuard, Names
from testbed.api.console.listening import (
    DEFAULT_BIND,
    CannotListen,
    ListenAt,
    Tls,
    certificate_names,
    open_socket,
    parse_bind,
)
from testbed.api.console.registry import PlayedRecords, load_actions, load_views
from testbed.api.console.sessions import Sessions
from testbed.api.console.sources.recorded import run_address
from testbed.api.console.tables.registry import TABLES
from testbed.api.console.views.capture import CAPTURES
from testbed.base.errors import TestbedError
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.record.store import RECORD_FILE

_LARGEST_MESSAGE = 1 << 16
"""Bytes of a message of a WebSocket: what somebody types, or pastes."""
_ANY_ADDRESS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleServing:
    """The way in which a console is to serve. `opens_browser` has the link opened here; `known_as` is the address by
    which browsers know it, where that is forwarded; `of_lab` makes it the read-only page of one lab, on that lab's
    management network and without a login."""

    bind: ListenAt
    settings: ConsoleSettings
    tls: Tls | None = None
    opens_browser: bool = False
    known_as: ListenAt | None = None
    of_lab: str | None = None


class _Server(uvicorn.Server):
    """A server that leaves signals to us: streams have to be told to end before it waits for them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def serve_console(serving: ConsoleServing, tell: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; then return. `tell` gets the sentences for who has started it.

    Raises `CannotListen`.
    """
    state = StateDirectory()
    if serving.of_lab is not None and not in_network_of(serving.of_lab):
        raise CannotListen(
            f"--of-lab asks nobody for a login, and this is no node of {serving.of_lab}", hint="leave --of-lab out"
        )
    if serving.opens_browser and serving.bind.path is not None:
        raise CannotListen("--open: no browser reaches a Unix socket by itself", hint="--bind 127.0.0.1:0 --open")
    managed = [] if serving.of_lab is None else [serving.bind.host]
    listener = open_socket(serving.bind, serving.tls, managed=managed)
    try:
        asyncio.run(_serve(serving, state, listener, tell))
    finally:
        listener.close()
        if serving.bind.path is not None:
            serving.bind.path.unlink(missing_ok=True)


def in_network_of(lab: str) -> bool:
    """Tell whether this process is in the network namespace of a node of a lab, whose addresses nobody else reaches."""
    try:
        own = Path("/proc/self/ns/net").stat().st_ino
        return any(path.stat().st_ino == own for path in NETNS_DIRECTORY.glob(f"{lab}-*"))
    except OSError:
        return False


async def _serve(
    serving: ConsoleServing, state: StateDirectory, listener: socket.socket, tell: Callable[[str], None]
) -> None:
    actions = load_actions() if serving.of_lab is None else []
    console = Console(
        serving.settings,
        state,
        views=load_views(),
        actions=actions,
        tables=[table.to_json() for table in TABLES.values()],
        play=PlayedRecords().play,
    )
    if serving.settings.also:  # which takes SSH, and the start of most consoles does not
        from testbed.api.console.machine.others import OtherMachines

        console.others = OtherMachines(
            serving.settings.also,
            console.others_changed,
            console.is_looked_at,
            console.failures,
            write=serving.settings.write,
        )
    link = _Link(serving, listener, tell)
    app: ASGIApp = ConsoleGuard(
        application(console, link.sessions, secure=serving.tls is not None, told=link.used),
        names=link.names,
        sessions=link.sessions,
        secure=serving.tls is not None,
    )
    server = _Server(_configuration(app, serving.tls))
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        console.loop.add_signal_handler(number, ending.set)
    console.start()
    link.show()
    serve = asyncio.ensure_future(server.serve(sockets=[listener]))
    waiting = asyncio.ensure_future(ending.wait())
    await asyncio.wait((serve, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await console.close(tell)
    server.should_exit = True
    try:
        await serve
    finally:
        link.close()
        await asyncio.to_thread(CAPTURES.close)


def _configuration(app: ASGIApp, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BrowserConnection,
        ws=BrowserWebSocket,
        ws_max_size=_LARGEST_MESSAGE,
        ws_per_message_deflate=False,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        ssl_certfile=None if tls is None else str(tls.certificate),
        ssl_keyfile=None if tls is None else str(tls.key),
    )


class _Link:
    """The link to the console, with a token for one login; a new one is shown once it is used."""

    def __init__(self, serving: ConsoleServing, listener: socket.socket, tell: Callable[[str], None]) -> None:
        self._serving = serving
        self._tell = tell
        self._file = LinkFile()
        self._shown = 0
        bind, tls = serving.bind, serving.tls
        self._is_at = "console"
        if bind.path is not None:
            whole, forwarded = bind.path.absolute(), parse_bind(DEFAULT_BIND)
            self._is_at = (
                f"console at {whole}; after `ssh -L {forwarded.port}:{shlex.quote(str(whole))} HOST` elsewhere"
            )
            self._at = f"http://{forwarded}/"
            self.names = Names.of_tunnel()
            name = f"unix-{bind.path.stem}"
        else:
            host, port = listener.getsockname()[:2]
            certified = certificate_names(tls) if tls is not None else frozenset[str]()
            self.names = Names.of(str(host), port, {*certified, bind.host.lower()} - {*_ANY_ADDRESS})
            shown = sorted(certified)[0] if host in _ANY_ADDRESS and certified else str(host)
            shown = socket.gethostname() if shown in _ANY_ADDRESS else shown
            shown = f"[{shown}]" if ":" in shown else shown
            if serving.of_lab is not None:  # reached from the lab's nodes, or by `ssh -L` through its server
                self.names = Names.of_tunnel(str(host))
            if serving.known_as is not None:
                self.names = Names.of(serving.known_as.host, serving.known_as.port)
            self._at = f"{'https' if tls is not None else 'http'}://{shown}:{port}/"
            name = str(port)
        safe = "".join(character if character.isalnum() else "-" for character in name)
        self.sessions = None if serving.of_lab is not None else Sessions(f"testbed-console-{safe}")

    def show(self) -> None:
        """Tell where the console is, with a token."""
        token = "" if self.sessions is None else f"?token={self.sessions.new_token()}"
        first = self._shown == 0
        self._shown += 1
        link = f"{self._at}{token}"
        self._tell(f"{self._is_at}: {link} (Ctrl-C ends it)" if first else f"for another browser: {link}")
        if first and self._serving.opens_browser:
            self._file.open(link, self._tell)

    def used(self) -> None:
        """Show another link: this one is worth nothing any more."""
        self._file.remove()
        self.show()

    def close(self) -> None:
        """Leave nothing of the link behind."""
        self._file.remove()


def roots_of(target: str | None) -> tuple[Path, ...]:
    """Return the start directories of a console that is started here: the working directory, and that of a record."""
    directories = [Path.cwd()]
    if target is not None and (path := _record_directory(target)).is_dir():
        whole = path.resolve()
        if not whole.is_relative_to(directories[0]):
            directories.append(whole.parent)
    return tuple(directories)


def _record_directory(target: str) -> Path:
    """Return the directory that is named, or that of a record's file."""
    path = Path(target)
    return path.parent if path.name == RECORD_FILE else path


def opened(target: str | None, roots: Sequence[Path], state: StateDirectory) -> str | None:
    """Return the address that a page shows first: of a lab that is named, or of a record's directory.

    Raises `TestbedError` for what is neither.
    """
    if target is None:
        return None
    path, directory = Path(target), _record_directory(target)
    if (directory / RECORD_FILE).is_file():
        shown = StartDirectories(roots).shown(directory.resolve())
        assert shown is not None
        return run_address(shown, 0, 1)
    if target in state.names():
        return f"/api/labs/{target}"
    if os.sep in target or path.exists():
        raise TestbedError(f"{target} has no record", hint="name a directory below results/, or a lab")
    raise state.not_found(target)
