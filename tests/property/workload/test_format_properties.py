"""Files of other tools: whatever is read, only `SpecError` comes of it."""

from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from testbed.base.errors import SpecError
from testbed.workload.formats import (
    FileFormat,
    ImportOptions,
    combine_traces,
    decode_hpcc_flows,
    decode_trace,
    decode_workload,
)
from testbed.workload.formats.chakra import ChakraTrace
from testbed.workload.formats.conventions import recognise
from testbed.workload.formats.simai import POLICIES
from testbed.workload.formats.source import MAX_PROBLEMS

ROW = "layer -1 5 ALLTOALL 64 5 ALLREDUCE 64 5 REDUCESCATTER 64 7"
GOLDEN = Path(__file__).parents[2] / "golden" / "workload" / "formats"
SEEDS: dict[FileFormat, list[str]] = {
    FileFormat.HTSIM: [path.read_text() for path in sorted(GOLDEN.glob("*.cm"))],
    FileFormat.HPCC: [path.read_text() for path in sorted(GOLDEN.glob("flow*.txt"))],
    FileFormat.ALLTOALLV: [path.read_text() for path in sorted(GOLDEN.glob("alltoallv*.txt"))],
    FileFormat.SIMAI: [
        *(path.read_text() for path in sorted(GOLDEN.glob("*.simai"))),
        *(f"{policy}\n2\n{ROW}\n{ROW}\n" for policy in POLICIES),
        f"HYBRID_CUSTOMIZED\n2\n{ROW} DATA\n{ROW} HYBRID_DATA_MODEL\n",
    ],
}
TRACES = [path.read_bytes() for path in sorted(GOLDEN.glob("*.et"))]
SPACED = ["", "\n", "\t", "\x00", "\x85", "\u2028"]
WORDS = (
    "0 1 2 7 -1 1e99 99999999999999999999 0.5 . # -> é ² Nodes Connections Triggers 0->1 3->3 id start trigger size"
    " oneshot multishot barrier count send_done_trigger recv_done_trigger msg prio failure ALLREDUCE NONE ALLTOALL_EP"
    " _DP_EP all_gpus: ep: pp: checkpoints: checkpoint_initiates: 131072 1000000 DATA MICRO HYBRID_DLRM"
    " HYBRID_CUSTOMIZED DLRM_LAST_BOTTOM_LAYER: BROADCAST 4->4 #"
)
TOKENS = st.sampled_from([*SPACED, *WORDS.split()])
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RANKS = 6


def check(error: SpecError) -> None:
    assert 0 < len(error.problems) <= MAX_PROBLEMS * len(TRACES)
    assert len(str(error)) < 100_000


@given(st.sampled_from(list(SEEDS)), st.data())
@FUZZ
def test_no_text_does_more_than_raise_the_error(format_name: FileFormat, data: st.DataObject) -> None:
    options = ImportOptions(ranks=data.draw(st.sampled_from([None, 1, 2, 4, 12])), ranks_per_domain=2)
    words = data.draw(st.sampled_from(SEEDS[format_name])).replace("\n", " \n ").split(" ")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(words)))
        words[place : place + data.draw(st.integers(0, 3))] = data.draw(st.lists(TOKENS, max_size=2))
    text = " ".join(words[: data.draw(st.integers(len(words) // 2, len(words)))])
    try:
        workload = decode_workload(text, format_name, file="f", name="f", options=options)
    except SpecError as error:
        check(error)
        lines = text.count("\n") + 1
        for problem in error.problems:
            assert problem.position is None or 1 <= problem.position.line <= lines
    else:
        ends = {end for step in workload.transfers for end in (step.source, step.destination)}
        assert ends <= set(range(workload.ranks))
        assert all(step.size_bytes >= 0 for step in workload.transfers)


@given(st.lists(st.tuples(st.integers(0, len(TRACES) - 1), st.integers(0, 400), st.binary(max_size=6)), max_size=4))
@FUZZ
def test_no_trace_does_more_than_raise_the_error(edits: list[tuple[int, int, bytes]]) -> None:
    files = [bytearray(data) for data in TRACES]
    for file, offset, new in edits:
        place = offset % max(1, len(files[file]))
        files[file][place : place + len(new)] = new
    traces: list[ChakraTrace] = []
    for file in sorted({file for file, _, _ in edits}):
        try:
            traces.append(decode_trace(bytes(files[file]), file=f"t.{file}.et"))
        except SpecError as error:
            check(error)
    assume(traces)
    try:
        combine_traces(traces, name="t", peak_ops_per_s=10**12)
    except SpecError as error:
        check(error)


@given(st.lists(TOKENS, max_size=30), st.binary(max_size=20))
@FUZZ
def test_no_beginning_does_more_than_have_a_format_or_none(words: list[str], data: bytes) -> None:
    try:
        assert recognise(" ".join(words).encode() + data, file="f") in FileFormat
    except SpecError as error:
        check(error)


@given(st.lists(st.tuples(st.integers(0, RANKS), st.integers(0, RANKS)), min_size=1, max_size=8), st.integers(0, 3))
@settings(deadline=None)
def test_files_that_count_from_1_are_those_that_count_from_0(pairs: list[tuple[int, int]], size: int) -> None:
    """The same flows with every number one higher, where the last rank takes part."""
    pairs = [(0, RANKS - 1), *((a % RANKS, b % RANKS) for a, b in pairs if a % RANKS != b % RANKS)]

    def text(first: int) -> str:
        return f"{len(pairs)}\n" + "".join(f"{a + first} {b + first} 3 {size} 0\n" for a, b in pairs)

    from_0, from_1 = (decode_hpcc_flows(text(first), file="f", name="w", ranks=RANKS) for first in (0, 1))
    assert from_0.steps == from_1.steps
    assert set(from_1.notes) - set(from_0.notes) == {"ranks are numbered from 1"}


@given(st.binary(max_size=200))
@FUZZ
def test_no_bytes_do_more_than_raise_the_error(data: bytes) -> None:
    try:
        decode_trace(data, file="t")
    except SpecError as error:
        check(error)
