"""`--on ssh://HOST console`: the link is shown with the address here, and bytes go both ways."""

import re
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Self

import pytest

from testbed.base.errors import TestbedError
from testbed.cli.machine import forwarded_console
from testbed.cli.machine.forwarded_console import forward_console
from testbed.vm.remote.target import RemoteTarget, parse_target

THERE = parse_target("ssh://root@there/checkout")


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.headers['Host']} asked for {self.path}".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class FakeSession:
    """An SSH session to a machine whose console is a small HTTP server of this process."""

    login = "root@there"

    def __init__(self, during: Callable[[], None]) -> None:
        self.words: Sequence[str] = ()
        self._during = during

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, command: Sequence[str], *, stderr: Callable[[bytes], object], **_: Any) -> int:
        self.words = command
        with serving() as port:
            for part in (b"a warning\nconsole: http://127.0.0.1:%d/?tok", b"en=abc (Ctrl-C ends it)\n"):
                stderr(part % port if b"%d" in part else part)
            self._during()
        return 0

    def connect_there(self, host: str, port: int) -> socket.socket:
        return socket.create_connection((host, port))


@contextmanager
def serving() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_browser_here_talks_to_the_console_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def browse() -> None:
        said = capsys.readouterr().err
        assert said.startswith("a warning\nconsole of root@there: http://127.0.0.1:")
        link = re.findall(r"http://\S+", said)[0]
        asked.append(link)
        with urllib.request.urlopen(link, timeout=10) as answer:
            asked.append(answer.read().decode())

    session = FakeSession(browse)
    monkeypatch.setattr(forwarded_console, "open_session", lambda target: session)
    monkeypatch.setattr(forwarded_console, "prepare_there", lambda session, target: ("sudo", "-n"))
    assert forward_console(THERE, ["demo", "--write", "--bind", "127.0.0.1:0"]) == 0
    here = asked[0].removeprefix("http://").partition("/")[0]
    assert asked[1] == f"{here} asked for /?token=abc"
    assert list(session.words) == [
        *("/checkout/.venv/bin/testbed", "console", "--bind", "127.0.0.1:0", "--known-as", here, "--write", "demo")
    ]


@pytest.mark.parametrize(
    "words", [["--tls", "a", "b"], ["--of-lab", "x"], ["--bind", "unix:/x"], ["--bind", "0.0.0.0:0"]]
)
def test_what_makes_no_sense_over_ssh_is_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(target: RemoteTarget) -> None:
        raise AssertionError("nothing is to be connected to")

    monkeypatch.setattr(forwarded_console, "open_session", nobody)
    with pytest.raises(TestbedError):
        forward_console(THERE, words)
