"""The overlay and its tenants as a feature of a lab."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.lab.core.feature import EndedProcess, Feature, FeatureChange, Watch

if TYPE_CHECKING:
    from testbed.base.linux.nftables import Table
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.deploy.watch.check import CheckResult
    from testbed.lab.core.deploy.watch.events import EventStream
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan


class OverlayFeature(Feature):
    """Switches have a VRF for each tenant, and a keeper has routers that zebra loses made again."""

    def namespaces(self, lab: Lab) -> Iterable[str]:
        from testbed.lab.features.overlay.plan.planner import vrf_nodes

        return vrf_nodes(lab)

    def kept(self, old: Lab, new: Lab) -> Lab:
        if old.overlay is None or new.overlay is None:
            return new
        from testbed.lab.features.overlay.kept_vnis import keep_vnis

        return keep_vnis(old, new)

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        if running.plan.overlay == plan.overlay:
            return None
        from testbed.lab.features.overlay.change import change_overlay

        return change_overlay(running, plan)

    def after_routing(self, plan: LabPlan, state: StateDirectory, node: str | None = None) -> None:
        """Start the keeper, which may have lived in the node, and have the node's zebra announce NICs once more."""
        from testbed.lab.features.overlay.keeper import start_keeper
        from testbed.lab.features.overlay.watch import announce_again

        start_keeper(plan, state)
        for switch in plan.speakers:
            if switch.node == node:
                announce_again(plan, switch, state.run_directory(plan.lab) / node)

    def ended(self, lab: RunningLab) -> Sequence[EndedProcess]:
        """Tell of the keeper, which lives on the switch of the first VRF and ends with its power."""
        from testbed.lab.features.overlay.keeper import keeper_configuration, keeper_runs, start_keeper

        run = lab.processes_directory
        if keeper_runs(lab.plan, lab.state) or (kept := keeper_configuration(lab.plan, run, run)) is None:
            return ()
        start = partial(start_keeper, lab.plan, lab.state)
        return (EndedProcess(node=kept.vrfs[0].switch, what="keeper of the overlay", start=start),)

    def node_remade(self, lab: RunningLab, node: str) -> None:
        """End the keeper where the node has VRFs, in whose former namespaces it has its sockets."""
        from testbed.lab.features.overlay.keeper import end_keeper

        if lab.plan.overlay is not None and any(vrf.switch == node for vrf in lab.plan.overlay.vrfs):
            end_keeper(set(lab.identities.values()))

    def watch(self, plan: LabPlan, run: Path) -> Watch | None:
        from testbed.lab.features.overlay.watch import OverlayWatch

        return OverlayWatch(plan, run)

    def subscribe(self, events: EventStream, lab: RunningLab) -> None:
        from testbed.lab.features.overlay.keeper import EVENTS_FILE

        events.tell(EVENTS_FILE)

    def checks(self, lab: RunningLab) -> Sequence[tuple[str, Callable[[RunningLab], CheckResult]]]:
        if lab.plan.overlay is None:
            return ()
        from testbed.lab.features.overlay import watch_tenants

        tenants = () if lab.model.overlay is None else lab.model.overlay.tenants
        own = (("tenants", watch_tenants.check_tenants),) if any(not tenant.network for tenant in tenants) else ()
        return (("overlay", watch_tenants.check_overlay), *own, ("isolation", watch_tenants.check_isolation))

    def filters(self) -> Mapping[type, Callable[[Any], Table]]:
        from testbed.lab.core.plan.overlay_operations import SetBorder, SetPolicy
        from testbed.lab.features.overlay.policies_nft import border_messages, policy_messages

        return {SetPolicy: policy_messages, SetBorder: border_messages}


FEATURE = OverlayFeature()
