"""The labs of other machines, which a console was told of when it was started: in the one list, and a click away.

Each machine has a thread with one SSH connection, by which `list` is run there. A lab of it is shown by a console of
its own, which runs there and is forwarded here (`testbed --on ssh://HOST console LAB`).
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.api.console.answers import RefusedRequest, not_found
from testbed.api.console.failures import PartFailures
from testbed.api.console.machine.labs import LabRow
from testbed.api.console.tethered import tethered_words
from testbed.base.cleanup import end_at_once
from testbed.base.errors import TestbedError
from testbed.base.names import check_lab_name
from testbed.vm.remote.ssh import SshSession
from testbed.vm.remote.target import RemoteTarget, open_session, parse_target, prepare_there, program_of

EVERY_S = 10.0
IDLE_EVERY_S = 60.0
"""While no page looks. Each time a command starts on the other machine."""
AGAIN_S = 15.0
"""After a machine could not be reached."""
SILENT_S = 30.0
"""A machine that acknowledges nothing for so long is lost: what it said last is shown no longer."""
MOST_FORWARDED = 8
"""Labs of other machines that are shown at a time."""
START_S = 60.0
"""The time that a console there has to start."""
_LINK = re.compile(r"(?:console|for another browser) of \S+: (http://\S+)")
_COUNTS = ("hosts", "switches", "links")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMachine:
    """A machine as pages are told of it; `error` says why its labs are not known, "" where they are."""

    name: str
    error: str = ""


def rows_of(machine: str, listed: bytes) -> tuple[LabRow, ...]:
    """Return the labs of a machine from what `list -f json` says there. Raises `ValueError`."""
    rows = []
    for one in json.loads(listed):
        counts = {name: int(one.get(name) or 0) for name in _COUNTS}
        words = {name: str(one.get(name) or "") for name in ("design", "created", "topology")}
        name = str(one["name"])
        check_lab_name(name)  # it becomes a word of a command line
        rows.append(
            LabRow(
                name=name,
                base="",
                machine=machine,
                state=str(one.get("state") or "unknown"),
                k=float(one.get("k") or 0),
                **counts,  # type: ignore[arg-type]
                **words,  # type: ignore[arg-type]
            )
        )
    return tuple(rows)


class OtherMachines:
    """The machines of one console. `changed` is called when what is known of them is another. In any thread."""

    def __init__(
        self,
        targets: Sequence[str],
        changed: Callable[[], None],
        looked_at: Callable[[], bool],
        failures: PartFailures,
        *,
        write: bool,
    ) -> None:
        """Raises `TestbedError` for a target that is none."""
        self._targets = {str(target): target for target in map(parse_target, targets)}
        self._changed = changed
        self._looked_at = looked_at
        self._failures = failures
        self._write = write
        self._stopped = threading.Event()
        self._rows: dict[str, tuple[LabRow, ...]] = dict.fromkeys(self._targets, ())
        self._errors: dict[str, str] = dict.fromkeys(self._targets, "it is being asked")
        self._forwarded = ForwardedConsoles()

    @property
    def labs(self) -> tuple[LabRow, ...]:
        """The labs of all of them, as far as they are known."""
        return tuple(row for name in self._targets for row in self._rows[name])

    @property
    def machines(self) -> tuple[OtherMachine, ...]:
        """The machines in the order in which they were named."""
        return tuple(OtherMachine(name=name, error=self._errors[name]) for name in self._targets)

    def start(self) -> None:
        """Begin to ask them."""
        for name, target in self._targets.items():
            threading.Thread(target=self._run, args=(name, target), name=f"labs of {name}", daemon=True).start()

    def close(self) -> None:
        """Ask no more, and end the consoles there."""
        self._stopped.set()
        self._forwarded.close()

    def open(self, machine: str, lab: str) -> str:
        """Return a link to a lab of a machine, good for one browser. Among the readers.

        Raises `RefusedRequest` for one that is not in the list, where too many are open, or where it does not start.
        """
        if not any((row.machine, row.name) == (machine, lab) for row in self.labs):
            raise not_found(f"{machine} has no lab {lab!r}")
        words = ["--on", machine_word(self._targets[machine]), "console", lab, "--bind", "127.0.0.1:0"]
        return self._forwarded.link(f"{machine} {lab}", [*words, "--write"] if self._write else words)

    def _run(self, name: str, target: RemoteTarget) -> None:
        while not self._stopped.is_set():
            try:
                with open_session(target) as session:
                    self._watch(name, target, session)
            except TestbedError as error:
                self._set(name, (), error.message)
            except (OSError, EOFError, ValueError) as error:
                self._set(name, (), str(error) or "the connection broke")
            except Exception as error:
                self._failures.note(f"the labs of {name}", error)
                self._set(name, (), f"{type(error).__name__}: {error}")
            self._stopped.wait(AGAIN_S)

    def _watch(self, name: str, target: RemoteTarget, session: SshSession) -> None:
        if target.machine is None:  # a VM of this machine is not lost without a word
            session.lose_after(SILENT_S)
        prefix = prepare_there(session, target)
        while not self._stopped.is_set():
            self._set(name, rows_of(name, session.check([*prefix, program_of(target), "list", "-f", "json"])), "")
            self._failures.clear(f"the labs of {name}")
            self._stopped.wait(EVERY_S if self._looked_at() else IDLE_EVERY_S)

    def _set(self, name: str, rows: tuple[LabRow, ...], error: str) -> None:
        if (rows, error) != (self._rows[name], self._errors[name]):
            self._rows[name], self._errors[name] = rows, error
            self._changed()


def machine_word(target: RemoteTarget) -> str:
    """Return a machine as `--on` takes it, with the directory there."""
    return str(target) if target.machine is not None else f"{target}{target.path}"


class ForwardedConsoles:
    """Consoles on other machines that were opened from here. They end with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, _Forwarded] = {}

    def link(self, key: str, words: Sequence[str]) -> str:
        """Return a link to the console that a command line starts, or has started, which `key` names."""
        with self._lock:
            for name in [name for name, one in self._found.items() if one.process.poll() is not None]:
                self._found.pop(name).close()
            if key not in self._found:
                if len(self._found) >= MOST_FORWARDED:
                    raise RefusedRequest(429, f"{MOST_FORWARDED} labs of other machines are shown already")
                self._found[key] = _Forwarded(words)
            one = self._found[key]
        return one.link()

    def close(self) -> None:
        """End all of them, at the same time."""
        with self._lock:
            for one in self._found.values():
                one.end()
            for one in self._found.values():
                one.close()
            self._found.clear()


class _Forwarded:
    """A forwarded console. Each of its links is good for one browser; it tells the next once one was used."""

    def __init__(self, words: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            tethered_words(words),
            stdin=subprocess.PIPE,  # its end ends it
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
        self._changed = threading.Condition()
        self._link = ""
        self._said = ""
        self._ended = False
        threading.Thread(target=self._read, name="forwarded", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = _LINK.search(line)
            with self._changed:
                self._link = found[1] if found else self._link
                self._said = line.strip() or self._said
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def link(self) -> str:
        """Return the latest link. Raises `RefusedRequest` where there is none in time."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._link) or self._ended, START_S)
            if self._ended or not self._link:
                raise RefusedRequest(502, f"the console there does not start: {self._said or 'it says nothing'}")
            return self._link

    def end(self) -> None:
        """Have it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        """End it, and wait until it has ended."""
        self.end()
        try:
            self.process.wait(START_S / 10)
        except subprocess.TimeoutExpired:
            end_at_once(self.process)


def answer_open(others: OtherMachines, body: dict[str, Any]) -> dict[str, str]:
    """Answer a page that wants to see a lab of another machine."""
    machine, lab = body.get("machine"), body.get("lab")
    if not isinstance(machine, str) or not isinstance(lab, str):
        raise RefusedRequest(400, "machine and lab are expected, both strings")
    return {"link": others.open(machine, lab)}
