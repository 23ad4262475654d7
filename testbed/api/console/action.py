"""Actions: what a person does to a lab from the page, by a dialog and a command line, and how it is undone.

An action does nothing that the command line does not: it has the words of a command, which the page shows, and which
are run as they stand (`testbed.api.console.tasks`) where the action has no function of its own; such a function calls
`testbed.api`. Each is kept as an event of its lab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from testbed.api.console.answers import RefusedRequest, not_found
from testbed.api.console.tasks import command_text
from testbed.base.names import known_names_hint
from testbed.lab.core.deploy.records.kept_events import keep_action

if TYPE_CHECKING:
    from testbed.api.console.console import Console
    from testbed.api.console.sources.source import Source

MOST_TARGETS = 256
_LONGEST_TARGET = 200
_LONGEST_TEXT = 4_000
_LONGEST_YAML = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InputField:
    """An input of an action's dialog."""

    name: str
    title: str
    kind: Literal["text", "number", "flag", "choice", "file", "yaml"] = "text"
    choices: tuple[str, ...] = ()
    example: str = ""
    default: Any = None
    required: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRequest:
    """An action that a person asks for: its targets (`NODE` or `NODE:IF`) and the values of its fields."""

    console: Console
    source: Source | None
    targets: tuple[str, ...]
    values: Mapping[str, Any]

    @property
    def lab(self) -> str:
        """The name of the lab; "" for an action of none."""
        return "" if self.source is None else self.source.name

    @property
    def target(self) -> str:
        """The one target. Raises `RefusedRequest` where there is another number of them."""
        if len(self.targets) != 1:
            raise RefusedRequest(400, f"one target is expected, not {len(self.targets)}")
        return self.targets[0]

    def text(self, name: str) -> str:
        """The value of a field as text without space around it; "" where it is left empty."""
        value = self.values.get(name)
        return "" if value is None else str(value).strip()

    def flag(self, name: str) -> bool:
        """The value of a box that is ticked or not."""
        return self.values.get(name) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """The action that undoes one, with its values; the targets are the same if none are named."""

    action: str
    values: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ()


Words = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAction:
    """One thing that can be done. `on` says to what: kinds of targets, or nothing.

    `command` returns the command lines, as words without the program's name. `perform` does the same in this process,
    where it is short; without it the command lines are run one after the other as a task. `harms` is the sentence that
    is asked first, "" where nothing is; and `undo` names what undoes it, as it is before the action.
    """

    name: str
    title: str
    command: Callable[[ActionRequest], Words]
    on: tuple[str, ...] = ()
    many: bool = False
    group: str = ""
    key: str = ""
    fields: tuple[InputField, ...] = ()
    harms: str | Callable[[ActionRequest], str] = ""
    perform: Callable[[ActionRequest], object] | None = None
    undo: Callable[[ActionRequest], Undo | None] | None = None
    reads: bool = False
    """It changes nothing, so that a console that only reads has it, too."""

    def to_json(self) -> dict[str, Any]:
        """Return what the page is told of it."""
        return {
            "name": self.name,
            "title": self.title,
            "on": self.on,
            "many": self.many,
            "group": self.group,
            "key": self.key,
            "fields": self.fields,
            "asks": self.harms != "",
            "undo": self.undo is not None,
            "reads": self.reads,
        }

    def harm(self, request: ActionRequest) -> str:
        """Return the sentence that is asked before it is done; "" where nothing is."""
        return self.harms if isinstance(self.harms, str) else self.harms(request)


def read_request(action: PageAction, console: Console, source: Source | None, body: Mapping[str, Any]) -> ActionRequest:
    """Make a request of what a page has sent. Raises `RefusedRequest` where it is none for this action."""
    targets, values = body.get("targets", []), body.get("values", {})
    if not isinstance(targets, list) or not all(isinstance(one, str) and _is_name(one) for one in targets):
        raise RefusedRequest(400, "targets: expected a list of names")
    if len(targets) > MOST_TARGETS:
        raise RefusedRequest(400, f"{len(targets)} targets are too many (at most {MOST_TARGETS})")
    if not isinstance(values, dict):
        raise RefusedRequest(400, "values: expected an object")
    if action.on and not targets:
        raise RefusedRequest(400, f"{action.title}: choose a {' or '.join(action.on)} first")
    if len(targets) > 1 and not action.many:
        raise RefusedRequest(400, f"{action.title}: one at a time")
    fields = {item.name: item for item in action.fields}
    for name in values:
        if name not in fields:
            raise RefusedRequest(
                400, f"{action.name} has no field {name!r}", hint=known_names_hint(str(name), list(fields))
            )
    return ActionRequest(
        console=console,
        source=source,
        targets=tuple(targets),
        values={item.name: _value(item, values.get(item.name, item.default)) for item in action.fields},
    )


def _is_name(text: str) -> bool:
    """Tell whether a target could be a name, and no option of a command line."""
    return 0 < len(text) <= _LONGEST_TARGET and not text.startswith("-") and text.isprintable() and " " not in text


def _value(item: InputField, value: Any) -> Any:
    if value is None or value == "":
        if item.required:
            hint = f"for example {item.example}" if item.example else None
            raise RefusedRequest(400, f"{item.title}: a value is needed", hint=hint)
        return value
    if item.kind == "flag":
        if not isinstance(value, bool):
            raise RefusedRequest(400, f"{item.title}: expected yes or no")
        return value
    if item.kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RefusedRequest(400, f"{item.title}: expected a number")
        return value
    if not isinstance(value, str):
        raise RefusedRequest(400, f"{item.title}: expected text")
    if len(value) > (_LONGEST_YAML if item.kind == "yaml" else _LONGEST_TEXT):
        raise RefusedRequest(413, f"{item.title}: too long")
    if item.kind != "yaml" and (value.startswith("-") or not value.isprintable()):
        raise RefusedRequest(400, f"{item.title}: {value[:40]!r} is no value")
    if item.kind == "choice" and value not in item.choices:
        raise RefusedRequest(400, f"{item.title}: {value!r} is no choice", hint=known_names_hint(value, item.choices))
    return value


def answer_action(action: PageAction, request: ActionRequest, body: Mapping[str, Any]) -> dict[str, Any]:
    """Do an action, or only tell what it would do (`dry`). Among the readers' threads.

    Raises `RefusedRequest`, and what the action does.
    """
    words = [list(line) for line in action.command(request)]
    command, harm = [command_text(line) for line in words], action.harm(request)
    if body.get("dry") is True:
        return {"command": command, "harms": harm, "undo": action.undo is not None}
    if not action.reads:
        request.console.require_write()
    if harm and body.get("confirmed") is not True:
        raise RefusedRequest(409, harm, code="confirm")
    undo = None if action.undo is None else action.undo(request)
    answer: dict[str, Any] = {"command": command, "undo": _undo_json(undo, request)}
    if not action.reads:
        _keep(request, command)
    if action.perform is None:
        task = request.console.tasks.start_all(words, title=action.title, lab=request.lab)
        return answer | {"task": task.id}
    return answer | {"done": True, "result": action.perform(request)}


def _undo_json(undo: Undo | None, request: ActionRequest) -> dict[str, Any] | None:
    if undo is None:
        return None
    return {"action": undo.action, "targets": undo.targets or request.targets, "values": undo.values}


def _keep(request: ActionRequest, command: Sequence[str]) -> None:
    """Keep an action as an event of its lab, before it is done: whoever looks finds it, however it ends."""
    if request.source is None or not request.source.live:
        return
    directory = request.console.state.lab_directory(request.lab)
    node, _, subject = request.targets[0].partition(":") if len(request.targets) == 1 else ("", "", "")
    keep_action(directory, request.lab, node, subject, "; ".join(command))


def find_action(actions: Mapping[str, PageAction], name: str) -> PageAction:
    """Raises `RefusedRequest` with the names that there are."""
    if name not in actions:
        raise not_found(f"there is no action {name!r}", known_names_hint(name, list(actions)))
    return actions[name]
