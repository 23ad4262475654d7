"""What iperf3 measured: its client's JSON, parsed.

Written against iperf 3.12 and the JSON layout of esnet/iperf `iperf_api.c` (`start`, `intervals`,
`end`, `error`), which 3.9 to 3.19 share for TCP.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Iperf3Error(ValueError):
    """iperf3 failed or printed something that is not its report. The text is fit for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf3Samples:
    """The sender's interval samples as columns of equal length, warm-up left out.

    `start_s` counts from the end of the warm-up. `rtt_us` is TCP's smoothed RTT at the interval's end.
    """

    start_s: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    bytes: tuple[int, ...] = ()
    retransmits: tuple[int, ...] = ()
    cwnd_bytes: tuple[int, ...] = ()
    rtt_us: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf3Report:
    """One client's run. Bytes are payload after the warm-up; `received_s` is the receiver's own clock.

    `received_bytes` is None where the client was interrupted before it could ask the server.
    """

    version: str
    congestion: str
    mss_bytes: int
    sent_bytes: int
    sent_s: float
    received_bytes: int | None
    received_s: float
    retransmits: int
    samples: Iperf3Samples
    interrupted: bool = False


def parse_client_report(output: bytes, *, interrupted: bool = False) -> Iperf3Report:
    """Read what `iperf3 -c ... -J` printed.

    Raises `Iperf3Error` with iperf3's own words if it reports an error, except that an
    `interrupted` client's "interrupt" error is expected and its samples are kept.
    """
    try:
        document = json.loads(output)
    except (ValueError, RecursionError) as error:
        text = output[:200].decode(errors="replace").strip()
        raise Iperf3Error(f"iperf3 printed no JSON: {text or 'nothing'}") from error
    if not isinstance(document, dict):
        raise Iperf3Error("iperf3 printed JSON that is not its report")
    problem = document.get("error")
    if problem is not None and not (interrupted and "interrupt" in str(problem)):
        raise Iperf3Error(str(problem))
    try:
        return _report(document, interrupted=interrupted)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise Iperf3Error(f"iperf3's report lacks {error}") from error


def _report(document: Mapping[str, Any], *, interrupted: bool) -> Iperf3Report:
    end = document["end"]
    sent, received = end["sum_sent"], end["sum_received"]
    return Iperf3Report(
        version=str(document["start"]["version"]),
        congestion=str(end.get("sender_tcp_congestion", "")),
        mss_bytes=int(document["start"].get("tcp_mss_default", 0)),
        sent_bytes=int(sent["bytes"]),
        sent_s=_span(sent),
        received_bytes=None if interrupted else int(received["bytes"]),
        received_s=_span(received),
        retransmits=int(sent.get("retransmits", 0)),
        samples=_samples(document["intervals"]),
        interrupted=interrupted,
    )


def _span(total: Mapping[str, Any]) -> float:
    """`seconds` of the receiver's sum is the sender's in some versions; end - start is its own."""
    return float(total["end"]) - float(total["start"])


def _samples(intervals: list[Mapping[str, Any]]) -> Iperf3Samples:
    rows = [interval["streams"][0] for interval in intervals if not interval["sum"].get("omitted")]
    seconds = [round(float(row["seconds"]), 6) for row in rows]
    # not the rows' own start: a late iperf3 gives the interval that ends the warm-up the wrong one
    starts = itertools.accumulate(seconds, initial=0.0)
    return Iperf3Samples(
        start_s=tuple(round(start, 6) for start, _ in zip(starts, seconds, strict=False)),
        seconds=tuple(seconds),
        bytes=tuple(int(row["bytes"]) for row in rows),
        retransmits=tuple(int(row.get("retransmits", 0)) for row in rows),
        cwnd_bytes=tuple(int(row.get("snd_cwnd", 0)) for row in rows),
        rtt_us=tuple(int(row.get("rtt", 0)) for row in rows),
    )
