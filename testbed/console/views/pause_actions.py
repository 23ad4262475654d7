"""A storm of PFC frames: a port that pauses its peer without a reason, as a broken NIC does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.console.action import Action, Field

if TYPE_CHECKING:
    from testbed.console.action import ActionRequest


def _storm(request: ActionRequest) -> list[list[str]]:
    if len(request.targets) != 1:
        raise TestbedError("a storm comes from one port", hint="select one port")
    node, _, interface = request.targets[0].partition(":")
    request.running.port(node, interface)
    duration = str(request.values.get("duration") or "").strip()
    if not duration:
        raise TestbedError("for how long?", hint="for example 2s")
    words = ["pfc", "storm", request.targets[0], "--for", duration]
    if chosen := str(request.values.get("class") or "").strip():
        words += ["--class", chosen]
    return [[*words, "-n", request.lab]]


def _harms(request: ActionRequest) -> str:
    return f"{request.targets[0]} stops what its peer sends in this class: congestion spreads from there."


ACTIONS = (
    Action(
        name="pfc-storm",
        title="PFC storm …",
        on=("port",),
        group="Link",
        fields=(
            Field(name="duration", title="For (lab time)", example="2s", default="2s", required=True),
            Field(name="class", title="Class; empty: the only lossless one", example="lossless"),
        ),
        harms=_harms,
        command=_storm,
    ),
)
