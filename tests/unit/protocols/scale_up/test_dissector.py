"""tshark with our dissector over what the codec encodes: it shows what `testbed decode` says of the same frames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import capture_files as make
import pytest
from encoded_frames import encode_frame, seal
from link_samples import LinkSamples
from simulated_links import damaged
from tshark_output import pdml_packets, run_tshark

from testbed.protocols.captured.content import CapturedFrame
from testbed.protocols.scale_up import domain
from testbed.protocols.scale_up.captured import ScaleUpCapture
from testbed.protocols.scale_up.ctlos import CtlosType, Nack
from testbed.protocols.scale_up.frames import ControlFrame, DataFrame, FrameCheck
from testbed.protocols.scale_up.headers import HeaderKind, UaCommand, UaRequest
from testbed.record.captures.decoders.registry import PacketFinder
from testbed.record.captures.layers.walk import ETHERNET

pytestmark = [pytest.mark.tshark, pytest.mark.process]

SCRIPT = "scale_up.lua"
COMMAND_NAMES = [*(one.name for one in UaCommand), "command 0x3f"]
Shown = dict[str, list[str]]
"""Values by the names of fields, each as often as it is shown."""


def dissect(tmp_path: Path, frames: Sequence[bytes], snaplen: int = 262_144) -> list[Shown]:
    path = tmp_path / "frames.pcap"
    path.write_bytes(make.pcap(frames, snaplen=snaplen))
    shown = []
    for packet in pdml_packets(SCRIPT, path):
        fields: Shown = {}
        for proto in packet.iter("proto"):
            if proto.get("name") == "scale_up":
                for field in proto.iter("field"):
                    name = field.get("name", "").removeprefix("scale_up.")
                    fields.setdefault(name, []).append(field.get("show", ""))
        shown.append(fields)
    assert len(shown) == len(frames)
    return shown


def decoded(frames: Sequence[bytes], snaplen: int = 262_144) -> list[ScaleUpCapture]:
    finder = PacketFinder()
    found = []
    for number, frame in enumerate(frames, 1):
        capture = finder.find(CapturedFrame(number, 0, ETHERNET, frame[:snaplen], len(frame)))
        assert isinstance(capture, ScaleUpCapture)
        found.append(capture)
    return found


def expected(capture: ScaleUpCapture) -> Shown:
    """What the dissector shows of a whole frame that can be decoded."""
    fields = capture.fields()["scale_up"]
    assert isinstance(fields, dict)
    shown: Shown = {"fcs": [str(FrameCheck[fields["fcs"]].value)]}
    if isinstance(capture.content, ControlFrame):
        shown["type"] = [f"0x{CtlosType[name].value:02x}" for name in fields["type"]]
        shown |= {"set": fields["set"], "sent_ns": [str(fields["sent_ns"])]}
        return shown
    shown["kind"] = [str(HeaderKind[fields["kind"]].value)]
    shown["replayed"] = [str(int(fields["replayed"]))]
    shown["eligible"] = [str(int(fields["sequence"] is not None))]
    if fields["sequence"] is not None:
        shown["sequence"] = [str(fields["sequence"])]
    if isinstance(capture.content, DataFrame):
        shown |= {"vc": [str(fields["vc"])], "payload_length": [str(fields["payload_length"])]}
        for name, value in fields["header"].items():
            shown[f"header.{name}"] = [f"0x{value:016x}" if name == "address" else str(value)]
        if capture.content.payload:
            shown["payload"] = [capture.content.payload.hex(":")]
    else:
        shown |= {"vcs": list(map(str, fields["vcs"])), "consumed": list(map(str, fields["consumed"]))}
    return shown


def without_notes(shown: Shown) -> Shown:
    notes = ("", "nack", "again", "poisoned", "bad", "malformed", "snapped")
    return {name: values for name, values in shown.items() if name not in notes and not name.startswith("_ws")}


def test_both_decoders_show_the_same_of_every_kind_of_frame(tmp_path: Path) -> None:
    samples = LinkSamples(11)
    frames = [encode_frame(frame) for _ in range(12) for frame in samples.of_every_kind()]
    frames = [damaged(data) if samples.chance.random() < 0.1 else data for data in frames]
    checks = set()
    for capture, shown in zip(decoded(frames), dissect(tmp_path, frames), strict=True):
        wanted = expected(capture)
        assert without_notes(shown) == wanted, capture.text
        checks |= set(wanted["fcs"])
        assert ("bad" in shown) == capture.damaged
        nacks = isinstance(capture.content, ControlFrame) and any(
            isinstance(item, Nack) for item in capture.content.items
        )
        assert ("nack" in shown) == nacks
    assert checks == {"0", "1", "2"}


def test_both_see_the_same_replays(tmp_path: Path) -> None:
    samples = LinkSamples(12)
    frame = samples.data(samples.headers()[0])
    order = [0xFFFFE, 0xFFFFF, 0, 1, 0xFFFFF, 0, 1, 2, 2]
    frames = [encode_frame(frame._replace(sequence=number)) for number in order]
    again = [False, False, False, False, True, True, True, False, True]
    assert [capture.repeated for capture in decoded(frames)] == again
    assert [shown["replayed"] == ["1"] for shown in dissect(tmp_path, frames)] == again


def test_what_one_refuses_the_other_refuses(tmp_path: Path) -> None:
    samples = LinkSamples(13)
    chance, frames = samples.chance, []
    for _ in range(60):
        for frame in samples.of_every_kind():
            data = bytearray(encode_frame(frame))
            for _ in range(chance.randint(0, 2)):
                data[chance.randrange(14, min(len(data), 60))] ^= 1 << chance.randrange(8)
            cut = len(data) if chance.random() < 0.7 else chance.randint(20, len(data))
            frames.append(seal(bytes(data[:cut])[:-4]))
    outcomes = {True: 0, False: 0}
    for capture, shown in zip(decoded(frames), dissect(tmp_path, frames), strict=True):
        refused = capture.kind == "malformed"
        assert ("malformed" in shown) == refused, (capture.text, shown)
        outcomes[refused] += 1
        if not refused:
            assert without_notes(shown) == expected(capture)
    assert min(outcomes.values()) > 50


def test_a_frame_that_the_capture_cut_is_not_malformed(tmp_path: Path) -> None:
    samples = LinkSamples(14)
    frames = [data for data in map(encode_frame, samples.of_every_kind()) if len(data) > 50]
    for snaplen in (30, 50):
        for shown in dissect(tmp_path, frames, snaplen):
            assert "malformed" not in shown
            assert "fcs" not in shown


def test_frames_of_the_link_groups_peers_are_left_alone(tmp_path: Path) -> None:
    frame = bytes.fromhex("0180c200000e 020000000001 88b6") + b'{"state": 1}'.ljust(60, b" ")
    assert dissect(tmp_path, [frame]) == [{}]
    assert PacketFinder().find(CapturedFrame(1, 0, ETHERNET, frame, len(frame))) is None


def test_the_info_column(tmp_path: Path) -> None:
    samples = LinkSamples(15)
    data = samples.data(samples.headers()[0]._replace(xpu=7))._replace(
        vc=3, payload=b"x" * 10, sequence=5, check=FrameCheck.POISONED
    )
    control = ControlFrame(data.destination, data.source, (Nack(900),), 0)
    request = next(one for one in samples.headers() if isinstance(one, UaRequest))
    asked = [
        data._replace(header=request._replace(command=command, destination=7), check=FrameCheck.GOOD)
        for command in (*UaCommand, 0x3F)
    ]
    path = tmp_path / "frames.pcap"
    path.write_bytes(make.pcap([encode_frame(one) for one in (data, control, *asked)]))
    out = run_tshark(SCRIPT, path, "-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info")
    found = PacketFinder()
    texts = [found.find(CapturedFrame(1, 0, ETHERNET, raw, len(raw))) for raw in map(encode_frame, asked)]
    assert out.splitlines() == [
        "SCALE-UP\tseq 5 SUE VC 3 to 7 | 10 B [poisoned]",
        "SCALE-UP\tLLR_NACK 900",
        *(f"SCALE-UP\tseq 5 UALINK_REQUEST {name} VC 3 to 7 | 10 B [again]" for name in COMMAND_NAMES),
    ]
    assert [one.text.split(" VC ")[0] for one in texts if one is not None] == [
        f"seq 5 UALINK_REQUEST {name}" for name in COMMAND_NAMES
    ]


def test_commands_have_the_codes_of_the_endpoint() -> None:
    source = (Path(domain.__file__).parent / "native/transactions.h").read_text()
    codes = {int(code, 16) for code in re.findall(r"COMMAND_\w+ = (0x[0-9a-f]+)", source)}
    assert codes == set(UaCommand) and len(codes) == 8
