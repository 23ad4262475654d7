"""The environment of commands that users run in a node: what clients of its services need to find them.

It stands by itself, since every `exec` asks, and most labs have no services whose modules would have to be loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab


def service_environment(lab: RunningLab, node: str) -> dict[str, str]:
    """Return the variables that clients of the services of a node need, where users run them there."""
    network = lab.model.out_of_band
    if network is None or not network.services or lab.runtime(node) is not None:
        return {}
    from testbed.lab.features.management.services.registry import REGISTRY
    from testbed.lab.features.management.services_apply import service_places

    places = service_places(lab.model, lab.plan, lab.state)
    found: dict[str, str] = {}
    for place in places:
        if place.node == node:
            found |= REGISTRY[place.service].environment(place)
    return found
