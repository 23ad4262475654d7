"""A storm of PFC frames: a port that pauses its peer without a reason, as a broken NIC does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.api.console.action import InputField, PageAction
from testbed.api.console.views.targets import links_of

if TYPE_CHECKING:
    from testbed.api.console.action import ActionRequest


def _storm(request: ActionRequest) -> list[list[str]]:
    (port,) = links_of(request)
    words = ["pfc", "storm", port, "--for", request.text("duration")]
    if chosen := request.text("class"):
        words += ["--class", chosen]
    return [[*words, "-n", request.lab]]


def _harms(request: ActionRequest) -> str:
    return f"{request.target} stops what its peer sends in this class: congestion spreads from there."


ACTIONS = (
    PageAction(
        name="pfc-storm",
        title="PFC storm …",
        on=("port",),
        group="Link",
        fields=(
            InputField(name="duration", title="For (lab time)", example="2s", default="2s", required=True),
            InputField(name="class", title="Class; empty: the only lossless one", example="lossless"),
        ),
        harms=_harms,
        command=_storm,
    ),
)
