"""The service `bmp`: pmbmpd on the server, to which every switch reports its BGP sessions and the routes it hears.

It is the monitoring station of RFC 7854. What a switch reports is in a file of its own, a JSON object a line: that a
session came up or went down, that a neighbour announced or withdrew a prefix, and counters now and then. Switches are
configured by `testbed.lab.core.render`, as `testbed.lab.features.management.plan.services` says.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.base.linux.namespaces import enter_namespace
from testbed.lab.core.plan.management_plan import STATION_PORT
from testbed.lab.features.management.plan.services import BMP as NAME
from testbed.lab.features.management.services.asking import connections, is_bound
from testbed.lab.features.management.services.service import (
    OWN,
    File,
    Place,
    Port,
    Service,
    ServiceProgram,
    Surroundings,
)

USER = "nobody"
SPARE_SESSIONS = 8
"""It is told of so many at a time: a few switches more are served without its being started anew."""


class Bmp(Service):
    name = NAME
    needs = ("pmbmpd",)

    def user(self, place: Place) -> str:
        return USER

    def prepare(self, lab: Surroundings) -> None:
        """Give the reports the names of their switches."""
        directory = lab.directory / lab.server / self.name
        directory.mkdir(parents=True, exist_ok=True)
        for node in lab.switches:
            link = directory / f"{node}.json"
            link.unlink(missing_ok=True)
            link.symlink_to(f"{OWN}/{str(lab.addresses[node]).replace('.', '_')}.json")

    def files(self, place: Place) -> Mapping[str, File]:
        lines = [
            "daemonize: false",
            f"bmp_daemon_ip: {place.address}",
            f"bmp_daemon_port: {STATION_PORT}",
            # Two megabytes each. One that lost its power stays until its connection is found dead.
            f"bmp_daemon_max_peers: {SPARE_SESSIONS * (len(place.lab.switches) // (SPARE_SESSIONS // 2) + 1)}",
            f"bmp_daemon_msglog_file: {place.own}/$bmp_router.json",
            "bmp_daemon_msglog_output: json",
        ]
        return {"pmbmpd.conf": File(text="\n".join(lines) + "\n")}

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        arguments = ("pmbmpd", "-f", str(place.directory / "pmbmpd.conf"))
        return (ServiceProgram(name="pmbmpd", arguments=arguments, user=USER),)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="tcp", number=STATION_PORT),)

    def answer(self, place: Place) -> str | None:
        if not is_bound("tcp", STATION_PORT):
            return None
        reporting = sum(_reports(place.lab, node) for node in place.lab.switches)
        return f"{reporting} of {len(place.lab.switches)} switches report"


def _reports(lab: Surroundings, node: str) -> bool:
    """Tell whether a switch has a connection to the station. The calling thread is in its network namespace afterwards:
    the station itself does not notice that a switch lost its power."""
    enter_namespace(lab.namespaces[node])
    return any(connections(lab.server_address, STATION_PORT))


SERVICE = Bmp()
