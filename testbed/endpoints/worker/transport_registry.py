"""Every transport that a worker can move data over, by its name.

A transport is a module in `testbed.endpoints.worker.transports` that has its name (nvme_tcp is nvme-tcp), and a
`TRANSPORT`. Nothing else has to be told of it. A module is imported when its transport is first asked for: UET, with
its cryptography, is most of the time that a worker would need to start.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from testbed.base.program_errors import ProgramError
from testbed.base.typed_json import read_as, to_json
from testbed.endpoints.loop import Loop
from testbed.endpoints.worker import transports
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.traffic import Listener, Traffic

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTransport:
    """A transport as a worker needs it: its settings, its traffic, and its loop."""

    settings: type[Settings]
    """They are read from JSON by the types of their fields."""
    make_traffic: Callable[[Program, WatchingLoop, CollectiveBuffers | None, Listener], Traffic]
    """Raises `TrafficError` where a program cannot be carried, such as by a loop of another transport."""
    make_loop: Callable[[], WatchingLoop] = Loop
    """Makes the loop that waits for its sockets."""


@cache
def transport_names() -> tuple[str, ...]:
    """Return the names of all transports, in order."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(transports.__path__)))


def worker_transport(name: object) -> WorkerTransport:
    """Return the transport of that name. Raises `ProgramError` where there is none."""
    names = transport_names()
    if name not in names:
        raise ProgramError("transport.kind", f"{str(name)[:40]!r} is none of {', '.join(names)}")
    found = import_module(f"{transports.__name__}.{str(name).replace('-', '_')}").TRANSPORT
    assert isinstance(found, WorkerTransport)
    return found


def encode_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of a program's transport as JSON has them, with the transport's name as `kind`."""
    return {"kind": settings.kind, **to_json(settings)}


def decode_settings(value: object) -> Settings:
    """Read back what `encode_settings` wrote. Raises `ProgramError`."""
    if not isinstance(value, dict):
        raise ProgramError("transport", "is no object")
    values = {name: item for name, item in value.items() if name != "kind"}
    settings: Settings = read_as(worker_transport(value.get("kind")).settings, values, "transport")
    return settings
