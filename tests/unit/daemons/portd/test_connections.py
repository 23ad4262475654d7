"""Who may be connected to the pause agent: newcomers always, and of the others not whoever has been silent longest."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.daemons.kit.control import MAX_CLIENTS
from testbed.daemons.portd.agent import Agent
from testbed.daemons.portd.companion import SOCKET_NAME


class Turning:
    """An agent without labs whose turns are made by a thread of this process, in place of `run`."""

    def __init__(self, directory: Path) -> None:
        self.agent = Agent(directory)
        self._thread = threading.Thread(target=self._turn)
        self._thread.start()

    def _turn(self) -> None:
        while not self.agent._control.ending:
            self.agent._turn()

    def end(self) -> None:
        self.agent._control.ending = True
        self.agent._control._wake_writer.send(b"x")
        self._thread.join()
        self.agent._end()


@pytest.fixture
def agent_socket(tmp_path: Path) -> Iterator[Path]:
    turning = Turning(tmp_path)
    yield tmp_path / SOCKET_NAME
    turning.end()


def ask(item: socket.socket) -> bool:
    """Whether the agent answers."""
    try:
        item.sendall(b'{"command": "hello"}\n')
        line = item.makefile("rb").readline()
    except (BrokenPipeError, ConnectionResetError):
        return False
    return bool(line) and json.loads(line)["ok"]


def test_who_has_been_silent_for_longest_goes(agent_socket: Path) -> None:
    with ExitStack() as stack:

        def connect() -> socket.socket:
            item = stack.enter_context(socket.socket(socket.AF_UNIX))
            item.settimeout(20)
            item.connect(str(agent_socket))
            assert ask(item)
            return item

        old = [connect() for _ in range(MAX_CLIENTS)]
        assert ask(old[0]), "the oldest connection, which speaks"
        assert ask(connect())
        assert not ask(old[1]), "silent for longest"
        assert ask(old[0])
        assert all(ask(item) for item in old[2:])
