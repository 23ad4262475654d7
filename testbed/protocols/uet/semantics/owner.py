"""The endpoint (FEP) as the semantic layer sees it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Protocol

from testbed.protocols.datagram import Outgoing
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.delivery.pdc import Pdc
from testbed.protocols.uet.delivery.window import PacketSource
from testbed.protocols.uet.memory import Access, MemoryRegion, MemoryTable
from testbed.protocols.uet.packets.codes import Mode
from testbed.protocols.uet.semantics.transfers import PdcTransfers

if TYPE_CHECKING:
    from testbed.protocols.uet.semantics.endpoint import Endpoint


class SemanticsOwner(Protocol):
    """A FEP, as far as its semantics is concerned."""

    config: UetConfig
    memory: MemoryTable
    payload_bytes: int
    """The bytes of payload in a full packet."""

    @property
    def random(self) -> Random: ...

    def count(self, what: str) -> None: ...

    def emit(self, datagram: Outgoing) -> None:
        """Send this before any data."""

    def submit(self, remote: str, job_id: int, mode: Mode, now: int) -> Pdc:
        """The PDC for the next message to a peer. Raises `UsageError` if there are too many."""

    def start(self, pdc: Pdc, source: PacketSource, now: int) -> None:
        """Send a message on a PDC."""

    def transfers(self, pdc: Pdc) -> PdcTransfers:
        """Return what semantics keeps for this PDC."""

    def register(
        self, buffer: bytearray | memoryview, access: Access, job_id: int | None, key: int | None = None
    ) -> MemoryRegion:
        """Let the peers of a job at this memory."""

    def retire(self, key: int) -> None:
        """Close this memory again."""

    @property
    def endpoints(self) -> Sequence[Endpoint]: ...

    def find_endpoint(self, job_id: int, pid_on_fep: int, resource_index: int) -> Endpoint | None: ...

    def remove_endpoint(self, endpoint: Endpoint) -> None: ...
