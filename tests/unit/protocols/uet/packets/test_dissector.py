"""The Wireshark dissector against the Python codec: two decoders, written apart, show the same in every field.

Source of the packets: the codec's encoder, with random values, and mutations of what it made. tshark runs once for each
set of packets. Entropy values are any ports, also those of other protocols.
"""

import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from random import Random

import capture_files as make
import pytest
from encoded import encoded
from packet_samples import PacketSamples
from tshark_output import SCRIPTS, pdml_packets, run_tshark

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import NextHeader
from testbed.protocols.uet.packets.packet import Packet, decode_packet, describe
from testbed.protocols.uet.packets.pds import Ack, ControlPacket, Nack, NsccState, Request
from testbed.protocols.uet.security.tss_header import TssHeader

ANY_SOURCE_PORT = ("-o", "udp.try_heuristic_first:TRUE")
"""Also those of other protocols."""

pytestmark = [pytest.mark.tshark, pytest.mark.process]

Shown = dict[str, object]
"""Fields by their names without "uet.": numbers, hexadecimal texts of bytes, or the name of a number."""

BYTES = frozenset(("cc_state", "compare", "swap", "data", "tss.encrypted", "tss.icv"))
TEXTS = frozenset(("sack_psns",))
REPEATED = frozenset(("pdcid", "malformed", "unknown", "reserved_bits"))
NAMED = re.compile(r": (\w+) \((?:0x)?[0-9a-f]+\)$")
NAMES = frozenset(
    (
        *("type", "next_hdr", "ctl_type", "flags.req", "cc_type", "nack_code", "opcode", "amo_opcode", "datatype"),
        *("list", "response_opcode", "return_code", "tss.type"),
    )
)
"""Numbers that have names."""

FLAGS = {"MARKED": "m", "RETX": "retx", "PROBE": "p", "AR": "ar", "SYN": "syn", "RUDI": "nt", "ISROD": "isrod"}
FLAGS_OF = {
    "request": ("retx", "ar", "syn"),
    "ack": ("m", "retx", "p"),
    "nack": ("m", "retx", "nt"),
    "CP": ("isrod", "retx", "ar", "syn"),
    "RUDI_REQ": ("retx",),
    "RUDI_RESP": ("m", "retx"),
    "UUD_REQ": (),
}


def dissect(tmp_path: Path, frames: Sequence[bytes], snaplen: int = 262_144) -> list[Shown]:
    """What tshark shows of each frame's UET packet."""
    path = tmp_path / "packets.pcap"
    path.write_bytes(make.pcap(frames, snaplen=snaplen))
    shown = []
    for packet in pdml_packets("uet.lua", path, *ANY_SOURCE_PORT):
        (proto,) = (proto for proto in packet.iter("proto") if proto.get("name") == "uet")
        fields: Shown = {}
        for field in proto.iter("field"):
            name = field.get("name", "").removeprefix("uet.")
            if name and name != field.get("name"):
                value = shown_value(name, field)
                assert name in REPEATED or name not in fields, f"{name} is shown twice"
                fields[name] = value
        shown.append(fields)
    assert len(shown) == len(frames)
    return shown


def shown_value(name: str, field: ET.Element) -> object:
    text, label = field.get("show", ""), field.get("showname", "")
    if name in NAMES:
        match = NAMED.search(label)
        return match.group(1) if match else label
    if name in BYTES:
        return text.replace(":", "")
    if name in TEXTS or name.partition(".")[0] in ("malformed", "unknown", "cut", "reserved_bits"):
        return text
    return int(text, 0)


def frame(data: bytes, chance: Random, length: int | None = None) -> bytes:
    source_port = chance.randrange(1, 1 << 16)
    datagram = make.udp(data, source_port=source_port, length=length)
    packet = make.ipv6(datagram) if chance.random() < 0.3 else make.ipv4(datagram)
    return make.ethernet(packet)


def flatten(described: dict[str, object], prefix: str = "") -> Shown:
    shown: Shown = {}
    for name, value in described.items():
        if isinstance(value, dict):
            shown |= flatten(value, "rendezvous." if "eager_length" in value else "")
        elif isinstance(value, str) and value.startswith("0x"):
            shown[name.lower()] = int(value, 16)
        else:
            place = {"PIDonFEP": "pid_on_fep"}.get(name, name)
            dotted = prefix if place in ("ri_generation", "pid_on_fep", "resource_index") else ""
            shown[dotted + place] = int(value) if isinstance(value, bool) else value
    return shown


def expected(packet: Packet) -> Shown:
    described = describe(packet)
    pds, ses = described["pds"], described["ses"]
    assert isinstance(pds, dict)
    shown = {} if ses is None else expected_ses(ses, str(pds["next_hdr"]))
    shown |= expected_pds(packet, pds)
    if packet.payload:
        shown |= {"data": packet.payload.hex(), "data_length": len(packet.payload)}
    return shown


def expected_pds(packet: Packet, pds: dict[str, object]) -> Shown:
    header, kind = packet.pds, str(pds["type"])
    flags = pds.pop("flags")
    assert isinstance(flags, list)
    states = {name: pds.pop(name) for name in ("ack_ccx_state", "nack_ccx_state") if name in pds}
    if isinstance(pds.get("ack_cc_state"), str):
        states["ack_ccx_state"] = pds.pop("ack_cc_state")
    shown = flatten(pds)
    group = kind
    if isinstance(header, Request):
        group = "request"
        shown["clear_psn"] = header.clear_psn
    if isinstance(header, Ack):
        group = "ack"
        req = [name for name in flags if name.startswith("REQ_")]
        shown["flags.req"] = req[0] if req else "none"
        shown |= expected_ack(header)
    if isinstance(header, Nack):
        group = "nack"
    if isinstance(header, ControlPacket):
        shown |= expected_control(header)
    if isinstance(header, Request | ControlPacket) and header.flags & 0x04:
        shown["start_psn"] = (header.psn - header.psn_offset) % (1 << 32)
    shown |= {f"flags.{name}": int(name in [FLAGS.get(flag) for flag in flags]) for name in FLAGS_OF[group]}
    if "ack_ccx_state" in states:
        shown["cc_state"] = str(states["ack_ccx_state"])[2:]
    if "nack_ccx_state" in states:
        shown["cc_state"] = f"{pds['nccx_type']:x}{str(states['nack_ccx_state'])[2:]}"
    return shown


def expected_ack(header: Ack) -> Shown:
    shown: Shown = {} if header.flags & 0x08 else {"ack_psn": header.ack_psn}
    if header.cc_state is None:
        return shown
    shown["cc_flags"] = 0
    shown["sack_base_psn"] = header.sack_base_psn
    if header.sack_bitmap:
        shown["sack_psns"] = runs(header.sack_base_psn, header.sack_bitmap)
    if isinstance(header.cc_state, NsccState) and header.cc_state.service_time:
        shown["service_time_ns"] = header.cc_state.service_time * 128
    return shown


def expected_control(header: ControlPacket) -> Shown:
    payload = header.payload
    match header.control_type.name:
        case "ACK_REQ":
            return {"ack_req_message_id": payload & 0xFFFF}
        case "CLEAR_CMD":
            return {"clear_psn": payload}
        case "PROBE":
            return {"sack_base_psn": payload}
        case "CREDIT":
            return {"credit": payload >> 8}
        case "CREDIT_REQ":
            return {"credit_target": payload & 0xFF_FFFF}
        case _:
            return {}


def expected_ses(ses: object, next_hdr: str) -> Shown:
    assert isinstance(ses, dict)
    flags, tokens = ses.pop("flags", None), ses.pop("restart_tokens", None)
    shown = flatten(ses)
    shown["version"] = 0
    if flags is None:
        shown["response_opcode"] = shown.pop("opcode")
    else:
        shown |= {name: int(name.upper() in flags) for name in ("dc", "ie", "rel", "hd", "eom", "som")}
    if tokens is not None:
        # The dissector shows the tokens in the place of the field that holds them.
        shown.pop("memory_key" if shown["opcode"] == "DEFERRABLE_RTR" else "buffer_offset")
        shown |= {f"{side}_restart_token": value for side, value in tokens.items()}
    assert (next_hdr == "REQUEST_STD") >= (tokens is not None)
    return shown


def runs(base: int, bitmap: int) -> str:
    """ "5,7-9" for the bits that are set above `base`."""
    parts = []
    for match in re.finditer("1+", f"{bitmap:064b}"[::-1]):
        first, last = (base + match.start()) % (1 << 32), (base + match.end() - 1) % (1 << 32)
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


def compared(shown: Shown) -> Shown:
    """Without what is there twice: the number of all flags, and either PDCID."""
    return {name: value for name, value in shown.items() if name not in ("flags", "pdcid", "reserved_bits")}


def ignored(packet: Packet, data: bytes, shown: Shown) -> Shown:
    """What the dissector shows of reserved bits and values that an endpoint ignores."""
    seen: Shown = {"cc_flags": data[12] & 15} if "cc_flags" in shown else {}
    if isinstance(packet.pds, Ack) and data[1] & 0x06 == 0x06:
        seen["flags.req"] = "reserved"
    if isinstance(packet.pds, Nack):
        number = (data[0] << 8 | data[1]) >> 7 & 15
        seen["next_hdr"] = NextHeader(number).name if number < len(NextHeader) else "Unknown"
    return seen


def refused(shown: Shown) -> bool:
    return bool({"malformed", "unknown"} & shown.keys())


@pytest.mark.parametrize("seed", [1, 2])
def test_both_decoders_show_the_same_of_every_kind_of_packet(tmp_path: Path, seed: int) -> None:
    samples = PacketSamples(seed)
    packets = list(samples.of_every_kind())
    shown = dissect(tmp_path, [frame(encoded(packet), samples.chance) for packet in packets])
    for packet, fields in zip(packets, shown, strict=True):
        assert compared(fields) == expected(packet), packet
        pdcids = {getattr(packet.pds, name, None) for name in ("spdcid", "dpdcid")}
        assert fields.get("pdcid") in pdcids
    assert len({packet.pds.type for packet in packets}) == 13


def test_what_one_refuses_the_other_refuses(tmp_path: Path) -> None:
    """And no bytes make the dissector fail."""
    samples = PacketSamples(3)
    chance = samples.chance
    packets = list(samples.of_every_kind())
    datagrams = [chance.randbytes(chance.randint(1, 90)) for _ in range(100)]
    for _ in range(900):
        data = bytearray(encoded(chance.choice(packets)))
        for _ in range(chance.randint(0, 3)):
            data[chance.randrange(min(len(data), 60))] ^= 1 << chance.randrange(8)
        cut = len(data) if chance.random() < 0.5 else chance.randint(1, len(data))
        datagrams.append(bytes(data[:cut]))
    datagrams = [data for data in datagrams if data[0] >> 3 != 1]
    outcomes = {"refused": 0, "taken": 0}
    for data, shown in zip(datagrams, dissect(tmp_path, [frame(data, chance) for data in datagrams]), strict=True):
        try:
            packet = decode_packet(data)
        except DecodeError as error:
            assert refused(shown), f"{data.hex()}: {error}"
            outcomes["refused"] += 1
            continue
        assert not refused(shown), (data.hex(), shown)
        outcomes["taken"] += 1
        assert compared(shown) == expected(packet) | ignored(packet, data, shown), data.hex()
    assert min(outcomes.values()) > 300, outcomes


def test_a_trimmed_packet_is_called_so_and_is_not_malformed(tmp_path: Path) -> None:
    samples = PacketSamples(4)
    packets = [packet for packet in samples.of_every_kind() if isinstance(packet.pds, Request) and packet.ses]
    cuts = [samples.chance.randint(16, len(encoded(packet)) - 1) for packet in packets]
    frames = [
        frame(encoded(packet)[:cut], samples.chance, length=len(encoded(packet)))
        for packet, cut in zip(packets, cuts, strict=True)
    ]
    for packet, cut, fields in zip(packets, cuts, dissect(tmp_path, frames), strict=True):
        assert not refused(fields)
        assert (fields["trimmed"], fields["trimmed_bytes"]) == (1, len(encoded(packet)) - cut)
        assert fields["psn"] == packet.pds.psn  # type: ignore[union-attr]
        headers = len(encoded(packet)) - len(packet.payload)
        assert ("cut.trimmed" in fields) == (cut < headers)


def test_a_packet_that_the_capture_cut_is_not_malformed(tmp_path: Path) -> None:
    samples = PacketSamples(5)
    frames = [make.ethernet(make.ipv4(make.udp(encoded(packet)))) for packet in samples.of_every_kind()]
    long = [data for data in frames if len(data) > 60]
    for fields in dissect(tmp_path, long, snaplen=58):
        assert not refused(fields)
        assert "trimmed" not in fields


@pytest.mark.parametrize("ssi", [None, 0xDEAD_BEEF])
def test_an_encrypted_packet_shows_its_header(tmp_path: Path, ssi: int | None) -> None:
    header = TssHeader(an=1, sdi=0xABCDE, ssi=ssi, epoch=513, counter=(1 << 48) - 2)
    data = header.encode() + b"ciphertext" + bytes(range(16))
    whole, bare, short = dissect(
        tmp_path, [make.ethernet(make.ipv4(make.udp(part))) for part in (data, data[:-10], data[: header.size + 9])]
    )
    common = {"tss.type": "TSS", "tss.an": 1, "tss.sdi": 0xABCDE, "tss.epoch": 513, "tss.counter": (1 << 48) - 2}
    common |= {"tss.sp": 0} if ssi is None else {"tss.sp": 1, "tss.ssi": ssi}
    assert whole == common | {"tss.encrypted": b"ciphertext".hex(), "tss.icv": bytes(range(16)).hex()}
    assert bare == common | {"tss.icv": (b"ciphertext" + bytes(range(6))).hex()}
    assert refused(short)


def test_names_that_are_taken_are_left_to_their_owner(tmp_path: Path) -> None:
    other = tmp_path / "other.lua"
    other.write_text('local p = Proto("uet", "Their UET")\np.fields = { ProtoField.uint32("uet.psn", "PSN") }\n')
    path = tmp_path / "one.pcap"
    packet = next(PacketSamples(6).of_every_kind())
    path.write_bytes(make.pcap([make.ethernet(make.ipv4(make.udp(encoded(packet))))]))
    argv = ["tshark", "-n", "-X", f"lua_script:{other}", "-X", f"lua_script:{SCRIPTS / 'uet.lua'}", "-r", str(path)]
    done = subprocess.run(
        [*argv, "-T", "fields", "-e", "uet_testbed.psn"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert int(done.stdout) == packet.pds.psn  # type: ignore[union-attr]


def test_the_info_column_and_filters(tmp_path: Path) -> None:
    """The line of a WRITE, and both directions of a PDC by one display filter."""
    write = bytes.fromhex(
        "118c ffff 00000005 0007 0002"
        "01 23 0003 01 00004d 0005 0006 0000000000001000 00000009 00000000deadbeef 0000000000000000 00001000"
    )
    ack = bytes.fromhex("3800 0000 00000005 0009 0007")
    other = bytes.fromhex("3800 0000 00000005 0009 0008")
    path = tmp_path / "packets.pcap"
    path.write_bytes(make.pcap([make.ethernet(make.ipv4(make.udp(data))) for data in (write, ack, other)]))
    out = run_tshark(
        "uet.lua", path, "-Y", "uet.pdcid == 7", "-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"
    )
    assert out.splitlines() == ["UET\tRUD_REQ SYN AR psn=5 clear=4 WRITE 4096 B msg 3", "UET\tACK ack=5 cack=5"]
