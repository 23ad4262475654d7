"""Every transport that a worker can move data over, by its name.

A transport is a module in `testbed.endpoints.worker.transports` that has its name (nvme_tcp is nvme-tcp), and a
`TRANSPORT`. Nothing else has to be told of it. A module is imported when its transport is first asked for: UET, with
its cryptography, is most of the time that a worker would need to start.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from testbed.base.json_values import Json, check_keys, read_object
from testbed.base.program_errors import ProgramError
from testbed.endpoints.loop import Loop
from testbed.endpoints.worker import transports
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.traffic import Listener, Traffic

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTransport:
    """This is what a worker needs of a transport: settings, what reads them from JSON, its traffic, and its loop."""

    settings: type[Settings]
    decode: Callable[[dict[str, Json]], Settings]
    """Takes the settings as JSON has them, with all their keys; raises `ProgramError`."""
    make_traffic: Callable[[Program, WatchingLoop, CollectiveBuffers | None, Listener], Traffic]
    """Raises `TrafficError` where a program cannot be carried, such as by a loop of another transport."""
    make_loop: Callable[[], WatchingLoop] = Loop
    """What waits for its sockets."""


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


def encode_settings(settings: Settings) -> dict[str, Json]:
    """Return the settings of a program's transport as JSON has them, with the transport's name as `kind`."""
    return {"kind": settings.kind, **asdict(settings)}


def decode_settings(value: Json) -> Settings:
    """Read back what `encode_settings` wrote. Raises `ProgramError`."""
    values = read_object(value, "transport")
    transport = worker_transport(values.pop("kind", None))
    check_keys(values, "transport", [field.name for field in fields(transport.settings)])
    return transport.decode(values)
