"""The arithmetic of the calibration: what of the machine's CPU time was the measurement's own."""

import pytest

from testbed.lab.core.drivers.probing.calibration import QUIET_SHARE, least_bits_per_cpu_s, own_cpu_s


def test_what_a_quiet_machine_does_besides_is_taken_off() -> None:
    assert own_cpu_s(0.8, background=0.1, elapsed_s=0.4, cpus=2) == pytest.approx(0.76)


def test_a_saturated_machine_looks_small_not_large() -> None:
    """Both CPUs were busy before and are busy now: nearly nothing would be left of what forwarding took."""
    assert own_cpu_s(0.8, background=1.98, elapsed_s=0.4, cpus=2) == 0.8
    assert own_cpu_s(0.8, background=QUIET_SHARE * 2, elapsed_s=0.4, cpus=2) == 0.8


def test_tries_in_which_others_left_no_time_say_nothing_of_the_machine() -> None:
    assert least_bits_per_cpu_s([(0, 0.0), (8_000, 0.4), (0, 0.01)]) == 20_000
    assert least_bits_per_cpu_s([(0, 0.4)] * 3) == 0
