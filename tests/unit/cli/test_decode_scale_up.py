"""The verb `decode` over frames of a scale-up link: lines, filters, flows, and what the line at the end counts."""

from __future__ import annotations

import json
from pathlib import Path

import capture_files as make
import pytest
from encoded_frames import encode_frame
from simulated_links import FIRST, SECOND, damaged, frame_of

from testbed.cli.nodes.packets import print_flows, print_packets
from testbed.cli.options import Format
from testbed.protocols.scale_up.ctlos import Ack, CfUpdate, Init, Nack
from testbed.protocols.scale_up.frames import CcUpdateFrame, ControlFrame, FrameCheck

DATA = frame_of(100, vc=3, number=9)
FRAMES = [
    encode_frame(ControlFrame(SECOND, FIRST, (Init(5, 1),), 1_000)),
    encode_frame(DATA._replace(sequence=5)),
    damaged(encode_frame(DATA._replace(sequence=6))),
    encode_frame(ControlFrame(FIRST, SECOND, (Nack(5), CfUpdate(3, 1, 4, 2)), 2_000)),
    encode_frame(DATA._replace(sequence=6, check=FrameCheck.POISONED)),
    encode_frame(DATA._replace(sequence=6)),
    encode_frame(CcUpdateFrame(SECOND, FIRST, ((3, 700),), 7)),
    encode_frame(ControlFrame(FIRST, SECOND, (Ack(7),), 3_000)),
    encode_frame(DATA)[:40],
    make.ethernet(make.ipv4(make.udp(b"query", port=53))),
]


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "capture.pcap"
    path.write_bytes(make.pcap(FRAMES))
    return str(path)


def test_lines_say_what_crossed_the_link(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_packets(capture, Format.TABLE)
    said = capsys.readouterr()
    there, back = "02:00:00:00:00:01 > 02:00:00:00:00:02", "02:00:00:00:00:02 > 02:00:00:00:00:01"
    assert [line.strip().split("  ", 1)[1] for line in said.out.splitlines()] == [
        f"{there}  LLR_INIT 5 data 0x0001",
        f"{there}  seq 5 SUE VC 3 to 1 | 70 B",
        f"{there}  seq 6 SUE VC 3 to 1 | 70 B [BAD FCS]",
        f"{back}  LLR_NACK 5; CF_UPDATE VC 3 = 1, VC 4 = 2",
        f"{there}  seq 6 SUE VC 3 to 1 | 70 B [POISONED]",
        f"{there}  seq 6 SUE VC 3 to 1 | 70 B [AGAIN]",
        f"{there}  seq 7 CC_UPDATE VC 3 = 700",
        f"{back}  LLR_ACK 7",
        f"{there}  SUE VC 3 to 1 | 10 B [BAD FCS]",
    ]
    assert said.err == (
        "10 frames, 9 scale-up packets: 5 SUE, 3 CONTROL, 1 CC_UPDATE; 0 trimmed, 0 marked CE,"
        " 1 retransmitted, 2 with a bad FCS; left alone: 1 DNS\n"
    )


def test_fields_are_filtered_by_their_names(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_packets(capture, Format.JSON, filters=["type=LLR_NACK"])
    (document,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert document["transport"] == "scale-up"
    assert document["scale_up"] == {
        "kind": "CONTROL",
        "fcs": "GOOD",
        "type": ["LLR_NACK", "CF_UPDATE"],
        "set": ["LLR_NACK 5", "CF_UPDATE VC 3 = 1, VC 4 = 2"],
        "sent_ns": 2_000,
        "replayed": False,
    }
    print_packets(capture, Format.JSON, filters=["replayed=yes"])
    (document,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (document["scale_up"]["sequence"], document["scale_up"]["header"]["next_psn"]) == (6, 9)


def test_flows_are_virtual_channels(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_flows(capture, Format.JSON)
    rows = {(row["src"][-1], row["flow"]): row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {("1", "VC 3"), ("1", "link"), ("2", "link")}
    assert (rows["1", "VC 3"]["packets"], rows["1", "VC 3"]["retransmitted"]) == (5, 1)
    assert rows["2", "link"]["naks"] == 1


def test_a_frame_that_the_capture_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(make.pcap([FRAMES[1], FRAMES[0]], snaplen=40))
    print_packets(str(path), Format.TABLE)
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("seq 5 SUE VC 3 to 1 | 70 B (cut by the capture: 26 of 86 B)")
    assert second.endswith("LLR_INIT 5 data 0x0001 (cut by the capture: 26 of 46 B)")
