"""The service `lldp`: lldpd on every node, which tells its neighbours on data links its name and port (IEEE 802.1AB).

The management port is left out: its switch is a bridge of Linux, which passes no LLDP on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from testbed.lab.features.management.services.asking import output_of
from testbed.lab.features.management.services.service import (
    SOCKET,
    File,
    Place,
    Port,
    Service,
    ServiceProgram,
    Surroundings,
)

USER = "_lldpd"
CONFIGURATION = "lldpd.conf"
INTERVAL_S = 5
_CHROOT = "/run/lldpd"
"""The directory that lldpd goes into; its name is compiled in."""


class Lldp(Service):
    name = "lldp"
    needs = ("lldpd",)
    rereads = MappingProxyType({CONFIGURATION: "lldpd"})

    def user(self, place: Place) -> str:
        return USER  # whom lldpcli becomes

    def prepare(self, lab: Surroundings) -> None:
        Path(_CHROOT).mkdir(mode=0o755, exist_ok=True)

    def files(self, place: Place) -> Mapping[str, File]:
        ports = ",".join(place.lab.data_ports.get(place.node, ())) or "!*"
        lines = f"configure lldp tx-interval {INTERVAL_S}\nconfigure system interface pattern {ports}\n"
        return {
            CONFIGURATION: File(text=lines),
            "hosts": File(text=f"127.0.0.1 localhost\n{place.address} {place.node}\n"),
        }

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        program = ServiceProgram(
            name="lldpd",
            arguments=(
                *("lldpd", "-d", "-k", "-u", str(place.own / SOCKET), "-O", str(place.directory / CONFIGURATION)),
                *("-m", str(place.address)),
            ),
            capabilities=(
                "net_admin",
                "net_raw",
                "setuid",
                "setgid",
                "sys_chroot",
                "chown",
                "fowner",
                "kill",
                "dac_override",
                "setpcap",
            ),
            hostname=True,
            confined=True,
            binds={"/etc/hosts": "hosts"},
            scratch=(_CHROOT,),
        )
        return (program,)

    def tell(self, place: Place, changed: Collection[str], pids: Mapping[str, int]) -> None:
        """Have lldpd do what its file says, which are commands of lldpcli(8)."""
        if output_of(["lldpcli", "-u", str(place.own / SOCKET), "-c", str(place.directory / CONFIGURATION)]) is None:
            raise ConnectionRefusedError(f"lldpd of {place.node} does not take its configuration")

    def ports(self, place: Place) -> tuple[Port, ...]:
        return ()

    def answer(self, place: Place) -> str | None:
        said = output_of(["lldpcli", "-u", str(place.own / SOCKET), "-f", "json0", "show", "neighbors"])
        return None if said is None else neighbours(said)


def neighbours(said: str) -> str | None:
    """Return the number of neighbours that lldpd has heard of, by what `lldpcli -f json0` says; None for what is no
    such thing."""
    try:
        found = json.loads(said)["lldp"]
    except (ValueError, KeyError):
        return None
    count = sum(len(entry.get("interface", ())) for entry in found)
    return f"{count} neighbour{'' if count == 1 else 's'}"


SERVICE = Lldp()
