"""Formats of flows: htsim's connection matrices, HPCC's files, nccl-tests' matrix."""

from __future__ import annotations

from fractions import Fraction

import pytest

from testbed.base.errors import SpecError
from testbed.workload.formats import (
    ExportError,
    FlowCompletion,
    decode_alltoallv_matrix,
    decode_connection_matrix,
    decode_hpcc_flows,
    encode_connection_matrix,
    encode_fct,
    encode_hpcc_flows,
    parse_connection_matrix,
)
from testbed.workload.steps import Combine, Compute, Slice, Step, Transfer, Workload


def flow(number: int, source: int, destination: int, size: int = 1000, **more: object) -> Transfer:
    return Transfer(number=number, source=source, destination=destination, size_bytes=size, **more)  # type: ignore[arg-type]


def workload(*steps: Step, ranks: int = 4) -> Workload:
    return Workload(name="w", ranks=ranks, steps=steps)


def codes(error: SpecError) -> list[str]:
    return [problem.code for problem in error.problems]


def test_a_matrix_is_written_as_htsim_reads_it() -> None:
    text = encode_connection_matrix(
        workload(
            flow(0, 0, 1, start_ns=5, label="flow 4"),
            flow(1, 2, 1, label="flow 6"),
            flow(2, 1, 3, after=(0,), label="flow 5"),
            flow(3, 2, 3, after=(1,), label="flow 7"),
            flow(4, 0, 3, after=(0, 1), label="flow 8"),
        )
    )
    assert text.text == (
        "Nodes 4\nConnections 5\nTriggers 3\n"
        "0->1 id 4 start 5000 size 1000 send_done_trigger 3 recv_done_trigger 1\n"
        "2->1 id 6 start 0 size 1000 send_done_trigger 2 recv_done_trigger 3\n"
        "1->3 id 5 trigger 1 size 1000\n"
        "2->3 id 7 trigger 2 size 1000\n"
        "0->3 id 8 trigger 3 size 1000\n"
        "trigger id 1 oneshot\ntrigger id 2 oneshot\ntrigger id 3 barrier count 2\n"
    )
    assert text.left_out == ()


def test_what_a_matrix_has_no_place_for_is_listed() -> None:
    piece = Slice(offset=0, length=250)
    one = encode_connection_matrix(
        workload(flow(0, 0, 1, 1 << 31, label="ring.0", piece=piece, combine=Combine.REDUCE), flow(1, 1, 2, after=(0,)))
    )
    assert len(one.left_out) == 3
    assert "0->1 id 1 start 0" in one.text
    assert "labels" in one.left_out[1]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((Compute(number=0, rank=0, duration_ns=5),), "step 0 computes"),
        ((flow(0, 0, 1, scale_up=True),), "scale-up"),
        ((flow(0, 0, 1, size=0),), "0 bytes"),
        ((flow(0, 0, 0),), "to itself"),
        ((flow(0, 0, 1), flow(1, 1, 2, after=(0,), start_ns=5)), "waits for others and for a start time"),
        (
            (
                *(flow(number, 0, number + 1) for number in range(3)),
                *(flow(number + 3, 1, 2, after=(0, number) if number else (0,)) for number in range(3)),
            ),
            "step 0 starts 3 different sets of others",
        ),
    ],
)
def test_what_would_change_the_traffic_is_refused(steps: tuple[Step, ...], reason: str) -> None:
    with pytest.raises(ExportError) as refused:
        encode_connection_matrix(workload(*steps))
    assert reason in str(refused.value)


def test_joins_of_waits_become_one_trigger() -> None:
    text = encode_connection_matrix(
        workload(
            flow(0, 0, 1, label="flow 1"),
            flow(1, 2, 1, label="flow 2"),
            Compute(number=2, rank=1, duration_ns=0, after=(0, 1)),
            flow(3, 1, 3, after=(2,), label="flow 3"),
        )
    )
    assert text.left_out == ("steps of no time that join waits",)
    assert decode_connection_matrix(text.text, file="w.cm", name="w").steps == (
        flow(0, 0, 1, label="flow 1"),
        flow(1, 2, 1, label="flow 2"),
        flow(2, 1, 3, after=(0, 1), label="flow 3"),
    )


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
    assert decode_connection_matrix(text, file="x.cm", name="x", unbounded_bytes=77).steps == (flow(0, 0, 1, 77),)


def test_failures_can_be_read() -> None:
    text = "Nodes 2\nConnections 0\nFailures 1\nfailure switch_type CORE switch_id 4 link_id 0\n"
    (failure,) = parse_connection_matrix(text, file="x.cm").failures
    assert (failure.switch_type, failure.switch, failure.link) == ("CORE", 4, 0)


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


def test_hpcc_flows_are_written_in_order_of_start() -> None:
    one = encode_hpcc_flows(workload(flow(0, 3, 1, start_ns=150_000), flow(1, 0, 1, 20)), priority_group=1)
    assert one.text == "2\n0 1 1 100 20 2\n3 1 1 100 1000 2.00015\n"
    assert one.left_out == ("the order of steps: flows are sorted by start time",)


def test_hpcc_flows_cannot_wait() -> None:
    with pytest.raises(ExportError, match=r"step 1 waits for others.*\n.*hint"):
        encode_hpcc_flows(workload(flow(0, 0, 1), flow(1, 1, 2, after=(0,))))


def test_hpcc_node_numbers_beyond_the_ranks_are_refused() -> None:
    assert decode_hpcc_flows("1\n0 1 3 100 5 2\n", file="f", name="f", ranks=16).ranks == 16
    with pytest.raises(SpecError, match=r"f:2:3: out-of-range: node 16 is not among the 16 ranks"):
        decode_hpcc_flows("1\n0 16 3 100 5 2\n", file="f", name="f", ranks=16)


def test_completions_are_written_as_hpcc_does() -> None:
    one = FlowCompletion(
        source=2,
        destination=257,
        source_port=10000,
        destination_port=100,
        size_bytes=1000,
        start_ns=2_000_000_000,
        fct_ns=4321,
        standalone_ns=4000,
    )
    assert encode_fct([one]) == "0b000201 0b010101 10000 100 1000 2000000000 4321 4000\n"


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
