"""Formats of flows: htsim's connection matrices, HPCC's files, nccl-tests' matrix."""

from fractions import Fraction

import pytest

from testbed.base.errors import SpecError
from testbed.workload.formats import (
    decode_alltoallv_matrix,
    decode_connection_matrix,
    decode_hpcc_flows,
    parse_connection_matrix,
)
from testbed.workload.steps import Transfer


def flow(number: int, source: int, destination: int, size: int = 1000, **more: object) -> Transfer:
    return Transfer(number=number, source=source, destination=destination, size_bytes=size, **more)  # type: ignore[arg-type]


def codes(error: SpecError) -> list[str]:
    return [problem.code for problem in error.problems]


def test_waits_that_no_single_rank_sees_are_noted() -> None:
    text = "Nodes 4\nConnections 2\nTriggers 1\n0->1 start 0 size 9 send_done_trigger 1\n{}->3 id 2 trigger 1 size 9\n"
    text += "trigger id 1 oneshot\n"
    assert decode_connection_matrix(text.format(1), file="x.cm", name="x").notes == ()
    (note,) = decode_connection_matrix(text.format(2), file="x.cm", name="x").notes
    assert note.endswith("takes no part: 1")


def test_flows_without_end_need_a_size() -> None:
    text = "Nodes 2\nConnections 1\n0->1 start 0 size 0\n"
    with pytest.raises(SpecError) as refused:
        decode_connection_matrix(text, file="x.cm", name="x")
    assert codes(refused.value) == ["unbounded-flow"]
    assert "workload.unbounded_bytes" in str(refused.value)
    assert decode_connection_matrix(text, file="x.cm", name="x", unbounded_bytes=77).steps == (flow(0, 0, 1, 77),)


def test_failures_can_be_read() -> None:
    text = "Nodes 2\nConnections 0\nFailures 1\nfailure switch_type CORE switch_id 4 link_id 0\n"
    assert parse_connection_matrix(text, file="x.cm").failures == 1
    with pytest.raises(SpecError, match=r"x\.cm:4:46"):
        parse_connection_matrix(text.replace("link_id 0", "link_id -1"), file="x.cm")


def test_a_window_of_flows_keeps_its_width() -> None:
    """Serial all-to-all with a window of 2: the k-th flow to end starts the k-th that waits."""
    rows = [f"0->{n} id {n} {'start 0' if n < 3 else 'trigger 9'} size 10 send_done_trigger 9" for n in range(1, 7)]
    text = "\n".join(["Nodes 7", "Connections 6", "Triggers 1", *rows, "trigger id 9 multishot"])
    steps = decode_connection_matrix(text, file="x.cm", name="x").steps
    assert [step.after for step in steps] == [(), (), (0,), (1,), (2,), (3,)]


def test_waits_are_bounded() -> None:
    rows = [f"0->1 id {n} start 0 size 1 send_done_trigger 1" for n in range(1, 3001)]
    rows += [f"0->1 id {n} trigger 1 size 1" for n in range(3001, 6001)]
    text = "\n".join(["Nodes 2", "Connections 6000", "Triggers 1", *rows, "trigger id 1 barrier count 3000"])
    with pytest.raises(SpecError, match="waits"):
        decode_connection_matrix(text, file="x.cm", name="x")


def test_hpcc_node_numbers_beyond_the_ranks_are_refused() -> None:
    assert decode_hpcc_flows("1\n0 1 3 100 5 2\n", file="f", name="f", ranks=16).ranks == 16
    with pytest.raises(SpecError, match=r"f:2:3: out-of-range: node 16 is not among the 16 ranks"):
        decode_hpcc_flows("1\n0 16 3 100 5 2\n", file="f", name="f", ranks=16)


def test_the_matrix_of_nccl_tests_is_scaled_and_cut() -> None:
    text = "0 100\n7 0\n"
    assert [s.size_bytes for s in decode_alltoallv_matrix(text, file="m", name="m").transfers] == [96]
    scaled = decode_alltoallv_matrix(text, file="m", name="m", scale=Fraction(5, 2)).transfers
    assert [(s.source, s.destination, s.size_bytes) for s in scaled] == [(0, 1, 240), (1, 0, 16)]
    assert decode_alltoallv_matrix("0 16 16\n" * 3, file="m", name="m", ranks=2).ranks == 2


@pytest.mark.parametrize("text", ["", "1 2\n3 4\n5 6\n", "1 2\n3\n", " ".join(["1"] * 1001)])
def test_a_matrix_that_is_not_square_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        decode_alltoallv_matrix(text, file="m", name="m")


def test_a_matrix_whose_values_all_come_to_nothing_is_refused() -> None:
    """Ratios instead of bytes would be a workload that moves nothing without a word."""
    with pytest.raises(SpecError) as refused:
        decode_alltoallv_matrix("0 1\n2 0\n", file="m", name="m")
    assert codes(refused.value) == ["out-of-range"]
    assert "scale: 1M" in (refused.value.problems[0].hint or "")
    assert len(decode_alltoallv_matrix("0 1\n2 0\n", file="m", name="m", scale=16).steps) == 2
    assert decode_alltoallv_matrix("0 0\n0 0\n", file="m", name="m").steps == ()
