"""The output: perftest's header block and result tables, so that programs that read those read these."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.endpoints.perftest.options import Options
from testbed.endpoints.perftest.results import BandwidthResult, LatencyResult, Result

RULE = "-" * 87
LATENCIES = (
    ("least", "t_min", "t_min", 13),
    ("most", "t_max", "t_max", 13),
    ("typical", "t_typical", "t_typical", 17),
    ("average", "t_avg", "t_avg", 13),
    ("stdev", "t_stdev", "t_stdev", 15),
    ("percentile_99", "percentile_99", "99% percentile", 22),
    ("percentile_99_9", "percentile_99.9", "99.9% percentile", 23),
)
"""The times of a `LatencyResult`: its field, perftest's key in JSON, and its column and width in tables."""
_GAP = " " * 4
_MIB = 1 << 20


_EXACT_BELOW_GBITS = 0.1
"""perftest prints six decimals of bandwidths whose average is below (perftest_parameters.c, print_full_bw_report)."""


def full_title(options: Options) -> str:
    """The name of the test, as perftest has it."""
    title = options.tool.title
    return title.replace("BW", "Bidirectional BW") if options.bidirectional else title


def header_block(options: Options, address: str) -> str:
    """Return what is going to be measured, and how."""
    tool, title = options.tool, full_title(options)
    left = (
        ("Dual-port", "OFF"),
        ("Number of qps", str(options.queues)),
        ("Connection type", options.transport.connection_type),
        ("TX depth", str(options.tx_depth)),
        ("Mtu", f"{options.payload_bytes}[B]"),
        ("Link type", "Ethernet"),
        ("Data ex. method", "Ethernet"),
    )
    right = (
        ("Device", address),
        ("Transport type", tool.transport.short_name),
        ("Using SRQ", "OFF"),
        ("Congestion ctrl", options.cc),
        *options.transport.details,
    )
    rows = (f" {a:<15} : {b:<16} {c:<15} : {d}" for (a, b), (c, d) in zip(left, right, strict=True))
    return "\n".join((RULE, f"{title:^87}".rstrip(), *rows, RULE))


def address_block(ends: tuple[Sequence[str], Sequence[str]]) -> str:
    """Return who measures against whom: this side's ends, and the other's."""
    rows = [f" {side} address: {end}" for side, them in zip(("local", "remote"), ends, strict=True) for end in them]
    return "\n".join((*rows, RULE))


def table_head(options: Options) -> str:
    """The names of the columns."""
    if options.tool.latency:
        unit = options.transport.latency_unit[0]
        times = (f"{title}[{unit}]".ljust(width) for _, _, title, width in LATENCIES)
        return " ".join((f" {'#bytes':<7} {'#iterations':<12}", *times)).rstrip()
    unit = "Gb/sec" if options.gbits else "MiB/sec"
    columns = (f"BW peak[{unit}]", f"BW average[{unit}]", "MsgRate[Mpps]")
    head = f" {'#bytes':<10} {'#iterations':<14} {columns[0]:<18} {columns[1]:<21} {columns[2]}"
    return _GAP.join((head, *options.transport.bandwidth_columns))


def bandwidth(value: float, *, gbits: bool) -> float:
    """Bytes/s in the unit that is printed: Gbit/s or MiB/s."""
    return value * 8 / 1e9 if gbits else value / _MIB


def table_row(options: Options, result: Result) -> str:
    match result:
        case BandwidthResult():
            peak, average = (bandwidth(value, gbits=options.gbits) for value in (result.peak, result.average))
            decimals = 6 if options.gbits and average < _EXACT_BELOW_GBITS else 2
            rate = f"{result.messages_per_s / 1e6:.6f}"
            both = f"{peak:<18.{decimals}f} {average:<21.{decimals}f}"
            row = f" {result.size:<10} {result.iterations:<14} {both} {rate:<13}"
            more = (
                f"{cell:<{len(name)}}"
                for name, cell in zip(
                    options.transport.bandwidth_columns,
                    options.transport.bandwidth_cells(result, options.directions),
                    strict=True,
                )
            )
            return _GAP.join((row, *more)).rstrip()
        case LatencyResult():
            _, unit, decimals = options.transport.latency_unit
            cells = (f"{getattr(result, name) / unit:<{width}.{decimals}f}" for name, _, _, width in LATENCIES)
            return " ".join((f" {result.size:<7} {result.iterations:<12}", *cells)).rstrip()
