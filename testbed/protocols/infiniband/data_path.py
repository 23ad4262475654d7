"""The data path of an InfiniBand subnet in virtual time: its switches and HCAs in one process, without a clock.

The C of `native/` decides everything; its caller says what time it is, lets HCAs send frames, and is told what became
of them. Tables come from whoever manages the subnet, and may change at any time. The links of a subnet have their own
rates and delays here, which a run divides and multiplies by its time scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_uint16, c_uint64
from dataclasses import dataclass
from typing import Any, Final

from testbed.protocols.errors import UsageError
from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.local_routing import LRH_BYTES, VCRC_BYTES

LEAST_BUFFER_BYTES: Final = 64 << 10
"""The least input buffer of a VL: ours, since vendors do not say theirs."""
MANAGEMENT_FRAMES: Final = 8
"""The frames of VL15 that an input has room for."""
UNLIMITED: Final = 255
"""The limit of a high-priority table that has none."""
FULL_PACKET_BYTES: Final = 4096 + 16
"""The bytes of a packet, BTH to ICRC, in the middle of a message of the longest MTU."""
_FULL_FRAME_BYTES: Final = 4096 + 40
_MOST_LIDS: Final = 0xC000
_LONGEST_CIRCLE: Final = 64
_SHOWN_OF_CIRCLE: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PathNode:
    """A switch or an HCA of the data path; ports count from 1."""

    name: str
    ports: int
    lid: int
    is_switch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLink:
    """A link between two ports, in both directions alike."""

    a: str
    a_port: int
    b: str
    b_port: int
    rate_bps: int
    delay_ns: int

    @property
    def spacing_ns(self) -> int:
        """The least time between two updates of credits: half of a full frame's time."""
        return _FULL_FRAME_BYTES * 4 * 10**9 // self.rate_bps

    @property
    def blocks(self) -> int:
        """The credits of each VL: as much as is under way until the first of them is back, and two frames more."""
        loop_ns = 2 * self.delay_ns + self.spacing_ns
        needed = self.rate_bps * loop_ns // 8_000_000_000 + 3 * _FULL_FRAME_BYTES
        return min(binding.MOST_BLOCKS, -(-max(LEAST_BUFFER_BYTES, needed) // binding.BLOCK_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Congestion:
    """When switches mark frames (InfiniBand volume 1, annex A10, SwitchCongestionSetting)."""

    threshold: int
    """0 (never) to 15, by sixteenths of a buffer from its top."""
    marking_rate: int = 0
    """Frames that are not marked between two that are."""
    least_bytes: int = 0
    """Shorter frames are not marked."""


@dataclass(frozen=True, slots=True)
class FrameNotice:
    """The fate of a frame, by its `token`, and when that was."""

    at_ns: int
    token: int
    node: str
    kind: int
    fecn: bool
    cause: str
    """The counter that a frame is in that was lost, "" of another one."""
    port: int = 0
    """The watched port that a frame leaves by (`binding.LEAVES`) or has come by (`binding.COMES`), on the lane `vl`."""
    vl: int = 0


@dataclass(frozen=True, slots=True, order=True)
class VirtualLane:
    """A virtual lane of a port's output."""

    node: str
    port: int
    vl: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port} VL {self.vl}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCounts:
    """The counters of a port, and of each of its VLs, by the names of `binding`."""

    node: str
    port: int
    counters: Mapping[str, int]
    lanes: Mapping[int, Mapping[str, int]]

    def since(self, before: PortCounts) -> PortCounts:
        """Return what was counted after `before`. The most that was in a buffer is no count, and stays."""
        return PortCounts(
            node=self.node,
            port=self.port,
            counters={name: value - before.counters[name] for name, value in self.counters.items()},
            lanes={
                vl: {
                    name: value if name == "deepest" else value - before.lanes[vl][name] for name, value in lane.items()
                }
                for vl, lane in self.lanes.items()
            },
        )


class SubnetDataPath:
    """Nodes by name, ports from 1, times in ns. Raises `UsageError` for what is out of range."""

    def __init__(
        self,
        nodes: Sequence[PathNode],
        links: Sequence[PathLink],
        *,
        vls: int = 1,
        voq: bool = False,
        blocks: int = 0,
        native: Any = None,
    ) -> None:
        """`blocks`: the credits of each VL of all links; 0: what each needs. `native`: the library, by default the one
        that is compiled of these sources."""
        self.nodes = tuple(nodes)
        self.vls = vls
        self._native = binding.library() if native is None else native
        self._numbers = {node.name: number for number, node in enumerate(nodes)}
        self._credits: dict[tuple[str, int], int] = {}
        """The credits of a VL of each port that has a link."""
        if len(self._numbers) != len(nodes):
            raise UsageError("two nodes of the subnet have one name")
        if any(not 0 <= node.lid < _MOST_LIDS for node in nodes):
            raise UsageError(f"a LID is none of 0 to {_MOST_LIDS - 1:#x}")
        self.lids = 1 + max((node.lid for node in nodes), default=0)
        config = binding.FabricConfig(
            nodes=len(nodes),
            links=len(links),
            vls=vls,
            voq=voq,
            lids=self.lids,
            management_frames=MANAGEMENT_FRAMES,
        )
        self._handle = self._native.ib_fabric_new(
            config,
            (binding.NodeConfig * len(nodes))(
                *(binding.NodeConfig(node.ports, node.is_switch, node.lid) for node in nodes)
            ),
            (binding.FabricLink * len(links))(*(self._link(link, blocks) for link in links)),
        )
        if not self._handle:
            raise UsageError("the subnet's nodes and links are out of range, or memory is")

    def _link(self, link: PathLink, blocks: int) -> binding.FabricLink:
        a, b = self._number(link.a), self._number(link.b)
        if link.rate_bps <= 0:
            raise UsageError(f"the link at {link.a} has a rate of {link.rate_bps} bit/s")
        credits = blocks or link.blocks
        self._credits |= dict.fromkeys(((link.a, link.a_port), (link.b, link.b_port)), credits)
        return binding.FabricLink(
            a, link.a_port, b, link.b_port, link.rate_bps, link.delay_ns, link.spacing_ns, credits, 0
        )

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            raise UsageError(f"the subnet has no node {name}")
        return self._numbers[name]

    def close(self) -> None:
        """Give everything back. Whatever is asked of it afterwards raises `AttributeError`."""
        if self._handle:
            self._native.ib_fabric_free(self._handle)
        self._handle = self._native = None  # C would not ask whether there still is a fabric

    # --- tables ------------------------------------------------------------------------------------------

    def set_forwarding(self, switch: str, ports: bytes) -> None:
        """Set a switch's linear forwarding table: the output port by LID, `binding.NO_PORT` for none."""
        table = ports[: self.lids]
        self._demand(self._native.ib_fabric_set_lft(self._handle, self._number(switch), table, len(table)), switch)

    def set_lanes(self, node: str, vls: Sequence[int], *, input_port: int = 0, output_port: int = 0) -> None:
        """Set the VL of each of 16 SLs from an input to an output of a node; 0: of all. A VL of 15 discards."""
        if len(vls) != binding.SLS or any(not 0 <= vl < binding.ALL_VLS for vl in vls):
            raise UsageError("a table has the VLs, 0 to 15, of 16 SLs")
        found = self._native.ib_fabric_set_sl2vl(self._handle, self._number(node), input_port, output_port, bytes(vls))
        self._demand(found, node)

    def set_arbitration(
        self,
        node: str,
        *,
        high: Sequence[tuple[int, int]] = (),
        low: Sequence[tuple[int, int]] = (),
        limit: int = UNLIMITED,
        port: int = 0,
    ) -> None:
        """Set the tables of VL arbitration of a port's output, 0: of all. Entries are VLs with weights in 64 bytes."""
        if any(not 0 <= vl < binding.DATA_VLS or not 0 <= weight < 256 for vl, weight in (*high, *low)):
            raise UsageError("an entry of VL arbitration has a VL of 0 to 14 and a weight of 0 to 255")
        tables = [(binding.Entry * len(table))(*(binding.Entry(*one) for one in table)) for table in (high, low)]
        found = self._native.ib_fabric_set_arbitration(
            self._handle, self._number(node), port, tables[0], len(high), tables[1], len(low), limit
        )
        self._demand(found, node)

    def set_partitions(self, node: str, keys: Sequence[int], *, port: int = 1) -> None:
        """Set the P_Keys that a port lets pass, with the bit of full membership; none: all."""
        if any(not 0 <= key < 1 << 16 for key in keys):
            raise UsageError("a P_Key has 16 bits")
        table = (c_uint16 * len(keys))(*keys)
        self._demand(self._native.ib_fabric_set_pkeys(self._handle, self._number(node), port, table, len(keys)), node)

    def set_congestion(self, switch: str, congestion: Congestion) -> None:
        """Set when a switch marks frames."""
        found = self._native.ib_fabric_set_congestion(
            self._handle, self._number(switch), congestion.threshold, congestion.marking_rate, congestion.least_bytes
        )
        self._demand(found, switch)

    def set_up_ports(self, switch: str, ports: Sequence[int]) -> None:
        """Let a frame take the least loaded of these ports of a switch where the table names one of them. That is this
        project's adaptive routing; vendors' are not public."""
        words = [0, 0, 0, 0]
        for port in ports:
            if not 0 < port < binding.NO_PORT:
                raise UsageError(f"{switch} has no port {port}")
            words[port // 64] |= 1 << port % 64
        found = self._native.ib_fabric_set_up_ports(self._handle, self._number(switch), (c_uint64 * 4)(*words))
        self._demand(found, switch)

    def set_link(self, node: str, port: int, up: bool) -> None:
        """Let the link at a port go down, or come back: what is on it is lost, and so is what wants to leave by it."""
        self._demand(self._native.ib_fabric_set_link(self._handle, self._number(node), port, up), node)

    def set_leak(self, node: str, port: int, vl: int, share: float) -> None:
        """Let what a port sends on a VL lack a share of its credits, as if its peer had lost these buffers; 0: none
        any more. A link that goes down and comes back has all credits again."""
        blocks = round(self._credits.get((node, port), 0) * share) if 0 <= share <= 1 else -1
        if blocks < 0:
            raise UsageError(f"a leak is a share of the credits, 0 to 1, and not {share}")
        self._demand(self._native.ib_fabric_set_leak(self._handle, self._number(node), port, vl, blocks), node)

    def watch(self, node: str, port: int, on: bool) -> None:
        """Have `notices` tell of each frame that a port sends and receives, or not any more."""
        self._demand(self._native.ib_fabric_watch(self._handle, self._number(node), port, on), node)

    @staticmethod
    def _demand(done: bool, node: str) -> None:
        if not done:
            raise UsageError(f"{node} has no such port, or cannot have such a table")

    # --- frames ------------------------------------------------------------------------------------------

    def offer(self, hca: str, header: bytes, size: int, token: int, now: int, *, management: bool = False) -> None:
        """Let an HCA send a frame of `size` bytes, LRH to VCRC, that begins with `header` (LRH to BTH)."""
        done = self._native.ib_fabric_offer(
            self._handle, self._number(hca), header, len(header), size, token, management, now
        )
        if not done:
            raise UsageError(f"{hca} is no HCA that could send, or memory is out")

    def inject(self, node: str, port: int, header: bytes, size: int, token: int, now: int) -> None:
        """Let a frame come in at a port, whatever it is and whoever sent it: it has taken no credits."""
        done = self._native.ib_fabric_inject(
            self._handle, self._number(node), port, header, len(header), size, token, now
        )
        if not done:
            raise UsageError(f"{node} has no link at port {port}, or memory is out")

    def run(self, until: int, *, stops: bool = True) -> int:
        """Do what is due up to `until`; with `stops`, not beyond the time of the first notice.

        Return that time, or when the next thing is due; `binding.NEVER` where nothing is. Raises `MemoryError`.
        """
        when = int(self._native.ib_fabric_run(self._handle, until, stops))
        if self._native.ib_fabric_is_broken(self._handle):
            raise MemoryError("no memory for the frames of an InfiniBand fabric")
        return when

    def pass_time(self, now: int) -> None:
        """Let it be `now`, up to which all that was due has been done: whoever waits for credits waits on."""
        self._native.ib_fabric_pass(self._handle, now)

    def notices(self) -> list[FrameNotice]:
        """Return what has become of frames since this was last asked for."""
        count = int(self._native.ib_fabric_notice_count(self._handle))
        if not count:
            return []
        raw = self._native.ib_fabric_notices(self._handle)
        names, causes = self.nodes, binding.COUNTERS
        found = [
            FrameNotice(
                one.at_ns,
                one.token,
                names[one.node].name,
                kind := one.kind,
                bool(one.fecn),
                causes[one.cause] if kind == binding.LOST else "",
                one.port if kind > binding.LOST else 0,
                one.vl if kind > binding.LOST else 0,
            )
            for one in raw[:count]
        ]
        self._native.ib_fabric_forget_notices(self._handle)
        return found

    def deadlock(self) -> tuple[VirtualLane, ...]:
        """Return lanes of which each waits for a buffer that the next one alone could empty, and the last one for the
        first; none where there is no such circle. Of a long one its first lanes come back."""
        found = (binding.NativeChannel * _LONGEST_CIRCLE)()
        count = min(_LONGEST_CIRCLE, int(self._native.ib_fabric_deadlock(self._handle, found, _LONGEST_CIRCLE)))
        return tuple(VirtualLane(self.nodes[one.node].name, one.port, one.vl) for one in found[:count])

    # --- counters ----------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Frames that were handed in and are neither delivered nor lost."""
        return int(self._native.ib_fabric_in_flight(self._handle))

    @property
    def hops(self) -> int:
        """Frames that were put on a link, anywhere."""
        return int(self._native.ib_fabric_hops(self._handle))

    def counters(self, node: str, port: int) -> dict[str, int]:
        """Return the counters of a port, which have the names of its PortCounters."""
        found = self._native.ib_fabric_counters(self._handle, self._number(node), port)
        if not found:
            raise UsageError(f"{node} has no port {port}")
        return {name: int(getattr(found.contents, name)) for name in binding.COUNTERS}

    def lane(self, node: str, port: int, vl: int) -> dict[str, int]:
        """Return the counters of a VL of a port."""
        found = self._native.ib_fabric_lane(self._handle, self._number(node), port, vl)
        if not found:
            raise UsageError(f"{node} has no port {port} with VL {vl}")
        return {name: int(getattr(found.contents, name)) for name in binding.LANE_COUNTERS}

    def readings(self) -> list[PortCounts]:
        """Return the counters of all ports."""
        return [
            PortCounts(
                node=node.name,
                port=port,
                counters=self.counters(node.name, port),
                lanes={vl: self.lane(node.name, port, vl) for vl in range(self.vls)},
            )
            for node in self.nodes
            for port in range(1, node.ports + 1)
        ]

    def forget_peaks(self) -> None:
        """Let the most that was in each buffer be what is in it now."""
        self._native.ib_fabric_forget_peaks(self._handle)

    def lost(self) -> Mapping[str, int]:
        """Return the frames that went nowhere, by the counter that has them, of the whole fabric."""
        total = dict.fromkeys(binding.LOSSES, 0)
        for node in self.nodes:
            for port in range(1, node.ports + 1):
                counters = self.counters(node.name, port)
                for name in binding.LOSSES:
                    total[name] += counters[name]
        return total


def frame_bytes(packet_bytes: int) -> int:
    """Return the bytes of a frame whose packet, BTH to ICRC, has so many."""
    return LRH_BYTES + packet_bytes + VCRC_BYTES


def circle_words(names: Sequence[str]) -> str:
    """Say who waits for whom in a circle, each for the next one."""
    more = len(names) - _SHOWN_OF_CIRCLE
    return " waits for ".join(names[:_SHOWN_OF_CIRCLE]) + (f" and {more} more" if more > 0 else "")
