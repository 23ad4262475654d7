"""The server of PMI-1, by which the ranks of an MPI program find each other; without I/O.

MPICH, Intel MPI and MVAPICH ask their process manager over a descriptor that they inherit (`PMI_FD`): each rank puts
its addresses under keys, all meet at a barrier, and each gets what the others have put. Requests and answers are lines
of `key=value`, in lock-step (Flux RFC 13 describes the protocol, whose reference is MPICH's Hydra).

A rank is `connected` once it has said `init`, until it says `finalize`: one that ends between these leaves the others
waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MAX_LINE_BYTES = 1 << 16
"""A line of a rank that is longer than all its parts may be is refused."""
MAX_KEYS = 1 << 18
_LENGTHS = {"kvsname_max": 256, "keylen_max": 64, "vallen_max": 4096}
_SPACE = "lab"
"""The name of the one key-value space."""


class PmiError(Exception):
    """A rank does not keep to the protocol."""


@dataclass(frozen=True, slots=True)
class PmiAnswer:
    """A line for a rank."""

    rank: int
    line: bytes


@dataclass(frozen=True, slots=True)
class PmiAbort:
    """A rank asks that all of the program ends, with this exit code."""

    rank: int
    exit_code: int
    message: str


@dataclass(slots=True)
class _Client:
    """A rank as far as it is known: `received` is the begin of a line."""

    received: bytes = b""
    connected: bool = False
    spawning: bool = False


@dataclass(slots=True, kw_only=True)
class PmiServer:
    """Serves the ranks of one program. `mapping` is which of them share a host (`process_mapping`)."""

    size: int
    mapping: str
    messages: int = 0
    """The requests so far."""
    _values: dict[str, str] = field(default_factory=dict)
    _clients: dict[int, _Client] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)
    _begun: set[int] = field(default_factory=set)
    _ended: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._values["PMI_process_mapping"] = self.mapping

    def is_connected(self, rank: int) -> bool:
        """Tell whether others may wait for a rank: it has begun, and has not said that it is done."""
        return rank in self._clients and self._clients[rank].connected

    def on_end(self, rank: int) -> None:
        """Note that a rank has ended: it comes to no barrier any more."""
        self._ended.add(rank)

    @property
    def waiting(self) -> list[int]:
        """Return the ranks that wait at a barrier."""
        return sorted(self._waiting)

    @property
    def lost(self) -> list[int]:
        """Return the ranks that have ended, and that others wait for at a barrier, for ever."""
        return sorted(self._ended - self._waiting) if self._waiting else []

    @property
    def not_begun(self) -> list[int]:
        """Return the ranks that have not said `init`, and that others wait for at a barrier."""
        return sorted(set(range(self.size)) - self._begun) if self.waits_for_start else []

    @property
    def waits_for_start(self) -> bool:
        """Tell whether there are such ranks. It is asked with each message."""
        return bool(self._waiting) and len(self._begun) < self.size

    def receive(self, rank: int, data: bytes) -> Iterator[PmiAnswer | PmiAbort]:
        """Take what a rank has sent, and yield what comes of it, in order. Raises `PmiError`."""
        client = self._clients.setdefault(rank, _Client())
        *lines, client.received = (client.received + data).split(b"\n")
        for line in lines:
            yield from self._on_line(rank, client, line)
        if len(client.received) > MAX_LINE_BYTES:
            raise PmiError(f"a line of more than {MAX_LINE_BYTES} bytes")

    def _on_line(self, rank: int, client: _Client, line: bytes) -> Iterator[PmiAnswer | PmiAbort]:
        if len(line) > MAX_LINE_BYTES:
            raise PmiError(f"a line of more than {MAX_LINE_BYTES} bytes")
        text = line.decode("ascii", "backslashreplace").strip()
        if client.spawning:
            if text == "endcmd":
                client.spawning = False
                yield _answer(rank, "spawn_result", rc=-1, msg="ranks_are_started_by_the_launch_alone")
            return
        if text == "mcmd=spawn":
            client.spawning = True
            return
        request = _fields(text)
        name = request.get("cmd")
        if not name:
            raise PmiError(f"no request: {text[:80]!r}")
        self.messages += 1
        if name != "init" and not client.connected:
            raise PmiError(f"{name} before init")
        yield from self._on_request(rank, client, name, request)

    def _on_request(
        self, rank: int, client: _Client, name: str, request: Mapping[str, str]
    ) -> Iterator[PmiAnswer | PmiAbort]:
        match name:
            case "init":
                client.connected = True
                self._begun.add(rank)
                yield _answer(rank, "response_to_init", pmi_version=1, pmi_subversion=1, rc=0)
            case "get_maxes":
                yield _answer(rank, "maxes", rc=0, **_LENGTHS)
            case "get_universe_size":
                yield _answer(rank, "universe_size", rc=0, size=self.size)
            case "get_appnum":
                yield _answer(rank, "appnum", rc=0, appnum=0)
            case "get_my_kvsname":
                yield _answer(rank, "my_kvsname", rc=0, kvsname=_SPACE)
            case "put":
                yield self._put(rank, request)
            case "get":
                yield self._get(rank, request)
            case "barrier_in":
                self._waiting.add(rank)
                if len(self._waiting) == self.size:
                    waited, self._waiting = sorted(self._waiting), set()
                    yield from (_answer(each, "barrier_out", rc=0) for each in waited)
            case "finalize":
                client.connected = False
                yield _answer(rank, "finalize_ack", rc=0)
            case "abort":
                said = request.get("error_msg", request.get("msg", ""))
                yield PmiAbort(rank, _exit_code(request.get("exitcode", "")), said)
            case _:
                yield _answer(rank, name, rc=-1, msg="not_served")

    def _put(self, rank: int, request: Mapping[str, str]) -> PmiAnswer:
        key, value = request.get("key", ""), request.get("value", "")
        if not key or len(key) >= _LENGTHS["keylen_max"] or len(value) >= _LENGTHS["vallen_max"]:
            return _answer(rank, "put_result", rc=-1, msg="invalid_length")
        if len(self._values) >= MAX_KEYS:
            return _answer(rank, "put_result", rc=-1, msg="too_many_keys")
        self._values[key] = value
        return _answer(rank, "put_result", rc=0, msg="success")

    def _get(self, rank: int, request: Mapping[str, str]) -> PmiAnswer:
        key = request.get("key", "")
        if key not in self._values:
            return _answer(rank, "get_result", rc=-1, msg="key_not_found", value="unknown")
        return _answer(rank, "get_result", rc=0, msg="success", value=self._values[key])


def _fields(text: str) -> dict[str, str]:
    """Take a line apart. A value, which is last, may have blanks and `=` in it."""
    head, marker, value = text.partition(" value=")
    found = dict(word.split("=", 1) for word in head.split() if "=" in word)
    return {**found, "value": value} if marker else found


def _exit_code(text: str) -> int:
    """Read the exit code that a rank asks for; 1 where it is no number."""
    try:
        return int(text)
    except ValueError:
        return 1


def _answer(rank: int, name: str, **fields: object) -> PmiAnswer:
    words = [f"cmd={name}", *(f"{key}={value}" for key, value in fields.items())]
    return PmiAnswer(rank, (" ".join(words) + "\n").encode())
