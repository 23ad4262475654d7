"""Records of what was measured: those below the console's directories, one of them opened, and two compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.api.console.answers import RefusedRequest, not_found
from testbed.api.console.sources.recorded import run_address
from testbed.api.console.view import View, ViewCall, get
from testbed.api.console.views.job import outcome_json
from testbed.base.errors import RecordError

if TYPE_CHECKING:
    from testbed.record.listing import Listed
    from testbed.record.record import Record


def _list(call: ViewCall) -> dict[str, Any]:
    """Return a line for each run there is, newest first."""
    from testbed.record.listing import list_results
    from testbed.record.store import RESULTS_DIRECTORY

    found: dict[Path, Listed] = {}
    _require_records(call)
    for root in call.console.settings.roots:
        for directory in (root, root / RESULTS_DIRECTORY):
            if directory.is_dir() and not directory.is_symlink():
                found |= {row.directory.resolve(): row for row in list_results(directory)}
    rows = sorted(found.values(), key=lambda row: row.started, reverse=True)
    return {"results": [_line(call, row) for row in rows if call.console.files.shown(row.directory)]}


def _line(call: ViewCall, row: Listed) -> dict[str, Any]:
    return {
        "directory": call.console.files.shown(row.directory),
        "name": row.directory.name,
        "scenario": row.scenario,
        "started": row.started,
        "verdict": row.verdict,
        "points": row.points,
        "runs": row.runs,
        "wall_s": row.wall_s,
        "remark": row.remark,
    }


def _record(call: ViewCall) -> dict[str, Any]:
    """Return what a record says, with the address of each run that can be played back."""
    directory = _directory(call, "dir")
    record = _loaded(directory)
    shown = call.console.files.shown(directory) or directory.name
    return {
        "directory": shown,
        "scenario": record.scenario.name,
        "description": record.scenario.description,
        "started": record.started,
        "wall_s": record.wall_s,
        "backend": record.environment.backend.value,
        "command": record.command,
        "approximations": record.environment.approximations,
        "points": [
            {
                "name": point.name,
                "lab": point.lab.name,
                "hosts": point.lab.hosts,
                "k": point.lab.k,
                "metrics": [
                    {
                        "name": one.name,
                        "title": one.title,
                        "unit": one.unit,
                        "median": one.median,
                        "minimum": one.minimum,
                        "maximum": one.maximum,
                    }
                    for one in point.metrics
                    if one.headline
                ],
                "runs": [
                    {
                        "index": run.index,
                        "base": run_address(shown, number, run.index),
                        "seed": run.seed,
                        "elapsed_s": run.elapsed_s,
                        "valid": run.is_valid,
                        "touched": sum(event.kind == "touched" for event in run.events),
                        "broken": [check.message for check in run.checks if not check.ok],
                    }
                    for run in point.runs
                ],
            }
            for number, point in enumerate(record.points)
        ],
    } | outcome_json(record)


def _compare(call: ViewCall) -> dict[str, Any]:
    """Compare two records, metric by metric, as `compare` does."""
    from testbed.record.report.comparison import compare_records, comparison_json

    base, other = _directory(call, "base"), _directory(call, "other")
    comparison = compare_records(_loaded(base), _loaded(other), names=(base.name, other.name), force=True)
    return comparison_json(comparison)


def _require_records(call: ViewCall) -> None:
    """Raise `RefusedRequest` in the console of one lab alone, which shows no records."""
    if (only := call.console.settings.only) is not None:
        raise not_found(f"this console shows the lab {only} alone")


def _directory(call: ViewCall, name: str) -> Path:
    """Return the directory of results that is named in the address. Raises `RefusedRequest` for another place."""
    _require_records(call)
    text = call.query.get(name, "")
    if not text:
        raise RefusedRequest(400, f"{name}: which directory of results?")
    path = call.console.files.path(text)
    return path if path.is_dir() else path.parent


def _loaded(directory: Path) -> Record:
    from testbed.record.store import RECORD_FILE, load_record

    if (directory / RECORD_FILE).is_symlink():
        raise RecordError(f"{directory / RECORD_FILE} is a link: it is not followed")
    return load_record(directory)


VIEW = View(
    name="results",
    title="Results",
    order=70,
    scope="machine",
    routes=(get("", _list), get("record", _record), get("compare", _compare)),
    style=True,
)
