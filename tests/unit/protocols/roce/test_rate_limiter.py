"""The rate limiter of a queue pair when its rate changes while a packet waits."""

from random import Random

import pytest
from rnic_pair import RnicPair

from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import NIC_PACKETS
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.packets.opcodes import UDP_PORT
from testbed.protocols.roce.rate_limiter import BURST_PACKETS, RateLimiter
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, SwitchSettings
from testbed.run.simulated.transports.roce import RnicHost

MEGABIT = 1e6
PATIENCE_NS = 100_000


def test_what_is_left_of_a_wait_is_that_of_the_rate_which_there_is() -> None:
    limiter = RateLimiter(PATIENCE_NS)
    limiter.on_send(0, 0, 1000, MEGABIT)
    limiter.on_send(0, 0, 1000, MEGABIT)
    wait_ns = limiter.next_at
    assert wait_ns >= 8_000_000
    limiter.wait(0, MEGABIT)
    assert (limiter.next_at, limiter.due) == (wait_ns, PATIENCE_NS)
    half = int(wait_ns / 2)
    limiter.wait(half, 1000 * MEGABIT)
    assert limiter.next_at == pytest.approx(half + wait_ns / 2000, abs=1)
    assert limiter.due == int(limiter.next_at) + 1
    limiter.wait(half, 10 * MEGABIT)
    assert limiter.next_at == pytest.approx(half + wait_ns / 20, abs=1), "and back"


def test_a_flow_that_was_cut_to_nearly_nothing_goes_on_as_its_rate_rises() -> None:
    """At 1 Mbit/s a packet of 4 KiB takes 33 ms; the rate is back at half of the line's after 0.3 ms."""
    pair = RnicPair(RoceConfig(link_rate_bps=10_000_000_000, base_rtt_ns=12_000, parameters="nvidia", timeout=20))
    here, there = pair.connect()
    there.receive(bytearray(1 << 18), 0)
    request = here.send(bytes(1 << 18), 0)
    pair.run(lambda: here.requester.sent > 2)
    here.control.on_notification(pair.now)
    here.control.update(pair.now + 4_000)
    here.control.rate_bps = MEGABIT
    here.limiter.wait(pair.now, MEGABIT)
    pair.finish(request)
    assert pair.now < 2_000_000


def burst_after_a_wait(pair: RnicPair, *, full: bool) -> int:
    """Return how many packets leave at once at a quarter of the line's rate, when nobody has asked for any for 100 us
    since the turn was late or since (`full`) the NIC took none."""
    here, there = pair.connect()
    there.receive(bytearray(1 << 20), 0)
    here.send(bytes(1 << 20), 0)
    here.control.rate_bps = 10e9
    pair.first.transmit(0)  # up to the first packet that has to wait
    later = 100_000
    if full:
        pair.first.on_room(later)
    pair.first.handle_timer(later)
    return len(pair.first.transmit(later))


def test_what_a_full_nic_did_not_take_is_not_made_up_for() -> None:
    """In 100 us it might have sent 31 packets of 4 KiB: a late turn catches up with them, a pause has cost them."""
    config = RoceConfig(link_rate_bps=40_000_000_000, base_rtt_ns=20_000, parameters="paper", timeout=20)
    late = burst_after_a_wait(RnicPair(config), full=False)
    assert 28 <= late <= 34
    assert burst_after_a_wait(RnicPair(config), full=True) <= BURST_PACKETS + 1


def test_a_turn_that_is_late_after_a_pause_makes_up_for_itself_alone() -> None:
    limiter = RateLimiter(PATIENCE_NS)
    limiter.on_send(0, 0, 1000, 1000 * MEGABIT)
    limiter.on_send(0, 0, 1000, 1000 * MEGABIT)
    limiter.on_send(0, 0, 1000, 1000 * MEGABIT)
    limiter.wait(0, 1000 * MEGABIT)
    limiter.go_on(1_000_000, 1000, 1000 * MEGABIT)
    sent = 0
    while limiter.next_at <= 1_000_000:
        limiter.on_send(1_000_000, 900_000, 1000, 1000 * MEGABIT)
        sent += 1
    assert 12 <= sent <= 14, "12.5 packets of 8 us in 100 us, and not those of the 900 us before"


def test_a_nic_that_gets_full_while_a_flow_makes_up_for_a_late_turn_ends_that() -> None:
    """Of the 31 packets of a turn that is late by 100 us four have left; then the NIC takes none for a millisecond."""
    config = RoceConfig(link_rate_bps=40_000_000_000, base_rtt_ns=20_000, parameters="paper", timeout=20)
    pair = RnicPair(config)
    here, there = pair.connect()
    there.receive(bytearray(1 << 20), 0)
    here.send(bytes(1 << 20), 0)
    here.control.rate_bps = 10e9
    pair.first.transmit(0)
    pair.first.handle_timer(100_000)
    assert len(pair.first.transmit(100_000, 4)) == 4
    room_at = 1_100_000
    pair.first.on_room(room_at)
    pair.first.handle_timer(room_at)
    assert 1 <= len(pair.first.transmit(room_at)) <= BURST_PACKETS + 1


def test_a_flow_whose_nic_is_full_again_and_again_keeps_its_rate_whenever_there_is_room() -> None:
    """The NIC takes nothing for 50 us of every 100, and is asked each microsecond meanwhile."""
    limiter = RateLimiter(PATIENCE_NS)
    sent = room_at = 0
    for now in range(0, 10_000_000, 1000):
        if now % 100_000 < 50_000:
            room_at = now // 100_000 * 100_000 + 50_000
            continue
        if limiter.waiting and limiter.next_at <= now:
            limiter.go_on(now, 1000, 1000 * MEGABIT)
        while limiter.next_at <= now:
            limiter.on_send(now, room_at, 1000, 1000 * MEGABIT)
            sent += 1
        limiter.wait(now, 1000 * MEGABIT)
    assert 100 * 50 / 8 <= sent <= 100 * (50 / 8 + BURST_PACKETS + 1)


@pytest.mark.parametrize("ports", [1, 2])
def test_a_simulated_nic_whose_class_was_paused_goes_on_at_the_rates_of_its_flows(ports: int) -> None:
    """Two flows of a quarter of the line's rate might send 148 packets of 2 KiB in a pause of a millisecond, in which
    each port takes 12 at most. So what is held, two bursts, and what the rates allow may leave in 100 us."""
    config = RoceConfig(link_rate_bps=10_000_000_000, base_rtt_ns=20_000, mtu=2048, parameters="paper", timeout=20)
    rnics = [Rnic(address, config, Random(address), 0) for address in ("10.0.0.1", "10.0.0.2")]
    network = FabricNetwork(rnics, seed=1, overhead_bytes=42, destination_port=UDP_PORT, host=RnicHost)
    network.add_fabric_switch("switch", SwitchSettings())
    link = LinkSettings(rate_bps=10_000_000_000, delay_ns=1000)
    settings = FabricPortSettings(classes=(ClassPlan(priority=3),), priority_of=(3, 3, 3, 3, 3))
    ups = [f"{rnics[0].address} up{number}" for number in range(ports)]
    for rnic, names in zip(rnics, (ups, ["there up"]), strict=True):
        for up in names:
            network.connect(up, rnic.address, "switch", link, out=settings, into=settings)
        down = f"{rnic.address} down"
        network.connect(down, "switch", rnic.address, link, out=settings, into=settings)
        network.route("switch", rnic.address, [down])
    for number, rate_bps in ((256, 1.8e9), (257, 0.7e9)):
        here, there = (rnic.create_qp(number=number) for rnic in rnics)
        here.connect(rnics[1].address, number)
        there.connect(rnics[0].address, number)
        there.receive(bytearray(4 << 20), 0)
        here.send(bytes(4 << 20), 0)
        here.control.rate_bps = rate_bps
    network.run(until=200_000)
    for up in ups:
        network.outputs[up].pause(200_000, 3)
    network.run(until=1_200_000)
    before = sum(network.lines[up].frames for up in ups)
    held = sum(network.outputs[up].waiting for up in ups)
    assert NIC_PACKETS <= held <= ports * NIC_PACKETS
    for up in ups:
        network.outputs[up].resume(1_200_000, 3)
    network.run(until=1_300_000)
    after = sum(network.lines[up].frames for up in ups) - before
    assert held + 10 <= after <= held + 2 * BURST_PACKETS + 17
