"""Ctrl-C while something is measured: the first is an event, the second ends it, and nothing undoes that."""

import select
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from testbed.base.interrupt import Interrupt

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers_come_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ignoring(received: list[int]) -> None:
    """Handle signals as the command line does: the first one interrupts, and no other does anything."""

    def handle(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for each in BOTH:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in BOTH:
        signal.signal(number, handle)


def test_the_first_is_an_event_and_the_handlers_come_back() -> None:
    received: list[int] = []
    ignoring(received)
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested and select.select([interrupt], [], [], 0)[0] == [interrupt]
    assert received == [] and signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("second", BOTH)
def test_the_second_is_for_whoever_had_the_signals_and_what_follows_changes_nothing(second: signal.Signals) -> None:
    received: list[int] = []
    ignoring(received)
    undone = []
    with pytest.raises(KeyboardInterrupt), Interrupt():
        try:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(second)
        finally:
            signal.raise_signal(signal.SIGINT)
            undone.append("inside")
    signal.raise_signal(signal.SIGTERM)
    undone.append("outside")
    assert (received, undone) == ([second], ["inside", "outside"])
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "leaving the context does not bring it back"


def test_without_a_handler_of_ours_the_second_interrupts_all_the_same() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt), Interrupt():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
