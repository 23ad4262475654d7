"""The verb `decode`: lines, JSON, filters, counts, and captures that are damaged."""

import io
import json
import subprocess
import sys
from pathlib import Path

import capture_files as make
import pytest
from decode_verb import Decode
from encoded import encoded
from packet_samples import PacketSamples

from testbed.base.errors import TestbedError
from testbed.cli.nodes.packets import FieldFilter, PdcFilter, print_packets
from testbed.cli.options import Format
from testbed.protocols.uet.packets.packet import decode_packet, describe, summary
from testbed.protocols.uet.security.tss_header import TssHeader
from testbed.record.captures.pcap import CaptureError

WRITE = bytes.fromhex(
    "118c ffff 00000005 0007 0002"
    "01 23 0003 01 00004d 0005 0006 0000000000001000 00000009 00000000deadbeef 0000000000000000 00001000"
)
"""RUD_REQ with SYN of PDCID 7, PSN 5."""
ACK = bytes.fromhex("3800 0000 00000005 0009 0007")
"""From PDCID 9 to 7."""
NACK = bytes.fromhex("5020 01 00 00000006 0009 0007 00000000")
"""TRIMMED, M."""
BAD_CODE = bytes.fromhex("5000 0c 00 00000006 0009 0007 00000000")
OTHER = bytes.fromhex("3800 0000 00000005 0009 0063")


def reply(data: bytes, **options: int) -> bytes:
    """From 10.0.0.2 to 10.0.0.1."""
    packet = bytearray(make.ipv4(make.udp(data), **options))
    packet[12:20] = packet[16:20] + packet[12:16]
    return make.ethernet(bytes(packet))


FRAMES = [
    make.ethernet(make.ipv4(make.udp(WRITE + b"data"), tos=0x2A)),
    reply(ACK),
    reply(NACK, tos=0xB9),
    make.ethernet(make.ipv4(make.udp(WRITE, length=4152), tos=0x2B)),
    reply(BAD_CODE),
    reply(OTHER),
    make.ethernet(make.ipv4(make.udp(b"query", port=53))),
]


def test_lines_and_the_counts_at_the_end(decode: Decode) -> None:
    assert decode.lines(FRAMES) == [
        f"   0.000000000  10.0.0.1 > 10.0.0.2  EV 50000  DSCP 10 ECT0  {summary(decode_packet(WRITE + b'data'))}",
        f"   1.000000001  10.0.0.2 > 10.0.0.1  EV 50000  DSCP  0 -     {summary(decode_packet(ACK))}",
        f"   2.000000002  10.0.0.2 > 10.0.0.1  EV 50000  DSCP 46 ECT1  {summary(decode_packet(NACK))}",
        f"   3.000000003  10.0.0.1 > 10.0.0.2  EV 50000  DSCP 10 CE    {summary(decode_packet(WRITE))}"
        " (trimmed: 56 of 4152 B)",
        "   4.000000004  10.0.0.2 > 10.0.0.1  EV 50000  DSCP  0 -     MALFORMED at byte 2: nack_code 0x0c is reserved",
        f"   5.000000005  10.0.0.2 > 10.0.0.1  EV 50000  DSCP  0 -     {summary(decode_packet(OTHER))}",
    ]
    assert decode.said == (
        "7 frames, 6 UET packets: 2 RUD_REQ, 2 ACK, 1 NACK, 1 malformed; 1 trimmed, 1 marked CE, 0 retransmitted;"
        " left alone: 1 DNS\n"
    )


def test_json_has_every_field(decode: Decode) -> None:
    shown = decode.documents(FRAMES)
    assert shown[0] == {
        "frame": 1,
        "time_ns": 1_000_000_000_000,
        "transport": "UET",
        "src": "10.0.0.1",
        "dst": "10.0.0.2",
        "ev": 50_000,
        "dscp": 10,
        "ecn": "ECT0",
        "udp_length": 68,
        "captured_length": 60,
        "trimmed": False,
        "fragment": False,
        "encapsulation": [],
        "cut": False,
        "malformed": False,
        **json.loads(json.dumps(describe(decode_packet(WRITE + b"data")))),
    }
    assert (shown[3]["trimmed"], shown[3]["udp_length"], shown[3]["captured_length"]) == (True, 4160, 56)
    assert shown[4]["malformed"] is True
    assert shown[4]["error"] == {"offset": 2, "reason": "nack_code 0x0c is reserved"}


def test_json_of_every_kind_of_packet(decode: Decode) -> None:
    packets = list(PacketSamples(7).of_every_kind())
    frames = [make.ethernet(make.ipv6(make.udp(encoded(packet)))) for packet in packets]
    decode.path.write_bytes(make.section() + make.interface() + b"".join(make.enhanced(frame, 5) for frame in frames))
    for packet, shown in zip(packets, decode.documents(str(decode.path)), strict=True):
        assert describe(packet).items() <= shown.items()
        assert shown["src"] == "fd00::1"


def test_verbose_shows_every_field(decode: Decode) -> None:
    lines = decode.lines(FRAMES, verbose=True, count=1)
    assert lines[0].lstrip().startswith("0.000000000  10.0.0.1 > 10.0.0.2")
    assert "    pds.flags: AR SYN" in lines
    assert "    ses.memory_key: 0x00000000deadbeef" in lines
    assert "    payload_length: 4" in lines


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        (["type=NACK"], [3]),
        (["type=nack"], [3]),
        (["pds.type=ACK"], [2, 6]),
        (["psn=5"], [1, 4]),
        (["psn=0x5"], [1, 4]),
        (["memory_key=0xdeadbeef"], [1, 4]),
        (["flags=SYN"], [1, 4]),
        (["flags=SYN", "trimmed=yes"], [4]),
        (["flags!=SYN"], [2, 3, 5, 6]),
        (["ecn=CE"], [4]),
        (["malformed=true"], [5]),
        (["dscp=46", "src=10.0.0.2"], [3]),
        (["sn=5"], []),
    ],
)
def test_filters(decode: Decode, filters: list[str], numbers: list[int]) -> None:
    assert [shown["frame"] for shown in decode.documents(FRAMES, filters=filters)] == numbers


@pytest.mark.parametrize(
    ("pdc", "numbers"),
    [("7", [1, 2, 3, 4]), ("7@10.0.0.1", [1, 2, 3, 4]), ("7@10.0.0.2", []), ("9@10.0.0.2", [2, 3, 6]), ("0x63", [6])],
)
def test_a_pdc_is_followed_both_ways(decode: Decode, pdc: str, numbers: list[int]) -> None:
    assert [shown["frame"] for shown in decode.documents(FRAMES, pdc=pdc)] == numbers


def test_count_counts_what_is_shown(decode: Decode) -> None:
    shown = decode.documents(FRAMES, count=2, filters=["dst=10.0.0.1"])
    assert [document["frame"] for document in shown] == [2, 3]
    assert (decode.counted["frames"], decode.counted["shown"]) == (3, 2)
    assert decode.counted["packets"] == {"UET": {"RUD_REQ": 1, "ACK": 1, "NACK": 1}}


def test_a_field_that_no_packet_has_is_pointed_out(decode: Decode) -> None:
    decode.lines(FRAMES, filters=["spdcld=7"])
    assert "no packet has a field 'spdcld'; did you mean spdcid?" in decode.said


def test_encrypted_packets_show_their_header(decode: Decode) -> None:
    header = TssHeader(an=1, sdi=5, ssi=0xBEEF, epoch=2, counter=99)
    data = header.encode() + b"ciphertext" + bytes(16)
    frames = [make.ethernet(make.ipv4(make.udp(part))) for part in (data, data[:20], data[:9])]
    whole, no_icv, cut = decode.documents(frames)
    assert whole["tss"] == {"an": 1, "sdi": 5, "ssi": 0xBEEF, "epoch": 2, "counter": 99}
    assert whole["encrypted_length"] == 10
    assert no_icv["error"] == {"offset": 20, "reason": "the ICV has 16 bytes, 4 are there"}
    assert cut["error"] == {"offset": 9, "reason": "the TSS header is cut short"}
    (line,) = decode.lines(frames, count=1)
    assert line.endswith("TSS SDI 5 SSI 0x0000beef AN 1 TSC 2.99 | 10 B")


def test_a_limited_capture_is_not_malformed(decode: Decode) -> None:
    (line,) = decode.lines(decode.file(FRAMES[:1], snaplen=58))
    assert line.endswith("PSN 5 CLEAR 4 [AR SYN] | WRITE | 4 B (cut by the capture: 16 of 60 B)")


def test_an_unread_link_type_is_counted(decode: Decode, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TestbedError, match="link type 127 is not read") as refused:
        decode.lines(decode.file(FRAMES[:2], link_type=127))
    assert refused.value.hint is not None and "Ethernet (1)" in refused.value.hint
    assert capsys.readouterr().err == (
        "2 frames, no UET, RoCE, RoCEv1, scale-up, MAC control or InfiniBand packet;"
        " 0 trimmed, 0 marked CE, 0 retransmitted;"
        " 2 frames of link type 127, which is not read\n"
    )


def test_frames_of_other_link_types_are_no_reason_to_refuse_the_others(decode: Decode) -> None:
    interfaces = make.interface(127) + make.interface()
    decode.path.write_bytes(make.section() + interfaces + make.enhanced(b"radio") + make.enhanced(FRAMES[1], index=1))
    decode.documents(str(decode.path))
    assert (decode.counted["packets"], decode.counted["unread_link_types"]) == ({"UET": {"ACK": 1}}, {"127": 1})


def test_what_precedes_damage_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(make.pcap(FRAMES[:2])[:-3])
    with pytest.raises(CaptureError, match="the file ends within a record"):
        print_packets(str(path), Format.TABLE)
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert shown.err.startswith("1 frame, 1 UET packet: 1 RUD_REQ")


def test_standard_input(decode: Decode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(make.pcap(FRAMES))))
    assert len(decode.lines("-")) == 6


@pytest.mark.parametrize("text", ["psn", "=5", "psn=", "!=3", " =3"])
def test_wrong_filters_are_named(text: str) -> None:
    with pytest.raises(TestbedError, match="expected FIELD=VALUE"):
        FieldFilter.parse(text)


@pytest.mark.parametrize("text", ["", "0", "65536", "seven", "7@", "7@host", "-1"])
def test_wrong_pdcs_are_named(text: str) -> None:
    with pytest.raises(TestbedError, match="expected PDCID or PDCID@ADDRESS"):
        PdcFilter.parse(text)


def test_wrong_options_are_named(decode: Decode, tmp_path: Path) -> None:
    capture = decode.file(FRAMES)
    with pytest.raises(TestbedError, match="table or json"):
        print_packets(capture, Format.CSV)
    with pytest.raises(TestbedError, match="--count 0: expected at least 1"):
        print_packets(capture, Format.TABLE, count=0)
    with pytest.raises(TestbedError, match="is a directory"):
        print_packets(str(tmp_path), Format.TABLE)


@pytest.mark.process
def test_the_command(decode: Decode) -> None:
    """As a user runs it: options, exit codes, and a hint."""
    argv = [sys.executable, "-m", "testbed", "decode"]
    done = subprocess.run(
        [*argv, decode.file(FRAMES), "--json", "-c", "1"], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout)["pds"]["psn"] == 5
    broken = subprocess.run(
        [*argv, "-", "--filter", "flags=SYN"], capture_output=True, check=False, timeout=60, input=b"\x1f\x8b\x08\x00"
    )
    assert broken.returncode == 3
    assert b"hint: it is compressed" in broken.stderr
