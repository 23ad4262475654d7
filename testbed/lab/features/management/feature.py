"""The management network, and the services on it, as a feature of a lab."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.base.cleanup import on_failure
from testbed.base.errors import CapabilityError
from testbed.lab.core.feature import Deployment, EndedProcess, Feature, FeatureChange, Started

if TYPE_CHECKING:
    from testbed.base.linux.nftables import Table
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.deploy.steps import StepCallback
    from testbed.lab.core.deploy.watch.check import CheckResult
    from testbed.lab.core.deploy.watch.events import EventStream
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan
    from testbed.lab.features.management.services.launcher import ServiceLauncher


class _Started(Started):
    def __init__(self, launcher: ServiceLauncher, count: int) -> None:
        self._launcher = launcher
        self._count = count

    def wait(self, timeout_s: float, notify: StepCallback) -> None:
        from testbed.lab.core.deploy.steps import step

        with step("services", notify, f"{self._count} on nodes"):
            self._launcher.wait(timeout_s)

    def release(self) -> None:
        self._launcher.release()


class ManagementFeature(Feature):
    """Nodes have management ports, which nftables keep apart from all others, and services run on nodes."""

    def require(self, lab: Lab, state: StateDirectory) -> None:
        """Raise `CapabilityError` where this machine's kernel cannot keep management ports apart from others.

        Raises `PlanError` where packages of services are missing.
        """
        network = lab.management
        if network is None:
            return
        from testbed.lab.core.deploy.mechanisms import machine_capabilities
        from testbed.lab.features.management.services_apply import require_services

        able = machine_capabilities(state)
        if why := able.why("filter.management") or able.why("filter.guards"):
            raise CapabilityError(
                f"the management network {network.name} needs nf_tables, which this kernel lacks: {why}",
                missing="nf_tables",
                hint=f"remove networks.{network.name}; `testbed doctor` says what the kernel has",
            )
        require_services(lab)

    def filters(self) -> Mapping[type, Callable[[Any], Table]]:
        from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement
        from testbed.lab.features.management.apply import management_messages
        from testbed.lab.features.management.community import community_messages

        return {GuardManagement: management_messages, FormCommunity: community_messages}

    def start(self, deployment: Deployment) -> Started | None:
        if not deployment.plan.services:
            return None
        from testbed.lab.features.management.services.launcher import ServiceLauncher
        from testbed.lab.features.management.services_apply import service_places, start_services

        places = service_places(deployment.lab, deployment.plan, deployment.state)
        deployment.await_directory()
        launcher = ServiceLauncher()
        with on_failure(launcher.release):
            start_services(launcher, places, deployment.directory, deployment.journal)
        return _Started(launcher, len(places))

    def kept(self, old: Lab, new: Lab) -> Lab:
        if old.out_of_band is None or new.out_of_band is None:
            return new
        from testbed.lab.features.management.fabric import keep_places

        return keep_places(old, new)

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        if running.plan.management is None and plan.management is None:
            return None
        from testbed.lab.features.management.change import services_change

        return services_change(running, lab, plan)

    def start_node(self, lab: RunningLab, node: str) -> None:
        from testbed.lab.features.management.services_apply import service_places, start_places

        places = service_places(lab.model, lab.plan, lab.state)
        start_places([place for place in places if place.node == node])

    def ended(self, lab: RunningLab) -> Sequence[EndedProcess]:
        if not lab.plan.services:
            return ()
        from testbed.lab.features.management.revival import ended_services

        return ended_services(lab)

    def node_remade(self, lab: RunningLab, node: str) -> None:
        if lab.plan.services:
            from testbed.lab.features.management.revival import restart_looking_in

            restart_looking_in(lab, node)

    def subscribe(self, events: EventStream, lab: RunningLab) -> None:
        if lab.plan.services:
            from testbed.lab.features.management.services_apply import follow_services

            follow_services(events, lab)

    def checks(self, lab: RunningLab) -> Sequence[tuple[str, Callable[[RunningLab], CheckResult]]]:
        return tuple(_checks(lab))


def _checks(lab: RunningLab) -> Iterator[tuple[str, Callable[[RunningLab], CheckResult]]]:
    from testbed.lab.features.management import watch

    if lab.plan.management is not None and watch.management_ports(lab.plan):
        yield "management", watch.check_management
        yield f"path mtu, {lab.plan.management.network}", watch.check_management_mtu
    if lab.plan.services:
        yield "services", watch.check_services


FEATURE = ManagementFeature()
