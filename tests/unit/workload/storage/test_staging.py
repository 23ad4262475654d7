"""Weights of a model on their way to hosts: who reads how much, and who hands it on."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.workload.steps import Workload
from testbed.workload.storage import Staging, generate_staging

BYTES = 16_000_000
"""Of Llama 3 8B in bf16, a thousandth."""


def make(ranks: int, **choice: object) -> Workload:
    return generate_staging(Staging(**choice), ranks=ranks)  # type: ignore[arg-type]


@given(hosts=st.integers(1, 6), targets=st.integers(1, 3), pieces=st.integers(1, 9), in_flight=st.integers(1, 4))
def test_each_host_reads_the_whole_model(hosts: int, targets: int, pieces: int, in_flight: int) -> None:
    workload = make(hosts + targets, storage=targets, pieces=pieces, in_flight=in_flight)
    check_local(workload)
    received, sent = Counter[int](), Counter[int]()
    for step in workload.transfers:
        assert step.pulled and step.source >= hosts
        received[step.destination] += step.size_bytes
        sent[step.source] += step.size_bytes
    assert received == Counter(dict.fromkeys(range(hosts), BYTES))
    assert len(sent) == min(targets, pieces + hosts - 1)


@given(hosts=st.integers(1, 7), groups=st.integers(1, 7), pieces=st.integers(1, 9), in_flight=st.integers(1, 4))
def test_one_host_of_each_group_reads_and_all_have_it(hosts: int, groups: int, pieces: int, in_flight: int) -> None:
    if groups > hosts:
        with pytest.raises(WorkloadError, match="are no"):
            make(hosts + 2, storage=2, fan_out="read-and-broadcast", groups=groups)
        return
    workload = make(
        hosts + 2, storage=2, fan_out="read-and-broadcast", groups=groups, pieces=pieces, in_flight=in_flight
    )
    check_local(workload)
    received = Counter[int]()
    has: dict[int, set[str]] = {host: set() for host in range(hosts)}
    for step in workload.transfers:
        received[step.destination] += step.size_bytes
        piece = step.label.rpartition(".")[2]
        assert step.pulled or piece in has[step.source], "nobody hands on what he has not got"
        has[step.destination].add(piece)
    assert received == Counter(dict.fromkeys(range(hosts), BYTES))
    assert sum(step.size_bytes for step in workload.transfers if step.pulled) == groups * BYTES


def test_what_does_not_fit_names_its_parameter() -> None:
    for choice, field in (
        ({"fan_out": "read-some"}, "fan_out"),
        ({"groups": 2}, "groups"),
        ({"storage": (0, 1, 2)}, "storage"),
    ):
        with pytest.raises(WorkloadError) as caught:
            make(3, **choice)
        assert caught.value.field == field
