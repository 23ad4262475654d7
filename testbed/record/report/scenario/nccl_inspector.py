"""Collectives as NCCL's Inspector writes them: a JSON object a line, and the text of Prometheus.

The keys are those of NCCL 2.28 and later (plugins/profiler/inspector, inspector_json.cc and inspector_prom.cc), so that
what reads Inspector's dumps reads ours: its perf_summary_exporter.py, and its Grafana dashboard. Times and rates are of
the real fabric. NCCL writes a line for each rank. An operation of ours is timed as a whole, from the first rank that
begins to the last that ends, and is one line, under rank 0.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from testbed.record.record import PointResult, Record, RunResult
from testbed.record.report.scenario.nccl_table import collective_label, whole_runs
from testbed.record.samples import CollectiveResult

INSPECTOR_FILE = "nccl-inspector.log"
"""Inspector's exporter reads files of this ending, and stops where it finds some of `.jsonl` beside them."""
PROMETHEUS_FILE = "nccl-inspector.prom"
FORMAT_VERSION = "v4.0"
"""The version in which each line says its communicator itself (later ones say it once for many lines)."""
TIMING_SOURCE = "collective_cpu"
"""Inspector's word for times that the host's clock gave, and not a kernel of the GPU."""
_UNKNOWN = "unknown"
"""Inspector's word for a job, name or GPU that it does not know."""
_NCCL_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "AlltoAll",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "gather": "Gather",
    "scatter": "Scatter",
    "send_recv": "SendRecv",
}
_MOST = 1e18
"""No time and no rate is more, whatever a stranger's record says."""
_UNITS = ("B", "KB", "MB", "GB", "TB")
_METRICS = (
    ("nccl_bus_bandwidth_gbs", "Bus bandwidth in GB/s: the geometric mean of the operations."),
    ("nccl_collective_exec_time_microseconds", "Time of an operation in microseconds: the mean."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedOperation:
    """A collective operation of a run, and the communicator that carried it out. `number` counts those of it."""

    point: PointResult
    run: RunResult
    item: CollectiveResult
    number: int

    @property
    def communicator(self) -> str:
        """Its name: the point of the matrix, and the group of ranks where the workload has several."""
        return " ".join(filter(None, (self.point.name, collective_label(self.item)))) or _UNKNOWN

    @property
    def name(self) -> str:
        """The function of NCCL, as it writes it."""
        return _NCCL_NAMES.get(self.item.kind, self.item.kind.title().replace("_", ""))

    @property
    def nodes(self) -> int:
        """The hosts that take part: all that carry ranks, or one for each rank where there are fewer of these."""
        hosts = {end.node for channel in self.run.channels for end in (channel.source, channel.destination)}
        return min(self.item.ranks, len(hosts) or self.point.lab.hosts) or 1

    @property
    def real_us(self) -> float:
        """Its time in the real fabric."""
        return min(self.item.seconds / self.point.lab.k * 1e6, _MOST) if self.point.lab.k > 0 else 0.0

    @property
    def algbw_gbs(self) -> float:
        return min(self.item.algbw_bps / 8e9 * self.point.lab.k, _MOST)

    @property
    def busbw_gbs(self) -> float:
        return min(self.item.busbw_bps / 8e9 * self.point.lab.k, _MOST)


def inspected_operations(record: Record) -> Iterator[InspectedOperation]:
    """Return the operations of all complete runs, of each in the order in which they began."""
    for point in record.points:
        numbers: dict[str, int] = {}
        for run in whole_runs(point):
            for item in sorted(run.collectives, key=lambda one: one.start_s):
                place = f"{collective_label(item)} {item.ranks}"
                numbers[place] = numbers.get(place, -1) + 1
                yield InspectedOperation(point=point, run=run, item=item, number=numbers[place])


def inspector_json(record: Record) -> str:
    """All operations of a record, an object a line, as Inspector dumps them; "" where there are none."""
    return "".join(json.dumps(_document(record, one)) + "\n" for one in inspected_operations(record))


def _document(record: Record, one: InspectedOperation) -> dict[str, Any]:
    return {
        "header": {
            "id": _identity(record, one),
            "comm_name": one.communicator,
            "rank": 0,
            "n_ranks": one.item.ranks,
            "nnodes": one.nodes,
        },
        "metadata": {
            "inspector_output_format_version": FORMAT_VERSION,
            "git_rev": record.environment.git_commit or "",
            "rec_mechanism": "testbed",
            "dump_timestamp_us": _ended_us(one),
            "hostname": one.point.lab.name,
            "pid": one.run.index,
        },
        "coll_perf": {
            "coll": one.name,
            "coll_sn": one.number,
            "coll_msg_size_bytes": one.item.size_bytes,
            "coll_exec_time_us": round(one.real_us),
            "coll_timing_source": TIMING_SOURCE,
            "coll_algobw_gbs": round(one.algbw_gbs, 6),
            "coll_busbw_gbs": round(one.busbw_gbs, 6),
        },
    }


def _identity(record: Record, one: InspectedOperation) -> str:
    """Return the number of a communicator: the same in every report of the record."""
    words = f"{record.scenario.name}\n{record.started}\n{one.communicator}\n{one.item.ranks}"
    return f"0x{hashlib.sha256(words.encode(errors='replace')).hexdigest()[:14]}"


def _ended_us(one: InspectedOperation) -> int:
    """Return when it ended by the machine's clock, in microseconds since 1970; 0 where no run says when it began."""
    try:
        begun = datetime.fromisoformat(one.run.started)
        if begun.tzinfo is None:
            begun = begun.replace(tzinfo=UTC)
        return max(0, round((begun.timestamp() + one.item.start_s + one.item.seconds) * 1e6))
    except (ValueError, OverflowError):
        return 0


def inspector_prometheus(record: Record) -> str:
    """The operations of a record as Prometheus' text, as Inspector writes it for the node exporter; "" for none.

    Operations of one function, size and algorithm of a communicator are one line of each metric.
    """
    groups: dict[tuple[tuple[str, str], ...], list[InspectedOperation]] = {}
    for one in inspected_operations(record):
        groups.setdefault(tuple(_labels(record, one).items()), []).append(one)
    if not groups:
        return ""
    lines = []
    for (metric, said), value in zip(_METRICS, (_geometric_busbw, _mean_time), strict=True):
        lines += [f"# HELP {metric} {said}", f"# TYPE {metric} gauge"]
        for labels, operations in groups.items():
            written = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            lines.append(f"{metric}{{{written}}} {value(operations):.6g}")
    return "\n".join(lines) + "\n"


def _labels(record: Record, one: InspectedOperation) -> dict[str, str]:
    return {
        "version": f"testbed-{record.environment.testbed}",
        "slurm_job_id": _UNKNOWN,
        "node": one.point.lab.name,
        "gpu": _UNKNOWN,
        "comm_name": one.communicator,
        "n_nodes": str(one.nodes),
        "nranks": str(one.item.ranks),
        "collective": one.name,
        "message_size": size_range(one.item.size_bytes),
        "algo_proto": one.item.algorithm.upper(),
    }


def size_range(size_bytes: int) -> str:
    """The range of sizes that one falls into, as Inspector labels it: `1-2MB` for 1 MiB and all below 2 MiB."""
    if not size_bytes:
        return "0B"
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    least = max(1, math.floor(value))
    return f"{least}-{least + 1}{_UNITS[unit]}"


def _geometric_busbw(operations: Sequence[InspectedOperation]) -> float:
    known = [one.busbw_gbs for one in operations if one.busbw_gbs > 0]
    return math.exp(_mean(map(math.log, known))) if known else 0.0


def _mean_time(operations: Sequence[InspectedOperation]) -> float:
    return _mean(one.real_us for one in operations)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def _escaped(text: str) -> str:
    """A label's value (Prometheus, exposition formats)."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
