"""The configuration that routing daemons run, as they write it down themselves, beside that of the plan.

FRR writes a configuration in its own order, and without what is its default. So the plan's is noted as the daemons tell
it when a deploy has started them with it; whatever differs from that later was changed in between, as vtysh does.
"""

from __future__ import annotations

import difflib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.lab.core.deploy.node_files import DIRECTORY
from testbed.lab.core.deploy.records.journal import writing_state
from testbed.lab.core.drivers.probing.machine import KNOWN_DAEMONS

_AT_ONCE = 4
_COMMAND = "write terminal"
_HEADER = "log timestamp precision"
"""A line that every file begins with, and no daemon has by itself."""
_PREAMBLE = ("Building configuration", "Current configuration", "frr version", "frr defaults")


class Difference(StrEnum):
    """The difference of a line from the plan; `NONE` where there is none."""

    NONE = ""
    ADDED = "+"
    MISSING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLine:
    """A line of the configuration of a daemon: it runs, unless it is `MISSING`."""

    node: str
    daemon: str
    differs: Difference
    line: str


def note_configurations(run: Path, daemons: Mapping[str, Sequence[str]]) -> None:
    """Note what the daemons of nodes run that have just been started as planned. One that does not answer is left out.

    Raises `StateError`.
    """
    directory = run / DIRECTORY / "config"

    def note(node: str) -> None:
        try:
            lines = read_configuration(run / node, daemons[node])
        except DriverError:
            return
        (directory / node).write_text(json.dumps(lines))

    with writing_state(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="configurations") as pool:
            for _ in pool.map(note, daemons):
                pass


def await_files(run: Path, daemons: Mapping[str, Sequence[str]]) -> None:
    """Return when the daemons of nodes have read the files that they have just been started with, or do not in time: a
    switch without neighbours tells nobody that it runs."""
    for node, names in daemons.items():
        for daemon in names:
            if daemon in KNOWN_DAEMONS:
                with suppress(DriverError):
                    vty.await_text(run / node, daemon, _COMMAND, lambda text: _HEADER in text, "its file")


def forget_configuration(run: Path, node: str) -> None:
    """Forget what was noted of a node that runs no routing daemons any more, and remove the files that they had."""
    shutil.rmtree(run / node, ignore_errors=True)
    noted = run / DIRECTORY / "config" / node
    noted.unlink(missing_ok=True)
    with suppress(OSError):  # others are noted there
        noted.parent.rmdir()


def read_configuration(directory: Path, daemons: Sequence[str]) -> dict[str, list[str]]:
    """The lines of what each routing daemon runs whose sockets are in `directory`, without secrets.

    Raises `DriverError` where one does not answer.
    """
    return {daemon: list(_lines(vty.ask(directory, daemon, _COMMAND))) for daemon in daemons if daemon in KNOWN_DAEMONS}


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("!") and not line.startswith(_PREAMBLE):
            yield vty.without_secrets(line.rstrip())


def compare_configuration(run: Path, node: str, running: Mapping[str, Sequence[str]]) -> tuple[list[ConfigLine], bool]:
    """The lines that a node's daemons run, and those of the plan that they do not; and whether the plan's are known.

    They are not where the deploy did not wait for routing.
    """
    try:
        planned = json.loads((run / DIRECTORY / "config" / node).read_text())
    except (OSError, ValueError):
        planned = None
    lines = [
        ConfigLine(node=node, daemon=daemon, differs=differs, line=line)
        for daemon, now in running.items()
        for differs, line in _compared(now if planned is None else planned.get(daemon, []), now)
    ]
    return lines, planned is not None


def _compared(planned: Sequence[str], now: Sequence[str]) -> Iterator[tuple[Difference, str]]:
    """The lines of two configurations in the order of both, each with where it is."""
    matcher = difflib.SequenceMatcher(a=planned, b=now, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "equal":
            yield from ((Difference.NONE, line) for line in now[begin:end])
        else:
            yield from ((Difference.MISSING, line) for line in planned[first:last])
            yield from ((Difference.ADDED, line) for line in now[begin:end])
