"""One run over an InfiniBand subnet in virtual time: the programs of any simulated run, whose packets HCAs send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.endpoints.worker.program import Program
from testbed.lab.core.model import InfinibandFabric
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.subnet_loads import subnet_load
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.subnet import ends_of, port_counters, require_lids
from testbed.run.placed.traffic import RunTraffic
from testbed.run.simulated.beside import Beside
from testbed.run.simulated.counters import QueueSampler
from testbed.run.simulated.execution import Execution, SimulatedRun, without_collector
from testbed.run.simulated.fabric import SimulatedFabric
from testbed.run.simulated.infiniband.carrier import SubnetCarrier
from testbed.run.simulated.infiniband.faults import SUBNET_NS, SubnetHappening
from testbed.run.simulated.infiniband.network import HcaHost, SubnetNetwork
from testbed.run.simulated.infiniband.subnets import build_data_path, subnet_of
from testbed.run.transports.lab_transport import LabTransport, address_of

if TYPE_CHECKING:
    from testbed.run.simulated.beside import Happening


def execute_subnet(
    lab: LiveLab,
    transport: LabTransport,
    traffic: RunTraffic,
    *,
    limit_s: float,
    on_progress: Callable[[float], bool],
    beside: Beside,
    data_limit_bytes: int,
) -> SimulatedRun:
    """Run the traffic of one run over the subnet of a lab; as `run.simulated.execution.execute`.

    A run in which no frame can move any more, since each waits for another one's buffer, ends there, and its load says
    so. Raises `TestbedError` where OpenSM is missing or refuses the fabric, and `ScenarioError` for ranks that are in
    no partition together, or not in its subnet.
    """
    with without_collector():
        return SubnetExecution(lab, transport, traffic, limit_s, on_progress, data_limit_bytes).run(beside)


class SubnetExecution(Execution):
    """One run, step by step."""

    _carrier: SubnetCarrier | None = None

    def run(self, beside: Beside) -> SimulatedRun:
        try:
            return super().run(beside)
        finally:
            if self._carrier is not None:
                self._carrier.path.close()

    @property
    def _fabric(self) -> InfinibandFabric:
        found = self._lab.model.infiniband
        assert found is not None
        return found

    def _build_network(self, plans: Mapping[str, Program]) -> SimulatedFabric:
        endpoints = list(self._site.endpoints.values())
        network = SubnetNetwork(
            endpoints, seed=self._traffic.seed, hosts={endpoint.address: HcaHost for endpoint in endpoints}
        )
        nics = {address_of(nic): f"{nic.node}:{nic.name}" for nic in self._traffic.placement.nics}
        names = {address: nics[address] for address in network.nics}
        subnet = subnet_of(self._fabric)
        require_lids(subnet, names.values())
        self._carrier = SubnetCarrier(network, build_data_path(self._fabric, subnet), subnet, names)
        for plan in plans.values():
            for channel in plan.channels:
                ends = (self._traffic.placement.nics[rank] for rank in (channel.source, channel.destination))
                self._carrier.require_route(*map(address_of, ends))
        return SimulatedFabric(network=network, k=self._lab.plan.k)

    def _happening(self, beside: Beside, fabric: SimulatedFabric) -> Happening:
        network, carrier = fabric.network, self._carrier
        assert isinstance(network, SubnetNetwork)
        assert carrier is not None
        return SubnetHappening(  # type: ignore[return-value]  # it has all that is asked of one
            beside.faults,
            carrier,
            network,
            self._fabric,
            subnet_ns=beside.convergence_ns.get("subnet", SUBNET_NS),
            begin_ns=self._begin_ns,
        )

    @property
    def _is_stuck(self) -> bool:
        return self._carrier is not None and self._carrier.deadlocked_ns is not None

    def _is_over(self) -> bool:
        return self._is_stuck or super()._is_over()

    def _settle(self, fabric: SimulatedFabric) -> None:
        if not self._is_stuck:
            super()._settle(fabric)

    def _time_over(self, measured: Measured) -> TestbedError | None:
        """Find nothing wrong with a run that a deadlock has ended: that is what it shows."""
        return None if self._is_stuck else super()._time_over(measured)

    def _observe(self, fabric: SimulatedFabric, sampler: QueueSampler | None, run: SimulatedRun) -> None:
        super()._observe(fabric, sampler, run)
        carrier, observation = self._carrier, run.measured.observation
        assert carrier is not None
        readings, stuck = carrier.path.readings(), carrier.deadlocked_ns
        observation.sent = port_counters(readings, ends_of(self._fabric))
        observation.subnet = subnet_load(
            readings,
            engine=carrier.subnet.engine,
            vls=carrier.subnet.vls,
            frames=carrier.hops,
            lost=carrier.lost,
            deadlock=None if stuck is None else (carrier.in_flight, max(0, stuck - self._begin_ns) / 1e9),
            elapsed_s=max(0, fabric.network.now - self._begin_ns) / 1e9,
        )
