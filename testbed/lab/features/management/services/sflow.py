"""The service `sflow`: every switch is an sFlow agent, with its address of management, and sends to one collector.

A process on the server has the agents of all (`testbed.daemons.sflow`), each with a socket in its switch's namespace.
The collector is the server, where nothing else is said; an address of loopback is this machine's own, so that a
collector that runs outside of the lab, such as sFlow-RT, gets the samples of all labs at one port.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress

from testbed.base.typed_json import encode
from testbed.daemons.kit.client import ask
from testbed.daemons.sflow.configuration import (
    CONFIGURATION,
    MACHINE_NETWORK,
    SOCKET_NAME,
    SampledPort,
    SampledSwitch,
    SflowConfiguration,
)
from testbed.lab.features.management.services.asking import TIMEOUT_S
from testbed.lab.features.management.services.service import File, Place, Port, Program, Service

_CAPABILITIES = ("sys_admin", "net_admin", "net_raw", "bpf")
"""It enters the namespaces of all switches, reads their counters, and the maps of their ports."""


class Sflow(Service):
    name = "sflow"
    needs = ()

    def files(self, place: Place) -> Mapping[str, File]:
        return {CONFIGURATION: File(text=encode(sflow_configuration(place)).decode() + "\n")}

    def programs(self, place: Place) -> tuple[Program, ...]:
        outside = sflow_configuration(place).collector.is_loopback
        return (
            Program(
                name="sflow",
                arguments=(
                    *(sys.executable, "-m", "testbed.daemons.sflow"),
                    *(str(place.directory / CONFIGURATION), str(place.own)),
                ),
                capabilities=_CAPABILITIES,
                environment=place.lab.environment,
                machine_network=MACHINE_NETWORK if outside else "",
            ),
        )

    def ports(self, place: Place) -> tuple[Port, ...]:
        return ()

    def answer(self, place: Place) -> str | None:
        with suppress(OSError, EOFError, ValueError):
            said = ask(place.own, SOCKET_NAME, {"command": "status"}, TIMEOUT_S)
            sampling = place.lab.services[self.name].sflow.sampling
            return f"{said['switches']} switches, 1 packet in {sampling}, {said['datagrams']} datagrams sent"
        return None


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
