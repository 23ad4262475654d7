"""The service `sflow`: every switch is an sFlow agent, with its address of management, and sends to one collector.

A process on the server has the agents of all (`testbed.daemons.sflow`), each with a socket in its switch's namespace.
The collector is the server, where nothing else is said; an address of loopback is this machine's own, so that a
collector that runs outside of the lab, such as sFlow-RT, gets the samples of all labs at one port.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from testbed.daemons.sflow.configuration import MACHINE_NETWORK, SampledPort, SampledSwitch, SflowConfiguration
from testbed.lab.features.management.services.service import Place, ServiceOfSwitches


class Sflow(ServiceOfSwitches):
    name = "sflow"
    needs = ()
    rereads = MappingProxyType({"sflow.json": "sflow"})
    # It enters the namespaces of all switches, reads their counters, and the maps of their ports.
    capabilities = ("sys_admin", "net_admin", "net_raw", "bpf")

    def configuration(self, place: Place) -> SflowConfiguration:
        return sflow_configuration(place)

    def machine_network(self, place: Place) -> str:
        return MACHINE_NETWORK if sflow_configuration(place).collector.is_loopback else ""

    def told(self, place: Place, said: Mapping[str, Any]) -> str:
        sampling = place.lab.services[self.name].sflow.sampling
        return f"{said['switches']} switches, 1 packet in {sampling}, {said['datagrams']} datagrams sent"


def sflow_configuration(place: Place) -> SflowConfiguration:
    """Return what the process is told."""
    lab, settings = place.lab, place.lab.services[Sflow.name].sflow
    return SflowConfiguration(
        lab=lab.lab,
        collector=settings.collector or lab.server_address,
        collector_port=settings.port,
        sampling=settings.sampling,
        polling_ns=settings.polling.ns,
        data_path=lab.data_path,
        switches=tuple(
            SampledSwitch(
                name=switch,
                namespace=lab.namespaces[switch],
                address=lab.addresses[switch],
                ports=tuple(
                    SampledPort(
                        name=port.name,
                        ifindex=port.ifindex,
                        namespace=port.namespace,
                        rate_bps=port.rate_bps,
                        number=port.number,
                    )
                    for port in lab.ports
                    if port.node == switch
                ),
            )
            for switch in lab.switches
        ),
    )


SERVICE = Sflow()
