"""A process that is driven by lines: its first line, its commands, and why it does not start."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.base import driven_by_lines
from testbed.base.driven_by_lines import CommandLines, read_first_line, say_ready, say_refused
from testbed.base.errors import CapabilityError, DriverError
from testbed.daemons.kit.line_process import LineProcess

Write = Callable[[bytes], None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes to what is our standard input; b"" ends it."""
    reader, writer = os.pipe()
    monkeypatch.setattr(driven_by_lines, "_INPUT", reader)
    ends = [writer]

    def write(data: bytes) -> None:
        if data:
            os.write(writer, data)
        else:
            os.close(ends.pop())

    yield write
    os.close(reader)
    for end in ends:
        os.close(end)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    reader, writer = os.pipe()
    monkeypatch.setattr(driven_by_lines, "_OUTPUT", writer)
    yield lambda: json.loads(os.read(reader, 4096))
    os.close(reader)
    os.close(writer)


def test_commands_follow_the_first_line_in_whatever_pieces(given: Write) -> None:
    given(b'{"a": 1}\nfirst\nsec')
    line, rest = read_first_line()
    assert (line, rest) == (b'{"a": 1}', b"first\nsec")
    heard: list[bytes] = []
    commands = CommandLines(heard.append, rest)
    commands.on_event()
    assert heard == [b"first"] and not commands.ended
    given(b"ond\nthird\n")
    commands.on_event()
    assert heard == [b"first", b"second", b"third"]
    given(b"")
    commands.on_event()
    assert commands.ended


def test_no_line_is_no_configuration(given: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driven_by_lines, "LONGEST_LINE", 3)
    given(b"abcdef")
    given(b"")
    with pytest.raises(ValueError, match="no configuration"):
        read_first_line()


def process_that(answers: Any) -> LineProcess:
    made = LineProcess.__new__(LineProcess)
    made.name, made._operation = "carrier 1 of 2", "carrier"
    made.hear = lambda timeout_s: answers  # type: ignore[method-assign]
    return made


def test_what_the_machine_lacks_is_told_apart_from_what_does_not_work(said: Callable[[], Any], tmp_path: Path) -> None:
    say_ready()
    process_that(said()).await_ready(1)
    say_refused(CapabilityError("no programs", missing="sk_lookup", hint="a newer kernel"))
    with pytest.raises(CapabilityError, match="carrier 1 of 2 does not start: no programs") as lacking:
        process_that(said()).await_ready(1)
    assert (lacking.value.missing, lacking.value.hint) == ("sk_lookup", "a newer kernel")
    say_refused(OSError(98, "Address already in use"))
    with pytest.raises(DriverError, match="Address already in use") as broken:
        process_that(said()).await_ready(1, hint="another program may have it")
    assert broken.value.hint == "another program may have it"
