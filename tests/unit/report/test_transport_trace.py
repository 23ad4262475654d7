"""A trace file and its picture, from a real exchange."""

from __future__ import annotations

from pathlib import Path

import pytest
from wire_pair import WirePair

from testbed.errors import TestbedError
from testbed.report.transport_trace import busiest_pdc, gather, load_trace, plot_trace


def write_trace(path: Path) -> WirePair:
    """The trace of a send of 40 packets, of which the fifth is lost."""
    pair = WirePair(trace=True, payload_bytes=1024)
    received = pair.eb.recv(bytearray(40_000), pair.now)
    sent = pair.ea.send(pair.to_b, bytes(40_000), pair.now)
    number = iter(range(10_000))
    pair.pass_time(200_000_000, lambda _: next(number) != 4)
    assert sent.ok and received.ok
    path.write_text("".join(line + "\n" for line in pair.traces["a"].json_lines()))
    return pair


def test_what_happened_is_in_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    pair = write_trace(path)
    events = load_trace(path)
    pdcid = busiest_pdc(events)
    assert pdcid == pair.a.pdcs[0].local_pdcid
    trace = gather(events, pdcid)
    assert len(trace.paths) == 41
    assert len(trace.losses["retransmitted"]) == 1
    assert sum(len(trace.losses.get(kind, [])) for kind in ("timeout", "inferred-loss")) == 1
    assert trace.round_trips and trace.windows
    assert gather(events, pdcid + 1).paths == []


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path)
    events = load_trace(path)
    target = tmp_path / f"picture{suffix}"
    plot_trace(gather(events, busiest_pdc(events)), "a <b> $c$", target)
    assert target.stat().st_size > 10_000
    if suffix == ".svg":
        assert "round trip, us" in target.read_text() or "<path" in target.read_text()


def test_a_name_that_is_no_picture(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path)
    events = load_trace(path)
    with pytest.raises(TestbedError, match="cannot write"):
        plot_trace(gather(events, busiest_pdc(events)), "", tmp_path / "picture.nonsense")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no events"),
        ('{"time_ns": 1, "kind": "sent", "pdcid": 1}\n{\n', ":2:"),
        ("[]\n", ":1: not an event"),
        ('{"time_ns": "soon", "kind": "sent"}\n', "not an event"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(content)
    with pytest.raises(TestbedError, match=message):
        load_trace(path)


def test_a_file_of_bytes_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TestbedError, match="not text"):
        load_trace(path)
    with pytest.raises(TestbedError, match="No such file"):
        load_trace(tmp_path / "missing")


def test_a_trace_without_packets(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"time_ns": 1, "kind": "state", "pdcid": 1}\n')
    with pytest.raises(TestbedError, match="no packet"):
        busiest_pdc(load_trace(path))
