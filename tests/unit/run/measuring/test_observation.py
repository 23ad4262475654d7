"""What is said of the time in which there was traffic, which is less than the watch of a run."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from testbed.lab.observe.port_table import PortTable
from testbed.lab.observe.sampler import Samples
from testbed.run.measuring.observation import Observation

BEGIN_NS = 7_000_000_000
QUEUE = (1, 3)


def observed() -> Observation:
    """A second of lead, two of traffic with a queue of 100 and 300 bytes, and another of quiet."""
    samples = Samples(
        times_ns=BEGIN_NS + np.arange(8, dtype=np.int64) * 500_000_000,
        columns={"queues.bytes": np.array([[0], [0], [100], [100], [300], [300], [0], [0]], np.uint64)},
        queues=(QUEUE,),
        complete=True,
    )
    table = cast(PortTable, SimpleNamespace(switch=np.array([False, True])))
    return Observation(begin_ns=BEGIN_NS, elapsed_s=4.0, samples=samples, table=table)


def test_queues_and_shares_are_of_the_traffic_alone() -> None:
    seen = observed()
    seen.traffic_ns = (BEGIN_NS + 1_000_000_000, BEGIN_NS + 2_500_000_000)
    assert seen.depths_in_traffic()[QUEUE].tolist() == [100, 100, 300, 300]
    assert seen.traffic_s == pytest.approx(1.5)
    assert seen.depths()[QUEUE].tolist() == [0, 0, 100, 100, 300, 300, 0, 0], "curves are of the whole watch"


def test_without_a_begin_that_is_known_they_are_of_the_watch() -> None:
    seen = observed()
    assert seen.traffic_s == 4.0
    assert seen.depths_in_traffic()[QUEUE].tolist() == seen.depths()[QUEUE].tolist()
