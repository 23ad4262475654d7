"""The plan of carrying: who is carried, by which endpoints and with which window, for each process of the carrier."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.user_space.processes import serving_processes
from testbed.run.carrier.configuration import CarriedNic, CarrierConfiguration
from testbed.run.carrier.endpoint_settings import CarrierRefused, LabEndpoints, address_of
from testbed.run.carrier.frames import HEADER_BYTES
from testbed.run.carrier.protocol import CREDITS_PER_WINDOW

PATIENCE_S = 10.0
"""For how long a connection that is refused is asked for again, before it is reset."""
WINDOW_BDPS = 2
LEAST_WINDOW_BYTES = 1 << 16
MOST_WINDOW_BYTES = 1 << 22
MOST_PACKETS = 16
"""Packets of a message at most."""
_JOBS = 1 << 24


def sizes(bdp_bytes: int, payload_bytes: int) -> tuple[int, int]:
    """Return the window of a connection, two bandwidth-delay products within bounds, and the longest frame of data,
    whose message is whole packets."""
    window = min(MOST_WINDOW_BYTES, max(LEAST_WINDOW_BYTES, WINDOW_BDPS * bdp_bytes))
    packets = max(1, min(MOST_PACKETS, window // CREDITS_PER_WINDOW // payload_bytes))
    return window, packets * payload_bytes - HEADER_BYTES


def configure(lab: RunningLab, nics: Sequence[PortPlan], kind: str) -> list[CarrierConfiguration]:
    """Return what each process is told, hosts in turn.

    Raises `CarrierRefused` for a NIC without an IPv4 address, which its endpoint needs, and for two that have the
    same.
    """
    for nic in nics:
        if nic.address is None:
            raise CarrierRefused(f"{nic.node}:{nic.name} has no IPv4 address, which its endpoint needs")
    owner: dict[object, PortPlan] = {}
    for nic in nics:
        for address in nic.addresses:
            if (other := owner.setdefault(address, nic)) is not nic:
                raise CarrierRefused(
                    f"{other.node}:{other.name} and {nic.node}:{nic.name} both have {address}: TCP to it can be carried"
                    " to one of them only",
                    hint="carry NICs of one tenant at a time",
                )
    seen = lab.of_network(*dict.fromkeys(nic.network for nic in nics))
    endpoints = LabEndpoints(seen.model, seen.plan)
    settings = endpoints.settings(kind, nics)
    payload = min(endpoints.payload_bytes(nic, kind) for nic in nics)
    window, data_bytes = sizes(max(endpoints.bdp_bytes(nic) for nic in nics), payload)
    tick_ns = endpoints.tick_ns(nics)
    hosts = list(dict.fromkeys(nic.node for nic in nics))
    count = serving_processes(nics)
    job_id = 1 + secrets.randbelow(_JOBS - 1)
    owners = _owners(lab, hosts)
    carried = tuple(
        CarriedNic(host=nic.node, endpoint=address_of(nic), addresses=tuple(map(str, nic.addresses)), rail=nic.rail)
        for nic in nics
    )
    found = []
    for number in range(count):
        own = hosts[number::count]
        found.append(
            CarrierConfiguration(
                lab=lab.name,
                journal=str(lab.state_directory),
                kind=kind,
                job_id=job_id,
                nics=carried,
                owners=owners,
                namespaces={host: str(NETNS_DIRECTORY / lab.namespace(host)) for host in own},
                endpoints={address_of(nic): settings[address_of(nic)] for nic in nics if nic.node in own},
                tick_ns=tick_ns,
                window_bytes=window,
                data_bytes=data_bytes,
                patience_ns=round(PATIENCE_S * 1e9),
            )
        )
    return found


def _owners(lab: RunningLab, hosts: Sequence[str]) -> dict[str, str]:
    """The host of each address of these hosts, by address: programs may have bound their sockets to any."""
    plan = lab.whole.plan
    ports = [*plan.ports, *(nic for host in plan.hosts for nic in host.nics)]
    return {str(address): port.node for port in ports if port.node in hosts for address in port.addresses}
