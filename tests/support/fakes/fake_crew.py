"""Machines of a pool that are not there: what becomes of each job is what a test says."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from testbed.api.pool.about import AboutMachine, about_this_machine
from testbed.api.pool.crew import JobNews, MachineLost, PoolLost
from testbed.record.record import MachinePart

Reply = Callable[[str, str, Mapping[str, Any]], Sequence[JobNews | MachineLost]]
"""What comes of a job: its key, the machine that has it, and the request are given."""


class FakeCrew:
    """Machines with a seat each. `reply` says what is told of each job that one is given."""

    def __init__(self, names: Sequence[str], reply: Reply) -> None:
        about = replace(about_this_machine(probed=False), root=True, can_deploy=True)
        self.about: dict[str, AboutMachine] = dict.fromkeys(names, about)
        self.parts = [MachinePart(name=name, environment=about.environment, points=[]) for name in names]
        self.reply = reply
        self.submitted: list[tuple[str, Mapping[str, Any]]] = []
        self.forgotten: list[str] = []
        self.halted = False
        self.warned: list[str] = []
        self.warn: Callable[[str], None] = self.warned.append
        self._news: deque[JobNews | MachineLost] = deque()

    def machines(self) -> Mapping[str, AboutMachine]:
        return dict(self.about)

    def seats(self) -> int:
        if not self.about:
            raise PoolLost("no machine of the pool is left")
        return len(self.about)

    def workers(self) -> int:
        return len(self.about)

    def submit(self, request: Mapping[str, Any], machine: str = "") -> str:
        key = f"job-{len(self.submitted) + 1}"
        names = list(self.about)
        place = machine or names[len(self.submitted) % len(names)]
        self.submitted.append((place, request))
        self._news.extend(self.reply(key, place, request))
        return key

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def news(self, timeout_s: float) -> JobNews | MachineLost | None:
        if not self._news:
            return None
        news = self._news.popleft()
        if isinstance(news, MachineLost):
            self.about.pop(news.name, None)
        return news

    def did(self, machine: str, point: str) -> None:
        part = next(part for part in self.parts if part.name == machine)
        if point not in part.points:
            part.points.append(point)

    def halt(self) -> None:
        self.halted = True
