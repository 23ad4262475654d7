"""The parameters of NSCC, and of the other controllers of a source: what table 3-76 makes of a link and a base RTT.

Source: UE Specification 1.0, section 3.6.13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from testbed.protocols.errors import UsageError

BASE_BDP_BYTES: Final = 150_000
"""base_BDP: 100 Gbit/s over 12 us."""
REFERENCE_RTT_NS: Final = 12_000
"""The round trip for which the constants of table 3-76 are given."""
ZERO_DELAY_PARTS: Final = 12
"""A queueing delay below 1/12 of the base RTT is "about zero": the simulator's 1 us at the reference round trip."""
QA_THRESHOLD_TARGETS: Final = 4.0
"""qa_threshold in target delays without trimming (switches that drop at 5 BDP).

The simulator keeps it with trimming too; the specification says to set it out of reach there.
"""
MAX_WND_BDPS: Final = 1.5
ADJUST_PACKETS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NsccConfig:
    """Parameters of table 3-76; times in ns, sizes in bytes of nominal packet size (UDP length + 40).

    All times come from `base_rtt_ns`, so that a lab which divides rates and multiplies delays by its time scale k
    behaves, in bytes and in round trips, like the fabric it models. One constant of the table is a time of its own:
    the 12 us in scaling_b. Give `time_scale` = k and it becomes 12 us * k, which is the specification exactly. Left
    out, the configured base RTT is taken for the reference one (k = base_rtt / 12 us): as invariant, but on a fabric
    of 6 us the proportional increase is twice what table 3-76 asks for, on one of 24 us half.
    """

    link_rate_bps: int
    """The rate of the slower of the two ends."""
    base_rtt_ns: int
    """config_base_rtt: the longest round trip between idle ends of this fabric."""
    least_rtt_ns: int = 0
    """The time of a full packet to this destination and its answer through an idle fabric, where that is known."""
    mtu_bytes: int
    """Nominal size of a full packet."""
    trimming: bool
    time_scale: float | None = None
    ack_gen_trigger_bytes: int = 16_384
    """The peer's ACK_GEN_TRIGGER: a smaller window must ask for its ACKs."""

    def __post_init__(self) -> None:
        for name in ("link_rate_bps", "base_rtt_ns", "mtu_bytes", "time_scale"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name} is {value}; it must be above 0")

    @property
    def bdp_bytes(self) -> float:
        return self.link_rate_bps * self.base_rtt_ns / 8e9

    @property
    def least_base_rtt_ns(self) -> int:
        """Return what base_rtt cannot shrink below: the round trip of a full packet, which is at least sent whole once.

        A shorter measured one is that of a smaller packet, or of ports that pass an idle link's first packet on before
        the time of sending it is over: no reason for a window that holds less than the path.
        """
        alone_ns = -(-self.mtu_bytes * 8_000_000_000 // self.link_rate_bps)
        return min(self.base_rtt_ns, max(self.least_rtt_ns, alone_ns))

    @property
    def max_wnd_bytes(self) -> float:
        """MaxWnd, and the initial window; one packet at least."""
        return max(MAX_WND_BDPS * self.bdp_bytes, float(self.mtu_bytes))

    @property
    def scaling_a(self) -> float:
        return self.bdp_bytes / BASE_BDP_BYTES

    @property
    def target_qdelay_ns(self) -> float:
        return (0.75 if self.trimming else 1.0) * self.base_rtt_ns

    @property
    def scaling_b(self) -> float:
        reference = self.base_rtt_ns if self.time_scale is None else REFERENCE_RTT_NS * self.time_scale
        return self.target_qdelay_ns / reference

    @property
    def alpha(self) -> float:
        """Proportional increase: bytes per ns of headroom, for each byte received of a window's worth."""
        return 4.0 * self.scaling_a * self.scaling_b * self.mtu_bytes / self.target_qdelay_ns

    @property
    def fi(self) -> float:
        """Fair increase: bytes for each byte received of a window's worth."""
        return 5.0 * self.mtu_bytes * self.scaling_a

    @property
    def fi_scale(self) -> float:
        """Fast increase: bytes for each byte received."""
        return 0.25 * self.scaling_a

    @property
    def eta(self) -> float:
        """Bytes added in every adjust period."""
        return 0.15 * self.mtu_bytes * self.scaling_a

    @property
    def adjust_bytes(self) -> int:
        return ADJUST_PACKETS * self.mtu_bytes

    @property
    def qa_threshold_ns(self) -> float:
        return math.inf if self.trimming else QA_THRESHOLD_TARGETS * self.target_qdelay_ns

    @property
    def zero_delay_ns(self) -> float:
        return self.base_rtt_ns / ZERO_DELAY_PARTS
