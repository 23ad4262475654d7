"""An initiator: keeps paths to a subsystem, and moves the requests of volumes over them, in one thread.

`Initiator` is the API: `open_volume` waits until a path is live; `submit` begins a read or write, `poll` moves bytes,
`wait` polls until requests are done; `read`, `write` and `flush` do all of it. `testbed.endpoints.storage.initiator` is
the tool on top.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Sequence

from testbed.base.cleanup import Closing
from testbed.endpoints.storage.path import OpenSocket, Path, open_plain
from testbed.endpoints.storage.socket_link import Poll
from testbed.endpoints.storage.volume import Operation, Volume, VolumeRequest
from testbed.protocols.errors import TransportError
from testbed.protocols.nvme.commands import Buffer
from testbed.protocols.nvme.config import HostConfig
from testbed.protocols.nvme.data_structures import DiscoveryEntry, NamespaceData

_S = 1_000_000_000


class StorageError(TransportError):
    """A volume cannot be had, or a request has failed."""


class Initiator(Closing):
    """Paths to one subsystem. Times in ns."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        subnqn: str,
        config: HostConfig,
        *,
        give_up_ns: int = 10 * _S,
        clock: Callable[[], int] = time.monotonic_ns,
        open_socket: OpenSocket = open_plain,
        make_poll: Callable[[], Poll] = select.epoll,
    ) -> None:
        """After `give_up_ns` without a live path, requests fail."""
        self._clock = clock
        self._give_up_ns = give_up_ns
        self._poll = make_poll()
        self._live_at = clock()
        self.paths = [Path(address, subnqn, config, self._poll, clock, open_socket) for address in addresses]
        self.volumes: list[Volume] = []

    # --- volumes ------------------------------------------------------------------------------------------

    def open_volume(self, nsid: int = 1) -> Volume:
        """The namespace that has this NSID on the first path that is live. Raises `StorageError`."""
        self._wait_for_path()
        for path in self.paths:
            if path.controller is not None and path.live and nsid in path.controller.namespaces:
                return self._make_volume(path.controller.namespaces[nsid])
        raise StorageError(f"there is no namespace {nsid}")

    def discover(self) -> list[DiscoveryEntry]:
        """Return the entries of a discovery subsystem, on the first path that is live. Raises `StorageError`."""
        self._wait_for_path()
        return next(path.controller.discovered for path in self.paths if path.controller is not None and path.live)

    def _make_volume(self, namespace: NamespaceData) -> Volume:
        volume = Volume(self.paths if any(namespace.nguid) else self.paths[:1], namespace)
        self.volumes.append(volume)
        return volume

    def _wait_for_path(self) -> None:
        """Wait until a path is live, all targets have refused us for good, or `give_up_ns` are over."""
        until = self._clock() + self._give_up_ns
        while not any(path.live for path in self.paths):
            now = self._clock()
            if now >= until or all(path.refused for path in self.paths):
                words = "; ".join(f"{path.name}: {path.last_error or 'no answer'}" for path in self.paths)
                raise StorageError(f"no path is live ({words})")
            self.poll((until - now) / _S)

    # --- requests -----------------------------------------------------------------------------------------

    def submit(self, volume: Volume, operation: Operation, offset: int, buffer: Buffer) -> VolumeRequest:
        """Begin a request; bytes move in `poll`. Raises `UsageError`."""
        return volume.submit(operation, offset, buffer, self._clock())

    def wait(self, requests: Iterable[VolumeRequest]) -> None:
        """Poll until all of them are done."""
        for request in requests:
            while not request.done:
                self.poll(None)

    def read(self, volume: Volume, offset: int, buffer: Buffer) -> None:
        """Raises `StorageError`."""
        self._do(volume, Operation.READ, offset, buffer)

    def write(self, volume: Volume, offset: int, buffer: Buffer) -> None:
        """Raises `StorageError`."""
        self._do(volume, Operation.WRITE, offset, buffer)

    def flush(self, volume: Volume) -> None:
        """Raises `StorageError`."""
        self._do(volume, Operation.FLUSH, 0, b"")

    def _do(self, volume: Volume, operation: Operation, offset: int, buffer: Buffer) -> None:
        request = self.submit(volume, operation, offset, buffer)
        self.wait([request])
        volume.done.remove(request)
        if request.error:
            raise StorageError(f"{operation.value} of {len(request.view)} bytes at {offset}: {request.error}")

    # --- another one's loop -------------------------------------------------------------------------------

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` has something to do, which it has at `next_timer`, too."""
        return self._poll.fileno()

    def next_timer(self) -> int | None:
        times = [timer for path in self.paths if (timer := path.next_timer()) is not None]
        if not any(path.live for path in self.paths):
            times.append(self._live_at + self._give_up_ns)
        return min(times, default=None)

    @property
    def given_up(self) -> bool:
        """Tell whether no path has been live for so long that requests fail."""
        return not any(path.live for path in self.paths) and self._clock() - self._live_at >= self._give_up_ns

    def find_volume(self, nsid: int = 1) -> Volume | None:
        """`open_volume`, without waiting; None: no path is live yet. Raises `StorageError`."""
        return self.open_volume(nsid) if any(path.live for path in self.paths) else None

    # --- the loop -----------------------------------------------------------------------------------------

    def poll(self, timeout_s: float | None = 0) -> None:
        """Move bytes; wait for so long, at most, if there is nothing to do. None: until something happens."""
        for path in self.paths:
            path.advance()
        for fd, events in self._poll.poll(self._shorter(timeout_s)):
            for path in self.paths:
                if path.owns(fd):
                    path.on_event(fd, events)
        now = self._clock()
        for path in self.paths:
            path.advance()
            for ended in path.take_ended():
                volume, piece = ended.tag
                volume.on_ended(ended, piece, now)
        if any(path.live for path in self.paths):
            self._live_at = now
        elif now - self._live_at >= self._give_up_ns:
            words = "; ".join(f"{path.name}: {path.last_error}" for path in self.paths)
            for volume in self.volumes:
                volume.give_up(f"no path is live ({words})", now)
        for volume in self.volumes:
            volume.pump(now)
        for path in self.paths:
            path.advance()

    def _shorter(self, timeout_s: float | None) -> float | None:
        timer = self.next_timer()
        if timer is None:
            return timeout_s
        left = max(timer - self._clock(), 0) / _S
        return left if timeout_s is None else min(left, timeout_s)

    def close(self) -> None:
        """Leave all controllers in good order, as far as they answer."""
        for path in self.paths:
            path.shut_down()
        until = self._clock() + _S
        while not all(path.down for path in self.paths) and self._clock() < until:
            self.poll((until - self._clock()) / _S)
        for path in self.paths:
            path.close()
        self._poll.close()
