"""The labs of other machines: read from what `list` says there, and shown by a console that is forwarded."""

import json
import sys
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.failures import PartFailures
from testbed.api.console.machine import others
from testbed.api.console.machine.others import ForwardedConsoles, OtherMachines, rows_of
from testbed.vm.errors import NotConnected

LISTED = json.dumps([{"name": "far", "state": "running", "hosts": 4, "k": 1000.0, "design": None}, {"name": "broken"}])
THERE = "ssh://root@there"


class FakeSession:
    """A connection by which `list` says what it is given."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.silent_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def lose_after(self, silent_s: float) -> None:
        self.silent_s = silent_s

    def check(self, line: list[str]) -> bytes:
        self.asked.append(line)
        return LISTED.encode()


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[OtherMachines, FakeSession, threading.Event]]:
    session, changed = FakeSession(), threading.Event()
    monkeypatch.setattr(others, "open_session", lambda target: session)
    monkeypatch.setattr(others, "prepare_there", lambda session, target: ("sudo", "-n"))
    made = OtherMachines([f"{THERE}/srv/testbed"], changed.set, lambda: True, PartFailures(lambda _: None), write=False)
    yield made, session, changed
    made.close()


def test_rows_say_whose_they_are_and_miss_what_is_not_known() -> None:
    far, broken = rows_of(THERE, LISTED.encode())
    assert (far.name, far.machine, far.base, far.hosts, far.k, far.design) == ("far", THERE, "", 4, 1000.0, "")
    assert (broken.name, broken.state) == ("broken", "unknown")
    with pytest.raises(ValueError, match="Expecting value"):
        rows_of(THERE, b"no JSON")
    with pytest.raises(ValueError, match="cannot name a lab"):
        rows_of(THERE, b'[{"name": "--tls-key=/etc/shadow"}]')


def test_labs_of_another_machine_are_in_the_list(machines: tuple[OtherMachines, FakeSession, threading.Event]) -> None:
    made, session, changed = machines
    assert made.labs == () and made.machines[0].error
    made.start()
    assert changed.wait(5)
    assert [lab.name for lab in made.labs] == ["far", "broken"] and made.machines[0].error == ""
    assert session.asked[0] == ["sudo", "-n", "/srv/testbed/.venv/bin/testbed", "list", "-f", "json"]
    assert session.silent_s == others.SILENT_S


def test_a_machine_that_cannot_be_reached_says_why(
    machines: tuple[OtherMachines, FakeSession, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, changed = machines

    def refuse(target: Any) -> FakeSession:
        raise NotConnected("no SSH connection to root@there: timed out")

    monkeypatch.setattr(others, "open_session", refuse)
    made.start()
    assert changed.wait(5)
    assert made.labs == () and made.machines[0].error == "no SSH connection to root@there: timed out"


def test_only_labs_of_the_list_are_opened(machines: tuple[OtherMachines, FakeSession, threading.Event]) -> None:
    made, _, _ = machines
    with pytest.raises(RefusedRequest, match="has no lab"):
        made.open(THERE, "--write")


@pytest.mark.process
def test_a_forwarded_console_tells_its_link_and_another_once_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys, time\n"
        "print('console of root@there: http://127.0.0.1:1/?token=a (Ctrl-C ends it)', file=sys.stderr, flush=True)\n"
        "time.sleep(600)"
    )
    monkeypatch.setattr(others, "tethered_words", lambda words: [sys.executable, "-c", program])
    consoles = ForwardedConsoles()
    assert consoles.link("there far", []) == "http://127.0.0.1:1/?token=a"
    assert consoles.link("there far", []) == "http://127.0.0.1:1/?token=a", "one console for a lab"
    monkeypatch.setattr(others, "START_S", 1.0)
    consoles.close()
    monkeypatch.setattr(others, "tethered_words", lambda words: [sys.executable, "-c", "raise SystemExit('no route')"])
    with pytest.raises(RefusedRequest, match="no route"):
        consoles.link("there far", [])
    consoles.close()
