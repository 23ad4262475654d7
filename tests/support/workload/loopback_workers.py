"""Workers of all hosts in this process, over loopback addresses: nothing but their sockets joins them."""

import json
import os
import random
import time
from dataclasses import replace
from ipaddress import IPv4Interface

from fake_lab import small_lab

from testbed.endpoints.loop import Loop
from testbed.endpoints.worker.domain import Domains
from testbed.endpoints.worker.program import Program
from testbed.endpoints.worker.program_json import encode_program
from testbed.endpoints.worker.worker import Event, Worker
from testbed.lab.core.plan.lab_plan import PortPlan

PATIENCE_S = 60.0


def loopback_nics(hosts: int, per_host: int) -> list[PortPlan]:
    """NICs with addresses that no other process of a test run has; ranks of one host stand side by side."""
    _, plan = small_lab(segments=1, hosts=hosts, rails=per_host)
    pid = os.getpid()
    found = [nic for host in plan.hosts for nic in host.nics]
    return [
        replace(nic, address=IPv4Interface(f"127.{64 + pid // 256 % 128}.{pid % 256}.{number}/8"))
        for number, nic in enumerate(found, start=1)
    ]


class FakeWorkers:
    """The workers of all hosts, in one loop."""

    def __init__(self, programs: dict[str, Program], rng: random.Random) -> None:
        self.events: dict[str, list[Event]] = {host: [] for host in programs}
        self._loop = Loop()
        self._rng = rng
        domains = Domains()
        self.workers = {host: Worker(self._loop, self.events[host].append, domains) for host in programs}
        self._programs = programs

    def execute(self) -> None:
        for host, program in self._programs.items():
            self.workers[host].execute({"do": "prepare", "program": _as_read(program)})
        self._until("listening")
        for worker in self.workers.values():
            worker.execute({"do": "connect"})
        self._until("ready")
        begin = time.monotonic_ns()
        for worker in self.workers.values():
            worker.execute({"do": "start", "at_ns": begin})
        self._until("done")

    def reports(self) -> dict[str, Event]:
        for worker in self.workers.values():
            worker.execute({"do": "stop"})
        return {host: events[-1] for host, events in self.events.items()}

    def _until(self, wanted: str) -> None:
        end = time.monotonic() + PATIENCE_S
        order = list(self.workers.values())
        while not all(any(event["event"] == wanted for event in events) for events in self.events.values()):
            assert time.monotonic() < end, self.events
            self._rng.shuffle(order)
            due = [at for worker in order if (at := worker.deadline()) is not None]
            self._loop.run_once(min([*due, time.monotonic_ns() + 10_000_000]))
            for worker in order:
                worker.turn()
            assert not any(event["event"] == "failed" for events in self.events.values() for event in events), (
                self.events
            )

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self._loop.close()


def _as_read(program: Program) -> dict[str, object]:
    document: dict[str, object] = json.loads(json.dumps(encode_program(program)))
    return document
