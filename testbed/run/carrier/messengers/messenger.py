"""The interface of a messenger: it sends frames as messages to other NICs' endpoints, and hands out those that come.

What ends or makes a connection is told to a peer (`tell`), its data go by a flow of its own. Neither keeps the order,
and both deliver exactly once, or say that they have not (`Undelivered`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class ArrivedMessage:
    """A message of a peer. It is valid until the next one is asked for."""

    peer: str
    """The address of the sender's endpoint."""
    message: memoryview


@dataclass(slots=True)
class Told:
    """A frame that was told has arrived, or there is room in a flow that was full. `context` is what its sender gave
    with it."""

    context: object


@dataclass(slots=True)
class Undelivered:
    """A message was given up. `context` is what its sender gave with it."""

    context: object
    reason: str


class DataFlow(Protocol):
    """The way of one connection's data to one peer. `word` is what the peer's end of the flow has to be told."""

    word: int

    def connect(self, peer_word: int) -> None:
        """Use what the peer has told of its end. Raises `ValueError` for what it can never have."""

    def on_told(self) -> None:
        """Take notice that the peer has been told of this end."""

    @property
    def is_ready(self) -> bool:
        """Tell whether it can send."""

    def send(self, message: memoryview, context: object) -> None:
        """Send data, which must not change until they have arrived."""

    def close(self, *, at_once: bool) -> None:
        """End it once all that it has sent has arrived, or at once."""


class Messenger(Protocol):
    """The endpoint at `address`. It is driven by the loop that it was opened on."""

    address: str

    @property
    def completions(self) -> Sized:
        """There is something to `poll` for where it is not empty. It is the same object always."""

    def open_flow(self, peer: str) -> DataFlow:
        """Return a flow to the endpoint of an address."""

    def tell(self, peer: str, frame: bytes, context: object) -> None:
        """Send a frame that is no data to the endpoint of an address."""

    def poll(self) -> Iterator[ArrivedMessage | Told | Undelivered]:
        """Yield what has happened."""

    def counters(self) -> Mapping[str, int]:
        """Return what was counted: `packets_again` are those that were sent again, others are the transport's."""
