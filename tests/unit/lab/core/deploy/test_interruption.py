"""Signals that come while something is made, and while it is undone."""

import signal
from collections.abc import Iterator

import pytest

from testbed.lab.core.deploy.interruption import interrupted_once, uninterrupted


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_second_signal_does_not_reach_what_undoes() -> None:
    undone = []
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException:
            signal.raise_signal(signal.SIGINT)  # before signals are held back by name
            with uninterrupted():
                signal.raise_signal(signal.SIGTERM)
                undone.append("all")
            signal.raise_signal(signal.SIGINT)
            undone.append("to its end")
            raise
    assert undone == ["all", "to its end"]


def test_afterwards_signals_do_what_they_did() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    with interrupted_once():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM] * 2
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_ends_the_process_at_once_still_does() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with interrupted_once():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
