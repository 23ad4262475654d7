"""The loop that drives the endpoint of a GPU in the calling thread, and other descriptors beside it."""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from testbed.endpoints.real_time import RealTime
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Endpoints, Gpu

CLOSE_PATIENCE_NS = 2_000_000_000


class GpuLoop:
    """The endpoints' own loop, which wakes up for other descriptors, too. `touch` has nothing to do: the endpoints are
    asked at every turn. The thread that opens GPUs has real-time priority from then on, where it may."""

    def __init__(self, library: Path) -> None:
        """Raises `OSError` for a library that is not there."""
        self.endpoints = Endpoints(library)
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wakeup, select.EPOLLIN)
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._real_time = RealTime()
        self.endpoints.watch(self._epoll.fileno())

    def open(self, gpu: Gpu) -> Endpoint:
        """Do as `GpuAgent.open`."""
        endpoint = self.endpoints.add(gpu)
        self._real_time.begin()  # a link's end in hardware is never late
        if not self.endpoints.wait_known(endpoint) or len(endpoint.planes_down()) == len(gpu.interfaces):
            self.endpoints.remove(endpoint)
            self._real_time.end()
            raise OSError(errno.ETIMEDOUT, "the switch of the domain does not answer", gpu.interfaces[0])
        return endpoint

    def watch(self, fd: int, callback: Callable[[int], None]) -> None:
        self._callbacks[fd] = callback
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        del self._callbacks[fd]
        self._epoll.unregister(fd)

    def touch(self) -> None:
        """See the class."""

    def wake(self) -> None:
        """End the present turn. Other threads and signal handlers may call it."""
        os.eventfd_write(self._wakeup, 1)

    def turn(self, timeout_s: float | None) -> None:
        """Serve until an operation is done, a message is there, a descriptor is readable, or time is over."""
        self.endpoints.run(timeout_s)
        for fd, mask in self._epoll.poll(0):
            if fd == self._wakeup:
                os.eventfd_read(fd)
            elif (callback := self._callbacks.get(fd)) is not None:
                callback(mask)

    def close(self) -> None:
        self.endpoints.close()
        self._epoll.close()
        os.close(self._wakeup)


class GpuAgent:
    """Drives GPUs as `testbed.endpoints.agent.Agent` drives endpoints of the transports, in the thread that calls
    it."""

    def __init__(self, library: Path) -> None:
        """Raises `OSError` for a library that is not there."""
        self.loop = GpuLoop(library)
        self._opened: dict[str, Endpoint] = {}
        self._closed = False

    def open(self, address: str, gpu: Gpu) -> Endpoint:
        """Open a GPU's end in the network namespace of the calling thread, and wait until its switch knows of it.

        Raises `OSError`, among others where the switch does not answer (ETIMEDOUT), and `UsageError`.
        """
        endpoint = self._opened[address] = self.loop.open(gpu)
        return endpoint

    def received(self, address: str) -> int:
        """The requests of peers that a GPU has answered, and the answers that it has got."""
        counters = self._opened[address].counters()
        return int(counters["served"]) + int(counters["responses"])

    def drive(self, until: Callable[[], bool], timeout_ns: int) -> bool:
        """Run until the condition holds, which is asked before every turn. False: it does not within the time."""
        end = time.monotonic_ns() + timeout_ns
        while not until():
            left = end - time.monotonic_ns()
            if left <= 0:
                return False
            self.loop.turn(left / 1e9)
        return True

    def close(self, patience_ns: int = 0) -> None:
        """Close every endpoint at once, whatever is under way; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self.loop.close()
