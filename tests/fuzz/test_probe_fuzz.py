"""Whatever arrives where probes are received, none of it is taken for a probe that was not sent, and nothing breaks."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.lab.core.drivers.nodes.probe_packet import (
    KEY_BYTES,
    MAGIC,
    PAYLOAD_BYTES,
    ProbeNumber,
    decode_probe,
    encode_probe,
)
from testbed.run.probes.ledger import ProbeLedger, ProbeStream

KEY = b"\x00probes\xff"
NUMBERS = st.builds(ProbeNumber, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
NEAR = st.builds(
    lambda magic, key, rest: magic + key + rest,
    st.sampled_from([MAGIC, b"TBP0", b"\0\0\0\0"]),
    st.sampled_from([KEY, b"\0" * KEY_BYTES]),
    st.binary(max_size=16),
)
"""What is almost a probe."""


@given(NUMBERS, st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES))
def test_what_is_written_is_read_with_the_same_key_alone(number: ProbeNumber, other: bytes) -> None:
    payload = encode_probe(KEY, number)
    assert decode_probe(KEY, payload) == number
    assert (decode_probe(other, payload) is None) == (other != KEY)


@given(st.binary(max_size=300) | NEAR)
def test_any_payload_is_a_probe_or_none(payload: bytes) -> None:
    number = decode_probe(KEY, payload)
    if number is None:
        assert len(payload) != PAYLOAD_BYTES or not payload.startswith(MAGIC + KEY)
    else:
        assert encode_probe(KEY, number) == payload


@given(st.lists(st.none() | NUMBERS | st.builds(ProbeNumber, st.integers(0, 2), st.integers(0, 12)), max_size=60))
def test_the_books_are_balanced_whatever_comes(numbers: list[ProbeNumber | None]) -> None:
    streams = [ProbeStream(source="a:x", destination="b:x", source_port=port) for port in (1, 2)]
    ledger = ProbeLedger(streams)
    for at in range(10):
        for place in range(2):
            ledger.send(place, at)
    for at, number in enumerate(numbers):
        ledger.receive(number, at)
    report = ledger.report(threshold_ns=8, begin_ns=0, rate_pps=1.0, train=1)
    for item in report.streams:
        assert item.arrived - item.late + len(item.lost_s) == item.sent == 10
        assert 0 <= item.inversions < max(1, item.arrived)
    assert report.foreign + sum(item.arrived + item.duplicates for item in report.streams) == len(numbers)
