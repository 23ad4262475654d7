"""The service `dhcp`: dnsmasq on the server, which leases to each management port the address that the plan gives it.

Nodes have their addresses already: leases are for what boots on a node's port, as a server does by PXE. Who has a MAC
that the plan does not know gets nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from testbed.lab.features.management.services.asking import is_bound
from testbed.lab.features.management.services.service import File, Place, Port, Service, ServiceProgram

USER = "dnsmasq"
HOSTS = "hosts"
LEASES = "leases"
LEASE = "1h"
PORT = 67


class Dhcp(Service):
    name = "dhcp"
    needs = ("dnsmasq",)
    rereads = MappingProxyType({HOSTS: "dnsmasq"})  # dnsmasq(8), NOTES

    def user(self, place: Place) -> str:
        return USER

    def files(self, place: Place) -> Mapping[str, File]:
        lab = place.lab
        lines = [
            "port=0",  # no DNS
            f"interface={lab.interfaces[place.node]}",
            "except-interface=lo",
            "bind-interfaces",
            f"domain={lab.lab}",
            f"dhcp-range={lab.network.network_address},static,{lab.network.netmask},{LEASE}",
            f"dhcp-hostsfile={place.directory / HOSTS}",
            "dhcp-ignore=tag:!known",
            "dhcp-option=option:router",  # none: nothing is behind the management network
            *(
                [f"dhcp-option=option:dns-server,{place.address}"]
                if place.has("dns")
                else ["dhcp-option=option:dns-server"]
            ),
            *([f"dhcp-option=option:ntp-server,{place.address}"] if place.has("time") else []),
            f"dhcp-leasefile={place.own / LEASES}",
            "log-dhcp",
            "log-facility=-",
            "pid-file=",
        ]
        hosts = [
            f"{lab.macs[node]},{node},{address},{LEASE}\n"
            for node, address in lab.addresses.items()
            if node != place.node
        ]
        return {"dnsmasq.conf": File(text="\n".join(lines) + "\n"), HOSTS: File(text="".join(hosts))}

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        program = ServiceProgram(
            name="dnsmasq",
            arguments=("dnsmasq", "--keep-in-foreground", f"--conf-file={place.directory / 'dnsmasq.conf'}"),
            user=USER,
            # It puts the client into the ARP table, and looks by ICMP whether an address is free.
            capabilities=("net_bind_service", "net_admin", "net_raw"),
        )
        return (program,)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="udp", number=PORT),)

    def answer(self, place: Place) -> str | None:
        if not is_bound("udp", PORT):
            return None
        leases = place.own / LEASES
        count = len(leases.read_text().splitlines()) if leases.exists() else 0
        return f"{count} lease{'' if count == 1 else 's'}"


SERVICE = Dhcp()
