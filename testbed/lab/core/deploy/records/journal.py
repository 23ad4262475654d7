"""The journal of a lab: what was created, written before it becomes visible, read by `destroy`.

JSON lines, synced to disk. Kinds: `state` (where the life cycle stands), `nodes` (identity of each namespace, with the
boot it belongs to), `gone` (nodes that a change removed), `change` (a step of a change, when it begins), `work` (what
is being done to one node, or that it is done), `path` (a file or directory outside the state directory), `containers`
(the engine that makes them and the label they have), `container` (identity of each once it runs, and its FRR's
version), `no-container` (nodes that have none any more), `steering` (the nodes whose TCP is led to a carrier, and to
which prefixes).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from testbed.base.errors import ExitCode, TestbedError

JOURNAL_NAME = "journal.jsonl"
CARRIER_LOCK = "carrier.lock"
"""In a lab's run directory: held as long as a carrier is at work, whose steering stands in the journal."""


class LabState(StrEnum):
    DEPLOYING = "deploying"
    RUNNING = "running"
    FAILED = "failed"
    """Deployed, but routing did not converge in time."""
    CHANGING = "changing"
    """A change of it began and has not ended."""
    DESTROYING = "destroying"


@dataclass(slots=True, kw_only=True)
class JournalledContainers:
    """A lab's containers of one runtime: `engine` is the URL of their engine, `deployment` the value of their label.

    `ids` are those that were started, by node: all of the lab's if the deploy came that far. `frr` are the versions
    of switches' FRR.
    """

    engine: str
    deployment: str
    ids: dict[str, str] = field(default_factory=dict)
    frr: dict[str, str] = field(default_factory=dict)

    def forget(self, node: str) -> None:
        """Forget the container of a node."""
        self.ids.pop(node, None)
        self.frr.pop(node, None)


@dataclass(slots=True, kw_only=True)
class JournalContent:
    """The sum of the entries of a journal. `identities` are namespaces of this boot, by node."""

    state: LabState | None = None
    identities: dict[str, int] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    containers: dict[str, JournalledContainers] = field(default_factory=dict)
    """By the name of their runtime."""
    steps: list[str] = field(default_factory=list)
    """The steps of a change that has not ended, as far as they have begun."""
    work: dict[str, str] = field(default_factory=dict)
    """A word for what is done to each node that a command was working on when it ended."""
    steered: dict[str, list[str]] = field(default_factory=dict)
    """The prefixes to which TCP of a node is led to a carrier, by node."""
    unknown: list[str] = field(default_factory=list)
    """Kinds of entries that this version does not understand: another one wrote them."""


class StateError(TestbedError):
    """A part of a lab's state could not be recorded."""

    exit_code = ExitCode.INVALID


def state_error(path: Path, error: OSError) -> StateError:
    hint = "make room on its file system" if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
    return StateError(f"cannot write {error.filename or path}: {error.strerror}", hint=hint)


@contextmanager
def writing_state(path: Path) -> Iterator[None]:
    """Raise `StateError` where the disk does not take what is written here, to a file or directory of labs."""
    try:
        yield
    except OSError as error:
        raise state_error(path, error) from error


def _is_cut(stream: IO[bytes]) -> bool:
    """Tell whether the last line has no end: its writer died, or the disk was full."""
    if stream.seek(0, os.SEEK_END) == 0:
        return False
    stream.seek(-1, os.SEEK_END)
    return stream.read(1) != b"\n"


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Journal:
    """Append-only; every entry that a reboot does not make void is on disk when its method returns."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL_NAME

    def state(self, state: LabState) -> None:
        self._append({"kind": "state", "state": state.value})

    def nodes(self, identities: Mapping[str, int]) -> None:
        self._append({"kind": "nodes", "boot": boot_id(), "identities": dict(identities)})

    def containers(self, runtime: str, engine: str, deployment: str) -> None:
        """Note, before the first of them is made, whose containers a runtime is about to make."""
        self._append({"kind": "containers", "runtime": runtime, "engine": engine, "deployment": deployment})

    def started_containers(self, runtime: str, ids: Mapping[str, str], frr: Mapping[str, str]) -> None:
        """Note the containers that run, by node, and the versions of the FRR in those of switches."""
        self._append({"kind": "container", "runtime": runtime, "ids": dict(ids), "frr": dict(frr)})

    def removed_containers(self, runtime: str, nodes: Iterable[str]) -> None:
        """Note that some nodes have no container any more, though they are there."""
        self._append({"kind": "no-container", "runtime": runtime, "nodes": sorted(nodes)})

    def gone(self, nodes: Iterable[str]) -> None:
        """Note the nodes that a change of the lab has removed."""
        self._append({"kind": "gone", "nodes": sorted(nodes)})

    def step(self, name: str) -> None:
        """Note that a step of a change begins. It is not synced to disk: what a change makes ends with the machine's
        power anyhow."""
        self._append({"kind": "change", "step": name}, durable=False)

    def work(self, node: str, word: str) -> None:
        """Note that something is being done to a node, in a word, or with "" that it is done."""
        self._append({"kind": "work", "node": node, "word": word})

    def steering(self, prefixes: Mapping[str, Sequence[str]]) -> None:
        """Note, before it is done, to which prefixes TCP is led to a carrier, by node; none: it is led there no more.

        It is not synced to disk: rules and routes of the kernel end with the machine's power anyhow."""
        self._append({"kind": "steering", "boot": boot_id(), "prefixes": dict(prefixes)}, durable=False)

    def path(self, path: Path) -> None:
        self._append({"kind": "path", "path": str(path)})

    def _append(self, entry: Mapping[str, Any], *, durable: bool = True) -> None:
        data = json.dumps(entry).encode() + b"\n"
        with writing_state(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a+b", buffering=0) as stream:
                if _is_cut(stream):
                    data = b"\n" + data
                written = stream.write(data)
                if written != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if durable:
                    os.fsync(stream.fileno())

    def read(self) -> JournalContent:
        """Return what stands in the journal; a line cut short by a crash or a full disk is left out.

        Identities of another boot are left out: a namespace does not survive one, and its
        number may be another's today. Their names are kept with 0, which matches none.
        Entries of another version that say nothing to this one are passed over.
        """
        content = JournalContent()
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return content
        for line in lines:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
                continue
            try:
                _take(content, entry)
            except (KeyError, TypeError, ValueError, AttributeError):
                content.unknown.append(entry["kind"])
        return content


def _take(content: JournalContent, entry: Mapping[str, Any]) -> None:
    """Add an entry to what a journal says. Raises some lookup or type error for one that is not understood."""
    match entry["kind"]:
        case "state":
            content.state = LabState(entry["state"])
            if content.state is not LabState.CHANGING:
                content.steps.clear()
        case "change":
            content.steps.append(str(entry["step"]))
        case "nodes":
            current = entry["boot"] == boot_id()
            content.identities |= {node: identity if current else 0 for node, identity in entry["identities"].items()}
        case "gone":
            for node in entry["nodes"]:
                content.identities.pop(node, None)
                for containers in content.containers.values():
                    containers.forget(node)
        case "work":
            content.work.pop(entry["node"], None)
            if entry["word"]:
                content.work[entry["node"]] = str(entry["word"])
        case "steering":
            current = entry["boot"] == boot_id()
            content.steered = {node: list(found) for node, found in entry["prefixes"].items()} if current else {}
        case "containers":
            made = JournalledContainers(engine=entry["engine"], deployment=entry["deployment"])
            content.containers[_runtime(entry)] = made
        case "container":
            if (known := content.containers.get(_runtime(entry))) is not None:
                known.ids |= entry["ids"]
                known.frr |= entry["frr"]
        case "no-container":
            for node in entry["nodes"] if _runtime(entry) in content.containers else ():
                content.containers[_runtime(entry)].forget(node)
        case "path":
            content.paths.append(Path(entry["path"]))
        case kind:
            raise ValueError(kind)


def _runtime(entry: Mapping[str, Any]) -> str:
    """Which runtime an entry is about; entries before there was a choice do not say."""
    from testbed.lab.core.model.containers import OLDEST_RUNTIME

    return str(entry.get("runtime", OLDEST_RUNTIME))
