"""The management network, and the services on it, as a feature of a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from testbed.lab.core.feature import Feature, Filter


class ManagementFeature(Feature):
    """Nodes have management ports, which nftables keep apart from all others, and services run on nodes."""

    def filters(self) -> Mapping[type, Callable[[Any], Filter]]:
        from testbed.lab.features.management.apply import management_messages
        from testbed.lab.features.management.community import community_messages
        from testbed.lab.features.management.plan.management_plan import FormCommunity, GuardManagement

        def guard(operation: GuardManagement) -> Filter:
            return Filter(place=operation.node, messages=management_messages(operation))

        def form(operation: FormCommunity) -> Filter:
            return Filter(place=operation.node, messages=community_messages(operation))

        return {GuardManagement: guard, FormCommunity: form}


FEATURE = ManagementFeature()
