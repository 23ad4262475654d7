"""The settings of an RNIC and its queue pairs. Times of the hardware are multiplied by the lab's time scale.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, section 9.9.2.1.1 (the transport timer) and
11.2.5.2 (attributes of a queue pair).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from testbed.protocols.congestion.controller import FlowSettings, Number
from testbed.protocols.congestion.registry import DEFAULT_CONTROLLER, make_control
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.packets.headers import BTH_BYTES, RETH_BYTES
from testbed.protocols.roce.packets.icrc import ICRC_BYTES
from testbed.protocols.roce.recovery import DEFAULT_RECOVERY, RECOVERIES

MTUS: Final = (256, 512, 1024, 2048, 4096)
"""The path MTUs: bytes of payload of a full packet (section 9.2)."""
TIMEOUT_UNIT_NS: Final = 4096
"""The transport timer is this times a power of two (section 9.7.6.1.3)."""
LONGEST_TIMEOUT: Final = 31
HEADER_BYTES: Final = 58
"""The headers of a packet of data, as a shaped port counts it: Ethernet, IPv4, UDP, BTH, ICRC."""
LEAST_ENTROPY: Final = 49152
"""The least UDP source port (annex A17.3.1 leaves it to the sender; NICs use the dynamic ports)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoceConfig:
    """Raises `UsageError` for what cannot work."""

    link_rate_bps: int = 1_000_000_000
    """The rate of this NIC's port, in the lab."""
    base_rtt_ns: int = 1_000_000
    """Round trip of a full packet through the empty fabric, in the lab."""
    time_scale: float = 1.0
    """By how much the fabric is slower than the one that it models (rates divided, delays multiplied)."""
    mtu: int = 4096
    """The path MTU: payload of a full packet."""
    recovery: str = DEFAULT_RECOVERY
    """A name in `recovery.RECOVERIES`."""
    ooo: bool = False
    """Packets out of order are no sign of loss: WRITEs are placed as they come."""
    cc: str = DEFAULT_CONTROLLER
    """Congestion control: a name in `congestion.registry.CONTROLLERS`."""
    parameters: str = ""
    """The name of a set of parameters of the congestion control; "": its default."""
    cc_parameters: Mapping[str, Number] = field(default_factory=dict)
    """Single parameters of the congestion control that are to be others than those of the set."""
    timeout: int = 14
    """The peer has 4.096 us * 2**timeout to answer (times the time scale); 0: for ever."""
    retry_count: int = 7
    """The number of times that what was not answered in time is sent again, before the queue pair fails."""
    rnr_retry: int = 7
    """The number of times after "receiver not ready"; 7: for ever."""
    min_rnr_timer: int = 12
    """The timer code of our RNR NAKs: 12 is 0.64 ms (times the time scale)."""
    most_reads: int = 16
    """READs and atomic operations of a queue pair under way at a time, asked and answered."""
    ack_packets: int = 32
    """A packet asks for an acknowledgement after so many that did not."""
    window_packets: int = 4096
    """Packets of a queue pair that may be unacknowledged; `recovery: selective` has a bandwidth-delay product."""
    most_posted: int = 4096
    """Requests of a send or receive queue."""
    entropies: tuple[int, ...] = tuple(range(LEAST_ENTROPY, LEAST_ENTROPY + 256))
    """UDP source ports of queue pairs: one each, in turn."""

    def __post_init__(self) -> None:
        for name in ("link_rate_bps", "base_rtt_ns", "time_scale", "most_reads", "ack_packets", "window_packets"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.mtu not in MTUS:
            raise UsageError(f"a path MTU is one of {', '.join(map(str, MTUS))}, not {self.mtu}")
        if self.recovery not in RECOVERIES:
            raise UsageError(f"recovery {self.recovery!r} is none of {', '.join(RECOVERIES)}")
        control = make_control(self.cc, self.flow_settings())
        if RECOVERIES[self.recovery].restarts and (self.ooo or control.window_bytes < math.inf):
            what = "ooo keeps what it forgets" if self.ooo else f"cc {self.cc} waits for acknowledgements within one"
            raise UsageError(f"recovery {self.recovery} acknowledges whole messages alone, and {what}")
        for name, most in (("timeout", LONGEST_TIMEOUT), ("retry_count", 7), ("rnr_retry", 7), ("min_rnr_timer", 31)):
            if not 0 <= getattr(self, name) <= most:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be 0 to {most}")
        if self.window_packets >= 1 << 23:
            raise UsageError(f"window_packets is {self.window_packets}; half of all PSNs are {1 << 23}")
        if not self.entropies or not all(1 <= entropy <= 0xFFFF for entropy in self.entropies):
            raise UsageError("entropies are UDP ports, at least one")

    def flow_settings(self) -> FlowSettings:
        """Return the settings that the congestion control of a queue pair is made from."""
        return FlowSettings(
            link_rate_bps=self.link_rate_bps,
            base_rtt_ns=self.base_rtt_ns,
            time_scale=self.time_scale,
            mtu_bytes=self.mtu + HEADER_BYTES,
            parameters=self.parameters,
            overrides=self.cc_parameters,
        )

    @property
    def packet_bytes(self) -> int:
        """UDP payload of a full packet."""
        return BTH_BYTES + RETH_BYTES + self.mtu + ICRC_BYTES

    @property
    def keeps_out_of_order(self) -> bool:
        """Tell whether a responder keeps what comes out of order."""
        return self.ooo or RECOVERIES[self.recovery].keeps

    @property
    def most_unacknowledged(self) -> int:
        """Packets of a queue pair that may be unacknowledged: of IRN no more than the path holds when it is empty, of
        go-back-0 a whole message."""
        if RECOVERIES[self.recovery].restarts:
            return (1 << 23) - 1
        if not RECOVERIES[self.recovery].keeps:
            return self.window_packets
        bdp_bytes = self.link_rate_bps * self.base_rtt_ns / 8e9
        return max(2, min(self.window_packets, math.ceil(bdp_bytes / (self.mtu + HEADER_BYTES))))

    @property
    def timeout_ns(self) -> int:
        """Return the time that a requester waits for an answer, in the lab; 0: for ever."""
        return int((TIMEOUT_UNIT_NS << self.timeout) * self.time_scale) if self.timeout else 0
