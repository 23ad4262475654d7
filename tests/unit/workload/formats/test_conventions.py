"""What all readers share: numbering from 0 or 1, fewer ranks and more, 0 bytes, comments, formats told by content."""

from pathlib import Path

import pytest
from chakra_files import ALL_REDUCE, COLL, COMP, RECV, SEND, node, trace
from local_waits import check_local

from testbed.base.errors import SpecError, WorkloadError
from testbed.workload.formats import FileFormat, ImportOptions, decode_workload, load_workload, on_ranks
from testbed.workload.formats.conventions import first_number, recognise
from testbed.workload.formats.simai import POLICIES
from testbed.workload.steps import Workload

AICB_MULTI = """HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 8 checkpoints: 0 checkpoint_initiates: 0
2
micro_test\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLREDUCE\t4096\t1
norm\t-1\t0\tBROADCAST\t16384\t1\tNONE\t0\t1\tALLREDUCE\t8192\t1
"""
"""As AICB publishes: tabs, no `all_gpus`, a collective that SimAI does not know."""
MICRO = (
    "MICRO\n2\nmicro_test -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 4096 1\nmicro_test -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8192 1\n"
)
ROW = "layer -1 5 ALLREDUCE 64 5 ALLREDUCE 128 5 ALLREDUCE 256 7\n"


def load(directory: Path, text: str | bytes, name: str = "file", **options: int) -> Workload:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_workload(path, options=ImportOptions(**options))  # type: ignore[arg-type]


def ends(workload: Workload) -> list[tuple[int, int, int]]:
    return [(step.source, step.destination, step.size_bytes) for step in workload.transfers]


def collectives(workload: Workload) -> list[tuple[str, tuple[int, ...], int]]:
    return [(one.kind, one.ranks, one.size_bytes) for one in workload.collectives]


@pytest.mark.parametrize(
    ("numbers", "ranks", "first"),
    [((0, 3), 4, 0), ((1, 4), 4, 1), ((1, 3), 4, 0), ((0, 4), 4, 0), ((1, 5), 4, 0), ((), 4, 0), ((1, 4), None, 0)],
)
def test_ranks_count_from_1_where_they_cannot_count_from_0(
    numbers: tuple[int, ...], ranks: int | None, first: int
) -> None:
    assert first_number(numbers, ranks) == first


@pytest.mark.parametrize(
    "text",
    [
        "1\n1 4 3 100 5 2\n",
        "# ours\n\n1\n1 4 3 5 2.0  # a row without dport\n",
        "\ufeff1\r\n1 4 3 100 5 2\r\n",
        "Nodes 4\nConnections 1\n1->4 start 0 size 5\n",
    ],
)
def test_flows_between_ranks_from_1(text: str, tmp_path: Path) -> None:
    one = load(tmp_path, text, ranks=4)
    assert (one.ranks, ends(one)) == (4, [(0, 3, 5)])
    assert "ranks are numbered from 1" in one.notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\n0 4 3 100 5 2\n", r"file:2:3: out-of-range: node 4 is not among the 4 ranks, from 0"),
        ("1\n0 1 3 2\n", r"file:2:1: bad-row: the row has 4 columns"),
        ("Nodes 4\nConnections 1\n0->4 start 0 size 5\n", r"file:3:1: unknown-node"),
    ],
)
def test_ranks_that_the_lab_lacks_have_a_place(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(SpecError, match=words):
        load_workload(
            tmp_path / "file", FileFormat.HTSIM if "->" in text else FileFormat.HPCC, options=ImportOptions(ranks=4)
        )


def test_a_small_matrix_leaves_ranks_idle_and_a_large_trace_is_refused(tmp_path: Path) -> None:
    matrix = load(tmp_path, "0 32\n16 0\n", ranks=4)
    on_lab = on_ranks(matrix, 4)
    assert (matrix.ranks, on_lab.ranks, ends(on_lab)) == (2, 4, [(0, 1, 32), (1, 0, 16)])
    assert on_lab.notes == ("the trace has 2 of the lab's 4 ranks: the others stay idle",)
    with pytest.raises(WorkloadError, match="the trace has 4 ranks; there are 2"):
        on_ranks(on_lab, 2)


def test_flows_of_0_bytes_are_left_out(tmp_path: Path) -> None:
    one = load(tmp_path, "2\n0 1 3 100 0 2\n1 0 3 100 7 2\n", ranks=2)
    assert ends(one) == [(1, 0, 7)]
    assert "what has 0 bytes moves nothing and is left out: 1" in one.notes


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (("llama.0.et", "llama.1.et"), "llama"),
        (("rank0.et", "rank1.et"), "rank1.et"),
        (("rank0.et", "rank1.et"), "rank"),
        (("trace_1.et", "trace_2.et"), "trace_1.et"),
        (("0.et", "1.et"), "0.et"),
    ],
)
def test_traces_are_found_however_ranks_are_written(names: tuple[str, ...], asked: str, tmp_path: Path) -> None:
    files = (trace(node(0, SEND, comm_dst=1, comm_size=9)), trace(node(0, RECV, comm_src=0)))
    for name, data in zip(names, files, strict=True):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "other.0.et").write_bytes(trace(node(0, COMP, us=1)))
    one = load_workload(tmp_path / asked)
    assert (one.ranks, ends(one)) == (2, [(0, 1, 9)])


def test_traces_and_their_peers_may_count_from_1(tmp_path: Path) -> None:
    (tmp_path / "t.1.et").write_bytes(trace(node(0, SEND, comm_src=1, comm_dst=2, comm_size=9)))
    (tmp_path / "t.2.et").write_bytes(trace(node(0, RECV, comm_src=1, comm_dst=2)))
    one = load_workload(tmp_path / "t")
    assert (one.ranks, ends(one), one.notes) == (2, [(0, 1, 9)], ("ranks are numbered from 1",))
    (tmp_path / "t.4.et").write_bytes(trace(node(0, COMP, us=1)))
    with pytest.raises(SpecError, match=r"rank 3 is missing(.|\n)*it would be t\.3\.et"):
        load_workload(tmp_path / "t")


def test_a_trace_alone_says_whose_is_missing(tmp_path: Path) -> None:
    for own, peer in ((0, 1), (0, 3), (1, 2)):
        (tmp_path / f"t{peer}.{own}.et").write_bytes(trace(node(0, SEND, comm_src=own, comm_dst=peer, comm_size=9)))
        missing = rf"missing-rank: .*has comm_dst {peer}, whose trace is missing: there is 1, up to rank {own}"
        with pytest.raises(SpecError, match=missing):
            load_workload(tmp_path / f"t{peer}.{own}.et")


def test_a_trace_without_a_number_is_alone(tmp_path: Path) -> None:
    assert load(tmp_path, trace(node(0, COMP, us=1)), name="one.et").ranks == 1


def test_collectives_and_messages_of_0_bytes(tmp_path: Path) -> None:
    for rank in range(2):
        message = node(2, SEND, after=(1,), comm_dst=1, comm_size=0) if not rank else node(2, RECV, comm_src=0)
        data = trace(
            node(0, COMP, us=rank + 1),
            node(1, COLL, after=(0,), comm_type=ALL_REDUCE, comm_size=0),
            message,
            node(3, COMP, after=(1, 2), us=5),
        )
        (tmp_path / f"z.{rank}.et").write_bytes(data)
    one = load_workload(tmp_path / "z")
    assert (collectives(one), ends(one)) == ([], [(0, 1, 1)])
    assert set(one.notes) == {
        "messages of 0 bytes are sent as 1 byte",
        "what has 0 bytes moves nothing and is left out: 1",
    }
    check_local(one)


def test_a_wait_for_a_node_before_the_first_is_over(tmp_path: Path) -> None:
    data = trace(node(2, COLL, after=(0,), comm_type=ALL_REDUCE, comm_size=4096, pg_name="0"))
    for rank in range(2):
        (tmp_path / f"torch.{rank}.et").write_bytes(data)
    one = load_workload(tmp_path / "torch")
    assert collectives(one) == [("all_reduce", (0, 1), 4096)]
    assert one.notes == ("waits for nodes before the first one of a trace are over: 2",)
    data = trace(node(2, COMP, us=1), node(4, COMP, us=1, after=(3,)))
    with pytest.raises(SpecError, match="unknown-node"):
        load(tmp_path, data, name="hole.0.et")


def test_aicbs_file_has_the_ranks_of_the_lab(tmp_path: Path) -> None:
    one = load(tmp_path, AICB_MULTI, ranks=16)
    assert one.ranks == 16
    assert [ranks for _, ranks, _ in collectives(one)][:2] == [(0, 8), (1, 9)]
    assert "BROADCAST is left out, as in SimAI: 1" in one.notes
    with pytest.raises(SpecError, match=r"12 GPUs cannot be cut(.|\n)*a lab with 8 ranks, or a multiple"):
        load(tmp_path, AICB_MULTI, ranks=12)
    with pytest.raises(
        SpecError, match=r"file:1:1: missing-key: the first line has no all_gpus:(.|\n)*import the file on"
    ):
        load(tmp_path, AICB_MULTI)


def test_all_rows_of_micro_follow_each_other(tmp_path: Path) -> None:
    one = load(tmp_path, MICRO, ranks=4)
    assert collectives(one) == [("all_reduce", (0, 1, 2, 3), 4096), ("all_reduce", (0, 1, 2, 3), 8192)]
    second = one.collectives[1].steps
    assert all(one.steps[number].after for number in second)
    check_local(one)


ALL, HOSTS, RAILS = [(0, 1, 2, 3)], [(0, 1), (2, 3)], [(0, 2), (1, 3)]


@pytest.mark.parametrize(
    ("policy", "forward", "inputs", "weights"),
    [
        ("DATA", [], [], ALL * 2),
        ("MODEL", ALL * 2, ALL, []),
        ("HYBRID_DATA_MODEL", HOSTS * 2, HOSTS, RAILS * 2),
        ("HYBRID_MODEL_DATA", RAILS * 2, RAILS, HOSTS * 2),
        ("DISTRIBUTED_INFERENCE", ALL * 2, [], []),
        ("MICRO", [], [], ALL * 2),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", HOSTS * 2, HOSTS * 2, RAILS * 2),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 0", ALL * 2, ALL * 2, []),
    ],
)
def test_the_groups_of_every_policy(
    policy: str, forward: list[tuple[int, ...]], inputs: list[tuple[int, ...]], weights: list[tuple[int, ...]]
) -> None:
    options = ImportOptions(ranks=4, ranks_per_domain=2)
    one = decode_workload(f"{policy}\n2\n{ROW}{ROW}", FileFormat.SIMAI, file="w", name="w", options=options)
    by_size: dict[int, list[tuple[int, ...]]] = {64: [], 128: [], 256: []}
    for _, ranks, size in collectives(one):
        by_size[size].append(ranks)
    assert (by_size[64], by_size[128], by_size[256]) == (forward, inputs, weights)
    check_local(one)


def test_dlrm_exchanges_the_embeddings_of_layer_0() -> None:
    table = "table -1 5 ALLTOALL 64 5 ALLTOALL 128 5 NONE 0 0\n"
    text = f"HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 1\n3\n{table}{ROW}{ROW}"
    one = decode_workload(text, FileFormat.SIMAI, file="w", name="w", options=ImportOptions(ranks=2))
    kinds = [(kind, size) for kind, _, size in collectives(one)]
    assert kinds == [("all_to_all", 64), ("all_reduce", 256), ("all_to_all", 128), ("all_reduce", 256)]
    behind = next(step for step in one.steps if step.label == "pass0.forward.2.layer")
    assert {one.steps[number].label for number in behind.after} > {"pass0.forward.1.layer"}, "and layer 0's exchange"


def test_a_customized_file_has_a_policy_in_every_row() -> None:
    row = ROW.rstrip()
    text = f"HYBRID_CUSTOMIZED\n2\n{row} DATA\n{row} MODEL\n"
    one = decode_workload(text, FileFormat.SIMAI, file="w", name="w", options=ImportOptions(ranks=2))
    assert [size for *_, size in collectives(one)] == [64, 128, 256]
    with pytest.raises(SpecError, match=r"w:3:59: unknown-policy"):
        decode_workload(
            f"HYBRID_CUSTOMIZED\n1\n{row} ODD\n", FileFormat.SIMAI, file="w", name="w", options=ImportOptions(ranks=2)
        )


@pytest.mark.parametrize(
    ("text", "known"),
    [
        *((f"{policy}\n1\n", FileFormat.SIMAI) for policy in POLICIES),
        (f"SOME_POLICY\n1\n{ROW}", FileFormat.SIMAI),
        ("# a comment\n\n2\n0 1 3 40000 2.0\n", FileFormat.HPCC),
        ("2\n0 1 3 100 40000 2.0\n", FileFormat.HPCC),
        ("0\n", FileFormat.HPCC),
        ("0->1 start 0 size 5\n", FileFormat.HTSIM),
        ("# htsim\nConnections 1\n", FileFormat.HTSIM),
        ("0 1e6\n1e6 0\n", FileFormat.ALLTOALLV),
    ],
)
def test_content_tells_the_format(text: str, known: FileFormat) -> None:
    assert recognise(text.encode(), file="copy.data") is known


def test_an_unknown_policy_has_a_place_and_all_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"file:1:1: unknown-policy(.|\n)*HYBRID_DLRM_ENHANCED"):
        load(tmp_path, f"SOME_POLICY\n1\n{ROW}")


def test_a_policy_in_small_letters_is_told_which_was_meant(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"file:1:1: unknown-policy(.|\n)*did you mean MICRO\?"):
        load(tmp_path, f"micro\n1\n{ROW}")
