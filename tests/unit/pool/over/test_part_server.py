"""The process on a machine: what it answers to lines, and that it is interrupted once."""

from __future__ import annotations

import io
import os
import signal

import pytest

from testbed.pool.over import messages
from testbed.pool.over.messages import ANSWERS, line_of, read_line
from testbed.pool.over.part_server import PartServer, interrupt_once


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
