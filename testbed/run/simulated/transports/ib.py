"""InfiniBand on the simulator: the worker's own traffic, whose RNICs are the HCAs of a subnet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.endpoints.worker.datagrams.roce_traffic import RoceTraffic
from testbed.endpoints.worker.datagrams.ud_traffic import UdTraffic
from testbed.endpoints.worker.program import Program
from testbed.endpoints.worker.stack_sockets import StackLoop
from testbed.endpoints.worker.traffic import Listener, Traffic
from testbed.endpoints.worker.transports.ib import IbSettings
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.rnic import Rnic
from testbed.run.simulated.infiniband.network import HcaHost
from testbed.run.simulated.site import RunSite
from testbed.run.simulated.transport_registry import SimulatedTransport
from testbed.run.simulated.transports.roce import marking_of

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


def make_traffic(
    program: Program, site: RunSite, buffers: CollectiveBuffers | None, listener: Listener, loop: StackLoop
) -> Traffic:
    """Return the traffic of one host's program."""
    settings = program.transport
    assert isinstance(settings, IbSettings)

    def open_rnic(address: str, config: RoceConfig) -> Rnic:
        rnic = site.endpoints[address] = Rnic(address, config, site.random(address), 0)
        rnic.unlimited_bps = float(config.link_rate_bps)  # the line keeps to its own rate, and credits to less
        return rnic

    if settings.service == "ud":
        return UdTraffic(program, settings, site, open_rnic, buffers, listener)
    return RoceTraffic(program, settings, site, open_rnic, buffers, listener)


TRANSPORT = SimulatedTransport(make_traffic=make_traffic, host=HcaHost, port=0, marking_of=marking_of)
