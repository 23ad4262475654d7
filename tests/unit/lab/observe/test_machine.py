"""What is read of the machine: CPU time, model, memory, versions."""

import pytest

from testbed.run.machine.cpu import CpuTimes, cpu_use, parse_cpu_times
from testbed.run.machine.environment import parse_cpu_model, parse_iperf3_version, parse_memory_bytes

STAT = """cpu  52461 10 24253 414252 981 5 879 4613 77 88
cpu0 1 2 3 4 5 6 7 8 0 0
intr 1
"""


def test_guest_time_is_not_counted_twice() -> None:
    times = parse_cpu_times(STAT)
    assert times == CpuTimes(
        total=52461 + 10 + 24253 + 414252 + 981 + 5 + 879 + 4613, idle=414252 + 981, steal=4613, softirq=879
    )


def test_no_cpu_line() -> None:
    with pytest.raises(ValueError, match="no cpu line"):
        parse_cpu_times("intr 1\n")


def test_stolen_time_is_busy_time() -> None:
    use = cpu_use(
        CpuTimes(total=1000, idle=500, steal=10, softirq=0), CpuTimes(total=2000, idle=700, steal=110, softirq=300)
    )
    assert use.busy == pytest.approx(0.8)
    assert use.steal == pytest.approx(0.1)
    assert use.softirq == pytest.approx(0.3)


def test_two_readings_in_one_tick() -> None:
    times = CpuTimes(total=1000, idle=500, steal=10, softirq=0)
    assert cpu_use(times, times).busy == 0


def test_versions_and_hardware() -> None:
    assert parse_iperf3_version("iperf 3.12 (cJSON 1.7.15)\nLinux\n") == "3.12"
    assert parse_iperf3_version("") is None
    assert parse_cpu_model("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU: 2.2\n") == "Intel(R) Xeon(R) CPU: 2.2"
    assert parse_cpu_model("processor : 0\n") is None
    assert parse_memory_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n") == 16384 * 1024
