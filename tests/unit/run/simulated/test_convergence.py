"""The times by which a simulated lab notices a failure."""

from random import Random

from testbed.run.simulated.convergence import Convergence

MS = 1_000_000


def test_bfd_counts_three_intervals_from_the_last_packet() -> None:
    times = Convergence(bfd_interval_ns=300 * MS)
    random = Random(1)
    took = [times.silence_ns(2_000 * MS, random) - 2_000 * MS for _ in range(2_000)]
    assert 600 * MS <= min(took) < 620 * MS and 890 * MS < max(took) <= 900 * MS


def test_the_hold_timer_counts_from_the_last_keepalive() -> None:
    times = Convergence()
    assert times.silence_ns(3_700 * MS, Random(1)) == 11_700 * MS, "8 s: as long as emulated labs take"
    assert times.silence_ns(2_699 * MS, Random(1)) == 8_700 * MS
    assert times.silence_ns(2_700 * MS, Random(1)) == 11_700 * MS


def test_the_record_says_what_they_are() -> None:
    [bfd], [hold] = (one.sentences() for one in (Convergence(bfd_interval_ns=300 * MS), Convergence()))
    assert "BFD's 3 x 300 ms" in bfd and "hold time of 9 s" in hold and "carrier 2.2 ms" in bfd
