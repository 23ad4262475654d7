"""Lanes whose credits leak, lanes that wait for each other in a circle, and frames that are seen at a port."""

import dataclasses

import pytest
from formula_subnets import fat_tree, hca, ring
from saturated import DELAY_NS, FRAME_BYTES, FRAME_NS, Saturated, data_path, header
from virtual_domain import Closing

from testbed.protocols.errors import UsageError
from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.data_path import SubnetDataPath, VirtualLane, circle_words
from testbed.protocols.infiniband.local_routing import compute_vcrc
from testbed.protocols.infiniband.subnet import Subnet

ONE, OTHER = (hca(0, 0), hca(1, 0)), (hca(0, 1), hca(1, 1))
UPLINK = ("leaf0", 3)
"""The one of a leaf with two HCAs and a spine."""
BLOCKS = -(-FRAME_BYTES // binding.BLOCK_BYTES)


def two_lanes() -> Subnet:
    return dataclasses.replace(fat_tree(2, 2, 1), vls=2, sl2vl=tuple(sl % 2 for sl in range(16)))


def waited_ns(path: SubnetDataPath, vl: int) -> int:
    return path.lane(*UPLINK, vl)["xmit_wait_ns"]


def test_a_lane_without_credits_stops_and_holds_up_no_other(closing: Closing) -> None:
    subnet = two_lanes()
    path = closing(data_path(subnet))
    path.set_leak(*UPLINK, 1, 1.0)
    sending = Saturated(path, subnet, [ONE, OTHER], {OTHER: 1})
    found = sending.run(400)
    assert found.share(ONE) == pytest.approx(1.0, abs=0.02)
    assert not found.by_pair[OTHER]
    path.pass_time(400 * FRAME_NS)
    assert waited_ns(path, 1) == pytest.approx(400 * FRAME_NS, rel=0.02), "PortVLXmitWait rises all the time"
    assert waited_ns(path, 0) < 0.2 * waited_ns(path, 1)
    path.set_leak(*UPLINK, 1, 0.0)
    found = sending.run(800)
    assert found.share(OTHER) == pytest.approx(0.5, abs=0.02), "it has its credits again"
    assert not found.lost


def test_a_lane_with_credits_for_one_frame_sends_one_in_the_time_of_a_credit(closing: Closing) -> None:
    """A frame is on the link, is stored, leaves at once, and its credit comes back with the next update."""
    subnet = fat_tree(2, 1, 1)
    path = closing(data_path(subnet, frames=10))
    path.set_leak("leaf0", 2, 0, 0.9)
    found = Saturated(path, subnet, [(hca(0, 0), hca(1, 0))]).run(2000)
    between_ns = FRAME_NS + 2 * DELAY_NS
    assert found.share((hca(0, 0), hca(1, 0))) == pytest.approx(FRAME_NS / between_ns, rel=0.03)
    assert found.share((hca(0, 0), hca(1, 0))) < 0.5


def test_a_link_that_has_been_down_has_all_credits(closing: Closing) -> None:
    subnet = fat_tree(2, 1, 1)
    path = closing(data_path(subnet))
    path.set_leak("leaf0", 2, 0, 1.0)
    sending = Saturated(path, subnet, [(hca(0, 0), hca(1, 0))])
    assert not sending.run(100).by_pair
    path.set_link("leaf0", 2, False)
    path.set_link("leaf0", 2, True)
    assert sending.run(400).share((hca(0, 0), hca(1, 0))) > 0.7


def test_what_leaks_nowhere_is_refused(closing: Closing) -> None:
    path = closing(data_path(fat_tree(2, 1, 1)))
    for place in (("leaf0", 9, 0), ("leaf0", 1, 1)):
        with pytest.raises(UsageError):
            path.set_leak(*place, 0.5)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError, match="a share of the credits"):
            path.set_leak("leaf0", 1, 0, share)


def test_a_lane_without_credits_is_no_deadlock(closing: Closing) -> None:
    subnet = fat_tree(2, 2, 1)
    path = closing(data_path(subnet))
    path.set_leak(*UPLINK, 0, 1.0)
    found = Saturated(path, subnet, [ONE, OTHER]).run(400)
    assert found.is_stuck, "nothing is due any more"
    assert path.deadlock() == (), "whoever gives the credits back sets all in motion"


@pytest.mark.parametrize("voq", [False, True])
def test_a_deadlock_names_the_lanes_that_wait_for_each_other(closing: Closing, voq: bool) -> None:
    subnet = ring(6, 2, layers=1)
    pairs = [(hca(place, number), hca((place + 2) % 6, number)) for place in range(6) for number in range(2)]
    path = closing(data_path(subnet, frames=2, voq=voq))
    assert path.deadlock() == ()
    assert Saturated(path, subnet, pairs).run(1000).is_stuck
    lanes = path.deadlock()
    clockwise = 3
    assert {*lanes} == {VirtualLane(f"leaf{place}", clockwise, 0) for place in range(6)}
    for one, after in zip(lanes, (*lanes[1:], lanes[0]), strict=True):
        assert subnet.peer(one.node, one.port) == (after.node, clockwise + 1), "it waits for the buffer of the next one"
    path.set_link("leaf0", clockwise, False)
    assert path.deadlock() == (), "what held it up is lost"


def test_no_deadlock_is_seen_where_frames_move(closing: Closing) -> None:
    subnet = ring(6, 2, layers=2)
    pairs = [(hca(place, number), hca((place + 2) % 6, number)) for place in range(6) for number in range(2)]
    path = closing(data_path(subnet, frames=2, delay_ns=0))
    sending = Saturated(path, subnet, pairs)
    for frames in range(1, 200, 7):
        sending.run(frames)
        assert path.deadlock() == ()


def test_a_long_circle_is_cut_in_words() -> None:
    assert circle_words(["a", "b"]) == "a waits for b"
    assert circle_words([*"abcdefgh"]).endswith("waits for f and 2 more")


def test_a_watched_port_tells_of_each_frame_with_its_lane(closing: Closing) -> None:
    subnet = two_lanes()
    path = closing(data_path(subnet))
    path.watch(*UPLINK, True)
    there, back = header(subnet, *ONE, sl=1), header(subnet, *reversed(ONE), sl=0)
    path.offer(ONE[0], there, FRAME_BYTES, 7, 0)
    path.offer(ONE[1], back, FRAME_BYTES, 8, 0)
    path.run(10**6, stops=False)
    seen = [one for one in path.notices() if one.kind in (binding.LEAVES, binding.COMES)]
    assert [(one.token, one.kind, one.node, one.port, one.vl) for one in seen] == [
        (7, binding.LEAVES, *UPLINK, 1),
        (8, binding.COMES, *UPLINK, 0),
    ]
    assert seen[0].at_ns == FRAME_NS + DELAY_NS, "as it begins to leave"
    path.watch(*UPLINK, False)
    path.offer(ONE[0], there, FRAME_BYTES, 9, 10**6)
    path.run(2 * 10**6, stops=False)
    assert {one.kind for one in path.notices()} == {binding.SENT, binding.DELIVERED}
    with pytest.raises(UsageError):
        path.watch("leaf0", 9, True)


def test_the_native_vcrc_is_that_of_the_specification(closing: Closing) -> None:
    for data in (b"", b"\0", bytes(range(256)) * 16):
        assert binding.vcrc(data) == compute_vcrc(data)
