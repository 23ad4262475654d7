"""A program of the family: the operation that it measures, over which transport, and what it is called."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from testbed.agent.perftest.transport import MeasuredTransport


class Verb(StrEnum):
    """The operation that is measured."""

    WRITE = "write"
    READ = "read"
    SEND = "send"
    ATOMIC = "atomic"


class Tool(NamedTuple):
    """One of the programs. Those of `tools_of` exist over every transport."""

    transport: MeasuredTransport
    verb: Verb
    latency: bool

    @property
    def name(self) -> str:
        """What it is called: `uet_write_bw`."""
        return f"{self.transport.prefix}_{self.verb}_{'lat' if self.latency else 'bw'}"

    @property
    def title(self) -> str:
        kind = "Latency" if self.latency else "BW"
        return f"{self.transport.short_name}_{self.verb.capitalize()} {kind} Test"


def tools_of(transport: MeasuredTransport) -> tuple[Tool, ...]:
    """The programs of a transport."""
    return (
        Tool(transport, Verb.WRITE, False),
        Tool(transport, Verb.READ, False),
        Tool(transport, Verb.SEND, False),
        Tool(transport, Verb.SEND, True),
        Tool(transport, Verb.WRITE, True),
        Tool(transport, Verb.ATOMIC, True),
    )
