"""Changes of a running lab's links, recorded before they are made, so that they can be undone after a crash.

`links.json` in the lab's state directory has one entry for each direction that differs from the topology, keyed by
the port ("node:interface") that sends in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from testbed.base.cleanup import closed_at_end
from testbed.lab.core.deploy.records.files import write_state
from testbed.lab.core.deploy.records.journal import StateError, writing_state
from testbed.lab.core.drivers.netlink.netem import HtbClass

SCHEMA = 1
FILE_NAME = "links.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireChange:
    """The difference of one direction of a link from what the topology declares; None: there is none.

    Rates and times are in lab time; `loss` and `corruption` are shares of packets; `loss_every` N loses one packet
    in N, 0 none.
    """

    rate_bps: int | None = None
    delay_ns: int | None = None
    jitter_ns: int | None = None
    loss: float | None = None
    loss_every: int | None = None
    corruption: float | None = None
    silent: bool | None = None
    up: bool | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, item.name) is not None for item in fields(self))

    def named(self) -> list[tuple[str, Any]]:
        """Return what differs, by the names of the fields."""
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return [(name, value) for name, value in values if value is not None]

    def over(self, earlier: WireChange) -> WireChange:
        """This change after `earlier`."""
        return replace(earlier, **dict(self.named()))


@dataclass(slots=True, kw_only=True)
class LinkState:
    """Everything recorded: changes, and the HTB classes (as plain numbers) of ports whose rate was changed."""

    changes: dict[str, WireChange] = field(default_factory=dict)
    classes: dict[str, list[list[int]]] = field(default_factory=dict)

    def set(self, port: str, change: WireChange) -> None:
        if change:
            self.changes[port] = change
        else:
            self.changes.pop(port, None)


def read_link_state(directory: Path) -> LinkState:
    """Return what `directory` (a lab's state directory) records; nothing where nothing was ever changed.

    Raises `StateError` where it cannot be read.
    """
    path = directory / FILE_NAME
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return LinkState()
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    try:
        return LinkState(
            changes={port: WireChange(**change) for port, change in data["changes"].items()},
            classes={port: [list(map(int, item)) for item in items] for port, items in data["classes"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__} {error}") from error


def _damaged(path: Path, why: str) -> StateError:
    return StateError(f"{path} is damaged: {why}", hint="`deploy --reconfigure` brings every link back as declared")


def write_link_state(directory: Path, state: LinkState) -> None:
    """Replace the record in one step. Raises `StateError`.

    Not synced to disk: what it speaks of ends with the machine's power, and a change in the middle of a run has
    no time for a disk.
    """
    path = directory / FILE_NAME
    if state.changes or state.classes:
        write_state(path, json.dumps(_encode(state.changes, state.classes)), durable=False)
        return
    with writing_state(path):
        path.unlink(missing_ok=True)


def _encode(changes: Mapping[str, WireChange], classes: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "changes": {port: dict(change.named()) for port, change in changes.items()},
        "classes": {port: [list(item) for item in items] for port, items in classes.items()},
    }


@contextlib.contextmanager
def lock_links(directory: Path) -> Iterator[None]:
    """Hold the links of a lab while one change is recorded and made. Raises `StateError` where the lab is gone."""
    with writing_state(directory):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with closed_at_end(fd):
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield


_CLASS_FIELDS = tuple(item.name for item in fields(HtbClass))


def class_numbers(item: HtbClass) -> list[int]:
    """The numbers that a class of a port is recorded as."""
    return [getattr(item, name) for name in _CLASS_FIELDS]


def htb_class(values: Sequence[int]) -> HtbClass:
    """The class that was recorded as numbers."""
    return HtbClass(**dict(zip(_CLASS_FIELDS, values, strict=True)))
