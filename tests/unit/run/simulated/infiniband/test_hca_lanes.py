"""HCAs of a simulated subnet whose lanes have no credits for a while."""

from random import Random

from testbed.protocols.datagram import Outgoing
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.rate_limiter import BURST_PACKETS
from testbed.protocols.roce.rnic import Rnic
from testbed.run.simulated.infiniband.network import LANE_FRAMES, HcaHost, SubnetNetwork

QUIET_NS, HELD_NS = 200_000, 1_000_000
RATES_BPS = (1.8e9, 0.7e9)
STEP_NS = 800
"""Between two frames that leave, of a lane that carries 20 Gbit/s."""


def test_flows_whose_lane_had_no_credits_go_on_at_their_rates() -> None:
    """Two flows that wait for their rates are held up for a millisecond, in which they might have sent 152 packets.
    Then a burst of each may go, and what the rates allow."""
    config = RoceConfig(link_rate_bps=40_000_000_000, base_rtt_ns=20_000, mtu=2048, parameters="paper", timeout=20)
    rnics = [Rnic(address, config, Random(address), 0) for address in ("10.0.0.1", "10.0.0.2")]
    network = SubnetNetwork(rnics, seed=1, hosts={rnic.address: HcaHost for rnic in rnics})
    host = network.nics["10.0.0.1"]
    assert isinstance(host, HcaHost)
    left: list[int] = []
    waiting: list[int] = []

    def carry(sender: HcaHost, outgoing: Outgoing, now: int) -> None:
        waiting.append(now)
        sender.occupy(0)

    def let_go(now: int) -> None:
        """A frame that waits leaves: there are credits."""
        if waiting:
            waiting.pop()
            left.append(now)
            host.leave(0, now)
        host.resume(now)

    host.carry = carry
    for number, rate_bps in enumerate(RATES_BPS, 256):
        here, there = (rnic.create_qp(number=number) for rnic in rnics)
        here.connect(rnics[1].address, number)
        there.connect(rnics[0].address, number)
        there.receive(bytearray(4 << 20), 0)
        here.send(bytes(4 << 20), 0)
        here.control.rate_bps = rate_bps
    host.resume(0)
    again = QUIET_NS + HELD_NS
    for when in (*range(0, QUIET_NS, STEP_NS), *range(again, again + 100_000, STEP_NS)):
        network.at(when, let_go)
    network.run(until=again - 1)
    assert len(waiting) == LANE_FRAMES, "the lane takes no more"
    before = len(left)
    network.run(until=again + 100_000)
    allowed = 100_000 * sum(RATES_BPS) / 8e9 / 2048
    assert 0.8 * allowed <= len(left) - before <= allowed + 2 * (BURST_PACKETS + 1) + LANE_FRAMES
