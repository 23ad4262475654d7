"""A program of the family: the operation that it measures, over which transport, and what it is called."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from testbed.endpoints.perftest.transport import MeasuredTransport


class Verb(StrEnum):
    """The operation that is measured."""

    WRITE = "write"
    READ = "read"
    SEND = "send"
    ATOMIC = "atomic"
    COPY = "copy"
    """A long copy between two memories, by what has an engine for it."""


USUAL: Final[tuple[tuple[Verb, bool], ...]] = (
    (Verb.WRITE, False),
    (Verb.READ, False),
    (Verb.SEND, False),
    (Verb.SEND, True),
    (Verb.WRITE, True),
    (Verb.ATOMIC, True),
)
"""The measurements over a transport of messages: the verb, and True for its latency."""


class Tool(NamedTuple):
    """One of the programs."""

    transport: MeasuredTransport
    verb: Verb
    latency: bool

    @property
    def name(self) -> str:
        """The program's name: `uet_write_bw`."""
        return f"{self.transport.prefix}_{self.verb}_{'lat' if self.latency else 'bw'}"

    @property
    def title(self) -> str:
        kind = "Latency" if self.latency else "BW"
        return f"{self.transport.short_name}_{self.verb.capitalize()} {kind} Test"
