"""Kills the ranks of single hosts while a launch goes on: what a host that dies does to a program."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable
from typing import Self

from testbed.run.launch.options import LaunchRefused


class HostKills:
    """Hosts whose ranks are to be killed, asked for by any thread. A launch waits for its descriptor and obeys."""

    def __init__(self) -> None:
        self._asked: deque[str] = deque()
        self._hosts: frozenset[str] = frozenset()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._event)

    def fileno(self) -> int:
        """Return the descriptor that is readable once something was asked for."""
        return self._event

    def kill(self, host: str) -> None:
        """Have the ranks of a host get SIGKILL. Raises `LaunchRefused` for a host that runs none."""
        if host not in self._hosts:
            raise LaunchRefused(f"{host} runs no rank of the program")
        self._asked.append(host)
        os.eventfd_write(self._event, 1)

    def serve(self, hosts: Iterable[str]) -> None:
        """A launch has ranks on these hosts from now on, or on none any more."""
        self._hosts = frozenset(hosts)

    def take(self) -> list[str]:
        """Return the hosts that were asked for since the last time."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        found = []
        while self._asked:
            found.append(self._asked.popleft())
        return found
