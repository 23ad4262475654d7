"""Ideals of special cases in closed form, which the general ones of `testbed.workload.oracles` must agree with."""

from collections.abc import Sequence

from testbed.workload.metrics import busbw_factor
from testbed.workload.oracles.serialisation import WIRE_GAP_BYTES, Framing, serialisation_s


def collective_roofline_s(kind: str, ranks: int, size_bytes: float, rate_bps: float) -> float:
    """S * factor * 8 / B: the time at which busbw is the line rate (nccl-tests, doc/PERFORMANCE.md)."""
    if rate_bps <= 0:
        raise ValueError(f"a rate of {rate_bps} bit/s")
    return 8 * size_bytes * busbw_factor(kind, ranks) / rate_bps


def training_roofline_s(iterations: int, compute_s: float, communication_s: Sequence[float]) -> float:
    """Iterations of computing, then communicating: iters * (C + sum of the collectives' rooflines).

    draft-calabria-bmwg-ai-fabric-training-bench (individual Internet-Draft). A job that overlaps the two can be faster:
    `overlapped_roofline_s`.
    """
    return iterations * (compute_s + sum(communication_s))


def overlapped_roofline_s(iterations: int, compute_s: float, communication_s: Sequence[float]) -> float:
    """The bound where all communication may hide behind computing: iters * max(C, communication)."""
    return iterations * max(compute_s, sum(communication_s))


def rocev2_framing(payload_bytes: int = 4096) -> Framing:
    """On a real wire: Ethernet 14 + 4, IPv4 20, UDP 8, BTH 12, ICRC 4, gap 20; RETH 16 first (InfiniBand annex A17)."""
    return Framing(payload_bytes=payload_bytes, overhead_bytes=62 + WIRE_GAP_BYTES, first_bytes=16)


def standalone_fct_s(size_bytes: int, *, rate_bps: float, base_rtt_s: float, framing: Framing) -> float:
    """One transfer on an empty network: base RTT + bytes with headers / rate (HPCC, analysis/fct_analysis.py)."""
    return base_rtt_s + serialisation_s(framing.wire_bytes(size_bytes), rate_bps)


def incast_ideal_s(senders: int, size_bytes: int, *, rate_bps: float, base_rtt_s: float, framing: Framing) -> float:
    """N senders of S bytes each to one receiver: N * S * 8 / B + base RTT, to the last byte."""
    if senders < 1:
        raise ValueError(f"an incast of {senders} senders")
    return base_rtt_s + serialisation_s(senders * framing.wire_bytes(size_bytes), rate_bps)
