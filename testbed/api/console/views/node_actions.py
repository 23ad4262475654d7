"""Actions on nodes: power, restart and recreate, and the end of a daemon."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from testbed.api.console.action import InputField, PageAction, Undo
from testbed.api.console.views.targets import nodes_of

if TYPE_CHECKING:
    from testbed.api.console.action import ActionRequest

GROUP = "Node"
DAEMONS = ("bgpd", "zebra", "bfdd")


def _commands(request: ActionRequest, *, verb: str, word: str) -> list[list[str]]:
    return [[verb, word, node, "-n", request.lab] for node in nodes_of(request)]


def _kill(request: ActionRequest) -> list[list[str]]:
    return [["node", "kill", node, request.text("daemon"), "-n", request.lab] for node in nodes_of(request)]


def _told(request: ActionRequest, sentence: str) -> str:
    names = ", ".join(request.targets[:3]) + (" and others" if len(request.targets) > 3 else "")
    return f"{names}: {sentence}"


_OFF = partial(_told, sentence="its links go down at once, and all its processes are killed.")
_RESET = partial(_told, sentence="it loses its power for a moment, and all that runs in it.")
_RESTART = partial(_told, sentence="what runs in it ends and begins again; sessions end, its links stay up.")
_RECREATE = partial(_told, sentence="it is made anew. What somebody started or wrote in it is gone.")
_KILL = partial(_told, sentence="its sessions end, and its routes go.")


def _power_undo(_: ActionRequest, *, action: str) -> Undo:
    return Undo(action=action)


_action = partial(PageAction, on=("node",), many=True, group=GROUP)

ACTIONS = (
    _action(
        name="power-off",
        title="Power off",
        key="o",
        harms=_OFF,
        command=partial(_commands, verb="power", word="off"),
        undo=partial(_power_undo, action="power-on"),
    ),
    _action(name="power-on", title="Power on", command=partial(_commands, verb="power", word="on")),
    _action(
        name="power-reset",
        title="Power cycle",
        harms=_RESET,
        command=partial(_commands, verb="power", word="reset"),
    ),
    _action(
        name="node-restart",
        title="Restart",
        harms=_RESTART,
        command=partial(_commands, verb="node", word="restart"),
    ),
    _action(
        name="node-recreate",
        title="Recreate",
        harms=_RECREATE,
        command=partial(_commands, verb="node", word="recreate"),
    ),
    _action(
        name="daemon-kill",
        title="Kill a daemon …",
        fields=(InputField(name="daemon", title="Daemon", kind="choice", choices=DAEMONS, default=DAEMONS[0]),),
        harms=_KILL,
        command=_kill,
        undo=partial(_power_undo, action="node-restart"),
    ),
)
