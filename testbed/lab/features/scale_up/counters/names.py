"""The counters of a scale-up link: what each counts, where the switch's status has it, and what others call it.

A switch counts at its own end of each link: what it sent went to the GPU, and what it received came from there. SAI's
names are those of the port statistics of `saiport.h` with LLR and CBFC (SAI 1.18); DCGM's are those of an NVLink
(`dcgm_fields.h`), which counts alike at its end. "" where the one has nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SAI = "SAI_PORT_STAT_"
DCGM = "DCGM_FI_DEV_NVLINK_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounter:
    """A counter of a link. `part` is where it stands in a port's status: "" in itself, "retry", or "vcs", summed."""

    name: str
    words: str
    part: str = ""
    key: str = ""
    """In the status, where it has another name there."""
    sai: str = ""
    dcgm: str = ""
    unit: str = ""

    @property
    def series(self) -> str:
        """Its name in OpenMetrics, without the prefix: times are in seconds there."""
        return f"{self.name.removesuffix('_ns')}_seconds" if self.unit == "seconds" else self.name

    @property
    def full_sai(self) -> str:
        """SAI's whole name; "" where it has none."""
        return SAI + self.sai if self.sai else ""

    @property
    def full_dcgm(self) -> str:
        """DCGM's whole name; "" where it has none."""
        return DCGM + self.dcgm if self.dcgm else ""

    def read(self, port: Mapping[str, Any]) -> int:
        """Read it from the status of a port; 0 where that has none, as without LLR."""
        key = self.key or self.name
        if self.part == "vcs":
            return sum(int(vc[key]) for vc in port["vcs"])
        return int((port[self.part] if self.part else port).get(key, 0))


def _of_vcs(name: str, words: str, key: str, sai: str = "", dcgm: str = "") -> LinkCounter:
    unit = "bytes" if name.endswith("_bytes") else "seconds" if name.endswith("_ns") else ""
    return LinkCounter(name=name, words=words, part="vcs", key=key, sai=sai, dcgm=dcgm, unit=unit)


def _of_retry(name: str, words: str, dcgm: str = "") -> LinkCounter:
    return LinkCounter(name=f"llr_{name}", words=words, part="retry", key=name, sai=f"LLR_{name.upper()}", dcgm=dcgm)


TRAFFIC = (
    _of_vcs("sent_frames", "Data frames that the switch sent", "tx_frames", "IF_OUT_UCAST_PKTS", "COUNT_TX_PACKETS"),
    _of_vcs("sent_bytes", "Bytes of them", "tx_bytes", "IF_OUT_OCTETS", "COUNT_TX_BYTES"),
    _of_vcs("sent_line_bytes", "What they took of the link, with the headers that it charges for", "tx_line_bytes"),
    _of_vcs("received_frames", "Data frames that it stored", "rx_frames", "IF_IN_UCAST_PKTS", "COUNT_RX_PACKETS"),
    _of_vcs("received_bytes", "Bytes of them", "rx_bytes", "IF_IN_OCTETS", "COUNT_RX_BYTES"),
    _of_vcs(
        "dropped_frames",
        "Data frames that a full input buffer had no room for",
        "dropped_frames",
        "IN_DROPPED_PKTS",
        "COUNT_RX_BUFFER_OVERRUN_ERRORS",
    ),
    _of_vcs("dropped_bytes", "Bytes of them", "dropped_bytes"),
    _of_vcs(
        "xmit_wait_ns",
        "Time that a frame waited for credits of the GPU, or for the end of its pause, as InfiniBand's PortXmitWait",
        "xmit_wait_ns",
    ),
)
"""The counters that each virtual channel has, too."""

_CBFC = tuple(
    LinkCounter(
        name=f"cbfc_num_{kind}_update_messages_{way}",
        words=f"{kind.upper()}_Updates {'sent' if way == 'tx' else 'received'}",
        sai=f"CBFC_NUM_{kind.upper()}_UPDATE_MESSAGES_{way.upper()}",
    )
    for kind in ("cf", "cc")
    for way in ("tx", "rx")
)
_LLR = (
    _of_retry("tx_init_ctl_os", "LLR_INITs sent, one after the other until one is answered"),
    _of_retry("tx_init_echo_ctl_os", "LLR_INIT_ECHOs sent"),
    _of_retry("tx_ack_ctl_os", "LLR_ACKs sent"),
    _of_retry("tx_nack_ctl_os", "LLR_NACKs sent"),
    _of_retry("tx_ok", "Numbered frames sent for the first time"),
    _of_retry("tx_poisoned", "Those of them that were poisoned"),
    _of_retry("tx_discard", "Frames thrown away while LLR was not ready"),
    LinkCounter(name="llr_tx_flushed", words="Frames that LLR gave up", part="retry", key="tx_flushed"),
    _of_retry("tx_replay", "Frames sent again", "REPLAY_ERROR_COUNT_TOTAL"),
    _of_retry("rx_init_ctl_os", "LLR_INITs received"),
    _of_retry("rx_init_echo_ctl_os", "LLR_INIT_ECHOs received"),
    _of_retry("rx_ack_ctl_os", "LLR_ACKs received"),
    _of_retry("rx_nack_ctl_os", "LLR_NACKs received"),
    _of_retry("rx_ack_nack_seq_error", "LLR_ACKs and NACKs of frames that were never sent"),
    _of_retry("rx_ok", "Numbered frames received sound"),
    _of_retry("rx_bad", "Numbered frames received damaged"),
    _of_retry("rx_poisoned", "Numbered frames received poisoned"),
    _of_retry("rx_expected_seq_good", "Frames taken, in order"),
    _of_retry("rx_expected_seq_bad", "Frames that were next, and damaged"),
    _of_retry("rx_expected_seq_poisoned", "Frames taken, in order, poisoned"),
    _of_retry("rx_missing_seq", "Gaps in the numbers"),
    _of_retry("rx_duplicate_seq", "Frames that had come before"),
    _of_retry("rx_replay", "Replays that came"),
)
LINK_COUNTERS = (
    *TRAFFIC,
    LinkCounter(
        name="bad_frames",
        words="Frames with a wrong check sequence",
        sai="IF_IN_ERRORS",
        dcgm="CRC_DATA_ERROR_COUNT_TOTAL",
    ),
    LinkCounter(name="bad_control", words="Control frames that were damaged", dcgm="CRC_FLIT_ERROR_COUNT_TOTAL"),
    LinkCounter(name="malformed", words="Frames that could not be understood", dcgm="COUNT_RX_MALFORMED_PACKET_ERRORS"),
    LinkCounter(name="poisoned", words="Poisoned frames that were taken", dcgm="COUNT_RX_REMOTE_ERRORS"),
    LinkCounter(name="refused", words="Frames for nobody, or in the name of another GPU"),
    LinkCounter(name="stale", words="Frames of before the ends began anew"),
    LinkCounter(name="undelivered", words="Frames that could not leave by this link, because it was down"),
    LinkCounter(name="returned", words="Requests given back because their target could not be reached"),
    LinkCounter(name="wire_lost_rx", words="Frames from the GPU that the wire lost on purpose"),
    LinkCounter(name="wire_lost_tx", words="Frames to the GPU that the wire lost on purpose"),
    LinkCounter(name="wire_damaged_rx", words="Frames from the GPU that the wire damaged on purpose"),
    LinkCounter(name="wire_damaged_tx", words="Frames to the GPU that the wire damaged on purpose"),
    LinkCounter(name="downs", words="Times that the link went down"),
    LinkCounter(name="control_tx", words="Control frames sent"),
    LinkCounter(name="control_rx", words="Control frames received"),
    *_CBFC,
    LinkCounter(name="cf_update_errors", words="CF_Updates that cannot be true"),
    LinkCounter(name="cc_update_errors", words="CC_Updates that cannot be true"),
    LinkCounter(name="leaked_credits", words="Credits of lost frames that CC_Updates gave back"),
    LinkCounter(name="xoff_tx", words="PFC frames that ask for a pause, sent", sai="PAUSE_TX_PKTS"),
    LinkCounter(name="xon_tx", words="PFC frames that end a pause, sent"),
    LinkCounter(name="pfc_rx", words="PFC frames received", sai="PAUSE_RX_PKTS"),
    *_LLR,
    LinkCounter(name="send_failures", words="Frames that the kernel refused"),
)
"""All counters of a link, in the order in which they are shown."""
