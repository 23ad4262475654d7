"""The thread that serves GPUs while their program does something else, as the hardware of a GPU does.

Everything that touches an endpoint happens in it: other threads hand it calls and wait for futures. It sleeps in C,
without the interpreter's lock, until a frame, a timer or a call is there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from testbed.endpoints.gpus.gpu_agent import GpuLoop
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.binding import OPERATIONS
from testbed.protocols.scale_up.domain.endpoint import Done, Endpoint, Gpu
from testbed.protocols.scale_up.domain.errors import OperationCancelled

KEPT_MESSAGES: Final = 65_536
"""Messages for a GPU that nobody has received yet; those that come then are lost, and counted."""
_T = TypeVar("_T")
_Begin = Callable[[], int]


class ServedGpu:
    """An endpoint with those who wait for its operations and messages. All of it is for the server's thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.lost_messages = 0
        self._under_way: dict[int, Future[Done]] = {}
        self._waiting: deque[tuple[_Begin, Future[Done]]] = deque()
        self._messages: deque[tuple[int, bytes]] = deque()
        self._receivers: deque[Future[tuple[int, bytes]]] = deque()

    def begin(self, begin: _Begin, future: Future[Done]) -> None:
        """Begin an operation after those that were asked for before, when there is room."""
        self._waiting.append((begin, future))
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while self._waiting and len(self._under_way) < OPERATIONS:
            begin, future = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                self._under_way[begin()] = future
            except Exception as error:  # whatever it is, it is that caller's
                future.set_exception(error)

    def receive(self, future: Future[tuple[int, bytes]]) -> None:
        self._receivers.append(future)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._messages and self._receivers:
            future = self._receivers.popleft()
            if future.set_running_or_notify_cancel():
                future.set_result(self._messages.popleft())

    def collect(self) -> None:
        """Hand on what was done and what has come."""
        for done in self.endpoint.completions():
            future = self._under_way.pop(done.handle)
            if done.error is None:
                future.set_result(done)
            else:
                future.set_exception(done.error)
        for message in self.endpoint.messages():
            if len(self._messages) < KEPT_MESSAGES:
                self._messages.append(message)
            else:
                self.lost_messages += 1
        self._hand_out()
        self._begin_waiting()

    def give_up(self) -> None:
        """Nothing more comes: tell all who wait."""
        left: list[Future[Any]] = [
            *self._under_way.values(),
            *(future for _, future in self._waiting),
            *self._receivers,
        ]
        for future in left:
            if future.running() or future.set_running_or_notify_cancel():
                future.set_exception(OperationCancelled("the GPU was closed"))
        self._under_way.clear()
        self._waiting.clear()
        self._receivers.clear()


class ServerThread:
    """Runs from `start` to `close`. Its network namespace is that of the thread that calls `start`."""

    def __init__(self, library: Path) -> None:
        """Raises `OSError` for a library that is not there."""
        self._loop = GpuLoop(library)
        self._calls: deque[Callable[[], None]] = deque()
        self._gpus: list[ServedGpu] = []
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="scale-up", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, function: Callable[..., _T], *arguments: Any) -> Future[_T]:
        """Have a function called in the thread. Raises `UsageError` after `close`."""
        future: Future[_T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*arguments))
            except Exception as error:
                future.set_exception(error)

        self._enqueue(run)
        return future

    def begin(self, gpu: ServedGpu, begin: _Begin) -> Future[Done]:
        """Have an operation of a GPU begun; the future is for its end."""
        future: Future[Done] = Future()
        self._enqueue(lambda: gpu.begin(begin, future))
        return future

    def receive(self, gpu: ServedGpu) -> Future[tuple[int, bytes]]:
        """The next message that comes to a GPU."""
        future: Future[tuple[int, bytes]] = Future()
        self._enqueue(lambda: gpu.receive(future))
        return future

    def _enqueue(self, call: Callable[[], None]) -> None:
        if self._ending:
            raise UsageError("the scale-up domain is closed")
        self._calls.append(call)
        self._loop.wake()

    def open(self, gpu: Gpu) -> Future[ServedGpu]:
        """Open a GPU's end. The future's errors are those of `GpuAgent.open`."""

        def add() -> ServedGpu:
            served = ServedGpu(self._loop.open(gpu))
            self._gpus.append(served)
            return served

        return self.call(add)

    def _run(self) -> None:
        try:
            while not self._ending:
                self._loop.turn(None)
                self._do_calls()
                for gpu in self._gpus:
                    gpu.collect()
        finally:
            self._ending = True
            self._do_calls()
            for gpu in self._gpus:
                gpu.give_up()
            self._loop.close()

    def _do_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def close(self) -> None:
        """End the thread, and close all GPUs with whatever is under way. A second time does nothing."""
        if not self._ending:
            self._ending = True
            self._loop.wake()
        self._thread.join()
