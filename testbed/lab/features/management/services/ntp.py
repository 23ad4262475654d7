"""The service `time`: chronyd on the server, which answers NTP, and on every node, which follows it (RFC 5905).

There is one clock, this machine's, and nobody sets it (`-x`): what a client measures is the way to the server, and the
offset that it finds is that way's noise. That a node is synchronised says that its server answers, and nothing of
clocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.lab.features.management.services.asking import output_of
from testbed.lab.features.management.services.service import PID, SOCKET, File, Place, Port, Service, ServiceProgram

USER = "_chrony"
STRATUM = 5
PORT = 123


class Time(Service):
    name = "time"
    needs = ("chronyd",)

    def user(self, place: Place) -> str:
        return USER

    def files(self, place: Place) -> Mapping[str, File]:
        lab = place.lab
        if place.is_server:
            lines = [f"local stratum {STRATUM}", f"allow {lab.network}", f"bindaddress {place.address}"]
        else:
            lines = [f"server {lab.server_address} iburst minpoll 0 maxpoll 4", "port 0"]
            lines += [f"bindacqaddress {place.address}"]
        lines += ["cmdport 0", f"bindcmdaddress {place.own / SOCKET}", f"pidfile {place.own / PID}"]
        return {"chrony.conf": File(text="\n".join(lines) + "\n")}

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        arguments = ("chronyd", "-U", "-x", "-n", "-u", USER, "-f", str(place.directory / "chrony.conf"))
        kept = ("net_bind_service",) if place.is_server else ()
        return (ServiceProgram(name="chronyd", arguments=arguments, user=USER, capabilities=kept, confined=True),)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="udp", number=PORT),) if place.is_server else ()

    def answer(self, place: Place) -> str | None:
        said = output_of(["chronyc", "-c", "-n", "-h", str(place.own / SOCKET), "tracking"])
        return None if said is None else synchronised(said)


def synchronised(tracking: str) -> str | None:
    """Return the state of a chronyd by what `chronyc -c tracking` says; None while it follows nobody."""
    fields = tracking.strip().split(",")
    if len(fields) < 14 or fields[2] == "0" or fields[13] == "Not synchronised":
        return None
    return f"stratum {fields[2]}"


SERVICE = Time()
