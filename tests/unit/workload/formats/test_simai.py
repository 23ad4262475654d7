"""SimAI's workload files: groups of ranks, phases, passes; and how formats are told apart."""

import os
from pathlib import Path

import pytest
from local_waits import check_local

from testbed.base.errors import SpecError
from testbed.workload.formats import (
    FileFormat,
    decode_simai_workload,
    decode_workload,
    load_workload,
    parse_simai_workload,
)
from testbed.workload.formats.simai import ParallelGroup
from testbed.workload.steps import Compute

GOLDEN = Path(__file__).parents[3] / "golden" / "workload" / "formats"
HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tp} ep: {ep} pp: {pp} vpp: 1 ga: 1 all_gpus: {gpus}"
ROW = "layer -1 1 NONE 0 1 NONE 0 1 NONE 0 0\n"


def head(tp: int, ep: int, pp: int, gpus: int, more: str = "") -> str:
    return HEAD.format(tp=tp, ep=ep, pp=pp, gpus=gpus) + more + "\n"


def test_the_groups_of_simai() -> None:
    job = parse_simai_workload(head(2, 2, 1, 8) + "1\n" + ROW, file="w")
    assert job.ranks_of(ParallelGroup.TENSOR) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert job.ranks_of(ParallelGroup.DATA) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert job.ranks_of(ParallelGroup.EXPERT) == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert job.ranks_of(ParallelGroup.DATA_OF_EXPERT) == [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize(("tp", "ep", "pp", "gpus"), [(1, 1, 1, 1), (4, 2, 2, 32), (2, 3, 2, 24), (8, 1, 4, 64)])
def test_every_rank_is_once_in_every_group(tp: int, ep: int, pp: int, gpus: int) -> None:
    job = parse_simai_workload(head(tp, ep, pp, gpus) + "1\n" + ROW, file="w")
    sizes = {"tp": tp, "dp": gpus // tp // pp, "ep": ep, "dp_ep": gpus // tp // pp // ep}
    sizes |= {"all": gpus, "host": 1, "rail": gpus}
    for group in ParallelGroup:
        ranks = job.ranks_of(group)
        assert sorted(rank for members in ranks for rank in members) == list(range(gpus))
        assert {len(members) for members in ranks} == {sizes[group]}


def test_the_next_pass_waits_for_the_weights() -> None:
    row = "layer -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 7\n"
    one = decode_simai_workload(head(1, 1, 1, 2) + "1\n" + row, file="w", name="w", passes=2)
    again = next(s for s in one.steps if s.label.startswith("pass1.forward"))
    waited = {one.steps[number].label for number in again.after}
    assert "pass0.weight-gradient.0.layer.update" in waited
    check_local(one)


@pytest.mark.parametrize(
    ("policy", "before"),
    [
        # CollectiveBarrier::Blocking in Workload.cc
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 2 all_gpus: 2", "pass0.input-gradient.1.layer.all-gather.0"),
        # CollectiveBarrier::Non_Blocking
        ("MODEL all_gpus: 2", "pass0.input-gradient.1.layer"),
        ("DATA all_gpus: 2", "pass0.forward.1.layer"),
    ],
)
def test_what_computing_a_weight_gradient_waits_for(policy: str, before: str) -> None:
    row = "layer -1 5 NONE 0 5 ALLREDUCE 64 5 NONE 0 0\n"
    one = decode_simai_workload(f"{policy}\n2\n{row}{row}", file="w", name="w")
    computing = [s for s in one.steps if isinstance(s, Compute) and s.label == "pass0.weight-gradient.1.layer"]
    assert [one.steps[s.after[-1]].label for s in computing] == [before] * 2
    check_local(one)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("MACRO\n1\n", "unknown-policy"),
        ("MICRO\n1\n" + ROW, "missing-key"),
        (head(3, 1, 1, 8) + "1\n" + ROW, "bad-parallelism"),
        (head(2, 3, 1, 8) + "1\n" + ROW, "bad-parallelism"),
        (head(2, 1, 1, 8), "no-layers"),
        (head(2, 1, 1, 8) + "2\n" + ROW, "count-mismatch"),
        (head(2, 1, 1, 8, " ep: 1") + "1\n" + ROW, "duplicate-key"),
        (head(2, 1, 1, 8, " speed: 1") + "1\n" + ROW, "unknown-key"),
        (head(2, 1, 1, 8, " checkpoints: 2 0") + "1\n" + ROW, "missing-value"),
        (head(2, 1, 1, 8, " checkpoints: 1 4") + "1\n" + ROW, "unknown-layer"),
        (head(1, 1, 1, 100_000) + "100\n" + ROW * 100, "too-large"),
        (head(1, 1, 1, 1, " checkpoints: 1 0 checkpoint_initiates: 1 9") + "10\n" + ROW * 10, ""),
    ],
)
def test_faults(text: str, code: str) -> None:
    if not code:
        assert decode_simai_workload(text, file="w", name="w").ranks == 1
        return
    with pytest.raises(SpecError) as refused:
        decode_simai_workload(text, file="w", name="w")
    assert code in {problem.code for problem in refused.value.problems}


@pytest.mark.parametrize(
    ("file", "known"),
    [("triggers.cm", FileFormat.HTSIM), ("flow.txt", FileFormat.HPCC), ("alltoallv.txt", FileFormat.ALLTOALLV),
     ("moe.simai", FileFormat.SIMAI), ("backwards.cm", FileFormat.HTSIM)],
)  # fmt: skip
def test_formats_are_told_by_content(file: str, known: FileFormat, tmp_path: Path) -> None:
    copy = tmp_path / "copy.data"
    copy.write_bytes((GOLDEN / file).read_bytes())
    expected = decode_workload(copy.read_text(), known, file="copy", name="copy")
    assert load_workload(copy) == expected == load_workload(str(copy), str(known))


def test_traces_are_found_by_a_rank_or_by_what_their_names_share(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"p.{rank}.et").write_bytes((GOLDEN / f"pipeline.{rank}.et").read_bytes())
    assert (
        load_workload(tmp_path / "p") == load_workload(tmp_path / "p.2.et") == load_workload(tmp_path / "p", "chakra")
    )
    (tmp_path / "p.1.et").unlink()
    with pytest.raises(SpecError, match="rank 1 is missing"):
        load_workload(tmp_path / "p")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.write_text("hello\n")
    latin = tmp_path / "latin.cm"
    latin.write_bytes(b"Nodes 2\n# caf\xe9\n")
    os.mkfifo(tmp_path / "fifo.cm")
    for path, format_name, code in (
        (strange, None, "unknown-format"),
        (strange, "lotus", "unknown-format"),
        (strange, "chakra", "no-traces"),
        (latin, None, "not-text"),
        (tmp_path / "fifo.cm", None, "unreadable"),
        (tmp_path, None, "unreadable"),
        (tmp_path / "absent.cm", None, "unreadable"),
        (tmp_path / ("n" * 300), None, "unreadable"),
        (Path("nul\0"), None, "unreadable"),
    ):
        with pytest.raises(SpecError) as refused:
            load_workload(path, format_name)
        assert refused.value.problems[0].code == code
    with pytest.raises(SpecError, match=r"latin.cm:2:6: not-text"):
        load_workload(latin)
