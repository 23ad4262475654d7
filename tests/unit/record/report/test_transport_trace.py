"""A trace file and its picture, from a real exchange."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from wire_pair import WirePair

from testbed.base.errors import TestbedError
from testbed.record.report.chart.sheet import write_picture
from testbed.record.report.transport_trace import PdcTrace, busiest_pdc, draw_trace, gather, load_trace

SVG = "{http://www.w3.org/2000/svg}"


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


def test_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path)
    events = load_trace(path)
    target = tmp_path / "picture.svg"
    write_picture(draw_trace(gather(events, busiest_pdc(events)), "a <b> $c$"), target)
    picture = ElementTree.fromstring(target.read_text())
    written = [item.text or "" for item in picture.iter(f"{SVG}text")]
    assert "a <b> $c$" in written
    assert [text.partition(",")[0] for text in written if text.startswith(("window,", "round trip,", "entropy"))] == [
        "window",
        "round trip",
        "entropy value",
    ]
    assert {"cwnd", "in flight", "retransmitted (1)", "unmarked"} <= set(written)
    [paths] = [item for item in picture.iter(f"{SVG}path") if item.get("class") == "dots t6"]
    assert paths.get("d", "").count("h0") >= 5, "each entropy value that was used is seen"


def test_what_is_drawn_is_what_happened() -> None:
    trace = PdcTrace(
        windows=[(0.0, 1000.0, 500.0), (5.0, 2000.0, -4.0), (10.0, 2000.0, 0.0)],
        round_trips=[(1.0, 20.0, False), (2.0, 40.0, True)],
        paths=[(0.0, 7), (0.0, 7), (5.0, 9)],
        losses={"nacked": [5.0], "timeout": [5.0, 9.0]},
    )
    picture = ElementTree.fromstring(draw_trace(trace, "t"))
    drawn = {item.findtext(f"{SVG}title"): item.get("d", "") for item in picture.iter(f"{SVG}path")}
    assert drawn["cwnd"].count("H") == drawn["cwnd"].count("V") == 2, "each value is kept until the next"
    assert drawn["nacked (1)"].count("h0") == 1 and drawn["timeout (2)"].count("h0") == 2
    dots = [item.get("d", "") for item in picture.iter(f"{SVG}path") if (item.get("class") or "").startswith("dots")]
    assert dots[-1].count("h0") == 2, "two packets at one place are drawn once"
    [nacked, *_] = drawn["nacked (1)"].split("h0")
    assert nacked not in drawn["timeout (2)"], "two kinds at one moment do not cover each other"
    heights = [item.text for item in picture.iter(f"{SVG}text") if item.text and item.text.startswith("-")]
    assert heights == [], "nothing is below zero"


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
