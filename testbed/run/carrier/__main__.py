"""`python -m testbed.run.carrier`: a process that carries TCP of several hosts, driven by lines on its standard input.

The first line is its configuration in JSON, which it answers once it is at work, or cannot be. Each further one asks
for its counters. It ends when its input does, which is also how it learns of its starter's death: then it takes the
steering of the lab back, which nobody else would.
"""

from __future__ import annotations

import gc
import resource
import signal
import sys
import time
from pathlib import Path

from testbed.base.driven_by_lines import CommandLines, read_first_line, say, say_ready, say_refused
from testbed.base.errors import DriverError, TestbedError
from testbed.daemons.kit.configuration import decode
from testbed.endpoints.agent import Agent
from testbed.endpoints.real_time import REAL_TIME
from testbed.run.carrier.configuration import CarrierConfiguration
from testbed.run.carrier.gateway import Gateway, OpenMessenger
from testbed.run.carrier.messengers.messenger import Messenger

LONGEST_WAIT_NS = 1_000_000_000


class CarrierProcess:
    """The loop of the process, and what it is asked by its starter."""

    def __init__(self, configuration: CarrierConfiguration, agent: Agent, rest: bytes = b"") -> None:
        """`rest` is what has come behind the configuration. Raises `OSError` or `CapabilityError` where something
        cannot be opened."""
        self._agent = agent
        self._started_ns = time.process_time_ns()
        # A thousand queue pairs of RoCE take minutes instead of seconds where what arrives is left for a while.
        agent.loop.set_tick(configuration.tick_ns, gathers=configuration.kind == "uet")
        self._gateway = Gateway(configuration, agent.loop, _opener(configuration, agent))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._gateway.limit_descriptors(soft)
        self._commands = CommandLines(self._answer, rest)
        agent.loop.watch(self._commands.fileno(), self._commands.on_event, touches=False)

    def run(self) -> None:
        """Work until the input ends."""
        loop, gateway = self._agent.loop, self._gateway
        while not self._commands.ended:
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

    def _answer(self, command: bytes) -> None:
        """Tell what was counted: there is no other command."""
        del command
        cpu_us = (time.process_time_ns() - self._started_ns) // 1000
        say({**self._gateway.summary(), "ends": self._gateway.ends, "cpu_us": cpu_us})


def _opener(configuration: CarrierConfiguration, agent: Agent) -> OpenMessenger:
    settings, job_id, data_bytes = configuration.endpoints, configuration.job_id, configuration.data_bytes
    if configuration.kind == "uet":
        from testbed.run.carrier.messengers import uet

        def open_uet(address: str) -> Messenger:
            return uet.open_messenger(agent, address, settings[address], job_id=job_id, data_bytes=data_bytes)

        return open_uet
    from testbed.run.carrier.messengers import roce

    endpoints = tuple(nic.endpoint for nic in configuration.nics)

    def open_roce(address: str) -> Messenger:
        return roce.open_messenger(agent, address, settings[address], endpoints, domain=job_id, data_bytes=data_bytes)

    return open_roce


def main() -> None:
    """Carry until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever started us
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    agent = Agent()
    try:
        line, rest = read_first_line()
        configuration = decode(line, CarrierConfiguration)
        process = CarrierProcess(configuration, agent, rest)
    except (ValueError, OSError, TestbedError) as error:
        say_refused(error)
        sys.exit(1)
    gc.collect()
    gc.freeze()
    REAL_TIME.begin()
    say_ready()
    try:
        process.run()
    finally:  # in real time still: the hosts' TCP leads nowhere until then
        _take_steering_back(configuration)
        process.close()


def _take_steering_back(configuration: CarrierConfiguration) -> None:
    """Take back what leads TCP to us, where whoever started us has not: it has been killed then."""
    from testbed.run.carrier.steered import unsteer

    try:
        unsteer(configuration.lab, Path(configuration.journal))
    except DriverError as error:  # the journal still has it, for whoever destroys the lab or carries next
        print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
