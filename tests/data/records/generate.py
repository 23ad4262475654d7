"""Writes the made-up records of this directory: `python tests/data/records/generate.py`.

No lab ran for them. They have the shape of real ones of the present schema with figures drawn from a seed, so that
reports and comparisons have a sweep with an oracle, collectives, a fault, an incast over a number and mice to show.
`permutation.json` and `incast-trimming.json` are none of them: they were measured.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testbed.record.record import (
    Check,
    Environment,
    ExpectationResult,
    LabSummary,
    MetricSummary,
    Outcome,
    PointResult,
    PredictedMetric,
    Record,
    RunResult,
    ScenarioAsRun,
    Verdict,
)
from testbed.record.samples import (
    Channel,
    ChannelSamples,
    CollectiveResult,
    Distribution,
    FlowEnd,
    PortLoad,
    RunEvent,
    Series,
    Transfers,
)
from testbed.record.store import encode_record
from testbed.workload.metrics import CATALOGUE, busbw_factor, jain_index, max_mean_ratio, percentile

HERE = Path(__file__).parent
K = 4000.0
NIC_BPS = 100_000_000
EFFICIENCY = 0.985
IDEAL_BPS = NIC_BPS * EFFICIENCY
BASE_RTT_S = 0.008


def lab(nics: int = 16, **changes: Any) -> LabSummary:
    values: dict[str, Any] = {
        "name": "rail-pod", "design": "rail-optimized", "k": K, "k_auto": True, "hosts": nics // 2, "nics": nics,
        "switches": {"rail": 4, "spine": 4}, "links": nics + 16, "nic_bps": NIC_BPS, "nic_real_bps": 400_000_000_000,
        "uplink_bps": NIC_BPS, "uplink_real_bps": 400_000_000_000, "mtu_bytes": 4500,
        "routing": "ebgp unnumbered, ECMP up to 64, BFD 300 ms x 3",
    }  # fmt: skip
    return LabSummary(**{**values, **changes})


def environment() -> Environment:
    return Environment(
        testbed="0.1.0", python="3.11.2", kernel="6.12.0-amd64", distribution="Debian GNU/Linux 12 (bookworm)",
        cpu_model="Example CPU @ 2.20GHz", cores=2, memory_bytes=25_276_514_304, iperf3="3.12", frr="8.4.4",
        git_commit="0123456789ab",
        approximations=[
            "Rates are divided by k = 4000; bytes (MTU, buffers, message sizes) are not scaled.",
            "A pause takes effect after 180 us (99th percentile) of lab time, 45 ns of the real fabric's.",
            "ECMP picks by a keyed hash of ours, not by a switch ASIC's.",
        ],
    )  # fmt: skip


def nic(rank: int) -> FlowEnd:
    segment, host, rail = rank // 8 + 1, rank % 8 // 2 + 1, rank % 2 + 1
    return FlowEnd(node=f"p1-s{segment}-h{host}", interface=f"rail{rail}", address=f"10.0.{rail}.{rank + 2}")


def channel(
    number: int, source: int, destination: int, size: int, seconds: float, dice: random.Random, *,
    rate: Callable[[float], float] | None = None, samples: int = 0, retransmits: int = 0,
) -> Channel:  # fmt: skip
    """`rate` over time in bit/s; constant without."""
    goodput = size * 8 / seconds
    table = ChannelSamples()
    if samples:
        sent, at, columns = 0.0, 0.0, ChannelSamples()
        for index in range(1, samples + 1):
            step = index * seconds / samples - at
            at = index * seconds / samples
            now = goodput if rate is None else rate(at)
            sent += now * step / 8
            columns.at_s.append(round(at, 5))
            columns.acked_bytes.append(int(sent))
            queued = 0.002 + 0.004 * dice.random()
            columns.rtt_us.append(round((BASE_RTT_S + queued) * 1e6, 1))
            columns.cwnd_bytes.append(int(max(9000.0, now * (BASE_RTT_S + queued) / 8 * (0.9 + 0.3 * dice.random()))))
            columns.retransmits.append(retransmits * index // samples)
        table = columns
    return Channel(
        source_rank=source, destination_rank=destination, source=nic(source), destination=nic(destination),
        rail=source % 2 + 1, source_port=None, destination_port=4793, sent_bytes=size, received_bytes=size,
        seconds=seconds, busy_s=seconds, ideal_bps=IDEAL_BPS, goodput_bps=goodput, retransmits=retransmits,
        packets=size // 4096 + retransmits, min_rtt_us=BASE_RTT_S * 1e6, samples=table,
        counters={"trimmed": retransmits, "out_of_order": number * 3},
    )  # fmt: skip


def transfers(rows: Sequence[tuple[int, int, int, int, float, float | None]]) -> Transfers:
    """(source, destination, size, channel, start, end)."""
    return Transfers(
        number=list(range(len(rows))),
        source=[row[0] for row in rows],
        destination=[row[1] for row in rows],
        size_bytes=[row[2] for row in rows],
        channel=[row[3] for row in rows],
        start_s=[round(row[4], 6) for row in rows],
        end_s=[None if row[5] is None else round(row[5], 6) for row in rows],
        ideal_s=[round(row[2] * 8 / IDEAL_BPS + BASE_RTT_S / 2, 6) for row in rows],
    )


def checks(dice: random.Random, *, busy: float | None = None) -> list[Check]:
    found = round(0.35 + 0.2 * dice.random(), 3) if busy is None else busy
    late = round(2e-4 + 4e-4 * dice.random(), 6)
    return [
        Check(
            name="cpu", title="CPU of the machine", value=found, limit=0.9, ok=found <= 0.9,
            message=f"the machine was {found:.0%} busy (limit 90%), 1% stolen by the hypervisor",
        ),
        Check(
            name="canary", title="A thread that wakes on time", value=late, limit=0.002, ok=True,
            message=f"a real-time thread woke {late * 1e6:.0f} us late at worst (limit 2,000 us)",
        ),
        Check(
            name="conservation", title="Packets are conserved at every hop", value=0.0, limit=0.0, ok=True,
            message="all counters reconcile",
        ),
    ]  # fmt: skip


def uplinks(loads: Sequence[Sequence[float]], seconds: float, *, dropped: int = 0) -> list[PortLoad]:
    """Utilisation by rail switch and spine; what arrives goes down again."""
    found = []
    for row, shares in enumerate(loads):
        switch = f"p1-s{row // 2 + 1}-rail{row % 2 + 1}"
        for spine, share in enumerate(shares):
            found.append(
                PortLoad(
                    node=switch, interface=f"uplink{spine + 1}", peer=f"p1-spine{spine + 1}:down{row + 1}",
                    tier="uplink", rate_bps=NIC_BPS, tx_bytes=int(share * NIC_BPS * seconds / 8),
                    tx_dropped=dropped if share > 0.97 else 0, utilisation=round(share, 4),
                    ce_packets=int(4000 * max(0.0, share - 0.6)), queue_max_bytes=int(400_000 * share),
                )
            )  # fmt: skip
    return found


def summarise(runs: Sequence[RunResult], ideals: dict[str, float]) -> list[MetricSummary]:
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.metrics):
        values = [run.metrics.get(name) for run in runs]
        known = [value for value in values if value is not None]
        definition = CATALOGUE[name]
        mean = statistics.fmean(known)
        found.append(
            MetricSummary(
                name=name, title=definition.title, unit=definition.unit.value, definition=definition.formula,
                headline=not definition.emulation, ideal=ideals.get(name), values=values,
                median=statistics.median(known), minimum=min(known), maximum=max(known),
                cv=statistics.stdev(known) / mean if len(known) > 1 and mean > 0 else None,
            )
        )  # fmt: skip
    return found


def run_result(
    index: int, elapsed_s: float, metrics: dict[str, float], run_checks: list[Check], **more: Any
) -> RunResult:
    rounded: dict[str, float | None] = {name: round(value, 6) for name, value in metrics.items()}
    return RunResult(
        index=index, seed=index, started=f"2026-11-21T15:02:{index:02d}.000Z", elapsed_s=elapsed_s,
        metrics=rounded, checks=run_checks, **more,
    )  # fmt: skip


def record(
    name: str, description: str, points: list[PointResult], expectations: list[ExpectationResult], *,
    workload: dict[str, Any], transport: dict[str, Any], matrix: dict[str, list[Any]] | None = None,
    faults: list[dict[str, Any]] | None = None, incomplete: str = "",
) -> Record:  # fmt: skip
    broken = [f"run {run.index}: {check.message}" for point in points for run in point.runs for check in run.checks
              if not check.ok]  # fmt: skip
    missed = [item for item in expectations if item.outcome is Outcome.FAIL]
    if incomplete or broken:
        verdict = Verdict(outcome=Outcome.INVALID, reasons=[*([f"it did not run to its end: {incomplete}"] if incomplete
                                                              else []), *broken])  # fmt: skip
    elif missed:
        verdict = Verdict(
            outcome=Outcome.FAIL,
            reasons=[
                f"{item.metric} is {item.measured:.3f}, expected at most {item.maximum or 0:.3f}" for item in missed
            ],
        )
    else:
        met = f"{len(expectations)} of {len(expectations)} expectations met" if expectations else "nothing was expected"
        verdict = Verdict(outcome=Outcome.PASS, reasons=[f"{met}, and the machine kept up"])
    first = points[0]
    return Record(
        scenario=ScenarioAsRun(
            name=name, topology={"file": "rail-pod.yml", "set": {"fabric.hosts": 4}}, transport=transport,
            workload=workload, repeat={"runs": len(first.runs), "seed": 1}, expect=[], overrides=[],
            source=f"{name}.yml", matrix=matrix or {}, faults=faults or [], description=description,
        ),
        environment=environment(), started="2026-11-21T15:02:00.000Z", finished="2026-11-21T15:02:48.300Z",
        incomplete=incomplete, points=points, expectations=expectations, verdict=verdict,
        command=["testbed", "run", f"scenarios/{name}.yml"], wall_s=48.3,
        comparability={
            "nics": first.lab.nics, "k": first.lab.k, "design": first.lab.design, "oversubscription": 1.0,
            "transport": transport, "workload": workload, "clock": "wall",
        },
    )  # fmt: skip


def expectation(metric: str, measured: float, source: str, *, low: float | None = None, high: float | None = None,
                point: str = "") -> ExpectationResult:  # fmt: skip
    met = (low is None or measured >= low) and (high is None or measured <= high)
    return ExpectationResult(
        metric=metric, minimum=low, maximum=high, source=source, measured=measured,
        outcome=Outcome.PASS if met else Outcome.FAIL, point=point,
    )  # fmt: skip


def median_of(point: PointResult, metric: str) -> float:
    value = next(item.median for item in point.metrics if item.name == metric)
    assert value is not None
    return value


def permutation_run(mode: str, index: int, dice: random.Random) -> RunResult:
    """16 flows over 4 rail switches with 4 spines each: hashed, by flowlets, or sprayed."""
    size = 4_000_000
    loads = [[0] * 4 for _ in range(4)]
    for switch in range(4):
        for _ in range(4):
            loads[switch][dice.randrange(4)] += 1
    shares = []
    for row in loads:
        for spine in row:
            shares += [1 / max(1, spine)] * spine
    if mode == "flowlet":
        shares = [0.55 * share + 0.45 * 0.86 for share in shares]
    if mode == "spray":
        shares = [0.93 + 0.05 * dice.random() for _ in shares]
    shares = [min(0.99, share * (0.96 + 0.03 * dice.random())) for share in shares]
    spread = {"flow": 1.0, "flowlet": 0.45, "spray": 0.03}[mode]
    used = [[(1 - spread) * 0.94 + spread * min(1.0, float(count)) * 0.98 for count in row] for row in loads]
    times = [size * 8 / (IDEAL_BPS * share) + BASE_RTT_S / 2 for share in shares]
    ideal_s = size * 8 / IDEAL_BPS + BASE_RTT_S
    resent = {"flow": 12, "flowlet": 30, "spray": 2}[mode]
    channels = [
        channel(
            number, number, (number + 8) % 16, size, times[number], dice, samples=8, retransmits=dice.randrange(resent)
        )
        for number in range(16)
    ]
    elapsed = max(times)
    ports = uplinks(used, elapsed, dropped=7 if mode == "flow" else 0)
    loaded = [float(port.tx_bytes) for port in ports]
    grid = [round(step * elapsed / 60, 4) for step in range(61)]
    queues = [
        Series(
            name=f"queue:p1-s1-rail1:uplink{spine + 1}:rdma", title=f"p1-s1-rail1:uplink{spine + 1} rdma", unit="byte",
            at_s=grid,
            values=[
                round(max(0.0, 250_000 * used[0][spine] ** 4 * (0.6 + 0.4 * math.sin(step / 3 + spine))))
                for step in range(61)
            ],
        )
        for spine in range(4)
    ]  # fmt: skip
    metrics = {
        "aggregate_share": statistics.fmean(shares), "slowest_share": min(shares),
        "aggregate_goodput": sum(shares) * IDEAL_BPS, "jain_flows": jain_index(shares) or 0.0,
        "fct_slowdown_p99": max(times) / ideal_s, "tail_fct": max(times), "tail_fct_ratio": max(times) / ideal_s,
        "retransmits": float(sum(one.retransmits for one in channels)),
        "mmr_uplinks": max_mean_ratio(loaded) or 0.0, "jain_links": jain_index(loaded) or 0.0,
        "ecn_mark_ratio": 0.02 * spread + 0.004, "queue_p99": 60_000 + 190_000 * spread,
        "cpu_busy": 0.45, "cpu_steal": 0.01,
    }  # fmt: skip
    rows = [(number, (number + 8) % 16, size, number, 0.0, times[number]) for number in range(16)]
    return run_result(
        index, elapsed, metrics, checks(dice), transfers=transfers(rows), channels=channels, ports=ports, series=queues
    )


def load_balancing() -> Record:
    """A sweep over load balancing with the oracle's bands."""
    points = []
    predicted = {"flow": (0.684, 0.08), "flowlet": (0.80, 0.05), "spray": (0.97, 0.004)}
    for mode, (mean, stdev) in predicted.items():
        dice = random.Random(f"lb {mode}")
        runs = [permutation_run(mode, index, dice) for index in range(1, 7)]
        ideals = {"aggregate_share": 1.0, "slowest_share": 1.0, "jain_flows": 1.0, "mmr_uplinks": 1.0,
                  "tail_fct_ratio": 1.0, "fct_slowdown_p99": 1.0, "retransmits": 0.0}  # fmt: skip
        points.append(
            PointResult(
                name=f"mode={mode}", values={"qos.load_balancing.mode": mode}, lab=lab(),
                transport={"kind": "uet", "cc": "nscc"}, workload={"kind": "permutation"}, runs=runs,
                metrics=summarise(runs, ideals),
                predictions=[
                    PredictedMetric(
                        metric="aggregate_share", oracle="max-min fair allocation over this topology's graph and hash",
                        mean=mean, stdev=stdev, minimum=mean - 2 * stdev, maximum=min(1.0, mean + 2 * stdev), seeds=200,
                    )
                ],
            )
        )  # fmt: skip
    flow, _, spray = points
    return record(
        "permutation-lb",
        "A permutation of 16 NICs over 4 spines, three times: hashed by flow, moved by flowlets, sprayed by packet.",
        points,
        [
            expectation("aggregate_share", median_of(flow, "aggregate_share"), "max-min oracle of this topology",
                        low=0.604, high=0.764, point=flow.name),
            expectation("tail_fct_ratio", median_of(spray, "tail_fct_ratio"), "ideal serialisation + base RTT",
                        high=1.35, point=spray.name),
        ],
        workload={"kind": "permutation", "scope": "inter-leaf", "bytes": 4_000_000},
        transport={"kind": "uet", "cc": "nscc", "paths": "reps"},
        matrix={"qos.load_balancing.mode": ["flow", "flowlet", "spray"]},
    )  # fmt: skip


def all_reduce() -> Record:
    """A ring AllReduce over sizes, with real data checked."""
    dice = random.Random("all reduce")
    runs = []
    for index in range(1, 4):
        found, at = [], 0.0
        for power in range(16, 25):
            size = 2**power
            for _ in range(2):
                seconds = size * busbw_factor("all_reduce", 8) * 8 / IDEAL_BPS + 14 * BASE_RTT_S * (
                    1 + 0.1 * dice.random()
                )
                algbw = size * 8 / seconds
                found.append(
                    CollectiveResult(
                        kind="all_reduce", algorithm="ring", ranks=8, size_bytes=size, elements=size // 4,
                        datatype="float32", redop="sum", root=None, start_s=round(at, 5), seconds=round(seconds, 6),
                        algbw_bps=round(algbw), busbw_bps=round(algbw * busbw_factor("all_reduce", 8)),
                        ideal_busbw_bps=NIC_BPS, wrong=0,
                    )
                )  # fmt: skip
                at += seconds
        largest = [one for one in found if one.size_bytes == 2**24]
        channels = [
            channel(rank, rank, (rank + 1) % 8, 2**24, at, dice, samples=40,
                    rate=lambda at_s: IDEAL_BPS * min(0.96, 0.3 + at_s / 6))
            for rank in range(8)
        ]  # fmt: skip
        metrics = {
            "algbw": statistics.fmean(one.algbw_bps for one in largest) / 8,
            "busbw": statistics.fmean(one.busbw_bps for one in largest) / 8,
            "busbw_share": statistics.fmean(one.busbw_bps for one in largest) / NIC_BPS,
            "jct": at, "jct_ratio": 1.04 + 0.01 * dice.random(), "step_p99": max(one.seconds for one in largest),
            "s_fabric": 14 * 2**24 * 2.0, "retransmits": 0.0, "cpu_busy": 0.4,
        }  # fmt: skip
        runs.append(
            run_result(index, at, metrics, checks(dice), collectives=found, channels=channels,
                       ports=uplinks([[0.0] * 4] * 4, at))
        )  # fmt: skip
    ideals = {"busbw": NIC_BPS / 8, "busbw_share": 1.0, "jct_ratio": 1.0, "retransmits": 0.0}
    point = PointResult(
        name="", values={}, lab=lab(), transport={"kind": "tcp"}, workload={"kind": "all_reduce"}, runs=runs,
        metrics=summarise(runs, ideals), notes=["Reductions take no time: hosts add at once what arrives."],
    )  # fmt: skip
    share = median_of(point, "busbw_share")
    return record(
        "allreduce-rail", "Ring AllReduce of 8 GPUs of one rail, from 64 KiB to 16 MiB.", [point],
        [expectation("busbw_share", share, "nccl-tests: busbw is bound by the line rate", low=0.9)],
        workload={"kind": "all_reduce", "algorithm": "ring", "bytes": [2**power for power in range(16, 25)]},
        transport={"kind": "tcp", "cc": "cubic"},
    )  # fmt: skip


def link_fault() -> Record:
    """A silent failure of an uplink that BFD finds; a run that had to be given up; a broken trust check."""
    dice = random.Random("fault")
    runs = []
    for index in range(1, 3):
        detected = 1.9 + 0.05 * dice.random()

        def rate(at_s: float, lost: bool, detected: float = detected) -> float:
            if lost and 1.0 <= at_s < detected:
                return 0.0
            return IDEAL_BPS * (0.9 if at_s > 0.2 else 0.9 * at_s / 0.2)

        channels = [
            channel(
                number, number, number + 8, 40_000_000, 4.0, dice, samples=100, retransmits=180 if number < 2 else 0,
                rate=lambda at_s, lost=number < 2: rate(at_s, lost),  # type: ignore[misc]
            )
            for number in range(8)
        ]  # fmt: skip
        metrics = {
            "aggregate_share": 0.79, "slowest_share": 0.66, "aggregate_goodput": 8 * IDEAL_BPS * 0.79,
            "recovery_time": detected - 1.0 + 0.04, "blackhole_time_rate": detected - 1.0,
            "dip_depth": 0.25, "retransmits": 360.0, "cpu_busy": 0.5,
        }  # fmt: skip
        rows = [(number, number + 8, 40_000_000, number, 0.0, 4.0 if number else None) for number in range(8)]
        runs.append(
            run_result(
                index, 4.0, metrics, checks(dice, busy=0.93 if index == 2 else None), channels=channels,
                transfers=transfers(rows), complete=index == 1,
                ports=uplinks([[0.9, 0.88, 0.62, 0.9]] * 4, 4.0),
                events=[
                    RunEvent(at_s=1.0, kind="link-set", target="p1-s1-rail1:uplink1", detail="silent"),
                    RunEvent(at_s=round(detected, 4), kind="detected", target="p1-s1-rail1", detail="BFD: peer down"),
                    RunEvent(at_s=round(detected + 0.02, 4), kind="converged", target="p1-s1-rail1",
                             detail="3 of 4 next hops"),
                    RunEvent(at_s=3.0, kind="link-reset", target="p1-s1-rail1:uplink1", detail="as declared"),
                ],
                distributions=[
                    Distribution(
                        name="reordering", title="Reordering extent", unit="packet",
                        edges=[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
                        counts=[9200, 410, 220, 90, 30, 4],
                    )
                ],
                counters={"silent_drops": 1430.0, "bfd_sessions": 64.0},
            )
        )  # fmt: skip
    point = PointResult(
        name="", values={}, lab=lab(), transport={"kind": "uet"}, workload={"kind": "permutation"}, runs=runs,
        metrics=summarise(runs, {"aggregate_share": 1.0, "slowest_share": 1.0}),
    )  # fmt: skip
    return record(
        "silent-failure", "An uplink loses every packet for two seconds without going down; BFD has to notice.",
        [point],
        [expectation("recovery_time", median_of(point, "recovery_time"), "BFD 300 ms x 3", low=0.6, high=1.125)],
        workload={"kind": "permutation", "bytes": 40_000_000}, transport={"kind": "uet", "cc": "nscc"},
        faults=[{"at": "1 s", "kind": "link-set", "target": "p1-s1-rail1:uplink1", "silent": True, "until": "3 s"}],
        incomplete="interrupted in run 2 of 3",
    )  # fmt: skip


def incast() -> Record:
    """Tail against the number of senders, with two congestion controls; one of them misses."""
    points = []
    for control in ("nscc", "none"):
        for senders in (2, 4, 8, 16):
            dice = random.Random(f"incast {control} {senders}")
            runs = []
            for index in range(1, 4):
                size = 1_000_000
                ideal_s = senders * size * 8 / IDEAL_BPS + BASE_RTT_S
                over = 1.03 + 0.02 * dice.random() + (0.02 * senders if control == "none" else 0.0)
                ends = [ideal_s * over * (1 - 0.04 * dice.random()) for _ in range(senders)]
                channels = [channel(rank, rank, 16, size, ends[rank], dice, samples=12) for rank in range(senders)]
                receiver = PortLoad(
                    node="p1-s2-rail1", interface="down1", peer="p1-s3-h1:rail1", tier="delivery", rate_bps=NIC_BPS,
                    tx_bytes=senders * size, tx_dropped=0, utilisation=0.97, ce_packets=senders * 90,
                    paused_us=0, queue_max_bytes=90_000 * senders,
                )  # fmt: skip
                senders_ports = [
                    PortLoad(
                        node=nic(rank).node, interface=nic(rank).interface, peer=f"p1-s1-rail1:down{rank + 1}",
                        tier="access", rate_bps=NIC_BPS, tx_bytes=size, tx_dropped=0, utilisation=0.97 / senders,
                        paused_us=int(5e4 * senders * dice.random()) if control == "none" else 0,
                    )
                    for rank in range(senders)
                ]  # fmt: skip
                metrics = {
                    "tail_fct_ratio": max(ends) / ideal_s, "tail_fct": max(ends), "jain_flows": 0.99,
                    "goodput_share": ideal_s / max(ends),
                    "queue_p99": 40_000.0 * senders * (2 if control == "none" else 1),
                    "pause_frames": float(sum(port.paused_us > 0 for port in senders_ports)), "retransmits": 0.0,
                    "cpu_busy": 0.3,
                }  # fmt: skip
                rows = [(rank, 16, size, rank, 0.0, ends[rank]) for rank in range(senders)]
                runs.append(
                    run_result(index, max(ends), metrics, checks(dice), transfers=transfers(rows), channels=channels,
                               ports=[receiver, *senders_ports])
                )  # fmt: skip
            points.append(
                PointResult(
                    name=f"cc={control} senders={senders}",
                    values={"transport.cc": control, "workload.senders": senders},
                    lab=lab(18), transport={"kind": "uet"}, workload={"kind": "incast"}, runs=runs,
                    metrics=summarise(runs, {"tail_fct_ratio": 1.0, "goodput_share": 1.0, "jain_flows": 1.0}),
                )
            )  # fmt: skip
    return record(
        "incast-senders", "N senders, one receiver, 1 MB each: does the last byte come when it should?", points,
        [
            expectation("tail_fct_ratio", median_of(point, "tail_fct_ratio"), "N * S * 8 / B + base RTT", high=1.15,
                        point=point.name)
            for point in points
        ],
        workload={"kind": "incast", "bytes": 1_000_000}, transport={"kind": "uet"},
        matrix={"transport.cc": ["nscc", "none"], "workload.senders": [2, 4, 8, 16]},
    )  # fmt: skip


def mice() -> Record:
    """Front-end flows of many sizes, open loop."""
    dice = random.Random("mice")
    runs = []
    for index in range(1, 4):
        rows, at = [], 0.0
        for number in range(400):
            at += dice.expovariate(80)
            size = min(30_000_000, int(math.exp(dice.gauss(10.2, 1.6))) + 200)
            alone = size * 8 / IDEAL_BPS + BASE_RTT_S / 2
            rows.append(
                (
                    number % 8,
                    8 + number % 7,
                    size,
                    number % 8,
                    at,
                    at + alone * (1 + dice.expovariate(1.6) * (1 + 3e4 / size) ** 0.2),
                )
            )
        channels = [channel(rank, rank, 8 + rank, 4_000_000, at, dice) for rank in range(8)]
        slowdown = [(end - start) / (size * 8 / IDEAL_BPS + BASE_RTT_S / 2) for _, _, size, _, start, end in rows]
        metrics = {f"fct_slowdown_p{share:.0f}": percentile(slowdown, share / 100) or 0.0 for share in (50, 95, 99)}
        runs.append(
            run_result(index, at, metrics | {"retransmits": 14.0, "mmr_uplinks": 1.23, "cpu_busy": 0.4}, checks(dice),
                       transfers=transfers(rows), channels=channels,
                       ports=uplinks([[0.21, 0.18, 0.2, 0.19]] * 4, at))
        )  # fmt: skip
    point = PointResult(
        name="", values={}, lab=lab(), transport={"kind": "tcp"}, workload={"kind": "mice"}, runs=runs,
        metrics=summarise(runs, dict.fromkeys(("fct_slowdown_p50", "fct_slowdown_p95", "fct_slowdown_p99"), 1.0)),
    )  # fmt: skip
    return record(
        "frontend-mice", "Open-loop Poisson arrivals of the WebSearch distribution at 20 % load.", [point], [],
        workload={"kind": "mice", "distribution": "websearch", "load": 0.2}, transport={"kind": "tcp", "cc": "dctcp"},
    )  # fmt: skip


RECORDS: dict[str, Callable[[], Record]] = {
    "permutation-lb": load_balancing,
    "allreduce-rail": all_reduce,
    "silent-failure": link_fault,
    "incast-senders": incast,
    "frontend-mice": mice,
}


if __name__ == "__main__":
    for stem, make in RECORDS.items():
        text = json.dumps(json.loads(encode_record(make())), separators=(",", ":"))
        (HERE / f"{stem}.json").write_text(text + "\n")
