"""HCAs that send as fast as they can over a subnet in virtual time, and what arrived of it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from formula_subnets import RATE_BPS

from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.data_path import PathLink, PathNode, SubnetDataPath
from testbed.protocols.infiniband.local_routing import DEFAULT_PKEY, LOCAL, LocalHeader
from testbed.protocols.infiniband.subnet import Subnet

PACKET_BYTES = 12 + 4096 + 4
"""BTH, payload and ICRC."""
FRAME_BYTES = 8 + PACKET_BYTES + 2
FRAME_NS = -(-FRAME_BYTES * 8_000_000_000 // RATE_BPS)
DELAY_NS = 100
Pair = tuple[str, str]


def data_path(
    subnet: Subnet, *, delay_ns: int = DELAY_NS, voq: bool = False, frames: int = 0, arbitration: bool = False
) -> SubnetDataPath:
    """The data path of a subnet. `frames`: full frames that an input buffer holds of each VL; 0: what a link needs."""
    path = SubnetDataPath(
        [
            PathNode(name=one.name, ports=one.ports, lid=one.lid, is_switch=one.is_switch)
            for one in subnet.nodes.values()
        ],
        [
            PathLink(a=one.a, a_port=one.a_port, b=one.b, b_port=one.b_port, rate_bps=one.rate_bps, delay_ns=delay_ns)
            for one in subnet.links
        ],
        vls=subnet.vls,
        voq=voq,
        blocks=frames * -(-FRAME_BYTES // binding.BLOCK_BYTES),
    )
    for node in subnet.nodes.values():
        path.set_lanes(node.name, subnet.sl2vl)
        if arbitration:
            path.set_arbitration(node.name, high=subnet.vl_high, low=subnet.vl_low, limit=subnet.vl_high_limit)
    for name, table in subnet.lfts.items():
        path.set_forwarding(name, table)
    return path


def header(subnet: Subnet, source: str, destination: str, *, sl: int | None = None, pkey: int = DEFAULT_PKEY) -> bytes:
    """LRH and BTH of a frame of FRAME_BYTES."""
    level = subnet.sl(source, destination) if sl is None else sl
    local = LocalHeader(
        vl=0,
        sl=level,
        dlid=subnet.nodes[destination].lid,
        slid=subnet.nodes[source].lid,
        words=(FRAME_BYTES - 2) // 4,
        lnh=LOCAL,
    )
    return local.encode() + bytes([4, 0]) + pkey.to_bytes(2, "big") + bytes(8)


@dataclass(slots=True)
class Arrived:
    """What arrived by pair, from half of the time on, in frame times; and when the last frame did."""

    by_pair: Counter[Pair] = field(default_factory=Counter)
    marked: Counter[Pair] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    last_ns: int = 0
    span_frames: float = 0.0
    is_stuck: bool = False

    def share(self, pair: Pair) -> float:
        """The share of a line's rate that a pair had."""
        return self.by_pair[pair] / self.span_frames

    @property
    def total(self) -> float:
        """Line rates, of all pairs together."""
        return sum(self.by_pair.values()) / self.span_frames


class Saturated:
    """Each HCA that sends has `DEPTH` frames of each of its pairs waiting, all the time."""

    DEPTH = 2

    def __init__(
        self, path: SubnetDataPath, subnet: Subnet, pairs: Sequence[Pair], sls: Mapping[Pair, int] | None = None
    ):
        self.path, self.subnet = path, subnet
        self._pairs: dict[int, Pair] = {}
        self._tokens = 0
        self._sls = sls or {}
        self._headers = {pair: header(subnet, *pair, sl=self._sls.get(pair)) for pair in pairs}
        self._of_lane: dict[tuple[str, int], list[Pair]] = defaultdict(list)
        self._turn: Counter[tuple[str, int]] = Counter()
        for source, destination in pairs:
            level = self._sls.get((source, destination), subnet.sl(source, destination))
            self._of_lane[source, subnet.sl2vl[level]].append((source, destination))
        self._lane_of: dict[int, tuple[str, int]] = {}
        for place in self._of_lane:
            for _ in range(self.DEPTH):
                self._send(place, 0)

    @property
    def offered(self) -> int:
        """The frames that were handed in."""
        return self._tokens

    def _send(self, place: tuple[str, int], now: int) -> None:
        """The next of an HCA's pairs that share a lane, in turn."""
        pairs = self._of_lane[place]
        pair = pairs[self._turn[place] % len(pairs)]
        self._turn[place] += 1
        self._tokens += 1
        self._pairs[self._tokens] = pair
        self._lane_of[self._tokens] = place
        self.path.offer(pair[0], self._headers[pair], FRAME_BYTES, self._tokens, now)

    def run(self, frames: int) -> Arrived:
        """Send for so many frame times, of which the second half counts."""
        until = frames * FRAME_NS
        found = Arrived(span_frames=frames / 2)
        while True:
            when = self.path.run(until)
            notices = self.path.notices()
            for one in notices:
                if one.kind == binding.SENT:
                    self._send(self._lane_of.pop(one.token), one.at_ns)
                    continue
                pair = self._pairs.pop(one.token, None)
                if pair is None:
                    continue  # somebody else's
                if one.kind == binding.LOST:
                    found.lost[one.cause] += 1
                    place = self._lane_of.pop(one.token, None)
                    if place is not None:
                        self._send(place, one.at_ns)
                    continue
                found.last_ns = one.at_ns
                if one.at_ns >= until / 2:
                    found.by_pair[pair] += 1
                    found.marked[pair] += one.fecn
            if not notices:
                found.is_stuck = when == binding.NEVER and self.path.in_flight > 0
                if when > until:
                    return found
