"""A console of a record that is nowhere else, as a process: for what a page does with a large lab, without that lab.

`fake_console.py TOPOLOGY.yml` prints the link to it. Its one record is at `#/runs/x/0/1`.
"""

import asyncio
import socket
import sys
import tempfile
from pathlib import Path

from fake_source import FakeSource

from testbed.api.console import start
from testbed.api.console.application import application
from testbed.api.console.console import Console, ConsoleSettings
from testbed.api.console.guard import ConsoleGuard, Names
from testbed.api.console.registry import load_actions, load_views
from testbed.api.console.sessions import Sessions
from testbed.api.console.tables.registry import TABLES
from testbed.lab.core.deploy.records.state import StateDirectory


async def serve(source: FakeSource, directory: Path) -> None:
    """Serve until the process is ended. Each login has another link printed."""
    console = Console(
        ConsoleSettings(roots=(directory,)),
        StateDirectory(directory / "state", directory / "run"),
        views=load_views(),
        actions=load_actions(),
        tables=[table.to_json() for table in TABLES.values()],
        play=lambda *place: source,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    sessions = Sessions(f"testbed-console-{port}")

    def show() -> None:
        print(f"http://127.0.0.1:{port}/?token={sessions.new_token()}", flush=True)

    app = application(console, sessions, secure=False, told=show)
    guarded = ConsoleGuard(app, Names.of("127.0.0.1", port), sessions)
    server = start._Server(start._configuration(guarded, None))
    show()
    await server.serve(sockets=[listener])


if __name__ == "__main__":
    FakeSource.base = "/api/runs/x/0/1"
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(serve(FakeSource(live=False, text=Path(sys.argv[1]).read_text()), Path(name)))
