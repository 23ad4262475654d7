"""What each transport's messages cost on a shaped port of the lab, which counts Ethernet headers and no gap."""

from __future__ import annotations

from typing import assert_never

from testbed.model.scenario import Transport, TransportKind
from testbed.workload.oracles.serialisation import Framing, tcp_framing

ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES = 14, 20, 8
UET_HEADER_BYTES = 12 + 44
"""RUD request and standard SES header (UE Specification 1.0, tables 3-30 and 3-8)."""
TSS_BYTES = 12 + 16
"""Security header and the tag of AES-GCM (UE Specification 1.0, section 3.7)."""
UET_LARGEST_PAYLOAD = 4096
BTH_BYTES, RETH_BYTES, ICRC_BYTES = 12, 16, 4
_ROCE_MTUS = (4096, 2048, 1024, 512, 256)


def uet_payload_bytes(mtu_bytes: int, *, tss: bool = False) -> int:
    """Of a full packet: what fits, at most 4096."""
    room = mtu_bytes - IPV4_BYTES - UDP_BYTES - UET_HEADER_BYTES - (TSS_BYTES if tss else 0)
    return min(UET_LARGEST_PAYLOAD, room)


def framing_of(transport: Transport, mtu_bytes: int) -> Framing:
    """Payload and overhead of a full packet."""
    below = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
    match transport.kind:
        case TransportKind.TCP:
            return tcp_framing(mtu_bytes)
        case TransportKind.UET:
            tss = bool(transport.options.get("tss", False))
            overhead = below + UET_HEADER_BYTES + (TSS_BYTES if tss else 0)
            return Framing(payload_bytes=uet_payload_bytes(mtu_bytes, tss=tss), overhead_bytes=overhead)
        case TransportKind.RDMA:
            room = mtu_bytes - IPV4_BYTES - UDP_BYTES - BTH_BYTES - RETH_BYTES - ICRC_BYTES
            payload = next(size for size in _ROCE_MTUS if size <= room or size == _ROCE_MTUS[-1])
            return Framing(payload_bytes=payload, overhead_bytes=below + BTH_BYTES + ICRC_BYTES, first_bytes=RETH_BYTES)
        case _:
            assert_never(transport.kind)
