"""Loading topology files: from a path, from text, and finding the one of a directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol, cast

from testbed.base.errors import PlanError, Problem, SpecError
from testbed.base.names import first_few
from testbed.base.yaml.document import OVERRIDE_FILE, Document
from testbed.base.yaml.paths import parse_path, quote
from testbed.base.yaml.reader import SUFFIXES, load_document, parse_value, read_text
from testbed.lab.core.assembly import assembly
from testbed.lab.core.model import Lab
from testbed.lab.core.model.written import WrittenLab
from testbed.lab.core.schema.file_kind import is_scenario, scenario_problem
from testbed.lab.core.schema.other_tools import other_tool_problem, told_of_other_tool
from testbed.lab.core.schema.warnings import find_warnings


class Resolver(Protocol):
    """The part of the assembly that reads topology files."""

    def resolve(self, document: Document) -> Lab:
        """Return the lab that a file describes. Raises `SpecError`."""


def load_topology(
    path: Path, *, overrides: Mapping[str, object] | None = None, warn: Callable[[Problem], None] | None = None
) -> Lab:
    """The lab of a topology file. `overrides` are dotted keys with values, such as {"fabric.hosts": 4}.

    `warn` is told of what is valid and works less well than it looks. Raises `SpecError` with every problem of the
    first stage that found one.
    """
    lab = load_topology_text(read_text(path), file=str(path), overrides=overrides, warn=warn)
    return lab if lab.written is None else replace(lab, written=replace(lab.written, file=str(path.absolute())))


def load_topology_text(
    text: str,
    *,
    file: str,
    overrides: Mapping[str, object] | None = None,
    warn: Callable[[Problem], None] | None = None,
) -> Lab:
    """Return the lab of text that is not in a file, as `load_topology` does; `file` names it in messages."""
    try:
        document = topology_document(text, file)
    except SpecError as error:
        raise told_of_other_tool(error, text, file) from error
    if overrides:
        document = document.with_overrides(overrides)
    lab = resolve_warned(document, warn)
    return replace(lab, written=WrittenLab.of(document.data, overrides or {}))


@lru_cache(maxsize=1)
def topology_document(text: str, file: str) -> Document:
    """Read the document of a topology file; who asks for the places of its keys afterwards reads it no second time.

    Raises `SpecError`.
    """
    return load_document(text, file)


def resolve_warned(document: Document, warn: Callable[[Problem], None] | None) -> Lab:
    """Return the lab of a document; `warn` as of `load_topology`.

    Raises `SpecError`, which says that it is a file of another tool, or a scenario, where it is one.
    """
    try:
        lab = cast(Resolver, assembly()).resolve(document)
    except SpecError as error:
        problem = other_tool_problem(document) or scenario_problem(document)
        if problem is None:
            raise
        raise SpecError([problem]) from error
    if warn is not None:
        for problem in find_warnings(document, lab):
            warn(problem)
    return lab


def place_plan_error(
    path: Path, error: PlanError, *, overrides: Mapping[str, object] | None = None
) -> SpecError | PlanError:
    """The error of a plan at the place of the file that it is about; `error` itself where it is about none.

    `overrides` are those that the file was loaded with.
    """
    document = topology_document(read_text(path), str(path))
    if overrides:
        document = document.with_overrides(overrides)
    if not error.field or not document.has(error.field):
        return error
    return SpecError([document.problem(error.code, error.field, error.message, hint=error.hint)])


def parse_assignment(text: str) -> tuple[str, object]:
    """Take `KEY=VALUE` apart: a dotted key, and YAML for its value, such as [1, 2] or {a: b}. Raises `SpecError`."""
    key, sign, value = text.partition("=")
    try:
        if not sign:
            raise ValueError(f"{quote(text)} is not KEY=VALUE")
        parse_path(key.strip())
    except ValueError as error:
        problem = Problem(
            code="bad-override", file=OVERRIDE_FILE, message=str(error), hint="for example fabric.hosts=4"
        )
        raise SpecError([problem]) from error
    return key.strip(), parse_value(value, OVERRIDE_FILE).data


def find_topology(directory: Path) -> Path:
    """The only topology file of `directory`.

    Of several YAML files those count that have the key `fabric` or `topology` and are no scenarios; one that cannot be
    read counts too, so that its problems are seen. Raises `SpecError` unless there is exactly one.
    """
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES and path.name[0] != ".")
    except OSError as error:
        problem = Problem(code="unreadable", file=str(directory), message=f"cannot list: {error.strerror}")
        raise SpecError([problem]) from error
    found = [path for path in files if _is_topology(path)] if len(files) > 1 else files
    match found:
        case [path]:
            return path
        case []:
            code, message, hint = "no-topology", "there is no topology file here", "name one with -t FILE"
        case _:
            code, hint = "many-topologies", f"name one with -t, such as -t {found[0].name}"
            message = f"there are {len(found)} topology files here: {first_few([path.name for path in found], 10)}"
    raise SpecError([Problem(code=code, file=str(directory), message=message, hint=hint)])


def _is_topology(path: Path) -> bool:
    try:
        data = load_document(read_text(path), str(path)).data
    except SpecError:
        return path.is_file()
    return ("fabric" in data or "topology" in data) and not is_scenario(data)
