"""The verb `decode` and RoCE: every opcode, the ICRC, what is sent again, and what each queue pair had."""

import json
import struct
import zlib
from pathlib import Path

import capture_files as make
import pytest
from decode_verb import Decode
from roce_samples import FIRST, FIRST_V6, SECOND, SECOND_V6, RoceSamples, roce_frame

from testbed.cli.nodes.packets import print_flows
from testbed.cli.options import Format
from testbed.protocols.roce import captured as roce
from testbed.protocols.roce.packets.headers import Aeth, Bth, Reth
from testbed.protocols.roce.packets.opcodes import UDP_PORT, Opcode
from testbed.protocols.roce.packets.packet import RocePacket, describe
from testbed.protocols.roce.packets.syndrome import NakCode, nak, rnr_nak
from testbed.record.captures.pcap import CaptureError

CE = 26 << 2 | 3
CNP_TOS = 48 << 2


def packet(
    opcode: Opcode,
    psn: int,
    payload: bytes = b"",
    *,
    qp: int = 0x11,
    reth: Reth | None = None,
    aeth: Aeth | None = None,
) -> RocePacket:
    bth = Bth(opcode, qp, psn, pad_bytes=-len(payload) & 3, becn=opcode == Opcode.CNP)
    data = memoryview(payload)
    return RocePacket(bth, None, reth, None, aeth, None, None, None, data, bytes(bth.pad_bytes), 0)


def written(psn: int) -> RocePacket:
    return packet(Opcode.RC_WRITE_ONLY, psn, b"12345", reth=Reth(0x1000, 0xBEEF, 5))


FRAMES = [
    roce_frame(written(100)),
    roce_frame(written(101), tos=CE),
    roce_frame(written(103)),
    roce_frame(written(101), damage=True),
    roce_frame(written(102)),
    roce_frame(
        packet(Opcode.RC_ACKNOWLEDGE, 101, qp=0x21, aeth=Aeth(nak(NakCode.PSN_SEQUENCE_ERROR), 2)),
        source=SECOND,
        destination=FIRST,
    ),
    roce_frame(
        packet(Opcode.RC_ACKNOWLEDGE, 101, qp=0x21, aeth=Aeth(rnr_nak(12), 2)), source=SECOND, destination=FIRST
    ),
    roce_frame(packet(Opcode.CNP, 0, bytes(16), qp=0x21), source=SECOND, destination=FIRST, tos=CNP_TOS),
    roce_frame(packet(Opcode.RC_READ_RESPONSE_MIDDLE, 101, b"1234")),
]


def test_lines_and_the_counts_at_the_end(decode: Decode) -> None:
    shown = decode.lines(FRAMES)
    write = "| VA 0x1000 rkey 0x0000beef, of 5, 5 B"
    forth, back = "10.0.0.1 > 10.0.0.2  EV 49200  DSCP 26", "10.0.0.2 > 10.0.0.1  EV 49200  DSCP"
    assert shown == [
        f"   0.000000000  {forth} ECT0  RC_WRITE_ONLY QP 0x000011 PSN 100 {write}",
        f"   1.000000001  {forth} CE    RC_WRITE_ONLY QP 0x000011 PSN 101 {write}",
        f"   2.000000002  {forth} ECT0  RC_WRITE_ONLY QP 0x000011 PSN 103 {write}",
        f"   3.000000003  {forth} ECT0  RC_WRITE_ONLY QP 0x000011 PSN 101 [AGAIN BAD ICRC] {write}",
        f"   4.000000004  {forth} ECT0  RC_WRITE_ONLY QP 0x000011 PSN 102 {write}",
        f"   5.000000005  {back} 26 ECT0  RC_ACKNOWLEDGE QP 0x000021 PSN 101 | NAK, PSN sequence error MSN 2",
        f"   6.000000006  {back} 26 ECT0  RC_ACKNOWLEDGE QP 0x000021 PSN 101 | RNR NAK, 0.64 ms MSN 2",
        f"   7.000000007  {back} 48 -     CNP QP 0x000021 PSN 0",
        f"   8.000000008  {forth} ECT0  RC_READ_RESPONSE_MIDDLE QP 0x000011 PSN 101 | 4 B",
    ]
    assert decode.said == (
        "9 frames, 9 RoCE packets: 5 RC_WRITE_ONLY, 2 RC_ACKNOWLEDGE, 1 CNP, 1 RC_READ_RESPONSE_MIDDLE;"
        " 0 trimmed, 1 marked CE, 1 retransmitted, 1 CNP, 1 with a bad ICRC\n"
    )


def test_the_summary_tells_what_each_queue_pair_had(decode: Decode, capsys: pytest.CaptureFixture[str]) -> None:
    path = decode.file(FRAMES)
    forth, back = decode.flows(path)
    size = 12 + 16 + 8 + 4
    assert forth == {
        "transport": "RoCE",
        "src": FIRST,
        "dst": SECOND,
        "flow": "QP 0x000011",
        "packets": 6,
        "bytes": 5 * size + 12 + 4 + 4,
        "payload_bytes": 5 * 5 + 4,
        "ce": 1,
        "cnps": 0,
        "naks": 0,
        "rnr_naks": 0,
        "retransmitted": 1,
        "trimmed": 0,
        "malformed": 0,
        "bad_icrc": 1,
        "cut": 0,
        "inside": "",
    }
    assert (back["flow"], back["packets"], back["payload_bytes"]) == ("QP 0x000021", 3, 0)
    assert (back["cnps"], back["naks"], back["rnr_naks"], back["retransmitted"]) == (1, 1, 1, 0)
    print_flows(path, Format.TABLE, filters=["opcode=CNP"])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["transport", "src", "dst", "flow"]
    assert row.split()[:6] == ["RoCE", SECOND, FIRST, "QP", "0x000021", "1"]
    print_flows(path, Format.CSV)
    assert capsys.readouterr().out.splitlines()[0].startswith("transport,src,dst,flow,packets,bytes")


@pytest.mark.parametrize(("source", "destination"), [(FIRST, SECOND), (FIRST_V6, SECOND_V6)])
def test_json_of_every_opcode(decode: Decode, source: str, destination: str) -> None:
    packets = list(RoceSamples(1).of_every_opcode())
    frames = [roce_frame(item, source=source, destination=destination) for item in packets]
    shown = decode.documents(frames)
    assert len(shown) == len(Opcode)
    for item, document in zip(packets, shown, strict=True):
        described = describe(item)
        fields = document["roce"]
        del described["icrc"]
        assert json.loads(json.dumps(described)).items() <= fields.items()
        assert fields["icrc_good"] is True
        assert (document["src"], document["transport"], document["malformed"]) == (source, "RoCE", False)


def test_the_icrc_covers_the_identification_of_the_ip_header(decode: Decode) -> None:
    frames = [roce_frame(written(1), identification=number) for number in (0, 7, 65535)]
    wrong = bytearray(frames[1])
    wrong[14 + 5] ^= 1
    good = [item["roce"]["icrc_good"] for item in decode.documents([*frames, bytes(wrong)])]
    assert good == [True, True, True, False]


def test_a_run_that_the_kernel_has_cut_is_told_from_a_damaged_packet(decode: Decode) -> None:
    """Its packets are numbered, and the ICRC was computed for identification 0."""
    numbered = bytearray(roce_frame(written(1)))
    numbered[14 + 5] = 2
    path = decode.file([bytes(numbered), roce_frame(written(2), identification=5)])
    shown = [item["roce"] for item in decode.documents(path)]
    assert [(item["icrc_good"], item["icrc_identification"]) for item in shown] == [(True, 0), (True, 5)]
    first, second = decode.lines(path)
    assert "[ICRC OF ID 0]" in first
    assert "ICRC" not in second


def test_the_icrc_covers_the_flags_of_the_ip_header(decode: Decode) -> None:
    frame = bytearray(roce_frame(written(1)))
    frame[14 + 6] = 0  # may be fragmented
    (document,) = decode.documents([bytes(frame)])
    assert document["roce"]["icrc_good"] is False


def test_marks_of_switches_do_not_touch_the_icrc(decode: Decode) -> None:
    frame = bytearray(roce_frame(written(1)))
    frame[15] |= 3
    frame[22] = 1
    (document,) = decode.documents([bytes(frame)])
    assert document["ecn"] == "CE"
    assert document["roce"]["icrc_good"] is True


def test_selective_acknowledgements_name_their_psns(decode: Decode) -> None:
    bitmap = 0b1011 | 1 << 255
    item = packet(Opcode.SELECTIVE_ACKNOWLEDGE, 0xFF_FFFE, bitmap.to_bytes(32, "little"), aeth=Aeth(0x1F, 3))
    path = decode.file([roce_frame(item)])
    (document,) = decode.documents(path)
    fields = document["roce"]
    assert fields["selective_psns"] == "16777215-0,2,254"
    assert (fields["psn"], fields["msn"], fields["syndrome"]) == (0xFF_FFFE, 3, "ACK")
    assert decode.lines(path)[-1].endswith("| ACK MSN 3, SACK 16777215-0,2,254")


def test_requests_and_responses_have_psns_of_their_own(decode: Decode) -> None:
    response = packet(Opcode.RC_READ_RESPONSE_ONLY, 5, b"1234", aeth=Aeth(0x1F, 1))
    acknowledgement = packet(Opcode.RC_ACKNOWLEDGE, 5, aeth=Aeth(0x1F, 1))
    items = [written(5), response, acknowledgement, acknowledgement, response, written(5)]
    others = [roce_frame(written(5), source_port=49_300), roce_frame(written(5), destination="10.0.0.3")]
    shown = decode.documents([*map(roce_frame, items), *others])
    again = [item["roce"]["retransmitted"] for item in shown]
    assert again == [False, False, False, False, True, True, True, False]


def test_datagrams_are_never_sent_again(decode: Decode) -> None:
    item = RoceSamples(2).packet(Opcode.UD_SEND_ONLY)
    shown = decode.documents([roce_frame(item)] * 2)
    assert [entry["roce"]["retransmitted"] for entry in shown] == [False, False]


def test_psns_that_come_around_are_new(decode: Decode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is bounded."""
    monkeypatch.setattr(roce, "REMEMBERED_PSNS", 100)
    body = roce_frame(packet(Opcode.RC_SEND_MIDDLE, 0, b"1234"))
    at = 14 + 20 + 8 + 8
    frames = [body[:at] + struct.pack("!I", psn) + body[at + 4 :] for psn in range(roce.REMEMBERED_PSNS + 1)]
    (flow,) = decode.flows([*frames, frames[0], frames[-1]])
    assert flow["retransmitted"] == 1


def test_a_limited_capture_is_not_malformed(decode: Decode) -> None:
    long = packet(Opcode.RC_WRITE_ONLY, 1, bytes(1001), reth=Reth(0x1000, 0xBEEF, 1001))
    path = decode.file([roce_frame(long)], snaplen=70)
    (document,) = decode.documents(path)
    fields = document["roce"]
    assert (fields["payload_bytes"], fields["pad_bytes"], fields["icrc_good"]) == (1001, 3, None)
    assert decode.lines(path)[-1].endswith("1001 B (cut by the capture: 28 of 1036 B)")
    (document,) = decode.documents(decode.file([roce_frame(long)], snaplen=69))
    fields = document["roce"]
    assert "dma_length" not in fields
    assert (fields["rkey"], document["malformed"], document["cut"]) == ("0x0000beef", False, True)


def test_what_cannot_be_decoded_says_why(decode: Decode) -> None:
    reserved = make.ethernet(make.ipv4(make.udp(b"\xff" + bytes(15), port=UDP_PORT)))
    short = make.ethernet(make.ipv4(make.udp(bytes(7), port=UDP_PORT)))
    shown = decode.documents([reserved, short])
    assert [item["malformed"] for item in shown] == [True, True]
    assert shown[0]["error"] == {"offset": 0, "reason": "opcode 0xff is reserved, or of a service that is not known"}


def test_the_summary_of_what_precedes_damage_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(make.pcap(FRAMES[:2])[:-3])
    with pytest.raises(CaptureError):
        print_flows(str(path), Format.JSON)
    assert [row["packets"] for row in json.loads(capsys.readouterr().out)] == [1]
    with pytest.raises(FileNotFoundError):
        print_flows(str(tmp_path / "none.pcap"), Format.JSON)
    assert capsys.readouterr().out == ""


def test_both_transports_in_one_capture(decode: Decode) -> None:
    nack = make.ethernet(make.ipv4(make.udp(bytes.fromhex("5020 01 00 00000006 0009 0007 00000000"))))
    path = decode.file([roce_frame(written(1)), nack])
    assert [item["transport"] for item in decode.documents(path)] == ["RoCE", "UET"]
    assert [item["frame"] for item in decode.documents(path, filters=["dest_qp=0x11"])] == [1]
    assert [item["frame"] for item in decode.documents(path, pdc="7")] == [2]
    assert [(row["transport"], row["flow"], row["naks"]) for row in decode.flows(path)] == [
        ("RoCE", "QP 0x000011", 0),
        ("UET", "PDC 9", 1),
    ]
    assert decode.counted["packets"] == {"RoCE": {"RC_WRITE_ONLY": 1}, "UET": {"NACK": 1}}


def test_the_icrc_is_the_crc_of_ethernet() -> None:
    """By the definition, without our code: ones for the local route and what changes on the way."""
    frame = roce_frame(written(9), identification=3)
    ip, udp, body = bytearray(frame[14:34]), bytearray(frame[34:42]), bytearray(frame[42:-4])
    ip[1] = ip[8] = ip[10] = ip[11] = udp[6] = udp[7] = body[4] = 0xFF
    assert zlib.crc32(b"\xff" * 8 + ip + udp + body) == int.from_bytes(frame[-4:], "little")
