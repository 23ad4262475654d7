"""The service `console`: the page of this lab, on the server, for whoever is on the management network.

It is `testbed console` as on the command line, of this lab alone. It only looks, and so it asks for no login: what it
shows, `telemetry` tells everybody there, too.
"""

from __future__ import annotations

import sys

from testbed.lab.features.management.services.asking import greeting
from testbed.lab.features.management.services.service import Place, Port, Service, ServiceProgram

PORT = 9470


class ConsoleOfLab(Service):
    name = "console"
    needs = ("uvicorn",)
    looks_into_nodes = True

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        return (
            ServiceProgram(
                name=self.name,
                arguments=(
                    *(sys.executable, "-m", "testbed", "console", "--of-lab", place.lab.lab),
                    *("--bind", f"{place.address}:{PORT}"),
                ),
                # It enters the namespaces of all nodes, reads the maps of their ports, asks FRR's daemons, whose
                # sockets are another user's, and looks at the processes of nodes.
                capabilities=("sys_admin", "net_admin", "net_raw", "bpf", "dac_override", "sys_ptrace"),
                environment=place.lab.environment,
            ),
        )

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="tcp", number=PORT),)

    def answer(self, place: Place) -> str | None:
        return None if greeting(place.address, PORT) is None else f"http://{place.address}:{PORT}/"


SERVICE = ConsoleOfLab()
