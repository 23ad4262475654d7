"""`python -m testbed.carrier`: a process that carries TCP of several hosts, driven by lines on its standard input.

The first line is its configuration in JSON, which it answers once it is at work, or cannot be. Each further one asks
for its counters. It ends when its input does, which is also how it learns of its starter's death: then it takes the
steering of the lab back, which nobody else would.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.carrier.configuration import CarrierConfiguration
from testbed.carrier.gateway import Gateway, OpenMessenger
from testbed.carrier.messengers.messenger import Messenger
from testbed.daemons.kit.configuration import decode
from testbed.endpoints.agent import Agent
from testbed.endpoints.real_time import REAL_TIME

LONGEST_WAIT_NS = 1_000_000_000
_CHUNK = 1 << 20


class CarrierProcess:
    """The loop of the process, and what it is asked by its starter."""

    def __init__(self, configuration: CarrierConfiguration, agent: Agent) -> None:
        """Raises `OSError` or `CapabilityError` where something cannot be opened."""
        self._agent = agent
        self._ended = False
        self._input = sys.stdin.fileno()
        self._started_ns = time.process_time_ns()
        self._gateway = Gateway(configuration, agent.loop, _opener(configuration, agent))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._gateway.limit_descriptors(soft)
        if configuration.tick_ns:
            agent.loop.set_tick(configuration.tick_ns)
        os.set_blocking(self._input, False)
        agent.loop.watch(self._input, self._on_input)

    def run(self) -> None:
        """Work until the input ends."""
        loop, gateway = self._agent.loop, self._gateway
        while not self._ended:
            deadline = time.monotonic_ns() + LONGEST_WAIT_NS
            timer = gateway.next_timer()
            loop.take_events(deadline if timer is None else min(deadline, timer))
            gateway.turn()
            loop.serve()
            gateway.turn()  # what ended while it was sent

    def close(self) -> None:
        """Close everything at once."""
        self._gateway.close()
        self._agent.close(patience_ns=0)

    def _on_input(self, _events: int) -> None:
        try:
            data = os.read(self._input, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._ended = True
        for _ in range(data.count(b"\n")):
            cpu_us = (time.process_time_ns() - self._started_ns) // 1000
            say({**self._gateway.summary(), "ends": self._gateway.ends, "cpu_us": cpu_us})


def _opener(configuration: CarrierConfiguration, agent: Agent) -> OpenMessenger:
    settings, job_id, data_bytes = configuration.endpoints, configuration.job_id, configuration.data_bytes
    if configuration.kind == "uet":
        from testbed.carrier.messengers import uet

        def open_uet(address: str) -> Messenger:
            return uet.open_messenger(agent, address, settings[address], job_id=job_id, data_bytes=data_bytes)

        return open_uet
    from testbed.carrier.messengers import roce

    endpoints = tuple(nic.endpoint for nic in configuration.nics)

    def open_roce(address: str) -> Messenger:
        return roce.open_messenger(agent, address, settings[address], endpoints, domain=job_id, data_bytes=data_bytes)

    return open_roce


def say(answer: object) -> None:
    """Write a line to whoever started us."""
    os.write(1, json.dumps(answer).encode() + b"\n")


def read_configuration() -> CarrierConfiguration:
    """Read the first line. Raises `ValueError`."""
    parts: list[bytes] = []
    while b"\n" not in (chunk := os.read(0, _CHUNK)):
        if not chunk:
            raise ValueError("no configuration")
        parts.append(chunk)
    return decode(b"".join((*parts, chunk)), CarrierConfiguration)


def main() -> None:
    """Carry until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever started us
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    configuration = read_configuration()
    agent = Agent()
    try:
        process = CarrierProcess(configuration, agent)
    except (OSError, TestbedError) as error:
        hint = error.hint if isinstance(error, TestbedError) else None
        say({"error": str(error.message if isinstance(error, TestbedError) else error), "hint": hint})
        sys.exit(1)
    gc.collect()
    gc.freeze()
    REAL_TIME.begin()
    say({"ready": True})
    try:
        process.run()
    finally:
        REAL_TIME.end()
        _take_steering_back(configuration)
        process.close()


def _take_steering_back(configuration: CarrierConfiguration) -> None:
    """Take back what leads TCP to us, where whoever started us has not: it has been killed then."""
    from testbed.carrier.steered import unsteer

    unsteer(configuration.lab, Path(configuration.journal))


if __name__ == "__main__":
    main()
