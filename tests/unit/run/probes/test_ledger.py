"""Counting probes: what was lost, when, what came twice or too late. Numbers in, numbers out."""

from collections.abc import Sequence

import pytest

from testbed.lab.core.drivers.nodes.probe_packet import (
    FRAME_BYTES,
    PAYLOAD_BYTES,
    ProbeNumber,
    decode_probe,
    encode_probe,
)
from testbed.run.probes.ledger import ProbeLedger, ProbeReport, ProbeStream

STREAMS = [ProbeStream(source="h1:rail1", destination=f"h{n}:rail1", source_port=32_000 + n) for n in (2, 3)]
KEY, OTHER = b"01234567", b"76543210"
MS = 1_000_000
BEGIN = 5_000 * MS


def sent(count: int, *, every_ns: int = 50 * MS) -> ProbeLedger:
    """So many probes of both streams."""
    ledger = ProbeLedger(STREAMS)
    for number in range(count):
        for stream in range(len(STREAMS)):
            assert ledger.send(stream, BEGIN + number * every_ns) == ProbeNumber(stream, number)
    return ledger


def arrive(ledger: ProbeLedger, stream: int, sequences: Sequence[int], *, at_ns: int = BEGIN) -> None:
    for sequence in sequences:
        ledger.receive(ProbeNumber(stream, sequence), at_ns)


def report(ledger: ProbeLedger) -> ProbeReport:
    return ledger.report(threshold_ns=500 * MS, begin_ns=BEGIN, rate_pps=20.0, train=1, latest_ns=3 * MS)


def test_a_probe_is_read_as_it_was_written() -> None:
    payload = encode_probe(KEY, ProbeNumber(7, 4_000_000_000))
    assert len(payload) == PAYLOAD_BYTES
    assert decode_probe(KEY, payload) == ProbeNumber(7, 4_000_000_000)
    assert decode_probe(OTHER, payload) is None
    assert decode_probe(KEY, payload[:-1]) is None and decode_probe(KEY, payload + b"\0") is None
    assert decode_probe(KEY, b"TBP2" + payload[4:]) is None


def test_what_does_not_arrive_is_lost_and_known_by_its_time() -> None:
    ledger = sent(60)
    arrive(ledger, 0, [*range(20), *range(38, 60)])
    arrive(ledger, 1, range(60))
    found = report(ledger)
    hit, whole = found.streams
    assert (hit.sent, hit.arrived, hit.inversions, hit.duplicates) == (60, 42, 0, 0)
    assert hit.lost_s == pytest.approx([0.05 * number for number in range(20, 38)])
    assert whole.lost_s == ()
    assert found.lost == 18 and found.sent == 120 and found.sent_bytes == 120 * FRAME_BYTES
    assert found.lost_time_s() == [pytest.approx(0.9), 0.0]
    assert found.lost_time_s(since_s=1.5) == [pytest.approx(0.4), 0.0], "of those sent from then on"
    assert found.latest_s == 0.003


def test_one_that_was_overtaken_is_an_inversion() -> None:
    ledger = sent(6)
    arrive(ledger, 0, [0, 2, 1, 3, 5, 4])
    arrive(ledger, 1, [5, 4, 3])
    assert [item.inversions for item in report(ledger).streams] == [2, 2]


def test_one_that_was_held_too_long_is_lost_all_the_same() -> None:
    ledger = sent(4, every_ns=100 * MS)
    arrive(ledger, 0, [0, 1, 2, 3], at_ns=BEGIN + 650 * MS)
    hit, none = report(ledger).streams
    assert (hit.arrived, hit.late, hit.inversions) == (4, 2, 0)
    assert hit.lost_s == pytest.approx([0.0, 0.1]), "those of 450 ms and less are in time"
    assert (none.arrived, none.late, len(none.lost_s)) == (0, 0, 4)


def test_one_that_comes_twice_counts_once() -> None:
    ledger = sent(3)
    arrive(ledger, 0, [0, 0, 2, 1, 1])
    found = report(ledger).streams[0]
    assert (found.arrived, found.duplicates, found.inversions, found.lost_s) == (3, 2, 1, ())


def test_what_was_never_sent_is_foreign() -> None:
    ledger = sent(2)
    for number in (None, ProbeNumber(2, 0), ProbeNumber(0, 2), ProbeNumber(2**32 - 1, 2**32 - 1)):
        ledger.receive(number, BEGIN)
    found = report(ledger)
    assert found.foreign == 4 and all(item.arrived == 0 for item in found.streams)


def test_the_missing_of_the_last_while() -> None:
    ledger = sent(10, every_ns=100 * MS)
    arrive(ledger, 0, range(9))
    arrive(ledger, 1, range(10))
    assert ledger.missing(BEGIN) == 1
    assert ledger.missing(BEGIN + 901 * MS) == 0
    ledger.receive(ProbeNumber(0, 9), BEGIN)
    assert ledger.missing(0) == 0
