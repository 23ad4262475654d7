"""Actions on whole labs: deploy, apply, destroy, and run a scenario. Each runs as a task."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.api.console.action import InputField, PageAction
from testbed.api.console.answers import RefusedRequest
from testbed.api.console.views.targets import lab_of

if TYPE_CHECKING:
    from testbed.api.console.action import ActionRequest

GROUP = "Lab"


def _file(request: ActionRequest) -> str:
    """Return the file that is chosen, as short as a command line may name it. Raises `RefusedRequest`."""
    path = request.console.files.path(request.text("file"))
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _settings(request: ActionRequest) -> list[str]:
    """Return `--set` for each of the words KEY=VALUE that are written beside each other."""
    try:
        words = shlex.split(request.text("set"))
    except ValueError as error:
        raise RefusedRequest(400, f"set: {error}", hint="for example fabric.hosts=4 qos.preset=uec") from error
    return [word for setting in words for word in ("--set", setting)]


def _deploy(request: ActionRequest) -> list[list[str]]:
    words = ["deploy", "-t", _file(request), *_settings(request)]
    if name := request.text("name"):
        words += ["-n", name]
    if request.flag("reconfigure"):
        words += ["--reconfigure"]
    return [words]


def _deploy_harms(request: ActionRequest) -> str:
    return "A lab of this name is destroyed first, with all that runs in it." if request.flag("reconfigure") else ""


def _apply(request: ActionRequest) -> list[list[str]]:
    words = ["apply", "-n", lab_of(request.source).name]
    if request.text("file"):
        words += ["-t", _file(request)]
    words += _settings(request)
    for allowed in ("restart", "recreate"):
        if request.flag(allowed):
            words += ["--allow", allowed]
    if request.flag("repair"):
        words += ["--repair"]
    return [words]


def _apply_harms(request: ActionRequest) -> str:
    allowed = [word for word in ("restart", "recreate") if request.flag(word)]
    if not allowed:
        return ""
    what = {"restart": "processes may end and begin again", "recreate": "nodes, or the whole lab, may be made again"}
    return f"{' and '.join(what[word] for word in allowed).capitalize()}."


def _destroy(request: ActionRequest) -> list[list[str]]:
    return [["destroy", "-n", lab_of(request.source).name]]


def _destroy_harms(request: ActionRequest) -> str:
    return f"The lab {request.lab} goes, with all that runs in it. What was measured stays."


def _run(request: ActionRequest) -> list[list[str]]:
    words = ["run", _file(request), *_settings(request)]
    if request.values.get("repeat") is not None and request.values["repeat"] != "":
        words += ["--repeat", f"{request.values['repeat']:g}"]
    if only := request.text("only"):
        words += ["--only", only]
    if request.flag("keep"):
        words += ["--keep"]
    return [words]


_FILE = InputField(name="file", title="Topology", kind="file", example="topologies/demo.yml", required=True)
_SET = InputField(name="set", title="Set", example="fabric.hosts=4 qos.preset=uec")
ACTIONS = (
    PageAction(
        name="deploy",
        title="Deploy a lab …",
        group=GROUP,
        fields=(
            _FILE,
            InputField(name="name", title="Name; empty: that of the file", example="mine"),
            _SET,
            InputField(name="reconfigure", title="Replace a lab of that name", kind="flag"),
        ),
        harms=_deploy_harms,
        command=_deploy,
    ),
    PageAction(
        name="apply",
        title="Apply its file …",
        on=("lab",),
        group=GROUP,
        fields=(
            InputField(name="file", title="Topology; empty: the file that it came from", kind="file"),
            _SET,
            InputField(name="restart", title="Processes may end and begin again", kind="flag"),
            InputField(name="recreate", title="Nodes may be made again", kind="flag"),
            InputField(name="repair", title="Bring back what was changed by hand", kind="flag"),
        ),
        harms=_apply_harms,
        command=_apply,
    ),
    PageAction(name="destroy", title="Destroy", on=("lab",), group=GROUP, harms=_destroy_harms, command=_destroy),
    PageAction(
        name="run",
        title="Run a scenario …",
        group=GROUP,
        fields=(
            InputField(
                name="file", title="Scenario", kind="file", example="scenarios/incast-trimming.yml", required=True
            ),
            InputField(name="set", title="Set", example="workload.bytes=1MB repeat.runs=1"),
            InputField(name="only", title="Only points with", example="mode=spray"),
            InputField(name="repeat", title="Repeats", kind="number"),
            InputField(name="keep", title="Leave the lab deployed", kind="flag"),
        ),
        command=_run,
    ),
)
