"""The rails of a host as programs on it see them: the UET endpoint of each, and the PIDonFEPs that are in use there."""

from __future__ import annotations

from testbed.endpoints.libfabric.wire import PeerName, address_text
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import PID_LIMIT, FepAddress
from testbed.protocols.uet.fep import Fep

_REMEMBERED = 1 << 14


class ProvidedRail:
    """A rail of a host. `name` is its interface."""

    def __init__(self, name: str, fep: Fep, job_id: int) -> None:
        self.name = name
        self.fep = fep
        self.job_id = job_id
        self._used: set[int] = set()
        self._next = 0
        self._peers: dict[PeerName, FepAddress] = {}

    def take_pid(self) -> int:
        """Return a PIDonFEP that nobody has: the one that was free for longest, as messages to the last may be on their
        way. Raises `UsageError` where all are in use."""
        for _ in range(PID_LIMIT):
            pid, self._next = self._next, (self._next + 1) % PID_LIMIT
            if pid not in self._used:
                self._used.add(pid)
                return pid
        raise UsageError(f"{PID_LIMIT} domains are open on {self.name}")

    def give_pid(self, pid: int) -> None:
        """Let others have a PIDonFEP."""
        self._used.discard(pid)

    def peer(self, name: PeerName) -> FepAddress:
        """Return the address that a name of the wire is. Raises `UsageError` for a name that no endpoint has."""
        found = self._peers.get(name)
        if found is None:
            packed, pid, index = name
            if len(self._peers) >= _REMEMBERED:
                self._peers.clear()
            found = self._peers[name] = FepAddress(address_text(packed), pid, index, self.job_id)
        return found
