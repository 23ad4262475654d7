"""The other end of the control socket, for runners: blocking calls, and events that wait until they are asked for."""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.transport.uet.errors import UetError


class ControlError(UetError):
    """The agent refuses a request; `code` and the place are those of `testbed.agent.control`."""

    def __init__(self, error: dict[str, Any]) -> None:
        where = f" ({error['field']})" if "field" in error else ""
        super().__init__(f"{error['code']}{where}: {error['message']}")
        self.code: str = error["code"]
        self.field: str | None = error.get("field")
        self.offset: int | None = error.get("offset")
        self.line: int | None = error.get("line")


class ControlClient:
    """One connection. A context manager.

    Raises `OSError` if nobody listens, `ConnectionError` when the agent has gone, `TimeoutError` when an answer does
    not come within `timeout_s`; the connection is of no use after that.
    """

    def __init__(self, path: str | Path, *, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._numbers = 0
        self._events: deque[dict[str, Any]] = deque()
        self._incoming = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(self, do: str, **fields: object) -> dict[str, Any]:
        """Ask for something, and return the answer. Raises `ControlError` if it is refused."""
        self._numbers += 1
        number = self._numbers
        line = json.dumps({"id": number, "do": do, **fields}).encode() + b"\n"
        end = time.monotonic() + self._timeout_s
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall(line)
        while True:
            message = self._next_message(end)
            if "event" in message:
                self._events.append(message)
            elif message["id"] == number:
                if not message.pop("ok"):
                    raise ControlError(message["error"])
                del message["id"]
                return message

    def next_event(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The oldest event that was not asked for yet; waits for one."""
        if self._events:
            return self._events.popleft()
        end = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            message = self._next_message(end)
            if "event" in message:
                return message

    def wait(self, operations: list[int], timeout_s: float | None = None) -> list[dict[str, Any]]:
        """The completions of these operations, in this order, when all have ended. Other events are kept."""
        end = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        wanted = set(operations)
        found: dict[int, dict[str, Any]] = {}
        kept: deque[dict[str, Any]] = deque()
        try:
            while wanted:
                event = self._events.popleft() if self._events else self._next_message(end)
                if event.get("operation") in wanted:
                    wanted.remove(event["operation"])
                    found[event["operation"]] = event
                elif "event" in event:
                    kept.append(event)
        finally:
            self._events.extendleft(reversed(kept))
        return [found[number] for number in operations]

    def _next_message(self, end: float) -> dict[str, Any]:
        while b"\n" not in self._incoming:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the agent does not answer")
            self._socket.settimeout(left)
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the agent has gone")
            self._incoming += chunk
        line, _, rest = self._incoming.partition(b"\n")
        self._incoming = rest
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Disconnect; what was opened remains."""
        self._socket.close()
