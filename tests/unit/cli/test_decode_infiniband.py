"""The verb `decode` and InfiniBand: frames in ERF, cut ones and malformed ones apart."""

import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from decode_verb import Decode

from testbed.endpoints.infiniband.adapter import UD_SEND_ONLY
from testbed.protocols.captured.content import CapturedFrame
from testbed.protocols.infiniband.local_routing import GLOBAL, LocalHeader, encode_frame
from testbed.record.captures import erf
from testbed.record.captures.decoders.registry import PacketFinder
from testbed.record.captures.layers.walk import INFINIBAND_LINK
from testbed.record.captures.pcapng_writer import PcapngWriter

TIME_NS = 1_700_000_000_123_456_789
PAYLOAD = bytes(range(64))
GRH = b"\x60\0\0\0" + (12 + 8 + 64 + 4).to_bytes(2, "big") + b"\x1b\x40" + bytes(15) + b"\1" + bytes(15) + b"\2"
LRH = LocalHeader(vl=1, sl=3, dlid=8, slid=5, words=0)


def packet(*, fecn: bool = False) -> bytes:
    bth = struct.pack("!BBHII", UD_SEND_ONLY, 0, 0x8007, fecn << 31 | 0x11, 42)
    return bth + struct.pack("!II", 0x1234, 0x22) + PAYLOAD


def frame(*, fecn: bool = False, header: LocalHeader = LRH) -> bytes:
    return encode_frame(header, (GRH if header.lnh == GLOBAL else b"") + packet(fecn=fecn))


def captured(data: bytes, *, kept: int | None = None, direction: int = 0, lost: int = 0) -> CapturedFrame:
    """A frame as `testbed capture` writes it, of which `kept` bytes were captured."""
    record = erf.encode_record(TIME_NS, data, interface=direction, lost=lost)
    there = record if kept is None else record[: erf.HEADER_BYTES + kept]
    return CapturedFrame(1, TIME_NS, erf.LINK_TYPE, there, len(record))


def written(path: Path, *frames: CapturedFrame) -> Path:
    with path.open("wb") as stream:
        writer = PcapngWriter(stream, ("leaf1:up1 in", "leaf1:up1 out"), erf.LINK_TYPE)
        for number, one in enumerate(frames):
            writer.write(number % 2, one)
    return path


def test_a_frame_is_shown_by_the_names_of_its_headers(tmp_path: Path, decode: Decode) -> None:
    path = str(written(tmp_path / "x.pcapng", captured(frame()), captured(frame(fecn=True))))
    first, second = decode.lines(path)
    assert "LID 5 > LID 8  VL 1 SL 3  UD_SEND_ONLY QP 0x000011 PSN 42 | from QP 0x000022, 64 B" in first
    assert "VL 1 SL 3 FECN" in second
    assert decode.said.startswith("2 frames, 2 InfiniBand packets: 2 UD_SEND_ONLY; 0 trimmed, 1 marked CE")
    document = decode.documents(path)[0]
    assert document["transport"] == "InfiniBand"
    assert {name: document[name] for name in ("vl", "sl", "slid", "dlid", "pkey", "fecn", "vcrc_good")} == {
        "vl": 1, "sl": 3, "slid": 5, "dlid": 8, "pkey": "0x8007", "fecn": False, "vcrc_good": True,
    }  # fmt: skip
    assert document["time_ns"] == TIME_NS
    assert document["roce"]["icrc_good"]
    assert document["roce"]["qkey"] == "0x00001234"
    assert len(decode.lines(path, filters=["fecn=yes", "pkey=0x8007"])) == 1
    (flow,) = decode.flows(path)
    assert (flow["src"], flow["dst"], flow["packets"], flow["payload_bytes"]) == ("LID 5", "LID 8", 2, 128)


def found(one: CapturedFrame) -> dict[str, object]:
    packet = PacketFinder().find(one)
    return packet.document() | {"kind": packet.kind, "line": packet.line(), "carried": packet.carried}


def test_a_global_route_header_is_looked_into() -> None:
    header = LocalHeader(vl=0, sl=0, dlid=8, slid=5, words=0, lnh=GLOBAL)
    document = found(captured(frame(header=header)))
    assert (document["kind"], document["sgid"], document["dgid"]) == ("UD_SEND_ONLY", "::1", "::2")
    assert document["vcrc_good"]


@pytest.mark.parametrize("kept", range(len(frame())))
def test_a_frame_that_the_capture_has_cut_is_not_malformed(kept: int) -> None:
    document = found(captured(frame(), kept=kept))
    assert document["cut"] == (kept < len(frame()) - 2), "without its VCRC a packet is whole"
    assert not document["malformed"], document
    assert document["vcrc_good"] is None
    assert ("dlid" in document) == (kept >= 8)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda data: data[:7], "an LRH"),
        (lambda data: b"\x11" + data[1:], "link version 1"),
        (lambda data: data[:1] + bytes((data[1] | 12,)) + data[2:], "reserved bits"),
        (lambda data: data[:5] + b"\x07" + data[6:], "the LRH announces 28 bytes"),
        (lambda data: data[:-4] + data[-2:], "the LRH announces"),
        (lambda data: data[:8] + b"\xff" + data[9:], "opcode"),
        (lambda data: data[:20], "headers, BTH and ICRC"),
    ],
)
def test_a_frame_that_was_wrong_on_the_wire_is_malformed(wrong: object, reason: str) -> None:
    assert callable(wrong)
    document = found(captured(wrong(frame())))
    assert document["malformed"], document
    assert not document["cut"]
    assert reason in str(document["error"])


def test_bad_checksums_are_told_apart() -> None:
    data = frame()
    assert "BAD VCRC" in str(found(captured(data[:-1] + bytes((data[-1] ^ 1,))))["carried"])
    damaged = bytearray(data)
    damaged[40] ^= 1
    document = found(captured(bytes(damaged)))
    assert "BAD ICRC" in str(document["line"])
    assert not document["vcrc_good"]


def test_what_is_no_frame_of_a_transport_is_left_alone() -> None:
    finder = PacketFinder()
    raw = bytes((0, 0)) + frame()[2:]
    ethernet = bytearray(captured(frame()).data)
    ethernet[8] = 2
    endless = bytearray(captured(frame()).data[:16] + b"\x80" * 400)
    endless[8] |= erf.MORE
    for one in (
        captured(raw),
        CapturedFrame(1, 0, erf.LINK_TYPE, bytes(ethernet), len(ethernet)),
        CapturedFrame(1, 0, erf.LINK_TYPE, bytes(endless), len(endless)),
        CapturedFrame(1, 0, erf.LINK_TYPE, b"\0" * 9, 9),
    ):
        assert finder.find(one) is None
    assert set(finder.left_alone) == {
        "raw InfiniBand", "ERF type 2", "more than 16 ERF extension headers", "malformed ERF header",
    }  # fmt: skip


def test_extensions_of_an_erf_header_are_skipped_and_bare_frames_read() -> None:
    record = captured(frame()).data
    extended = bytearray(record[:16] + b"\x85" + bytes(7) + b"\x05" + bytes(7) + record[16:])
    extended[8] |= erf.MORE
    for one in (
        CapturedFrame(1, 0, erf.LINK_TYPE, bytes(extended), len(extended)),
        CapturedFrame(1, 0, INFINIBAND_LINK, frame(), len(frame())),
    ):
        assert found(one)["vcrc_good"]


@pytest.mark.process
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_dissects_what_is_written(tmp_path: Path) -> None:
    path = written(tmp_path / "x.pcapng", captured(frame()), captured(frame(fecn=True), direction=1, lost=3))
    fields = (
        "frame.interface_name", "erf.lctr", "infiniband.lrh.vl", "infiniband.lrh.sl", "infiniband.lrh.dlid",
        "infiniband.lrh.slid", "infiniband.bth.opcode", "infiniband.bth.p_key", "infiniband.bth.destqp",
        "infiniband.bth.psn", "infiniband.deth.srcqp", "_ws.malformed",
    )  # fmt: skip
    command = ["tshark", "-n", "-r", str(path), "-T", "json", *(word for name in fields for word in ("-e", name))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    first, second = (one["_source"]["layers"] for one in json.loads(done.stdout))
    numbers = {name: int(values[0], 0) for name, values in first.items() if name.startswith("infiniband")}
    assert numbers == {
        "infiniband.lrh.vl": 1, "infiniband.lrh.sl": 3, "infiniband.lrh.dlid": 8, "infiniband.lrh.slid": 5,
        "infiniband.bth.opcode": UD_SEND_ONLY, "infiniband.bth.p_key": 0x8007, "infiniband.bth.destqp": 0x11,
        "infiniband.bth.psn": 42, "infiniband.deth.srcqp": 0x22,
    }  # fmt: skip
    assert "_ws.malformed" not in first
    assert first["frame.interface_name"] == ["leaf1:up1 in"]
    assert (second["frame.interface_name"], second["erf.lctr"]) == (["leaf1:up1 out"], ["3"])
