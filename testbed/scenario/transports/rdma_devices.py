"""RDMA devices around a run of workers: how their packets are marked, and what they counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from testbed.drivers.netlink import rdma
from testbed.plan.operations import PortPlan
from testbed.scenario.run.lab import LiveLab
from testbed.scenario.run.measured import Measured
from testbed.scenario.transports.perftest_flows import devices_of
from testbed.scenario.transports.settings import TransportSettings


class RdmaDevices:
    """Those of one run's ranks. Raises `ScenarioError` for a rank that has none, `CapabilityError` and `DriverError`
    where they cannot be told how to mark."""

    def __init__(self, lab: LiveLab, ranks: Sequence[PortPlan], settings: TransportSettings) -> None:
        self._devices = devices_of(lab.plan, ranks)
        rdma.mark_connections(self._devices.values(), settings.traffic_class)
        self._before = {device: rdma.counters(device) for device in self._devices.values()}

    def add_to(self, measured: Measured) -> Measured:
        """What was measured, with what the devices counted since: they do so for all connections together, so that
        what was sent again is told at the first channel that begins at each. UDP ports are the kernel's secret."""
        grown = {
            device: Counter(rdma.counters(device)) - Counter(before)  # nothing of a device that has gone
            for device, before in self._before.items()
        }
        told: set[str] = set()
        channels = []
        for channel in measured.channels:
            device = self._devices[channel.source.node, channel.source.interface]
            first = device not in told
            told.add(device)
            channels.append(
                replace(
                    channel,
                    source_port=None,
                    destination_port=None,
                    retransmits=grown[device]["completer_retry_err"] if first else 0,
                    packets=None,
                )
            )
        counters = {name: float(sum(item[name] for item in grown.values())) for name in rdma.RETRANSMISSIONS}
        return replace(measured, channels=channels, counters=measured.counters | counters)
