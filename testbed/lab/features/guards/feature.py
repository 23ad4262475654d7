"""The guards of access ports as a feature of a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.base.errors import CapabilityError
from testbed.lab.core.feature import Feature

if TYPE_CHECKING:
    from testbed.base.linux.nftables import Table
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan


class GuardsFeature(Feature):
    """Switches guard their ports by nftables alone: nothing runs, and the tables go with the namespaces."""

    def require(self, lab: Lab, state: StateDirectory) -> None:
        """Raise `CapabilityError` where switches are to guard their ports and the kernel has no nf_tables."""
        from testbed.lab.core.deploy.mechanisms import machine_capabilities

        asked = [name for name in lab.network_names if lab.of_network(name).guards]
        if asked and (why := machine_capabilities(state).why("filter.guards")):
            raise CapabilityError(
                f"the guards of {', '.join(asked)} need nf_tables, which this kernel lacks: {why}",
                missing="nf_tables",
                hint="guards: off deploys it without; `testbed doctor` says what the kernel has",
            )

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> None:
        """Raise `CapabilityError` where guards are new and the kernel has no nf_tables; the kernel's part is all."""
        if plan.guards and not running.plan.guards:
            self.require(lab, running.state)

    def filters(self) -> Mapping[type, Callable[[Any], Table]]:
        from testbed.lab.core.plan.operations import GuardSwitch
        from testbed.lab.features.guards.apply import guard_messages

        return {GuardSwitch: guard_messages}


FEATURE = GuardsFeature()
