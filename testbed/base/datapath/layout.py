"""The shared maps of the data path as numpy types: the twin of `programs/layout.h`, which explains the fields.

A map value is `numpy.ndarray` of the type below over the map's memory; index a queue with `port * CLASSES + priority`.
All counters grow for ever and are little-endian like every machine we run on.
"""

from __future__ import annotations

import numpy as np

from testbed.base.datapath.abi import CLASSES, CURVE_BINS, DEPTH_BINS


def _record(names: str, base: str = "<u8") -> list[tuple[str, str]]:
    return [(name, base) for name in names.split()]


CLASS_CONFIG = np.dtype(
    _record(
        "flags limit_bytes kmin_bytes kmax_bytes pmax xoff_bytes xon_bytes headroom_bytes alpha reserved_bytes", "<u4"
    )
)
PROFILE = np.dtype(
    [
        ("class_of_dscp", "u1", (64,)),
        ("control_class", "u1"),
        ("trimmed_class", "u1"),
        ("trimmed_dscp", "u1"),
        ("trimmed_last_hop_dscp", "u1"),
        ("pad", "u1", (4,)),
        ("classes", CLASS_CONFIG, (CLASSES,)),
    ]
)
PORT_CONFIG = np.dtype(
    [
        ("ifindex", "<u4"),
        ("profile", "<u2"),
        ("buffer", "<u2"),
        *_record("flags balancing seed peer", "<u4"),
        ("gap_ns", "<u8"),
        *_record("loss corruption delay_ifindex loss_every", "<u4"),
        *_record("sprayed arrived cap_bps cap_burst_ns conforming_ns"),
    ]
)
BUFFER = np.dtype([*_record("used_bytes max_bytes size_bytes"), ("pad", "<u8", (5,))])
QUEUE = np.dtype(
    [
        *_record(
            "bytes max_bytes in_packets in_bytes enqueued_packets enqueued_bytes out_packets out_bytes"
            " tail_packets tail_bytes buffer_packets buffer_bytes wred_packets wred_bytes"
            " headroom_packets headroom_bytes purged_packets purged_bytes ce_packets ect_packets"
            " trimmed_packets trimmed_bytes forwarded_packets forwarded_bytes"
        ),
        ("depth", "<u8", (DEPTH_BINS,)),
    ]
)
CURVE = np.dtype([("packets", "<u8", (CURVE_BINS,)), ("marked", "<u8", (CURVE_BINS,))])
INGRESS = np.dtype(
    [
        *_record(
            "bytes max_bytes in_packets in_bytes lost_packets lost_bytes policed_packets policed_bytes"
            " corrupted_packets ce_packets xoff_events xon_events pause_frames malformed_frames"
        ),
        *_record("xoff xoff_bytes xon_bytes limit_bytes", "<u4"),
        ("xoff_ns", "<u8"),
    ]
)
PAUSE = np.dtype(
    [
        *_record(
            "xoff_sent xon_sent xoff_received xon_received paused_ns paused_since asked_ns asked_since"
            " watchdog_events watchdog_dropped"
        ),
        *_record("closed storm ignored pad", "<u4"),
    ]
)
EVENT = np.dtype(
    [
        ("ns", "<u8"),
        ("port", "<u2"),
        ("kind", "u1"),
        ("priority", "u1"),
        ("bytes", "<u4"),
        ("quanta", "<u2", (CLASSES,)),
    ]
)
LAB_CONFIG = np.dtype([*_record("tag pad", "<u4"), ("lost_events", "<u8")])

MAPS = {
    "lab": LAB_CONFIG,
    "profiles": PROFILE,
    "ports": PORT_CONFIG,
    "buffers": BUFFER,
    "queues": QUEUE,
    "ingress": INGRESS,
    "pauses": PAUSE,
    "curves": CURVE,
}
"""The array maps by name, one value type each. Those of `abi.QUEUE_MAPS` have CLASSES values a port."""
