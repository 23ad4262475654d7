"""Chakra execution traces: the wire format, attributes, groups, and what nodes become."""

import gzip

import pytest
from chakra_files import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    COLL,
    COMP,
    GOLDEN,
    METADATA,
    RECV,
    SEND,
    attribute,
    content,
    golden_traces,
    node,
    number,
    trace,
    varint,
)

from testbed.base.errors import SpecError
from testbed.workload.formats import combine_traces, decode_trace, parse_comm_groups
from testbed.workload.formats.protobuf import WireError, decode_fields, decode_varint, signed, zigzag
from testbed.workload.steps import Compute, Transfer, Workload


def combine(*files: bytes, **options: object) -> Workload:
    traces = [decode_trace(data, file=f"t.{rank}.et") for rank, data in enumerate(files)]
    return combine_traces(traces, name="t", **options)  # type: ignore[arg-type]


def codes(*files: bytes, **options: object) -> list[str]:
    with pytest.raises(SpecError) as refused:
        combine(*files, **options)
    return [problem.code for problem in refused.value.problems]


def test_the_golden_traces_are_those_written_here() -> None:
    for file, data in golden_traces().items():
        assert (GOLDEN / file).read_bytes() == data


@pytest.mark.parametrize(
    ("data", "value"), [("00", 0), ("7f", 127), ("ac02", 300), ("ffffffffffffffffff01", (1 << 64) - 1)]
)
def test_varints(data: str, value: int) -> None:
    raw = bytes.fromhex(data)
    assert decode_varint(raw, 0, len(raw)) == (value, len(raw))


@pytest.mark.parametrize("data", ["", "80", "ffffffffffffffffff02", "8080808080808080808000"])
def test_bad_varints(data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(WireError):
        decode_varint(raw, 0, len(raw))


def test_numbers_with_a_sign() -> None:
    assert (signed((1 << 64) - 5), signed(0xFFFFFFFF, 32), zigzag(3), zigzag(4)) == (-5, -1, -2, 2)


@pytest.mark.parametrize("data", ["00", "0b", "0c", "0a05aa", "0d0102", "0901", "08", "0f"])
def test_bad_fields(data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(WireError) as error:
        list(decode_fields(raw, 0, len(raw)))
    assert 0 <= error.value.offset <= len(raw)


@pytest.mark.parametrize(("field", "value"), [(7, 64), (9, 64), (11, 64), (13, 64), (15, 128), (17, 128), (27, 1)])
def test_whole_numbers_of_any_coding_are_read(field: int, value: int) -> None:
    one = number(1, 5) + number(3, COMP) + content(10, attribute("comm_size", value, field))
    (read,) = decode_trace(trace(one), file="t").nodes
    assert read.integers["comm_size"] == (1 if field == 27 else 64)


def test_unknown_fields_and_attributes_are_passed_over() -> None:
    one = node(1, COMP, us=3, float_thing=1.5, other="text") + content(11, b"\x08\x01") + number(500, 3)
    (read,) = decode_trace(trace(one), file="t").nodes
    assert (read.duration_us, read.integers) == (3, {})


@pytest.mark.parametrize(
    "one",
    [
        number(3, 11),
        content(1, b"x"),
        content(2, b"\xff"),
        number(2, 1),
        content(10, attribute("comm_size", "big")),
        content(10, attribute("comm_size", 1.5)),
        content(10, attribute("pg_name", 3)),
        number(8, 1),
    ],
)
def test_fields_that_are_not_as_the_schema_says(one: bytes) -> None:
    with pytest.raises(SpecError, match="bad-protobuf: byte"):
        decode_trace(trace(number(1, 1) + one), file="t")


def test_ids_must_be_there_once() -> None:
    assert codes(trace(node(1, COMP), node(1, COMP), node(2, COMP, after=(7,)))) == ["duplicate-id", "unknown-node"]
    assert codes(b"") == ["empty"]


def test_gzip_is_bounded_and_whole() -> None:
    plain = trace(node(1, COMP, us=1))
    packed = gzip.compress(plain)
    assert decode_trace(packed, file="t").nodes == decode_trace(plain, file="t").nodes
    for damaged in (packed[:-4], packed[:20], packed + b"x", packed[:15] + b"\xff" * 5 + packed[20:]):
        with pytest.raises(SpecError, match="bad-gzip"):
            decode_trace(damaged, file="t")
    with pytest.raises(SpecError, match="too-large"):
        decode_trace(gzip.compress(bytes(10_000_000)), file="t", limit=1000)


def test_a_receive_ends_with_its_message_and_what_it_waits_for() -> None:
    first = trace(node(1, COMP, us=1), node(2, SEND, after=(1,), comm_dst=1, comm_size=9, comm_tag=-1))
    second = trace(
        node(1, COMP, us=2), node(2, RECV, after=(1,), comm_src=0, comm_tag=-1), node(3, COMP, us=3, after=(2,))
    )
    steps = combine(first, second).steps
    sent = next(step for step in steps if isinstance(step, Transfer))
    last = next(step for step in steps if isinstance(step, Compute) and step.duration_ns == 3000)
    waited = {(type(steps[n]), getattr(steps[n], "duration_ns", None)) for n in last.after}
    assert [step.duration_ns for n in sent.after if isinstance(step := steps[n], Compute)] == [1000]
    assert (sent.source, sent.destination, sent.size_bytes) == (0, 1, 9)
    assert waited == {(Transfer, None), (Compute, 2000)}


def test_collectives_are_asked_for_once_with_the_size_of_nccl_tests() -> None:
    files = [
        trace(
            node(1, COLL, name="gather", comm_type=ALL_GATHER, comm_size=100, pg_name="tp"),
            node(2, COLL, name="spread", after=(1,), comm_type=BROADCAST, comm_size=60, comm_src=1),
            node(3, COLL, name="moe", after=(2,), comm_type=ALL_TO_ALL, comm_size=48, pg_name="tp"),
        )
    ] * 2
    asked = combine(*files).collectives
    assert [(one.kind, one.size_bytes, one.root, one.ranks) for one in asked] == [
        ("all_gather", 200, None, (0, 1)),
        ("broadcast", 60, 1, (0, 1)),
        ("all_to_all", 48, None, (0, 1)),
    ]


def test_groups_can_be_given() -> None:
    files = [trace(node(1, COLL, comm_type=ALL_REDUCE, comm_size=8, pg_name="g"))] * 4
    assert combine(*files, groups={"g": (3, 1, 0, 2)}).collectives[0].ranks == (3, 1, 0, 2)
    assert codes(*files, groups={"g": (0, 1)}) == ["wrong-rank"]
    assert codes(*files, groups={"g": (0, 1, 2, 3, 9)}) == ["wrong-rank"]
    assert parse_comm_groups('{"g": [3, 1]}', file="g.json") == {"g": (3, 1)}
    for bad in ("[", "[1]", '{"g": [true]}', '{"g": [1, 1]}', '{"g": 3}', "[" * 100_000):
        with pytest.raises(SpecError):
            parse_comm_groups(bad, file="g.json")


def test_the_parts_of_a_collective_must_agree() -> None:
    first = trace(node(1, COLL, comm_type=ALL_REDUCE, comm_size=8))
    assert codes(first, trace(node(1, COLL, comm_type=ALL_REDUCE, comm_size=16))) == ["mismatch"]
    assert codes(first, trace(node(1, COMP))) == ["unmatched"]
    assert codes(trace(node(1, COLL, comm_type=10, comm_size=8))) == ["missing-attribute"]
    assert codes(trace(node(1, COLL, comm_size=8))) == ["missing-attribute"]


def test_sends_and_receives_must_agree() -> None:
    send = trace(node(1, SEND, comm_dst=1, comm_size=8))
    assert codes(send, trace(node(1, RECV, comm_src=0, comm_size=9))) == ["size-mismatch"]
    assert codes(send, trace(node(1, RECV, comm_src=0, comm_dst=0))) == ["unmatched", "wrong-rank"]
    assert codes(send, trace(node(1, RECV))) == ["unmatched", "missing-attribute"]
    assert codes(trace(node(1, SEND, comm_dst=0, comm_size=8))) == ["unknown-rank"]


def test_operations_become_time_at_a_peak() -> None:
    one = combine(trace(node(1, COMP, num_ops=3000)), peak_ops_per_s=10**9)
    assert [step.duration_ns for step in one.steps if isinstance(step, Compute)] == [3000]
    assert one.notes == ("computing without a duration takes its operations at 1000000000 a second",)


def test_nodes_that_take_no_time_do_not_multiply_waits() -> None:
    """Layers of nodes, each after all of the layer before."""
    width, depth = 40, 10
    nodes = [node(n, COMP, us=1) for n in range(width)]
    for layer in range(1, depth):
        before = tuple(range((layer - 1) * width, layer * width))
        nodes += [node(layer * width + n, METADATA, after=before) for n in range(width)]
    steps = combine(trace(*nodes, node(9999, COMP, us=1, after=tuple(range((depth - 1) * width, depth * width))))).steps
    assert max(len(step.after) for step in steps) <= width
    assert len(steps) < width * depth * 2


def test_a_length_beyond_the_file_is_refused() -> None:
    with pytest.raises(SpecError, match="begins"):
        decode_trace(varint(1 << 40) + b"x", file="t")
