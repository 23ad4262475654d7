"""The service `dns`: dnsmasq on the server, which knows the name of every node of the management network."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from testbed.lab.features.management.services.asking import resolve
from testbed.lab.features.management.services.service import File, Place, Port, Service, ServiceProgram, Surroundings

USER = "dnsmasq"
HOSTS = "hosts"


def hosts_file(lab: Surroundings) -> str:
    """The nodes' names and addresses, as /etc/hosts has them: h1 and h1.LAB."""
    return "".join(f"{address} {node} {node}.{lab.lab}\n" for node, address in lab.addresses.items())


class Dns(Service):
    name = "dns"
    needs = ("dnsmasq",)
    rereads = MappingProxyType({HOSTS: "dnsmasq"})  # dnsmasq(8), NOTES

    def user(self, place: Place) -> str:
        return USER

    def files(self, place: Place) -> Mapping[str, File]:
        directory = place.directory
        lines = [
            f"listen-address={place.address}",
            "bind-interfaces",
            "no-resolv",
            "no-hosts",
            f"addn-hosts={directory / HOSTS}",
            f"domain={place.lab.lab}",
            f"local=/{place.lab.lab}/",
            "local-ttl=1",
            "log-facility=-",
            "pid-file=",
        ]
        return {"dnsmasq.conf": File(text="\n".join(lines) + "\n"), HOSTS: File(text=hosts_file(place.lab))}

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        arguments = ("dnsmasq", "--keep-in-foreground", f"--conf-file={place.directory / 'dnsmasq.conf'}")
        return (ServiceProgram(name="dnsmasq", arguments=arguments, user=USER, capabilities=("net_bind_service",)),)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="udp", number=53), Port(kind="tcp", number=53))

    def answer(self, place: Place) -> str | None:
        found = resolve(place.address, f"{place.node}.{place.lab.lab}")
        return f"{len(place.lab.addresses)} names" if found == place.address else None


SERVICE = Dns()
