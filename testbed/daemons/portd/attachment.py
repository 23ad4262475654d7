"""What the pause agent must know of a lab: its ports, where its maps are pinned, where its events go.

A lab attaches by a file `<lab>.json` in the agent's directory and one command that names it. An agent that starts
anew finds its labs in these files.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.files import write_atomically
from testbed.base.names import check_interface_name, check_lab_name
from testbed.daemons.portd.errors import PauseAgentError

PRIORITIES = 8
"""Of IEEE 802.1Q: each has a queue and a gate of its own."""
DIRECTORY_NAME = "portd.labs"
"""In the run directory; no lab can have this name."""
ALREADY_SERVED = 3
"""Exit code of an agent that found its labs claimed by another."""
SCHEMA = 1
MAX_PORT = 65_535
MAX_RATE_BPS = 10**15

_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_PRIORITIES = frozenset(range(PRIORITIES))


@dataclass(frozen=True, slots=True, kw_only=True)
class PortAttachment:
    """A port. `peer` is the number of the other end, 0 for none; `rate_bps` the scaled (lab) rate of the wire.

    `namespace` is the path of its network namespace, `lossless` the priorities whose pause frames it obeys.
    A watchdog of 0 ns is none.
    """

    number: int
    peer: int
    node: str
    interface: str
    namespace: str
    ifindex: int
    mac: str
    rate_bps: int
    mtu_bytes: int
    lossless: tuple[int, ...]
    watchdog_detect_ns: int = 0
    watchdog_restore_ns: int = 0

    def __post_init__(self) -> None:
        if not (
            1 <= self.number <= MAX_PORT
            and 0 <= self.peer <= MAX_PORT
            and 1 <= self.ifindex < 2**31
            and 1 <= self.rate_bps <= MAX_RATE_BPS
            and 68 <= self.mtu_bytes <= 65_535
            and 0 <= self.watchdog_detect_ns < 2**63
            and 0 <= self.watchdog_restore_ns < 2**63
            and _PRIORITIES.issuperset(self.lossless)
        ):
            raise ValueError(f"a number is out of its range: {self!r}")
        if not _MAC.fullmatch(self.mac) or "\0" in self.namespace:
            raise ValueError(f"port {self.number}: MAC {self.mac!r}, namespace {self.namespace!r}")
        check_interface_name(self.interface)

    def __str__(self) -> str:
        return f"{self.node}:{self.interface}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabAttachment:
    """A lab. `pin_directory` has the maps; JSON lines are appended to `events_file`."""

    lab: str
    pin_directory: Path
    events_file: Path
    ports: tuple[PortAttachment, ...]

    def __post_init__(self) -> None:
        check_lab_name(self.lab)
        if len({port.number for port in self.ports}) != len(self.ports):
            raise ValueError(f"{self.lab}: two ports have the same number")

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "lab": self.lab,
            "pin_directory": str(self.pin_directory),
            "events_file": str(self.events_file),
            "fields": list(_FIELDS),
            "ports": [[getattr(port, field) for field in _FIELDS] for port in self.ports],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LabAttachment:
        """Raises `PauseAgentError` for anything else than `to_json` wrote."""
        try:
            if document["schema"] != SCHEMA or tuple(document["fields"]) != _FIELDS:
                raise ValueError(f"schema {document['schema']}")
            return cls(
                lab=document["lab"],
                pin_directory=Path(document["pin_directory"]),
                events_file=Path(document["events_file"]),
                ports=tuple(_decode_port(values) for values in document["ports"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PauseAgentError(f"not an attachment of a lab: {error!r}") from error


_FIELDS = tuple(field.name for field in dataclasses.fields(PortAttachment))
_NOT_NUMBERS = {"node": str, "interface": str, "namespace": str, "mac": str, "lossless": list}
_KINDS = [_NOT_NUMBERS.get(name, int) for name in _FIELDS]


def _decode_port(values: Any) -> PortAttachment:
    if not isinstance(values, list) or [type(value) for value in values] != _KINDS:
        raise ValueError(f"not a port: {values!r}")
    fields = dict(zip(_FIELDS, values, strict=True))
    fields["lossless"] = tuple(fields["lossless"])
    if any(type(priority) is not int for priority in fields["lossless"]):
        raise ValueError(f"not priorities: {values!r}")
    return PortAttachment(**fields)


class AttachmentFiles:
    """The attachments of a run directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, lab: str) -> Path:
        check_lab_name(lab)
        return self.directory / f"{lab}.json"

    def write(self, attachment: LabAttachment) -> None:
        """Atomically: a reader sees all of it or nothing."""
        content = json.dumps(attachment.to_json())
        write_atomically(self.path(attachment.lab), content, mode=0o600, durable=False)

    def read(self, lab: str) -> LabAttachment:
        """Raises `PauseAgentError`."""
        path = self.path(lab)
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise PauseAgentError(f"cannot read the attachment {path}: {error}") from error
        if not isinstance(document, dict) or document.get("lab") != lab:
            raise PauseAgentError(f"{path} is not the attachment of {lab}")
        return LabAttachment.from_json(document)

    def labs(self) -> list[str]:
        """Return those that have a file, sorted."""
        return sorted(path.stem for path in self.directory.glob("*.json"))

    def remove(self, lab: str) -> None:
        self.path(lab).unlink(missing_ok=True)

    def claim(self) -> int | None:
        """A descriptor that makes its holder the one that serves these labs, until it is closed or its process ends;
        None where another is."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor
