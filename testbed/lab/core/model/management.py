"""The services of the management network: which there are, where each runs, and what a file may say of it.

The keys of a topology file are made of this table (`testbed.lab.features.management.services_schema`), and what a
service is made of is in `testbed.lab.features.management.services`, which has a module for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address
from types import MappingProxyType

from testbed.base.units import Duration


class RunsOn(StrEnum):
    """The nodes that run a service."""

    SERVER = "server"
    """The server of the management network alone."""
    NODES = "nodes"
    """Every node of it that is a network namespace, the server among them."""
    MANAGED = "managed"
    """All of these but the server."""
    HOSTS = "hosts"
    """The server, and every host that is a network namespace."""

    def includes(self, node: str, server: str, *, host: bool) -> bool:
        """Tell whether a node is one of them; `host`: it is a host of the fabric."""
        match self:
            case RunsOn.NODES:
                return True
            case RunsOn.HOSTS:
                return host or node == server
            case _:
                return (node == server) is (self is RunsOn.SERVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceKind:
    """A service that there is: where it runs, and what is said of its key in a topology file.

    `needs` are other services that it is nothing without. `module` is the one in `services` that has it, where that is
    not called as the service is.
    """

    runs_on: RunsOn
    description: str
    needs: tuple[str, ...] = ()
    module: str = ""


SERVICES: Mapping[str, ServiceKind] = MappingProxyType(
    {
        "ssh": ServiceKind(
            runs_on=RunsOn.NODES, description="Has sshd on every node, which lets in who has the lab's key."
        ),
        "dns": ServiceKind(
            runs_on=RunsOn.SERVER, description="Has dnsmasq on the server answer with the addresses of all nodes."
        ),
        "dhcp": ServiceKind(
            runs_on=RunsOn.SERVER, description="Has dnsmasq on the server lease each node its address, by its MAC."
        ),
        "time": ServiceKind(
            runs_on=RunsOn.NODES,
            description="Has chronyd on every node follow the one on the server by NTP.",
            module="ntp",
        ),
        "syslog": ServiceKind(
            runs_on=RunsOn.NODES, description="Has rsyslogd on the server collect the logs of every node."
        ),
        "telemetry": ServiceKind(
            runs_on=RunsOn.SERVER, description="Has Prometheus on the server ask for the counters of every node."
        ),
        "sflow": ServiceKind(
            runs_on=RunsOn.SERVER,
            description="Has every switch send sFlow: packets that it sampled or dropped, and its counters.",
        ),
        "gnmi": ServiceKind(
            runs_on=RunsOn.SERVER,
            description="Has every switch answer gNMI: OpenConfig's interfaces, queues and BGP, to be read.",
        ),
        "console": ServiceKind(
            runs_on=RunsOn.SERVER,
            description="Has the page of `testbed console` on the server, of this lab alone and to be looked at.",
        ),
        "lldp": ServiceKind(
            runs_on=RunsOn.MANAGED, description="Has lldpd on every node tell its neighbours who it is."
        ),
        "redfish": ServiceKind(
            runs_on=RunsOn.SERVER,
            description="Has a BMC on the server switch the power of hosts and switches (sushy-tools).",
        ),
        "bmp": ServiceKind(
            runs_on=RunsOn.SERVER,
            description="Has pmbmpd on the server collect what every switch reports of BGP (RFC 7854).",
        ),
        "aaa": ServiceKind(
            runs_on=RunsOn.SERVER,
            description="Has freeradius on the server decide who may log in to switches.",
            needs=("ssh",),
        ),
        "slurm": ServiceKind(
            runs_on=RunsOn.HOSTS,
            description="Has Slurm's controller on the server start batch jobs on hosts (slurmctld, slurmd).",
        ),
    }
)
"""All services, in the order in which they are started and listed."""

SLURMD_PORT = 6818
"""The TCP port at which hosts are told to start tasks (slurm.conf(5), SlurmdPort)."""
SLURM_CLIENT_PORTS = range(0xEC00, 0xEE00)
"""TCP ports at which Slurm's clients wait for the output of tasks (SrunPortRange): all those under one mask."""
SLURM_PMI_PORTS = range(0x8000, 0x10000)
"""TCP ports of which the kernel gives srun one for PMI-2, by which ranks of MPI find each other (32768 and up,
ip_local_port_range): it asks for any, whatever SrunPortRange says (Slurm's src/plugins/mpi/pmi2/setup.c). Those of
clients are among them."""

SCRAPE_INTERVAL = Duration.parse("5s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SflowSettings:
    """The sFlow of switches: to which collector (None: the server of the management network), and how often.

    One packet in `sampling` is sampled, and the counters of each port are sent once in `polling`.
    """

    collector: IPv4Address | None = None
    port: int = 6343
    sampling: int = 400
    polling: Duration = field(default_factory=lambda: Duration.parse("10s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementService:
    """A service that a lab has. `interval` is that of telemetry: how often counters are asked for."""

    name: str
    interval: Duration = SCRAPE_INTERVAL
    sflow: SflowSettings = field(default_factory=SflowSettings)
