"""Starting a domain's switch, asking how it does, letting links of it go wrong, and ending it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.unix_sockets import open_connection
from testbed.daemons.kit import configuration
from testbed.daemons.kit.ready_daemon import ANSWER_TIMEOUT_S, ReadyDaemon
from testbed.daemons.switchd.description import SwitchDescription
from testbed.daemons.switchd.errors import SwitchError, SwitchMissing
from testbed.daemons.switchd.process import DESCRIPTION_NAME, SOCKET_NAME
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.link import LinkErrors
from testbed.protocols.scale_up.domain.presence import ENDS_NAME

_DAEMON = ReadyDaemon(
    module="testbed.daemons.switchd",
    socket_name=SOCKET_NAME,
    log_name="switch.log",
    error=SwitchError,
    missing=SwitchMissing,
    name="the switch",
    absent="no switch answers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSwitch:
    """The switch of one domain, by its run directory, which is its own. Methods raise `SwitchError` and its kinds."""

    run_directory: Path

    def start(self, namespace: str, description: SwitchDescription) -> int:
        """Start it in a published namespace that has its interfaces, and wait until it switches; its process id."""
        scale_up_domain.build()  # here, where someone can be told that there is no compiler
        self.run_directory.mkdir(parents=True, exist_ok=True)
        configuration.write(self.run_directory / DESCRIPTION_NAME, description)
        return _DAEMON.start(self.run_directory, namespace)

    def status(self) -> dict[str, Any]:
        """Return its counters: `frames`, `times`, `socket_drops`, and of each of its `ports` what a link counts."""
        return self._ask("status")

    def forget_peaks(self) -> None:
        """Have its `times`, and the `deepest` of its buffers, be those of what comes from now on."""
        self._ask("forget_peaks")

    def is_running(self) -> bool:
        """Tell whether there is a process that listens, without asking it anything."""
        try:
            open_connection(self.run_directory, SOCKET_NAME, timeout_s=ANSWER_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def set_link(self, gpu: int, plane: int, **changes: Any) -> LinkErrors:
        """Let something go wrong on a GPU's link to a plane (from 0), in both directions, until it is reset.

        `changes` are fields of `LinkErrors`; others stay as they were. Returns all of them.
        """
        return LinkErrors(**self._ask("set_link", gpu=gpu, plane=plane, changes=changes)["errors"])

    def set_links(self, links: Sequence[tuple[int, int]], changes: Mapping[str, Any] | None) -> None:
        """Let the same go wrong on many links, each a GPU and a plane (from 0), at one moment; None: nothing."""
        self._ask("set_links", links=[list(link) for link in links], changes=changes)

    def reset_link(self, gpu: int, plane: int) -> None:
        """Nothing goes wrong on this link any more."""
        self._ask("reset_link", gpu=gpu, plane=plane)

    def stop(self) -> None:
        """End it and wait for its end. Fine where there is none."""
        _DAEMON.stop(self.run_directory)
        for name in (DESCRIPTION_NAME, SOCKET_NAME, ENDS_NAME):
            (self.run_directory / name).unlink(missing_ok=True)

    def _ask(self, command: str, **fields: Any) -> dict[str, Any]:
        return _DAEMON.ask(self.run_directory, command, **fields)
