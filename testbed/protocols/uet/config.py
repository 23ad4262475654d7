"""The settings of an endpoint. Times follow from the fabric's base RTT, so that they fit a lab at any time scale.

Source: UE Specification 1.0, section 3.5.5 (defaults as cited by public implementations); times that the specification
leaves to implementations are marked so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.congestion.nscc_config import NsccConfig
from testbed.protocols.uet.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER
from testbed.protocols.uet.packets.codes import NOMINAL_OVERHEAD_BYTES, UDP_HEADER_BYTES
from testbed.protocols.uet.paths import DEFAULT_PATHS, PathKind

PSNS_PER_MPR: Final = 128
"""MP_RANGE is `mpr` times this."""
LARGEST_PAYLOAD: Final = (1 << 14) - 1
"""`payload_length` has 14 bits."""
_MS: Final = 1_000_000
PSNS_OF_SECURE_PDC: Final = 1 << 31
"""An encrypted PDC must end before it has used so many PSNs (section 3.7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UetConfig:
    """Raises `UsageError` for what cannot work."""

    link_rate_bps: int = 1_000_000_000
    """The rate of this endpoint's port, in the lab."""
    base_rtt_ns: int = 1 * _MS
    """Round trip of a full packet through the empty fabric, in the lab (Config_Base_RTT)."""
    least_rtts_ns: Mapping[str, int] = field(default_factory=dict)
    """By a peer's address: the round trip of a full packet through the idle fabric to it and back, below which no
    measured one is believed to be that of a full packet."""
    time_scale: float | None = None
    """By how much this fabric is slower than the one it models (rates divided, delays multiplied): 1 is real time.
    It sets the one time of table 3-76 that does not follow from the base RTT; None: see `NsccConfig`."""
    payload_bytes: int = 4096
    """The bytes of payload in a full packet."""
    trimming: bool = False
    """The switches trim, and we see what they trimmed."""
    cc: str = DEFAULT_CONTROLLER
    """Congestion control: a name in `congestion.registry.CONTROLLERS`."""
    oversubscribed_cc: bool = True
    """RCCC: a destination grants less than its link's rate where marks and trims say that the fabric carries less."""
    paths: str = DEFAULT_PATHS
    """Path selection of RUD, RUDI and UUD: a value of `PathKind`. ROD has a single path."""
    entropies: tuple[int, ...] = tuple(range(49152, 49152 + 256))
    """Entropy values (UDP source ports) to spray over. A switch hashes them to its paths: of 64 over 4, one path has a
    fifth more than its share easily, which cost a tenth of a permutation's tail where 256 cost nothing."""
    packets_per_entropy: int = 4
    """Fresh packets that leave in one burst share an entropy value up to this number, or an eighth of the window: what
    one ACK covers. The kernel sends and receives them as one; a packet that leaves alone chooses for itself. After so
    many it is another peer's turn."""
    recycled_entropy_uses: int = 1
    """The number of times that REPS chooses an entropy value that came back without a mark; each choice may be for a
    burst (`packets_per_entropy`). Once, as in its paper. As often as one ACK covers packets (4), fewer choices are left
    to chance, and a slow path is left sooner; but the packets of one value follow each other, and meet others that do:
    a permutation over equal paths takes 8 % longer."""
    pdcs_per_peer: int = 1
    """PDCs between the same two endpoints, job and mode; messages take turns."""
    mpr: int = 8
    """The range of PSNs that we take: MP_RANGE is 128 times this."""
    rto_min_ns: int = 0
    """Shortest retransmission time-out; 0: by the base RTT, 5 of them, 20 ms at least (implementation value)."""
    max_rto_retx: int = 5
    """Max_RTO_Retx_Cnt: time-outs of a packet after which its PDC is given up at the next."""
    max_nack_retx: int = 5
    """Max_NACK_Retx_Cnt: how often a packet is sent again because it was refused. Trimming is no refusal."""
    nack_retx_ns: int = 0
    """NACK_Retx_Time, the first wait of a packet that was refused for want of room; 0: two base RTTs (implementation
    value). For the waits after it see `nack_wait_growth`."""
    clear_ns: int = 0
    """PDS_Clear_Time: a CLEAR_CMD is sent if nothing else carries CLEAR_PSN for so long; 0: two base RTTs."""
    close_req_ns: int = 0
    """Close_REQ_Time; 0: 20 base RTTs, 1 s at least."""
    syn_safety_ns: int = 0
    """Syn_Retx_Safety_Time (1.0.3): how long a closed PDC's identity is kept; 0: 4 s at least, 64 time-outs."""
    new_pdc_ns: int = 0
    """New_PDC_Time: a PDC ends if its initiator does not show within it that it hears us; 0: as long as an initiator
    sends a packet again (64 time-outs). The specification's 5 ms are for round trips of microseconds."""
    ack_trigger_bytes: int = 16 * 1024
    ack_min_packet_bytes: int = 1024
    """The least that a packet counts towards the trigger (ACK_GEN_MIN_PKT_ADD)."""
    ack_on_ecn: bool = True
    ack_per_packet: bool = False
    max_ack_data_bytes: int = 16
    """Data of reads and fetching atomics up to this rides in the ACK (0 to 8192)."""
    medium_reads: bool = False
    """READs of one packet have a medium header, 12 bytes less, and their data has 8 less. With a standard header they
    have a message ID, which tells in a capture what belongs together."""
    secure_pdc_packets: int = PSNS_OF_SECURE_PDC - (1 << 27)
    """Under TSS: how many PSNs a PDC has used when it takes no more messages and is closed. What is left until
    `PSNS_OF_SECURE_PDC` is for the messages that it has taken already; the longest one has 2**26 packets."""
    max_pdcs: int = 65_535
    max_messages: int = 65_535
    """Incoming messages of one PDC at a time."""
    max_incoming_bytes: int = 128 << 20
    """Kept of messages that are not whole: what is known of them, and the data of those without a receive."""
    max_unexpected: int = 4096
    """Unexpected messages of one receive queue."""
    max_unexpected_bytes: int = 64 << 20
    loss_inference: bool = True
    """Infer losses from SACKs; pointless where switches trim."""

    crc: bool = False
    """A CRC32C behind every packet (section 3.5.25), where TSS does not protect it; both ends must agree."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("link_rate_bps", 1, 10**13),
            ("base_rtt_ns", 1000, 10**11),
            ("payload_bytes", 64, LARGEST_PAYLOAD),
            ("packets_per_entropy", 1, 64),
            ("recycled_entropy_uses", 1, 64),
            ("pdcs_per_peer", 1, 64),
            ("mpr", 1, 255),
            ("max_ack_data_bytes", 0, 8192),
            ("max_pdcs", 1, 65_535),
            ("secure_pdc_packets", 1, PSNS_OF_SECURE_PDC - (1 << 27)),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise UsageError(f"{name} is {value}; it can be {low} to {high}")
        if self.cc not in CONTROLLERS:
            raise UsageError(f"unknown congestion control {self.cc!r}; there are {', '.join(CONTROLLERS)}")
        if self.paths not in tuple(PathKind):
            raise UsageError(f"unknown path selection {self.paths!r}; there are {', '.join(PathKind)}")
        if not self.entropies or not all(1 <= value <= 0xFFFF for value in self.entropies):
            raise UsageError("entropies are UDP ports, 1 to 65535, one at least")

    @property
    def packet_bytes(self) -> int:
        """Nominal size of a full packet: PDS and standard SES header, UDP header, and 40 (section 3.6.12)."""
        return self.payload_bytes + 12 + 44 + UDP_HEADER_BYTES + NOMINAL_OVERHEAD_BYTES

    @property
    def packets_per_ack(self) -> int:
        """Return how many full packets an ACK covers at least, where nothing asks for an earlier one."""
        return max(1, self.ack_trigger_bytes // self.packet_bytes)

    def nscc(self, remote: str = "") -> NsccConfig:
        """Parameters of congestion control, towards one peer or any."""
        return NsccConfig(
            link_rate_bps=self.link_rate_bps,
            base_rtt_ns=self.base_rtt_ns,
            least_rtt_ns=self.least_rtts_ns.get(remote, 0),
            mtu_bytes=self.packet_bytes,
            trimming=self.trimming,
            time_scale=self.time_scale,
            ack_gen_trigger_bytes=self.ack_trigger_bytes,
        )

    @property
    def patience_ns(self) -> int:
        """Return how long a message may stand still before it is given up: longer than all time-outs of a packet
        together."""
        return max(self.rto_ns << (self.max_rto_retx + 2), 2000 * _MS)

    @property
    def mp_range(self) -> int:
        """PSNs that may be under way to us."""
        return self.mpr * PSNS_PER_MPR

    @property
    def rto_ns(self) -> int:
        return self.rto_min_ns or max(5 * self.base_rtt_ns, 20 * _MS)

    @property
    def nack_wait_ns(self) -> int:
        return self.nack_retx_ns or 2 * self.base_rtt_ns

    @property
    def nack_wait_growth(self) -> float:
        """Return the factor by which a packet that is refused again waits longer: the last wait is as long as its last
        time-out would be, and twice as long as the one before at least."""
        last = self.rto_ns << self.max_rto_retx
        return max(math.pow(last / self.nack_wait_ns, 1 / max(self.max_nack_retx - 1, 1)), 2.0)

    @property
    def clear_wait_ns(self) -> int:
        return self.clear_ns or 2 * self.base_rtt_ns

    @property
    def close_wait_ns(self) -> int:
        return self.close_req_ns or max(20 * self.base_rtt_ns, 1000 * _MS)

    @property
    def syn_memory_ns(self) -> int:
        return self.syn_safety_ns or max(64 * self.rto_ns, 4000 * _MS)

    @property
    def new_pdc_wait_ns(self) -> int:
        return self.new_pdc_ns or self.rto_ns << (self.max_rto_retx + 1)
