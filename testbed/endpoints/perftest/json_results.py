"""The results as JSON with perftest's keys, and valid JSON always (perftest leaves quotes out in places)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.endpoints.perftest.errors import PerftestError
from testbed.endpoints.perftest.options import Options
from testbed.endpoints.perftest.results import BandwidthResult, LatencyResult, Result
from testbed.endpoints.perftest.table import LATENCIES, bandwidth, full_title


def json_document(
    options: Options,
    address: str,
    results: Sequence[Result],
    cpu_percent: float,
    found: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`test_info`, `results` and `CPU_util`, and what `found` has besides.

    `results` is perftest's object where one size was measured and a list of them where several were (`-a`).
    `cpu_percent`: of one CPU, used by this process while it measured.
    """
    rows = [_row(options, result) for result in results]
    return {
        "test_info": {
            "test": full_title(options).replace(" ", "_"),
            "Dual_port": "OFF",
            "Device": address,
            "Number_of_qps": options.queues,
            "Transport_type": options.tool.transport.short_name,
            "Connection_type": options.transport.connection_type,
            "Using_SRQ": "OFF",
            "TX_depth": options.tx_depth,
            "Mtu": options.payload_bytes,
            "Link_type": "Ethernet",
            "Data_ex_method": "Ethernet",
            "Bidirectional": options.bidirectional,
            "Congestion_control": options.cc,
            **options.transport.test_info(),
            "BW_unit": "Gb/sec" if options.gbits else "MiB/sec",
        },
        "results": rows[0] if len(rows) == 1 else rows,
        "CPU_util": round(cpu_percent, 2),
        **(found or {}),
    }


def _row(options: Options, result: Result) -> dict[str, Any]:
    match result:
        case BandwidthResult():
            return {
                "MsgSize": result.size,
                "n_iterations": result.iterations,
                "BW_peak": round(bandwidth(result.peak, gbits=options.gbits), 6),
                "BW_average": round(bandwidth(result.average, gbits=options.gbits), 6),
                "MsgRate": round(result.messages_per_s / 1e6, 6),
                **options.transport.bandwidth_fields(result, options.directions),
            }
        case LatencyResult():
            _, unit, decimals = options.transport.latency_unit
            rounded = {key: round(getattr(result, name) / unit, decimals) for name, key, _, _ in LATENCIES}
            return {"MsgSize": result.size, "n_iterations": result.iterations, **rounded}


def identify_file(path: Path | None) -> list[str | int] | None:
    """Return what tells a file of this machine from all others, whatever its name, there or not; None: no file."""
    if path is None:
        return None
    try:
        whole = path.resolve()
        place = whole.parent.stat()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None  # it cannot be written either
    return [boot, place.st_dev, place.st_ino, whole.name]


def own_json_file(options: Options, theirs: object) -> Path | None:
    """Return the file into which this side writes its JSON. perftest's two ends write to one file where they run in one
    directory, and that of the last one stays; here the server writes beside it then. `theirs` is what the other side
    says of its file."""
    path = options.json_file
    if path is None or not options.server or theirs is None or theirs != identify_file(path):
        return path
    return path.with_name(f"{path.stem}.server{path.suffix}")


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Raises `PerftestError`."""
    try:
        path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise PerftestError(f"cannot write {path}: {error.strerror}") from None
