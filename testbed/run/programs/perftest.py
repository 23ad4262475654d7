"""perftest's reports, those of ib_write_bw and its sisters, from their JSON file or their printed table.

Written against perftest 4.5 (Debian 12) and 25.01 (Debian 13). Their `--out_json` is not always JSON: 4.5 quotes no
word and leaves commas behind the last entry (linux-rdma/perftest issue 216), and 25.01 writes `inf` and `-nan`. It has
a pair on each line in every version, and so it is read by lines where it does not parse. The printed table names its
units, and is read where the file is not usable or has fewer sizes: with `-a` it keeps the last one alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class PerftestTest(StrEnum):
    """The tests by their program's name. Source: perftest, README."""

    WRITE_BW = "ib_write_bw"
    READ_BW = "ib_read_bw"
    SEND_BW = "ib_send_bw"
    ATOMIC_BW = "ib_atomic_bw"
    WRITE_LAT = "ib_write_lat"
    READ_LAT = "ib_read_lat"
    SEND_LAT = "ib_send_lat"
    ATOMIC_LAT = "ib_atomic_lat"

    @property
    def is_latency(self) -> bool:
        return self.value.endswith("_lat")

    @property
    def is_read(self) -> bool:
        """Tell whether data comes to whoever asks for it."""
        return self in (PerftestTest.READ_BW, PerftestTest.READ_LAT)

    @property
    def is_atomic(self) -> bool:
        return self in (PerftestTest.ATOMIC_BW, PerftestTest.ATOMIC_LAT)

    @property
    def is_round_trip(self) -> bool:
        """Tell whether its latencies are whole round trips: the peer's adapter answers, not its program. Those of the
        others are half of one (perftest_parameters.c, rtt_factor)."""
        return self in (PerftestTest.READ_LAT, PerftestTest.ATOMIC_LAT)


class PerftestReportError(ValueError):
    """perftest failed, or printed something that is not its report. The text is fit for the user."""


class ClockUnknown(PerftestReportError):
    """perftest could not tell how fast the CPU counts, so it has no unit for what it measured. It finds out anew in
    each run, by comparing two clocks 200 times, and a busy machine spoils that (perftest, get_clock.c)."""


_CLOCK_TRIES = 3


def run_until_clock_known(run: Callable[[], T]) -> T:
    """Return what `run` returns. It is called anew, twice at most, where the cause of its failure is `ClockUnknown`."""
    for _ in range(_CLOCK_TRIES - 1):
        try:
            return run()
        except Exception as failure:
            if not isinstance(failure.__cause__, ClockUnknown):
                raise
    return run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """One message size of a bandwidth test. `peak_bps` is 0 where it was not measured (over a duration)."""

    size_bytes: int
    iterations: int
    average_bps: float
    peak_bps: float
    messages_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """One message size of a latency test in microseconds, as perftest has it: of n iterations it takes the n - 1 times
    between them, leaves the two longest out of all figures, and calls the second longest the greatest; `typical_us` is
    the median, and `stdev_us` is of whole microseconds (perftest_parameters.c, print_report_lat). A run over a duration
    has its average alone, and None elsewhere."""

    size_bytes: int
    iterations: int
    average_us: float
    min_us: float | None = None
    max_us: float | None = None
    typical_us: float | None = None
    stdev_us: float | None = None
    p99_us: float | None = None
    p99_9_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestReport:
    """A test's sizes, smallest first as perftest runs them. `settings` is what it says about itself, as text by the
    names of its JSON file (`Number_of_qps`)."""

    bandwidths: tuple[Bandwidth, ...] = ()
    latencies: tuple[LatencySummary, ...] = ()
    settings: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.bandwidths) + len(self.latencies)


GIGABITS = 1e9
MEBIBYTES = 8.0 * 2**20
"""The unit that perftest calls MB/sec in 4.5 and MiB/sec in 25.01 (report_fmt, MBS)."""
_UNITS = {"Gb/sec": GIGABITS, "MB/sec": MEBIBYTES, "MiB/sec": MEBIBYTES}


def parse_report(
    test: PerftestTest, output: str, document: str = "", errors: str = "", *, gigabits: bool = True
) -> PerftestReport:
    """Read a client's report: `document` is its JSON file, `output` and `errors` what it printed.

    `gigabits`: it was run with `--report_gbits`; the file does not name its unit. Raises `PerftestReportError` with
    perftest's own complaint where there is no result, `ClockUnknown` where that is about its clock.
    """
    settings, results = _document(document)
    written = _report(test, settings, results, GIGABITS if gigabits else MEBIBYTES)
    settings, rows, unit = _table(output)
    printed = _report(test, settings, rows, unit)
    if written is not None and (printed is None or len(written) >= len(printed)):
        return written
    if printed is not None:
        return printed
    said = complaint(output, errors)
    raise (ClockUnknown if _NO_CLOCK in said else PerftestReportError)(f"{test}: {said or 'it printed no result'}")


def parse_latencies_us(output: str) -> tuple[float, ...]:
    """Every latency that a client printed with `--report-unsorted`, in their order.

    In some versions the option prints all of them twice, the second time sorted and without the two longest; the table
    comes behind. Nothing where the list was cut short. Raises `PerftestReportError` for other units, and one that is
    no time (`inf`: perftest found no clock).
    """
    found: list[float] = []
    lines = iter(output.splitlines())
    heading = next((line for line in lines if line.startswith("#, ")), None)
    if heading is None:
        return ()
    if heading.strip() != "#, usec":
        raise PerftestReportError(f"latencies are in {heading.removeprefix('#, ').strip()}, not in usec")
    for line in lines:
        match = _SAMPLE.fullmatch(line.strip())
        if match is None or int(match[1]) != len(found) + 1:
            return tuple(found) if line.startswith(("#, ", "---")) else ()
        value = float(match[2])
        if not math.isfinite(value) or value <= 0:
            raise ClockUnknown(f"a latency is {match[2]} us: perftest could not tell how fast its clock counts")
        found.append(value)
    return ()


_SAMPLE = re.compile(r"(\d+), (\S+)")


def complaint(output: str, errors: str = "") -> str:
    """Return what perftest says went wrong, in one line; "" for nothing."""
    lines = [" ".join(line.split()) for line in (*errors.splitlines(), *output.splitlines())]
    said = [line for line in lines if _COMPLAINT.search(line)]
    status = next((match for line in said if (match := _COMPLETION.search(line))), None)
    if status is not None:
        meaning = COMPLETION_STATUS.get(int(status[1]), "")
        said.append(f"a work request ended with status {status[1]}" + (f" ({meaning})" if meaning else ""))
    return "; ".join(dict.fromkeys(said))


_COMPLAINT = re.compile(
    r"\b(fail(ed)?|couldn'?t|cannot|can't|unable|invalid|error|aborting|not found|not supported|incompatib\w+|no such"
    r"|refused|correlation coefficient)\b",
    re.IGNORECASE,
)
_NO_CLOCK = "Correlation coefficient"
_COMPLETION = re.compile(r"Failed status (\d+)")
COMPLETION_STATUS: Mapping[int, str] = {
    1: "the buffer is too short for the message",
    4: "a local buffer is not registered for this access",
    5: "the queue pair went into its error state",
    9: "the peer refused the request as invalid",
    10: "the peer refused access to its memory: the key is wrong or does not allow it",
    11: "the peer could not carry the request out",
    12: "the peer did not acknowledge in time, again and again: packets are lost, or it is gone",
    13: "the peer had no receive posted, again and again",
}
"""Statuses of a completion in words. Source: libibverbs, enum ibv_wc_status."""


# ------------------------------------------------------------------ the JSON file


def _document(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Settings and results of the file, as text; both empty where there is nothing usable."""
    pairs = _json_pairs(text)
    return _split(_line_pairs(text) if pairs is None else pairs)


def _json_pairs(text: str) -> list[tuple[str, str]] | None:
    """All pairs of one level in their order, repeated keys too; None where it is not JSON."""
    found: list[tuple[str, str]] = []

    def keep(pairs: list[tuple[str, object]]) -> None:
        found.extend((key, str(value)) for key, value in pairs if isinstance(value, str | int | float))

    try:
        json.loads(text, object_pairs_hook=keep)
    except (ValueError, RecursionError):
        return None
    return found


_PAIR = re.compile(r'^\s*"?(?P<key>[A-Za-z][\w. ]*?)"?\s*:\s*"?(?P<value>[^"{}\[\]]*?)"?\s*,?\s*$')


def _line_pairs(text: str) -> list[tuple[str, str]]:
    return [(match["key"], match["value"]) for line in text.splitlines() if (match := _PAIR.match(line))]


def _split(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return what comes before the first result, and the results, each of which begins with its size."""
    settings: dict[str, str] = {}
    results: list[dict[str, str]] = []
    for key, value in pairs:
        if key == "MsgSize":
            results.append({})
        (results[-1] if results else settings)[key] = value
    return settings, results


# ------------------------------------------------------------------ the table

_COLUMNS: Mapping[str, str] = {
    "#bytes": "MsgSize",
    "#iterations": "n_iterations",
    "BW peak": "BW_peak",
    "BW average": "BW_average",
    "MsgRate[Mpps]": "MsgRate",
    "t_min[usec]": "t_min",
    "t_max[usec]": "t_max",
    "t_typical[usec]": "t_typical",
    "t_avg[usec]": "t_avg",
    "t_stdev[usec]": "t_stdev",
    "99% percentile[usec]": "percentile_99",
    "99.9% percentile[usec]": "percentile_99.9",
    "tps average": "tps_average",
}
_HEADING = re.compile(
    r"#bytes|#iterations|BW (?:peak|average)(?=\[)|MsgRate\[Mpps\]"
    r"|t_\w+\[usec\]|99(?:\.9)?% percentile\[usec\]|tps average"
)
_SETTING = re.compile(r"^ ?(?P<key>[A-Za-z][\w*+. ()/-]*?)\s*: (?P<value>\S[^\t]*?)\s*(?:\t+(?P<rest>.*))?$")
_WORDS = re.compile(r"\W+")
_NUMBERS = re.compile(r"^\s*\d+(\s+(?:[-+.\deE]+|-?nan|-?inf))+\s*$")


def _table(output: str) -> tuple[dict[str, str], list[dict[str, str]], float]:
    """The settings above the table, its rows by the names of the JSON file, and the unit of its bandwidths in bit/s."""
    settings: dict[str, str] = {}
    rows: list[dict[str, str]] = []
    columns: list[str] = []
    unit = MEBIBYTES
    for line in output.splitlines():
        if "#bytes" in line:
            columns = [_COLUMNS[heading] for heading in _HEADING.findall(line)]
            unit = next((factor for name, factor in _UNITS.items() if f"[{name}]" in line), unit)
        elif columns and _NUMBERS.match(line):
            rows.append(dict(zip(columns, line.split(), strict=False)))
        elif not columns:
            rest: str | None = line
            while rest and (match := _SETTING.match(rest)):
                settings[_WORDS.sub("_", match["key"]).strip("_")] = match["value"]
                rest = match["rest"]
    return settings, rows, unit


# ------------------------------------------------------------------ results


def _report(
    test: PerftestTest, settings: Mapping[str, str], results: Sequence[Mapping[str, str]], unit: float
) -> PerftestReport | None:
    """None where a result is missing, or lacks what the test measures: a file that was cut short."""
    try:
        if test.is_latency:
            latencies = tuple(_latency(result) for result in results)
            return PerftestReport(latencies=latencies, settings=settings) if latencies else None
        bandwidths = tuple(_bandwidth(result, unit) for result in results)
        return PerftestReport(bandwidths=bandwidths, settings=settings) if bandwidths else None
    except (KeyError, ValueError):
        return None


def _number(text: str) -> float:
    """Raises `ValueError` for what is no measurement: "nan", "inf"."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _bandwidth(result: Mapping[str, str], unit: float) -> Bandwidth:
    return Bandwidth(
        size_bytes=int(result["MsgSize"]),
        iterations=int(result["n_iterations"]),
        average_bps=_number(result["BW_average"]) * unit,
        peak_bps=_number(result["BW_peak"]) * unit,
        messages_per_s=_number(result["MsgRate"]) * 1e6,
    )


def _latency(result: Mapping[str, str]) -> LatencySummary:
    def optional(key: str) -> float | None:
        value = float(result.get(key, "nan"))
        return value if math.isfinite(value) else None

    return LatencySummary(
        size_bytes=int(result["MsgSize"]),
        iterations=int(result["n_iterations"]),
        average_us=_number(result["t_avg"]),
        min_us=optional("t_min"),
        max_us=optional("t_max"),
        typical_us=optional("t_typical"),
        stdev_us=optional("t_stdev"),
        p99_us=optional("percentile_99"),
        p99_9_us=optional("percentile_99.9"),
    )
