"""Verbs for labs over several machines: those about a node run on its machine, those about the lab ask all of them.

Which lab is meant is seen from the words of the command line alone, before its verb is imported: without a lab over
several machines this costs a look at a directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError

if TYPE_CHECKING:
    from testbed.api.pool.over.records import SpreadRecord
    from testbed.lab.core.deploy.listing import ListedLab

OF_NODES = frozenset({"exec", "shell", "logs", "capture", "link", "power", "roce", "uet"})
"""The verbs that name a node, or a port of one."""
OF_PARTS = frozenset({"inspect", "stats"})
"""The verbs that show rows of nodes: each machine shows its own."""
OWN = frozenset({"deploy", "destroy", "list", "check"})
"""The verbs that know of labs over several machines."""
OF_LABS = frozenset(
    {"apply", "diff", "events", "graph", "launch", "mininet-cli", "node", "pfc", "serve", "service", "trace"}
)
"""The other verbs about a lab that is up."""
OF_NAMED_LABS = frozenset({"graph"})
"""Verbs that are about a file, unless -n names a lab."""


def spread_named(arguments: Sequence[str]) -> SpreadRecord | None:
    """Return the lab over several machines that a command line means: by -n, or the only lab that there is.

    Raises `LabNotFound` for a record that is damaged.
    """
    if not _has_records():
        return None
    from testbed.api.pool.over.records import SpreadRecords

    records, name = SpreadRecords(), named(arguments)
    if name is None:
        names = records.names()
        if len(names) != 1 or _names_file(arguments) or (not _asks_for_machines(arguments) and _labs_here()):
            return None
        return records.read(names[0])
    return records.read(name) if name in records.names() else None


def spread_called(name: str) -> SpreadRecord | None:
    """Return the lab over several machines of this name; None where there is none.

    Raises `LabNotFound` for a record that is damaged.
    """
    if not Path(_directory(), f"{name}.json").is_file():
        return None
    from testbed.api.pool.over.records import SpreadRecords

    return SpreadRecords().read(name)


def spread_rows() -> list[ListedLab]:
    """Return the lines that `list` has of labs over several machines."""
    if not _has_records():
        return []
    from testbed.api.pool.over.live import listed_spread
    from testbed.api.pool.over.records import SpreadRecords

    return list(listed_spread(SpreadRecords()))


def named(arguments: Sequence[str]) -> str | None:
    """Return the name of a lab in the words of a command line; None where there is none."""
    words = iter(arguments)
    for word in words:
        if word == "--":
            return None
        if word in ("-n", "--name"):
            return next(words, None)
        if word.startswith("--name="):
            return word.partition("=")[2]
        if word.startswith("-n") and not word.startswith("--"):
            return word[2:].removeprefix("=")
    return None


def _names_file(arguments: Sequence[str]) -> bool:
    """Tell whether -t is among the words of a verb, of which those after `--` are none."""
    words = list(arguments)
    words = words[: words.index("--")] if "--" in words else words
    return any(word.startswith(("-t", "--topology")) for word in words)


def run_over(arguments: Sequence[str]) -> int | None:
    """Run a verb on the machines of the lab that it means; its exit code. None where it is to run here.

    Raises `TestbedError` for a verb that such a lab does not have.
    """
    verb = arguments[0] if arguments else ""
    if verb not in OF_NODES | OF_PARTS | OF_LABS:
        return None
    if verb in OF_NAMED_LABS and (named(arguments) is None or _names_file(arguments)):
        return None
    record = spread_named(arguments)
    if record is None or _asks_for_machines(arguments):
        return None
    if verb in OF_NODES:
        return _run_at_node(record, arguments)
    if verb in OF_PARTS:
        return _show_parts(record, arguments)
    first = record.machines[0].ssh
    raise TestbedError(
        f"{verb} does not know labs over several machines, as {record.name} is one",
        hint=f"testbed --on ssh://{first} {verb} -n {record.name} is about the part on that machine",
    )


def _asks_for_machines(arguments: Sequence[str]) -> bool:
    return list(arguments[:2]) == ["inspect", "machines"]


def _run_at_node(record: SpreadRecord, arguments: Sequence[str]) -> int:
    from testbed.base.names import all_names_hint
    from testbed.vm.remote.target import parse_target, run_there

    nodes = [word.partition(":")[0] for word in arguments[1:]]
    node = next((word for word in nodes if word in record.places), None)
    if node is None:
        word = next((word for word in nodes if not word.startswith("-") and word != record.name), "")
        raise TestbedError(f"{record.name} has no node {word!r}", hint=all_names_hint(word, record.places))
    machine = record.place(node)
    if machine is None:
        raise TestbedError(f"the machine of {node} has no part of {record.name} any more")
    return run_there(parse_target(f"ssh://{machine.ssh}"), [*_with_name(record, arguments)])


def _with_name(record: SpreadRecord, arguments: Sequence[str]) -> list[str]:
    """The words with the lab's name, which may be one of several on the machine."""
    return list(arguments) if named(arguments) else [arguments[0], "-n", record.name, *arguments[1:]]


def words_for(record: SpreadRecord, machine: str, arguments: Sequence[str]) -> list[str] | None:
    """Return the words of a command line without the nodes, or patterns of them, that other machines have.

    None where nodes are named, and the machine has none of them.
    """
    from fnmatch import fnmatchcase

    kept: list[str] = []
    named_nodes = has_some = False
    for word in arguments:
        pattern = word.partition(":")[0]
        places = {place for node, place in record.places.items() if fnmatchcase(node, pattern)}
        named_nodes, has_some = named_nodes or bool(places), has_some or machine in places
        if not places or machine in places:
            kept.append(word)
    return kept if has_some or not named_nodes else None


def _show_parts(record: SpreadRecord, arguments: Sequence[str]) -> int:
    """Print what each machine shows: rows of JSON and CSV together, and tables one below the other."""
    import json
    import sys

    from testbed.vm.remote.target import open_session, parse_target, prepare_there, program_of

    if {"-w", "--watch"} & set(arguments):
        raise TestbedError(
            "--watch is not for labs over several machines",
            hint=f"testbed --on ssh://{record.machines[0].ssh} {arguments[0]} -n {record.name} --watch",
        )
    said = {}
    for machine in record.machines:
        if (asked := words_for(record, machine.name, arguments)) is None:
            continue
        target = parse_target(f"ssh://{machine.ssh}")
        with open_session(target) as session:
            prefix = prepare_there(session, target)
            words = [*prefix, "env", f"COLUMNS={os.environ.get('COLUMNS', '160')}", program_of(target)]
            said[machine.name] = session.check([*words, *_with_name(record, asked)]).decode()
    form = _format(arguments)
    if form == "json":
        documents = {name: json.loads(text) for name, text in said.items()}
        lists = all(isinstance(document, list) for document in documents.values())
        print(json.dumps([row for rows in documents.values() for row in rows] if lists else documents, indent=2))
        return 0
    for number, (name, text) in enumerate(said.items()):
        if form == "table":
            sys.stdout.write(f"{name}:\n{text}")
        else:
            sys.stdout.write(text if number == 0 else "".join(text.splitlines(keepends=True)[1:]))
    return 0


def _format(arguments: Sequence[str]) -> str:
    for word, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if word in ("-f", "--format"):
            return value
        if word.startswith("--format="):
            return word.partition("=")[2]
        if word.startswith("-f") and not word.startswith("--"):
            return word[2:]
    return "table"


def _directory() -> str:
    """Return the directory of the records, as `records.spread_directory` does, without importing it."""
    if kept := os.environ.get("TESTBED_STATE_DIR"):
        return f"{kept}/over"
    state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return f"{state}/testbed/over"


def _has_records() -> bool:
    return any(Path(_directory()).glob("*.json"))


def _labs_here() -> list[str]:
    from testbed.lab.core.deploy.records.state import StateDirectory

    try:
        return StateDirectory().names()
    except TestbedError:  # root's alone to see
        return []
