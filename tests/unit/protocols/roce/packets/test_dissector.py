"""tshark over what our codec encodes: its own dissector for what the specification has, ours for what that lacks.

tshark runs once for each set of packets. It takes guesses at the contents of SENDs, behind which it shows no ICRC.
"""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import capture_files as make
import pytest
from roce_samples import FIRST, FIRST_V6, SECOND, SECOND_V6, RoceSamples, roce_frame
from tshark_output import pdml_packets, run_tshark

from testbed.protocols.captured.content import CapturedFrame
from testbed.protocols.captured.packet import CapturedPacket
from testbed.protocols.roce.captured import RoceCapture
from testbed.protocols.roce.packets.headers import Aeth
from testbed.protocols.roce.packets.opcodes import UDP_PORT, Opcode
from testbed.protocols.roce.packets.packet import RocePacket
from testbed.protocols.roce.packets.syndrome import ack, kind_of
from testbed.record.captures.decoders.registry import PacketFinder
from testbed.record.captures.layers.walk import ETHERNET

pytestmark = [pytest.mark.tshark, pytest.mark.process]

SCRIPT = "roce.lua"
MANUFACTURERS = 0xC0
DYNAMIC = {Opcode.DC_CONNECT, Opcode.DC_DISCONNECT, Opcode.DC_UNATTACHED}
OURS = {Opcode.CNP, Opcode.SELECTIVE_ACKNOWLEDGE} | DYNAMIC
Shown = dict[str, str]
"""Values by the names of fields."""


def dissect(tmp_path: Path, frames: Sequence[bytes], snaplen: int = 262_144) -> list[tuple[Shown, Shown]]:
    """What tshark shows of each frame: its own fields of InfiniBand, and those of our dissector."""
    path = tmp_path / "packets.pcap"
    path.write_bytes(make.pcap(frames, snaplen=snaplen))
    shown = [(fields_of(packet, "infiniband"), fields_of(packet, "roce")) for packet in pdml_packets(SCRIPT, path)]
    assert len(shown) == len(frames)
    return shown


def fields_of(packet: ET.Element, protocol: str) -> Shown:
    protos = [proto for proto in packet.iter("proto") if proto.get("name") == protocol]
    return {
        field.get("name", "").removeprefix(f"{protocol}."): field.get("show", "")
        for proto in protos
        for field in proto.iter("field")
    }


def decoded(frames: Sequence[bytes]) -> list[CapturedPacket]:
    """What `testbed decode` has of the same frames."""
    finder = PacketFinder()
    found = [
        finder.find(CapturedFrame(number, 0, ETHERNET, frame, len(frame))) for number, frame in enumerate(frames, 1)
    ]
    assert None not in found
    return [capture for capture in found if capture is not None]


def number(text: str) -> int:
    """Immediate data and the rkey of an IETH are shown as bytes."""
    return int(text.replace(":", ""), 16) if ":" in text else int(text, 0)


def expected(packet: RocePacket) -> dict[str, int]:
    """The fields of tshark's own dissector."""
    bth = packet.bth
    fields = {
        "bth.opcode": bth.opcode,
        "bth.se": bth.solicited,
        "bth.m": bth.migration,
        "bth.padcnt": bth.pad_bytes,
        "bth.tver": 0,
        "bth.p_key": bth.pkey,
        "bth.destqp": bth.dest_qp,
        "bth.a": bth.ack_request,
        "bth.psn": bth.psn,
    }
    if bth.opcode in OURS:
        return fields
    remote = packet.reth or packet.atomic
    if remote is not None:
        fields |= {"reth.va": remote.virtual_address, "reth.r_key": remote.rkey}
    if packet.reth is not None:
        fields["reth.dmalen"] = packet.reth.length
    if packet.atomic is not None:
        fields |= {"atomiceth.swapdt": packet.atomic.swap_or_add, "atomiceth.cmpdt": packet.atomic.compare}
    if packet.deth is not None:
        fields |= {"deth.q_key": packet.deth.qkey, "deth.srcqp": packet.deth.source_qp}
    if packet.aeth is not None:
        kind = kind_of(packet.aeth.syndrome) >> 5
        fields |= {"aeth.syndrome": packet.aeth.syndrome, "aeth.syndrome.opcode": kind, "aeth.msn": packet.aeth.msn}
    if packet.original is not None:
        fields["atomicacketh.origremdt"] = packet.original
    if packet.immediate is not None:
        fields["immdt"] = packet.immediate
    if packet.invalidated_rkey is not None:
        fields["ieth"] = packet.invalidated_rkey
    return fields


@pytest.mark.parametrize(("source", "destination"), [(FIRST, SECOND), (FIRST_V6, SECOND_V6)])
def test_tshark_shows_every_header_as_it_was_encoded(tmp_path: Path, source: str, destination: str) -> None:
    samples = RoceSamples(1)
    packets = [packet for _ in range(4) for packet in samples.of_every_opcode()]
    ports = [samples.chance.randrange(49_152, 1 << 16) for _ in packets]
    frames = [
        roce_frame(packet, source=source, destination=destination, source_port=port)
        for packet, port in zip(packets, ports, strict=True)
    ]
    checked = 0
    for packet, frame, (theirs, ours) in zip(packets, frames, dissect(tmp_path, frames), strict=True):
        wanted = expected(packet)
        assert {name: number(theirs[name]) for name in wanted} == wanted, Opcode(packet.bth.opcode).name
        if "invariant.crc" in theirs:
            assert number(theirs["invariant.crc"]) == int.from_bytes(frame[-4:], "big")
            checked += 1
        assert ours["icrc_good"] == "1"
        assert (number(ours["fecn"]), number(ours["becn"])) == (packet.bth.fecn, packet.bth.becn)
    assert checked > len(packets) / 2


@pytest.mark.parametrize("opcode", sorted(OURS), ids=lambda opcode: opcode.name)
def test_what_tshark_does_not_know_is_shown_as_decode_shows_it(tmp_path: Path, opcode: Opcode) -> None:
    samples = RoceSamples(2)
    frames = [roce_frame(samples.packet(opcode)) for _ in range(20)]
    for capture, (_, ours) in zip(decoded(frames), dissect(tmp_path, frames), strict=True):
        assert isinstance(capture, RoceCapture)
        fields = capture.fields()["roce"]
        assert isinstance(fields, dict)
        assert number(ours["opcode"]) == opcode
        assert ("cnp" in ours) == (opcode == Opcode.CNP)
        assert bool(number(ours["retransmitted"])) is fields["retransmitted"]
        if opcode == Opcode.SELECTIVE_ACKNOWLEDGE:
            assert ours["selective_psns"] == fields["selective_psns"]
            assert (number(ours["syndrome"]), number(ours["msn"])) == (ack(), fields["msn"])
        if opcode in DYNAMIC:
            assert (number(ours["qkey"]), number(ours["source_qp"])) == (
                number(str(fields["qkey"])),
                number(str(fields["source_qp"])),
            )


def test_every_manufacturers_opcode_of_ours_is_shown() -> None:
    """A new one needs its line in `DISSECTORS`."""
    assert {opcode for opcode in Opcode if opcode >= MANUFACTURERS} <= OURS


def test_both_see_the_same_packets_sent_again_and_damaged(tmp_path: Path) -> None:
    samples = RoceSamples(3)
    chance = samples.chance
    opcodes = [Opcode.RC_SEND_MIDDLE, Opcode.RC_READ_RESPONSE_MIDDLE, Opcode.RC_ACKNOWLEDGE, Opcode.UD_SEND_ONLY]
    frames = [
        roce_frame(
            samples.packet(chance.choice(opcodes), psn=chance.randrange(6), dest_qp=chance.randrange(0x11, 0x13)),
            source=chance.choice((FIRST, SECOND)),
            destination="10.0.0.3",
            identification=chance.randrange(1 << 16),
            damage=chance.random() < 0.3,
        )
        for _ in range(200)
    ]
    outcomes = set()
    for capture, (_, ours) in zip(decoded(frames), dissect(tmp_path, frames), strict=True):
        assert (ours["retransmitted"], ours["icrc_good"]) == (str(int(capture.repeated)), str(int(not capture.damaged)))
        assert ("again" in ours, "icrc" in ours) == (capture.repeated, capture.damaged)
        outcomes.add((capture.repeated, capture.damaged))
    assert len(outcomes) == 4


def test_a_run_that_the_kernel_has_cut_is_told_from_a_damaged_packet(tmp_path: Path) -> None:
    frames = []
    for identification in (0, 1, 300):
        frame = bytearray(roce_frame(RoceSamples(7).packet(Opcode.RC_WRITE_MIDDLE)))
        frame[14 + 4 : 14 + 6] = identification.to_bytes(2, "big")
        frames.append(bytes(frame))
    shown = [ours for _, ours in dissect(tmp_path, frames)]
    assert [ours["icrc_good"] for ours in shown] == ["1", "1", "1"]
    assert ["icrc_unnumbered" in ours for ours in shown] == [False, True, True]


def test_a_packet_that_the_capture_cut_is_not_malformed(tmp_path: Path) -> None:
    samples = RoceSamples(4)
    frames = [roce_frame(packet) for packet in samples.of_every_opcode()]
    for _, ours in dissect(tmp_path, frames, snaplen=56):
        assert "malformed" not in ours
        assert "icrc_good" not in ours


def test_no_bytes_make_the_dissector_fail(tmp_path: Path) -> None:
    samples = RoceSamples(5)
    chance = samples.chance
    frames = []
    for _ in range(300):
        data = bytearray(samples.packet(chance.choice(list(Opcode))).encode())
        data[0] = chance.choice((data[0], Opcode.SELECTIVE_ACKNOWLEDGE, chance.randrange(256)))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        cut = bytes(data[: chance.randint(0, len(data))])
        udp = make.udp(cut, port=UDP_PORT, length=chance.choice((None, chance.randrange(200))))
        frames.append(make.ethernet(make.ipv6(udp) if chance.random() < 0.3 else make.ipv4(udp)))
    dissect(tmp_path, frames)


def test_the_info_column_and_filters(tmp_path: Path) -> None:
    samples = RoceSamples(6)
    selective = samples.packet(Opcode.SELECTIVE_ACKNOWLEDGE, psn=7)
    selective = selective._replace(payload=memoryview(b"\x05" + bytes(31)), aeth=Aeth(ack(), 1))
    write = samples.packet(Opcode.RC_WRITE_MIDDLE, psn=9)
    frames = [roce_frame(item) for item in (samples.packet(Opcode.CNP), selective, write, write)]
    path = tmp_path / "four.pcap"
    path.write_bytes(make.pcap(frames))
    lines = run_tshark(SCRIPT, path).splitlines()
    assert lines[0].endswith("CNP")
    assert lines[1].endswith("SACK 8,10")
    assert lines[3].endswith("[again]")
    for filter_, numbers in {
        "roce.opcode == 0x81": ["1"],
        "roce.retransmitted == 1": ["4"],
        "roce.icrc_good == 0": [],
        "roce.selective_psns": ["2"],
    }.items():
        found = run_tshark(SCRIPT, path, "-Y", filter_, "-T", "fields", "-e", "frame.number")
        assert found.split() == numbers, filter_
