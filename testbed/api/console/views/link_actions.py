"""Actions on links: down and up, rate, delay, loss and silence, and one step that takes all of it back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.api.console.action import InputField, PageAction, Undo
from testbed.api.console.views.targets import MOST_LINKS, check_link, lab_of, links_of
from testbed.base.errors import TestbedError
from testbed.base.units import Duration, Rate
from testbed.lab.core.deploy.links.recorded import WireChange, read_link_state
from testbed.run.faults.links import link_change

if TYPE_CHECKING:
    from testbed.api.console.action import ActionRequest
    from testbed.lab.core.deploy.live import RunningLab

GROUP = "Link"
_TEXTS = ("rate", "delay", "jitter", "loss", "loss_every", "corruption")
"""The fields of the dialog that are options of `link set` with a value."""


def _down(request: ActionRequest) -> list[list[str]]:
    return [["link", "down", target, "-n", request.lab] for target in links_of(request)]


def _up(request: ActionRequest) -> list[list[str]]:
    return [["link", "up", target, "-n", request.lab] for target in links_of(request)]


def _reset(request: ActionRequest) -> list[list[str]]:
    return [["link", "reset", target, "-n", request.lab] for target in links_of(request)]


def _reset_all(request: ActionRequest) -> list[list[str]]:
    lab_of(request.source)
    return [["link", "reset", "--all", "-n", request.lab]]


def _set(request: ActionRequest) -> list[list[str]]:
    """Every impairment of the dialog in one line for each link, and a line more where its carrier is to go."""
    options, carrier = list(_options(request)), request.text("carrier")
    _check(request)
    if not options and not carrier:
        raise TestbedError("nothing to change", hint="fill in one of the fields at least")
    both = ["--both"] if request.flag("both") else []
    commands = []
    for target in links_of(request):
        if options:
            commands.append(["link", "set", target, *options, *both, "-n", request.lab])
        if carrier:
            commands.append(["link", carrier, target, "-n", request.lab])
    return commands


def _check(request: ActionRequest) -> None:
    """Raise `TestbedError` for a value that is none, while it is written; the command line decides about the rest."""
    try:
        written = {name: request.text(name) for name in _TEXTS if request.text(name)}
        if written:
            link_change(written)
    except ValueError as error:
        raise TestbedError(str(error), hint=getattr(error, "hint", None)) from error


def _options(request: ActionRequest) -> Iterator[str]:
    for name in _TEXTS:
        if value := request.text(name):
            yield from (f"--{name.replace('_', '-')}", value)
    if request.flag("silent"):
        yield "--silent"


def _harms(request: ActionRequest) -> str:
    ends = len(request.targets)
    what = "a link" if ends == 1 else f"{ends} links"
    return f"Packets that are under way on {what} can be lost."


# --- taking it back ----------------------------------------------------------------------------------


def _undo(request: ActionRequest) -> Undo:
    """Return the step that brings these links back to what they are now, whoever has changed them before."""
    before = changes_of(lab_of(request.source), links_of(request))
    return Undo(action="link-restore", values={"before": json.dumps(before)})


def changes_of(lab: RunningLab, targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what is changed now of the links at these ports, by the port that sends."""
    known = {f"{port.node}:{port.name}": port.peer for port in lab.plan.ports}
    ends = [end for target in targets if target in known for end in (target, known[target])]
    state = read_link_state(lab.state_directory).changes
    return {end: dict(state[end].named()) for end in dict.fromkeys(ends) if end in state}


def _restore(request: ActionRequest) -> list[list[str]]:
    lab = lab_of(request.source)
    commands = [["link", "reset", target, "-n", request.lab] for target in links_of(request)]
    for end, values in _before(request.text("before")):
        check_link(lab, end)
        node, _, interface = end.partition(":")
        k = 1.0 if lab.port(node, interface).out_of_band else lab.record.k
        commands += restoring(end, _wire_change(end, values), k, request.lab)
    return commands


def _before(text: str) -> list[tuple[str, Any]]:
    """Read what a page sends back of the earlier state of links. Raises `TestbedError` for what is none."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise TestbedError("this is no earlier state of links") from error
    if not isinstance(found, dict) or len(found) > 2 * MOST_LINKS:
        raise TestbedError("this is no earlier state of links")
    return sorted(found.items())


def _wire_change(end: str, values: Any) -> WireChange:
    """Read what a page sends back. Raises `TestbedError` for what is no change of a link."""
    try:
        found = WireChange(**values)
        numbers = (found.rate_bps, found.delay_ns, found.jitter_ns, found.loss, found.loss_every, found.corruption)
        if any(value is not None and (isinstance(value, bool) or value < 0) for value in numbers):
            raise ValueError
    except (TypeError, ValueError) as error:
        raise TestbedError(f"{end}: this is no earlier state of a link") from error
    return found


def restoring(end: str, change: WireChange, k: float, lab: str) -> list[list[str]]:
    """Return the commands that bring a change of a direction back which `link reset` took away.

    Times are the real fabric's on the command line, and the lab's in a change; `k` is between them.
    """
    words: list[str] = []
    if change.rate_bps is not None:
        words += ["--rate", _written(Rate(change.rate_bps)), "--lab-rate"]
    for name, time_ns in (("--delay", change.delay_ns), ("--jitter", change.jitter_ns)):
        if time_ns is not None:
            words += [name, _written(Duration(round(time_ns / k)))]
    for name, share in (("--loss", change.loss), ("--corruption", change.corruption)):
        if share is not None:
            words += [name, f"{100 * share:.10g}%"]
    if change.loss_every is not None:
        words += ["--loss-every", str(change.loss_every)]
    if change.silent is not None:
        words += ["--silent" if change.silent else "--no-silent"]
    commands = [["link", "set", end, *words, "-n", lab]] if words else []
    if change.up is False:
        commands.append(["link", "down", end, "-n", lab])
    return commands


def _written(quantity: Rate | Duration) -> str:
    """Write a quantity so that it is read as the very same: in its smallest unit where a larger one would round."""
    text = str(quantity).replace(" ", "")
    if type(quantity).parse(text) == quantity:
        return text
    return f"{quantity.value}{'bit/s' if isinstance(quantity, Rate) else 'ns'}"


_FIELDS = (
    InputField(name="rate", title="Rate", example="50%, or 100G of the real fabric"),
    InputField(name="delay", title="Delay, one way (real time)", example="5us"),
    InputField(name="jitter", title="Jitter", example="1us"),
    InputField(name="loss", title="Loss", example="1%"),
    InputField(name="loss_every", title="Lose one packet in", kind="number", example="1000"),
    InputField(name="corruption", title="Corruption", example="0.1%"),
    InputField(name="silent", title="Silent: the carrier stays, every packet is lost", kind="flag"),
    InputField(name="both", title="In both directions", kind="flag", default=True),
    InputField(name="carrier", title="Carrier", kind="choice", choices=("down", "up")),
)
_action = partial(PageAction, on=("port", "link"), many=True, group=GROUP)
ACTIONS = (
    _action(name="link-set", title="Impair link …", key="i", fields=_FIELDS, harms=_harms, command=_set, undo=_undo),
    _action(name="link-down", title="Take link down", key="d", harms=_harms, command=_down, undo=_undo),
    _action(name="link-up", title="Bring link up", key="u", command=_up, undo=_undo),
    _action(name="link-reset", title="Reset link to what is declared", command=_reset, undo=_undo),
    PageAction(name="link-reset-all", title="Reset all links", on=("lab",), group="Lab", command=_reset_all),
    PageAction(
        name="link-restore",
        title="Undo changes of links",
        many=True,
        fields=(InputField(name="before", title="Earlier state", kind="yaml"),),
        command=_restore,
    ),
)
