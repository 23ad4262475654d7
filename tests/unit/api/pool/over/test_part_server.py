"""The process on a machine: what it answers to lines, and that it is interrupted once."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.api.pool.over import messages, part_server
from testbed.api.pool.over.messages import ANSWERS, line_of, read_line
from testbed.api.pool.over.part_server import KEY_BYTES, PartServer, interrupt_once, mark_of, new_key
from testbed.lab.core.deploy.lifecycle import DestroyOutcome
from testbed.lab.core.deploy.records.lab_record import encode_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.machines.wires import KEY_NAME


def answers_to(*lines: bytes) -> list[object]:
    said = io.BytesIO()
    assert PartServer(io.BytesIO(b"".join(lines)), said).run() == 0
    return [read_line(line, ANSWERS) for line in said.getvalue().splitlines()]


def test_nonsense_is_refused_and_what_follows_is_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))
    found = answers_to(b"hello\n", b'["Deploy",{}]\n', line_of(messages.AskCheck(lab="nobody")))
    assert all(isinstance(answer, messages.PartRefused) for answer in found) and len(found) == 3
    last = found[-1]
    assert isinstance(last, messages.PartRefused) and "no lab named nobody" in last.message


OURS, THEIRS = b"k" * KEY_BYTES, b"o" * KEY_BYTES


@pytest.mark.parametrize(
    ("key", "said", "gone"),
    [
        (OURS, {"part": {}}, True),
        (THEIRS, {"part": {}}, False),
        (None, {"part": {}}, True),
        (None, {"slot": 1}, False),
        (None, None, True),
        (b"", {"part": {}}, True),
    ],
    ids=["ours", "of another deploy", "cut short", "whole here", "nothing but a name", "a key that was never written"],
)
def test_another_lab_of_the_name_is_not_destroyed(
    key: bytes | None, said: dict[str, Any] | None, gone: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    destroyed: list[str] = []

    def destroy(name: str, _state: object) -> DestroyOutcome:
        destroyed.append(name)
        return DestroyOutcome(lab=name, nodes=4)

    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(part_server, "destroy_lab", destroy)
    directory = tmp_path / "labs" / "wide"
    directory.mkdir(parents=True)
    if key is not None:
        (directory / KEY_NAME).write_bytes(key)
    if said is not None:
        (directory / "lab.json").write_text(json.dumps(said))
    [answer] = answers_to(line_of(messages.Destroy(lab="wide", mark=mark_of(OURS))))
    assert isinstance(answer, messages.Removed)
    assert (answer.there, destroyed) == ((True, ["wide"]) if gone else (False, []))
    assert gone or "another lab is called wide" in answer.remaining[0]


LOOKED_AT = "name: wide\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2}\n"


@pytest.mark.parametrize(
    ("replaces", "there"),
    [(None, True), (mark_of(OURS), False), (mark_of(THEIRS), True)],
    ids=["nothing", "it", "another lab of the name"],
)
def test_a_lab_that_is_to_be_replaced_speaks_against_nothing_while_it_is_up(
    replaces: str | None, there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its name is free, and its slot, and its k counts for nothing; those of any other lab are taken."""

    def resolve(*_: object, replaces: bool) -> SimpleNamespace:
        return SimpleNamespace(k=2000.0 if replaces else 1000.0, reason="")

    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))
    for name in ("require_root", "find_frr", "require_rdma", "require_machine"):
        monkeypatch.setattr(part_server, name, lambda *_: None)
    monkeypatch.setattr(part_server, "about_this_machine", lambda **_: SimpleNamespace(sources="s"))
    monkeypatch.setattr(part_server, "choose_mechanisms", lambda *_: SimpleNamespace(delay_by=None))
    monkeypatch.setattr(part_server, "resolve_scale", resolve)
    monkeypatch.setattr(part_server, "planned_reaction_ns", lambda *_: 100)
    monkeypatch.setattr(part_server, "_underlay", lambda *_: ("10.0.0.1", "lo"))
    monkeypatch.setattr(part_server, "_of_device", lambda *_: "9000")
    for name, slot in (("wide", 3), ("other", 4)):
        directory = tmp_path / "labs" / name
        directory.mkdir(parents=True)
        (directory / KEY_NAME).write_bytes(OURS)
        (directory / "lab.json").write_text(json.dumps({"slot": slot, "part": {}}))
    lab = load_topology_text(LOOKED_AT, file="<text>")
    places = {node.name: "a" for node in lab.nodes}
    asked = messages.Look(
        lab=encode_lab(lab), machine="a", places=places, underlay="", reached="10.0.0.1", replaces=replaces
    )
    [answer] = answers_to(line_of(asked))
    assert isinstance(answer, messages.LookAnswer), answer
    assert answer.exists is there and sorted(answer.taken) == ([3, 4] if there else [4])
    assert answer.k == (1000.0 if there else 2000.0)


def test_a_mark_is_the_same_for_a_key_and_does_not_say_it() -> None:
    key = bytes.fromhex(new_key())
    assert len(key) == KEY_BYTES and mark_of(key) == mark_of(key) != mark_of(OURS) and key.hex() not in mark_of(key)


def test_what_is_interrupted_is_the_end_though_the_input_goes_on() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as source, os.fdopen(writer, "wb", buffering=0) as asking:
        said = io.BytesIO()
        server = PartServer(source, said)

        def interrupted(_: object) -> object:
            raise KeyboardInterrupt

        server._answers = {messages.AskCheck: interrupted}
        asking.write(line_of(messages.AskCheck(lab="x")))
        assert server.run() == 130
    answer = read_line(said.getvalue(), ANSWERS)
    assert isinstance(answer, messages.PartRefused) and answer.message == "interrupted"


def test_a_second_interrupt_does_not_disturb_the_undoing_of_the_first() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, interrupt_once)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_claim_that_nobody_follows_up_is_given_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(part_server, "GO_S", 0.0)
    (tmp_path / "labs" / "wide").mkdir(parents=True)
    said = io.BytesIO()
    server = PartServer(io.BytesIO(), said)
    lab: Any = SimpleNamespace(name="wide")
    with pytest.raises(messages.PartFailed, match="nobody said so"):
        server._claim(lab, OURS)
    assert isinstance(read_line(said.getvalue(), ANSWERS), messages.Claimed)
