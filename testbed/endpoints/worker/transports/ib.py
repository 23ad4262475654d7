"""Transfers over InfiniBand: what a host is told of them, and its queue pairs on the HCAs of a subnet that is up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from testbed.base.program_errors import TrafficError
from testbed.endpoints.loop import Loop
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program
from testbed.endpoints.worker.traffic import Listener, Traffic
from testbed.endpoints.worker.transport_registry import WorkerTransport
from testbed.endpoints.worker.transports.roce import RoceSettings
from testbed.protocols.infiniband.local_routing import DEFAULT_PKEY
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.rnic import Rnic

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers

SERVICES = ("rc", "ud")
"""Reliable connections, or datagrams."""
Lid = Annotated[int, Meta(ge=1, lt=0xC000)]
Pkey = Annotated[int, Meta(ge=0, lt=1 << 16)]


@dataclass(frozen=True, slots=True, kw_only=True)
class IbSettings(RoceSettings):
    """The settings of RoCE's queue pairs, the service that carries transfers, and HCAs by the addresses that programs
    know them by."""

    kind: ClassVar[str] = "ib"
    service: Annotated[str, Meta(pattern="^(rc|ud)$")] = SERVICES[0]
    """One of `SERVICES`."""
    hcas: Mapping[str, str] = field(default_factory=dict)
    """The socket of each own HCA; none in virtual time."""
    lids: Mapping[str, Lid] = field(default_factory=dict)
    """The LIDs of those that own HCAs have channels with."""
    pkeys: Mapping[str, Mapping[str, Pkey]] = field(default_factory=dict)
    """By own address and another one: the P_Key of packets, where that is not the default one."""


def _make_traffic(
    program: Program, loop: WatchingLoop, buffers: CollectiveBuffers | None, listener: Listener
) -> Traffic:
    from testbed.endpoints.infiniband.hca_port import Peer
    from testbed.endpoints.infiniband.hosting import HcaHosting
    from testbed.endpoints.worker.datagrams.hosting import agent_seed
    from testbed.endpoints.worker.datagrams.roce_traffic import RoceTraffic
    from testbed.endpoints.worker.datagrams.ud_traffic import UdTraffic

    settings = program.transport
    assert isinstance(settings, IbSettings)
    if not isinstance(loop, Loop):
        raise TrafficError("this worker was started for another transport: its loop does not know datagrams")
    hosting = HcaHosting(agent_seed(program), loop, settings.tick_ns, listener.on_failed)

    def open_rnic(address: str, config: RoceConfig) -> Rnic:
        if address not in settings.hcas:
            raise TrafficError(f"{address} is no HCA of a subnet that has wires")
        pkeys = settings.pkeys.get(address, {})
        peers = {
            other: Peer(lid=lid, pkey=pkeys.get(other, DEFAULT_PKEY))
            for other, lid in settings.lids.items()
            if other != address
        }
        return hosting.open_rnic(address, config, Path(settings.hcas[address]), peers)

    traffic = UdTraffic if settings.service == "ud" else RoceTraffic
    return traffic(program, settings, hosting, open_rnic, buffers, listener)


TRANSPORT = WorkerTransport(settings=IbSettings, make_traffic=_make_traffic)
