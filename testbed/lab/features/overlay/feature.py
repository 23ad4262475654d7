"""The overlay and its tenants as a feature of a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from testbed.lab.core.feature import Feature, Filter


class OverlayFeature(Feature):
    """Switches have a VRF for each tenant, and a keeper has routers that zebra loses made again."""

    def filters(self) -> Mapping[type, Callable[[Any], Filter]]:
        from testbed.lab.features.overlay.plan.policy_operations import SetBorder, SetPolicy
        from testbed.lab.features.overlay.policies_nft import border_messages, policy_messages

        def police(operation: SetPolicy) -> Filter:
            return Filter(place=operation.node, messages=policy_messages(operation))

        def close_border(operation: SetBorder) -> Filter:
            return Filter(place=operation.node, messages=border_messages(operation))

        return {SetPolicy: police, SetBorder: close_border}


FEATURE = OverlayFeature()
