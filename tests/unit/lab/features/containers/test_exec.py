"""Commands in a container, of an engine that tells of them step by step."""

import json
import signal
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.features.containers.exec import CANNOT_RUN, spawn

pytestmark = pytest.mark.process

TIMEOUT_S = 30.0


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Runs commands on this machine. Of `asked` answers how one is, the first `unknown` lack its number."""

    daemon_threads = True

    def __init__(self, path: str, *, unknown: int = 0, refusal: str = "") -> None:
        super().__init__(path, Handler)
        self.unknown = unknown
        self.refusal = refusal
        self.asked = 0
        self.argv: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.started = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Engine

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, content: object, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.refusal:
            self.answer({"message": self.server.refusal}, 409)
        elif self.path.endswith("/start"):
            process = self.server.process = subprocess.Popen(self.server.argv, stdin=subprocess.DEVNULL)
            self.server.started.set()
            self.wfile.write(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
            process.wait()
            self.close_connection = True
        else:
            self.server.argv = request["Cmd"]
            self.answer({"Id": "1"}, 201)

    def do_GET(self) -> None:
        process = self.server.process
        self.server.asked += 1
        status = None if process is None else process.poll()
        known = process is not None and self.server.asked > self.server.unknown
        code = None if status is None else status if status >= 0 else 128 - status
        self.answer(
            {
                "Running": process is not None and status is None,
                "Pid": process.pid if process is not None and known else 0,
                "ExitCode": code,
            }
        )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(str(tmp_path / "docker.sock")) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        if server.process is not None:
            server.process.kill()
        server.shutdown()
        thread.join()


def test_its_status_is_the_commands(engine: Engine) -> None:
    process = spawn(str(engine.server_address), "c", ["sh", "-c", "exit 7"], stdin=subprocess.DEVNULL)
    assert process.wait(TIMEOUT_S) == 7


@pytest.mark.parametrize("unknown", [0, 1, 3])
def test_a_signal_waits_until_the_engine_knows_whom_it_is_for(engine: Engine, unknown: int) -> None:
    engine.unknown = unknown
    process = spawn(str(engine.server_address), "c", ["sleep", "3600"], stdin=subprocess.DEVNULL)
    assert engine.started.wait(TIMEOUT_S)
    process.kill()
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL
    assert engine.asked > unknown


def test_what_the_engine_refuses(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    engine.refusal = "container c is not running"
    process = spawn(str(engine.server_address), "c", ["true"], stdin=subprocess.DEVNULL)
    assert process.wait(TIMEOUT_S) == CANNOT_RUN
    assert capfd.readouterr().err == "docker: container c is not running\n"
