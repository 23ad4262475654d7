"""Threads that work in other namespaces: results, errors, and interrupts that wait for them."""

import signal
import threading

import pytest

from testbed.base.linux.syscalls import in_thread


def test_a_result_and_an_error_come_back() -> None:
    assert in_thread(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(KeyError, match="x"):
        in_thread(lambda: {}["x"])


def test_an_interrupt_waits_for_the_work_to_end() -> None:
    """Whoever undoes the work after Ctrl-C must find all of it done."""
    done = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)  # handled in the main thread, as Ctrl-C is
        gate.wait(0.2)
        signal.raise_signal(signal.SIGINT)
        gate.wait(0.2)
        done.append(True)

    gate = threading.Event()
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_thread(work)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert done == [True]
