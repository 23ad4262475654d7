"""An RNIC whose port has several lanes: what rides a full one waits, and nothing else does."""

from random import Random

from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.work import RemoteBuffer

SLOW, FAST = "10.0.0.2", "10.0.0.3"


def connected(rnic: Rnic, remote: str) -> QueuePair:
    qp = rnic.create_qp()
    qp.connect(remote, 0x20)
    qp.write(bytes(8 * 4096), RemoteBuffer(0, 1), 0)
    return qp


def test_a_full_lane_holds_up_no_other_one() -> None:
    rnic = Rnic("10.0.0.1", RoceConfig(cc="none"), Random(1), 0)
    rnic.unlimited_bps = 0.0
    rnic.lanes = {SLOW: 0, FAST: 3}
    slow, fast = connected(rnic, SLOW), connected(rnic, FAST)
    rnic.full_lanes = 1 << 0
    sent = [one.remote for _ in range(20) for one in rnic.transmit(0, 1)]
    assert sent == [FAST] * 8
    assert (slow.sent, fast.sent) == (0, 8)
    rnic.full_lanes = 0
    assert [one.remote for _ in range(20) for one in rnic.transmit(0, 1)] == [SLOW] * 8


def test_who_waits_for_a_lane_may_be_destroyed() -> None:
    rnic = Rnic("10.0.0.1", RoceConfig(cc="none"), Random(1), 0)
    qp = connected(rnic, SLOW)
    rnic.full_lanes = 1
    assert rnic.transmit(0, 4) == []
    rnic.destroy_qp(qp, 0)
    rnic.full_lanes = 0
    assert rnic.transmit(0, 4) == []
