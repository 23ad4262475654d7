"""QoS presets: what vendors, papers and the UEC configure, each a whole `QosProfile`.

All have the same three classes by the same DSCPs, so that an experiment can sweep presets and change nothing else:
`rdma` (DSCP 26, priority 3, lossless but for `uec`), `control` (DSCP 48: congestion notifications, acknowledgements
and routing; priority 6, strict) and `bulk` (all the rest, priority 0). RDMA on DSCP 26 and priority 3 and CNPs on DSCP
48 in a strict class is what Cisco, NVIDIA and SONiC deployments have in common. Thresholds are those of the source,
mostly bytes at 100 to 400 Gbit/s; there is no industry default (Kmin at 400G spans 131 KB to 2 MB), so sweep them.

XOFF, XON and headroom are always automatic: a vendor's headroom is made for pause reactions of microseconds, and the
lab's own reaction is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.lab.core.model import (
    Buffer,
    Depth,
    DepthUnit,
    EcnCurve,
    MarkAt,
    PfcThresholds,
    QosProfile,
    TrafficClass,
    Watchdog,
)

RDMA, CONTROL, BULK = "rdma", "control", "bulk"
RDMA_DSCP, CONTROL_DSCP = 26, 48


@dataclass(frozen=True, slots=True, kw_only=True)
class QosPreset:
    """`summary` is a line for people; `source` says where the numbers come from."""

    name: str
    summary: str
    source: str
    profile: QosProfile


def _preset(
    name: str,
    *,
    summary: str,
    source: str,
    rdma: TrafficClass,
    buffer: Buffer,
    trimming: bool = False,
    watchdog: Watchdog | None = None,
) -> QosPreset:
    """A preset of the three classes; `bulk` has the share of the port that `rdma` leaves, in percent."""
    classes = (
        TrafficClass(name=BULK, priority=0, default=True, weight=100 - rdma.weight),
        rdma,
        TrafficClass(name=CONTROL, priority=6, dscp=(CONTROL_DSCP,), strict=True),
    )
    profile = QosProfile(preset=name, classes=classes, buffer=buffer, trimming=trimming, watchdog=watchdog)
    return QosPreset(name=name, summary=summary, source=source, profile=profile)


def _rdma(ecn: EcnCurve, *, weight: int = 60, limit: Depth | None = None, lossless: bool = True) -> TrafficClass:
    """The class of RDMA, which gets `weight` percent of a port that `bulk` fills as well."""
    return TrafficClass(
        name=RDMA,
        priority=3,
        dscp=(RDMA_DSCP,),
        weight=weight,
        lossless=lossless,
        limit=limit,
        ecn=ecn,
        pfc=PfcThresholds() if lossless else None,
    )


def _bytes(kmin: int, kmax: int, pmax: float) -> EcnCurve:
    return EcnCurve(kmin=Depth(kmin), kmax=Depth(kmax), pmax=pmax)


QOS_PRESETS = {
    preset.name: preset
    for preset in (
        # SONiC: WRED profile AZURE_LOSSLESS (sonic-buildimage, files/build_templates/qos_config.j2), any rate. Kmin
        # 1,048,576 B, Kmax 2,097,152 B, 5 %, `ecn_all`. Scheduler weights 15 (lossless) to 14. Buffer of a Tomahawk 5
        # (ingress pool 162,910,774 B); `dynamic_th` 1 is alpha = 2 (SAI: alpha is 2^dynamic_th). Watchdog 200/200 ms.
        _preset(
            "sonic",
            summary="SONiC's AZURE_LOSSLESS: high thresholds, gentle marking",
            source="sonic-buildimage qos_config.j2, Tomahawk 5 buffers",
            rdma=_rdma(_bytes(1_048_576, 2_097_152, 0.05), weight=52),
            buffer=Buffer(shared_bytes=162_910_774, alpha=2.0),
            watchdog=Watchdog(),
        ),
        # Cisco's AI blueprint for Nexus 9000, 100 to 400G: 150 KB to 3000 KB, 7 %, `weight 0 ecn` (instantaneous
        # queue). Buffer of a Nexus 9364D-GX2A (120 MB). Alpha 1 and 60:40 are ours, and the watchdog is SONiC's.
        _preset(
            "cisco",
            summary="Cisco's AI blueprint: early and gentle, 150 KB to 3 MB at 7 %",
            source="Cisco Nexus 9000 AI/ML blueprint",
            rdma=_rdma(_bytes(150_000, 3_000_000, 0.07)),
            buffer=Buffer(shared_bytes=120_000_000, alpha=1.0),
            watchdog=Watchdog(),
        ),
        # Arista's configuration examples, 100G and more: 256 KB to 512 KB, 100 %. Buffer of a 7060X6 (Tomahawk 5, 165
        # MB). Alpha 1 and 60:40 are ours, and the watchdog is SONiC's.
        _preset(
            "arista",
            summary="Arista's examples: a short steep curve, 256 to 512 KB at 100 %",
            source="Arista AI networking examples",
            rdma=_rdma(_bytes(256_000, 512_000, 1.0)),
            buffer=Buffer(shared_bytes=165_000_000, alpha=1.0),
            watchdog=Watchdog(),
        ),
        # NVIDIA's RoCE guide (`nv set qos roce`): 150 KB to 1500 KB, 100 %; priorities 3 and 0 share 50:50. Buffer of a
        # Spectrum-4 (160 MB). Alpha 1 is ours, and the watchdog is SONiC's.
        _preset(
            "nvidia",
            summary="NVIDIA's RoCE guide: 150 KB to 1.5 MB at 100 %, 50:50",
            source="NVIDIA RoCE configuration guide",
            rdma=_rdma(_bytes(150_000, 1_500_000, 1.0), weight=50),
            buffer=Buffer(shared_bytes=160_000_000, alpha=1.0),
            watchdog=Watchdog(),
        ),
        # The DCQCN paper (Zhu et al., SIGCOMM 2015, section 5.3): 5 KB to 200 KB, 1 %, made for 40G ports. At another
        # rate multiply them by rate / 40G: thresholds are linear in the rate at equal RTT. Its switch (Trident II) has
        # 12 MB; alpha is ours. No watchdog existed.
        _preset(
            "dcqcn",
            summary="the DCQCN paper's parameters, for 40G ports: 5 to 200 KB at 1 %",
            source="DCQCN, SIGCOMM 2015, section 5.3",
            rdma=_rdma(_bytes(5_000, 200_000, 0.01)),
            buffer=Buffer(shared_bytes=12_000_000, alpha=1.0),
        ),
        # Ultra Ethernet 1.0, section 3.6.17: ECN from 0.2 to 0.8 BDP at dequeue, trimming at one BDP; lossy. Marks
        # surely at Kmax (pmax 1). Buffer and alpha are ours: room for trimming to act before the buffer is full.
        _preset(
            "uec",
            summary="Ultra Ethernet: 0.2 to 0.8 BDP, lossy, trimming at one BDP",
            source="UE specification 1.0, section 3.6.17",
            rdma=_rdma(
                EcnCurve(kmin=Depth(0.2, DepthUnit.BDP), kmax=Depth(0.8, DepthUnit.BDP), mark_at=MarkAt.DEQUEUE),
                limit=Depth(1.0, DepthUnit.BDP),
                lossless=False,
            ),
            buffer=Buffer(shared_bytes=64_000_000, alpha=1.0),
            trimming=True,
        ),
    )
}
