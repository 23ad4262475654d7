"""What a person does to links: down and up, rate, delay, loss and silence, and one step that takes all of it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.base.errors import TestbedError
from testbed.base.units import Duration, Rate
from testbed.console.action import Action, Field, Undo
from testbed.lab.core.deploy.links.recorded import WireChange, read_link_state

if TYPE_CHECKING:
    from testbed.console.action import ActionRequest
    from testbed.lab.core.deploy.live import RunningLab

GROUP = "Link"
MOST_TARGETS = 64
"""Links of one action: each is a command of its own."""
_TEXTS = ("rate", "delay", "jitter", "loss", "loss_every", "corruption")
"""The fields of the dialog that are options of `link set` with a value."""


def checked_targets(request: ActionRequest) -> list[str]:
    """Return the ports, or links of scale-up domains, that are meant. Raises `TestbedError` for what the lab lacks."""
    lab = request.running
    if not request.targets:
        raise TestbedError("no link is chosen", hint="select a port or a link, and try again")
    if len(request.targets) > MOST_TARGETS:
        raise TestbedError(f"{len(request.targets)} links are too many for one step (at most {MOST_TARGETS})")
    for target in request.targets:
        _check(lab, target)
    return list(dict.fromkeys(request.targets))


def _check(lab: RunningLab, target: str) -> None:
    from testbed.lab.features.scale_up.links import find_links, names_gpu_link

    if names_gpu_link(target):
        find_links(lab.model, target)
        return
    node, _, interface = target.partition(":")
    lab.port(node, interface)


def _down(request: ActionRequest) -> list[list[str]]:
    return [["link", "down", target, "-n", request.lab] for target in checked_targets(request)]


def _up(request: ActionRequest) -> list[list[str]]:
    return [["link", "up", target, "-n", request.lab] for target in checked_targets(request)]


def _reset(request: ActionRequest) -> list[list[str]]:
    if not request.targets:
        return [["link", "reset", "--all", "-n", request.lab]]
    return [["link", "reset", target, "-n", request.lab] for target in checked_targets(request)]


def _set(request: ActionRequest) -> list[list[str]]:
    """Every impairment of the dialog in one line for each link, and a line more where its carrier is to go."""
    options = list(_options(request.values))
    carrier = str(request.values.get("carrier") or "")
    if carrier not in ("", "down", "up"):
        raise TestbedError(f"carrier {carrier}: expected down or up")
    if not options and not carrier:
        raise TestbedError("nothing to change", hint="fill in one of the fields at least")
    both = ["--both"] if request.values.get("both") else []
    commands = []
    for target in checked_targets(request):
        if options:
            commands.append(["link", "set", target, *options, *both, "-n", request.lab])
        if carrier:
            commands.append(["link", carrier, target, "-n", request.lab])
    return commands


def _options(values: Mapping[str, Any]) -> Iterator[str]:
    for name in _TEXTS:
        value = str(values.get(name) or "").strip()
        if value:
            yield from (f"--{name.replace('_', '-')}", value)
    if values.get("silent"):
        yield "--silent"


def _harms(request: ActionRequest) -> str:
    ends = len(request.targets)
    what = "a link" if ends == 1 else f"{ends} links"
    return f"Packets that are under way on {what} can be lost."


# --- taking it back ----------------------------------------------------------------------------------


def _undo(request: ActionRequest) -> Undo:
    """Return the step that brings these links back to what they are now, whoever has changed them before."""
    return Undo(action="link-restore", values={"before": changes_of(request.running, checked_targets(request))})


def changes_of(lab: RunningLab, targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what is changed now of the links at these ports, by the port that sends."""
    known = {f"{port.node}:{port.name}": port.peer for port in lab.plan.ports}
    ends = [end for target in targets if target in known for end in (target, known[target])]
    state = read_link_state(lab.state_directory).changes
    return {end: dict(state[end].named()) for end in dict.fromkeys(ends) if end in state}


def _restore(request: ActionRequest) -> list[list[str]]:
    lab, before = request.running, request.values.get("before") or {}
    targets = checked_targets(request)
    commands = [["link", "reset", target, "-n", request.lab] for target in targets]
    for end, values in sorted(before.items()):
        _check(lab, end)
        node, _, interface = end.partition(":")
        k = 1.0 if lab.port(node, interface).out_of_band else lab.record.k
        commands += restoring(end, _wire_change(end, values), k, request.lab)
    return commands


def _wire_change(end: str, values: object) -> WireChange:
    """Read what a page sends back. Raises `TestbedError` for what is no change of a link."""
    try:
        found = WireChange(**values)  # type: ignore[arg-type]  # whatever it is, it is looked at below
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
    Field(name="rate", title="Rate", example="50%, or 100G of the real fabric"),
    Field(name="delay", title="Delay, one way, in the real fabric's time", example="5us"),
    Field(name="jitter", title="Jitter", example="1us"),
    Field(name="loss", title="Loss", example="1%"),
    Field(name="loss_every", title="Lose one packet in", kind="number", example="1000"),
    Field(name="corruption", title="Corruption", example="0.1%"),
    Field(name="silent", title="Silent: the carrier stays, every packet is lost", kind="flag"),
    Field(name="both", title="In both directions", kind="flag", default=True),
    Field(name="carrier", title="Carrier", kind="choice", choices=("", "down", "up")),
)
ACTIONS = (
    Action(
        name="link-set",
        title="Impair link …",
        on=("port", "link"),
        many=True,
        key="i",
        group=GROUP,
        fields=_FIELDS,
        harms=_harms,
        command=_set,
        undo=_undo,
    ),
    Action(
        name="link-down",
        title="Take link down",
        on=("port", "link"),
        many=True,
        key="d",
        group=GROUP,
        harms=_harms,
        command=_down,
        undo=_undo,
    ),
    Action(
        name="link-up",
        title="Bring link up",
        on=("port", "link"),
        many=True,
        key="u",
        group=GROUP,
        command=_up,
        undo=_undo,
    ),
    Action(
        name="link-reset",
        title="Reset link to what is declared",
        on=("port", "link", "lab"),
        many=True,
        group=GROUP,
        command=_reset,
        undo=_undo,
    ),
    Action(name="link-restore", title="Undo", on=(), many=True, group=GROUP, command=_restore),
)
