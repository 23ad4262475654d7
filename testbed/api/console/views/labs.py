"""The labs of this machine: files to deploy, looked at before anything is touched, and what one would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.api.console.answers import RefusedRequest, not_found, problem_json
from testbed.api.console.view import View, ViewCall, get, post
from testbed.base.errors import Problem, SpecError, TestbedError
from testbed.base.rows import row_json

if TYPE_CHECKING:
    from testbed.api.changes import Changes
    from testbed.lab.core.model import Lab

NO_FILE = "<text>"
"""The name of a text that is in no file, in problems."""


def _running(call: ViewCall) -> list[Mapping[str, Any]]:
    """Return the scenarios that run on this machine, whoever has started them."""
    from testbed.run.sweep.published import running

    only = call.console.settings.only
    return [one for one in running(call.console.state) if only in (None, one["lab"])]


def _source(call: ViewCall) -> dict[str, Any]:
    """Return the file that a lab came from, as pages call it; None where it is below no directory of this console."""
    from testbed.lab.core.deploy.records.lab_record import written_of

    state, name = call.console.state, call.query.get("lab", "")
    _require_lab(call, name)
    written = written_of(state.read(name))
    path = Path(written.file) if written is not None and written.file else None
    return {"path": call.console.files.shown(path) if path is not None and path.is_file() else None}


def _require_lab(call: ViewCall, name: str) -> None:
    """Raise `RefusedRequest` for a lab that is not there, or that this console does not show."""
    only, found = call.console.settings.only, False
    with suppress(ValueError):  # it is no name of a lab
        found = only in (None, name) and call.console.state.exists(name)
    if not found:
        raise not_found(f"there is no lab {name!r}")


def _check(call: ViewCall) -> dict[str, Any]:
    """Look at a topology or a scenario, as `validate` does; what is wrong comes with its lines, and is no error."""
    _require_own_console(call)
    path, text = _asked(call)
    settings = _settings(call.body)
    warnings: list[Problem] = []
    try:
        summary = _summary(call, path, text, settings, warnings)
    except SpecError as error:
        return {"valid": False, "problems": list(map(problem_json, error.problems)), "warnings": []}
    except TestbedError as error:  # a design that this machine cannot have, such as one with a missing image
        said = Problem(code="refused", file=str(path or NO_FILE), message=error.message, hint=error.hint)
        return {"valid": False, "problems": [problem_json(said)], "warnings": []}
    return {"valid": True, "problems": [], "warnings": list(map(problem_json, warnings))} | summary


def _asked(call: ViewCall) -> tuple[Path | None, str]:
    """Return the file that is meant, and its text, which may be another one than it has. Raises `RefusedRequest`."""
    name, text = call.body.get("path"), call.body.get("text")
    if name is not None and not isinstance(name, str):
        raise RefusedRequest(400, "path: expected the name of a file")
    path = call.console.files.path(name) if name else None
    if text is None:
        if not name:
            raise RefusedRequest(400, "which file? name a path, or send its text")
        return path, call.console.files.read(name).text
    if not isinstance(text, str):
        raise RefusedRequest(400, "text: expected text")
    return path, text


def _settings(body: Mapping[str, Any]) -> dict[str, object]:
    """Read what `--set` would have, a line each, and the name of the lab. Raises `SpecError`."""
    from testbed.lab.core.schema.load import parse_assignment

    lines = str(body.get("set") or "").splitlines()
    found = dict(parse_assignment(line) for line in map(str.strip, lines) if line)
    if name := str(body.get("name") or "").strip():
        found["name"] = name
    return found


def _require_own_console(call: ViewCall) -> None:
    """Raise `RefusedRequest` where nobody logs in, as at a lab's own console: reading a large text costs seconds."""
    if call.console.settings.only is not None:
        call.console.require_write()


def _summary(
    call: ViewCall, path: Path | None, text: str, settings: Mapping[str, object], warnings: list[Problem]
) -> dict[str, Any]:
    from testbed.base.yaml.reader import load_document
    from testbed.lab.core.schema.file_kind import is_scenario
    from testbed.lab.core.schema.load import load_topology_text

    file = NO_FILE if path is None else str(path)
    document = load_document(text, file).data
    if is_scenario(document):
        _check_beneath(call, path, (document, settings))
        return _scenario(path, text, settings)
    lab = load_topology_text(text, file=file, overrides=settings, warn=warnings.append)
    return {"kind": "topology", "lab": lab_json(lab)}


def _check_beneath(call: ViewCall, path: Path | None, written: object) -> None:
    """Raise `RefusedRequest` for a scenario that names a file outside of the start directories: a topology, or a trace.

    What is wrong with that file would be told with words of it. `written` is all that the scenario says, and what is
    set of it: any text may be the name of a file.
    """
    directory = Path.cwd() if path is None else path.parent
    for text in set(_texts(written)):
        if _leads_out(call, directory, text):
            raise not_found(f"{text} is below no directory of this console")


def _leads_out(call: ViewCall, directory: Path, text: str) -> bool:
    """Tell whether a text, seen from a directory, is the name of a file outside of the start directories."""
    named = Path(text)
    try:
        file = (directory / named).resolve()
        leaves = named.is_absolute() or ".." in named.parts or file.is_file()
        return leaves and file.parent.is_dir() and call.console.files.shown(file) is None
    except (OSError, ValueError, RuntimeError):  # it is no file's name
        return False


def _texts(written: object) -> Iterator[str]:
    """Yield all texts that are values in a document."""
    if isinstance(written, str):
        yield written
    elif isinstance(written, Mapping):
        for value in written.values():
            yield from _texts(value)
    elif isinstance(written, list | tuple):
        for value in written:
            yield from _texts(value)


def lab_json(lab: Lab) -> dict[str, Any]:
    """Return what a person wants to know of a lab before it is deployed."""
    from testbed.lab.core.fabric import measure_sizing
    from testbed.lab.core.fabric.sizing import seen_for_sizing

    networks = []
    for name in lab.network_names:
        seen = seen_for_sizing(lab, name)
        sizing = measure_sizing(seen)
        networks.append({"name": name, "nics": sizing.nics, "links": sizing.links, "switches": len(seen.switches)})
    return {
        "name": lab.name,
        "design": lab.design or "hand-written",
        "hosts": len(lab.hosts),
        "switches": len(lab.switches),
        "links": len(lab.links),
        "k": lab.scale.time,
        "networks": networks,
    }


def _scenario(path: Path | None, text: str, settings: Mapping[str, object]) -> dict[str, Any]:
    """Read a scenario with the topologies of its points, where it lies in a file beside them."""
    from testbed.run.schema.file import load_scenario_text
    from testbed.run.sweeps import read_sweep

    overrides = {key: value for key, value in settings.items() if key != "name"}
    if path is None or path.read_text(errors="replace") != text:
        scenario = load_scenario_text(text, file=str(path or NO_FILE), overrides=overrides).scenario
        points = [""]
    else:
        sweep = read_sweep(path, overrides)
        scenario, points = sweep.scenario, [point.name for point in sweep.points]
    return {
        "kind": "scenario",
        "scenario": {
            "name": scenario.name,
            "description": scenario.description,
            "topology": scenario.topology.file or "inline",
            "workload": scenario.workload.kind,
            "transports": [one.kind.value for one in scenario.transports],
            "points": points,
            "runs": len(points) * scenario.repeat.runs,
            "matrix": {key: list(map(str, values)) for key, values in scenario.matrix.items()},
        },
    }


def _diff(call: ViewCall) -> dict[str, Any]:
    """Return what `apply` would change of a lab: with a text, with a file, or with the file that it came from.

    While somebody deploys the lab or changes it there is nothing to compare with: that is who `changing` names.
    """
    from testbed.api.changes import changes_to, read_target
    from testbed.api.console.machine.labs import changers

    _require_own_console(call)
    state, name = call.console.state, str(call.body.get("lab") or "")
    _require_lab(call, name)
    if changing := changers(state, name):
        return {"valid": True, "problems": [], "changing": [one.who for one in changing]}
    path = text = None
    if call.body.get("path") or call.body.get("text") is not None:
        path, text = _asked(call)
    try:
        target = read_target(path if text is None else str(path or NO_FILE), name=name, state=state, text=text)
        changes = changes_to(target, state)
    except SpecError as error:
        return {"valid": False, "problems": list(map(problem_json, error.problems))}
    return {"valid": True, "problems": []} | changes_json(changes)


def changes_json(changes: Changes) -> dict[str, Any]:
    """Return changes as the page shows them: what is alike in one row, as `diff` has it."""
    document = changes.to_json()
    del document["changes"]
    return document | {"summary": changes.summary, "groups": [row_json(group) for group in changes.groups]}


VIEW = View(
    name="labs",
    title="Labs",
    order=10,
    scope="machine",
    routes=(
        get("running", _running),
        get("source", _source),
        post("check", _check, changes=False),
        post("diff", _diff, changes=False),
    ),
    style=True,
)
