"""Targets of actions: the lab that is up, and those of its nodes and links that are meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.api.console.answers import RefusedRequest
from testbed.base.errors import TestbedError

if TYPE_CHECKING:
    from testbed.api.console.action import ActionRequest
    from testbed.api.console.sources.source import Source
    from testbed.lab.core.deploy.live import RunningLab

MOST_LINKS, MOST_NODES = 64, 16
"""Targets of one action: each is a command of its own."""


def lab_of(source: Source | None) -> RunningLab:
    """Return the lab that is up. Raises `RefusedRequest` for a record, and where none is looked at."""
    if source is None or not source.live:
        raise RefusedRequest(409, "a record is played back here, and nothing of it can be changed", code="recorded")
    return source.lab


def links_of(request: ActionRequest) -> list[str]:
    """Return the ports, or links of scale-up domains, that are meant. Raises `TestbedError` for what the lab lacks."""
    lab = lab_of(request.source)
    found = _few(request.targets, MOST_LINKS, "link")
    for target in found:
        check_link(lab, target)
    return found


def check_link(lab: RunningLab, target: str) -> None:
    """Raise `NoSuchNode` or `NoSuchScaleUpLink` for a link that a lab does not have."""
    from testbed.lab.features.scale_up.links import find_links, names_gpu_link

    if names_gpu_link(target):
        find_links(lab.model, target)
        return
    node, _, interface = target.partition(":")
    lab.port(node, interface)


def nodes_of(request: ActionRequest) -> list[str]:
    """Return the nodes that are meant. Raises as `links_of`."""
    lab = lab_of(request.source)
    return [lab.node(name).name for name in _few(request.targets, MOST_NODES, "node")]


def _few(targets: tuple[str, ...], most: int, what: str) -> list[str]:
    if not targets:
        raise TestbedError(f"no {what} is chosen", hint="select one, and try again")
    if len(targets) > most:
        raise TestbedError(f"{len(targets)} {what}s are too many for one step (at most {most})")
    return list(dict.fromkeys(targets))
