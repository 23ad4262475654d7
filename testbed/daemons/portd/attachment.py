"""A lab as the pause agent must know it: its ports, where its maps are pinned, where its events go.

A lab attaches by a file `<lab>.json` in the agent's directory and one command that names it. An agent that starts
anew finds its labs in these files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from testbed.base.files import remains_of
from testbed.base.names import check_interface_name, check_lab_name
from testbed.daemons.kit import configuration, lock
from testbed.daemons.portd.errors import PauseAgentError

PRIORITIES = 8
"""The priorities of IEEE 802.1Q: each has a queue and a gate of its own."""
DIRECTORY_NAME = "portd.labs"
"""In the run directory; no lab can have this name."""
ALREADY_SERVED = 3
"""Exit code of an agent that found its labs claimed by another."""
SCHEMA = 2
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
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        check_lab_name(self.lab)
        if self.schema != SCHEMA:
            raise ValueError(f"{self.lab}: schema {self.schema}, not {SCHEMA}")
        if len({port.number for port in self.ports}) != len(self.ports):
            raise ValueError(f"{self.lab}: two ports have the same number")


class AttachmentFiles:
    """The attachments of a run directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, lab: str) -> Path:
        check_lab_name(lab)
        return self.directory / f"{lab}.json"

    def write(self, attachment: LabAttachment) -> None:
        """Atomically: a reader sees all of it or nothing."""
        configuration.write(self.path(attachment.lab), attachment, mode=0o600)

    def read(self, lab: str) -> LabAttachment:
        """Raises `PauseAgentError`."""
        path = self.path(lab)
        try:
            attachment = configuration.read(path, LabAttachment)
        except (OSError, ValueError) as error:
            raise PauseAgentError(f"cannot read the attachment {path}: {error}") from error
        if attachment.lab != lab:
            raise PauseAgentError(f"{path} is not the attachment of {lab}")
        return attachment

    def labs(self) -> list[str]:
        """Return those that have a file, sorted."""
        return sorted(path.stem for path in self.directory.glob("*.json"))

    def remove(self, lab: str) -> None:
        """Remove the attachment of a lab, and what a command has left of it that was killed while it wrote."""
        path = self.path(lab)
        for each in (path, *remains_of(path)):
            each.unlink(missing_ok=True)

    def claim(self) -> int | None:
        """A descriptor that makes its holder the one that serves these labs, until it is closed or its process ends;
        None where another is."""
        return lock.hold(self.directory)
