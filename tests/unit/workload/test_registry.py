"""The registry of workloads: every kind builds, and every parameter of it does what it says."""

import pkgutil
import random
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from local_waits import check_local

from testbed.base.errors import SpecError, WorkloadError
from testbed.base.units import ByteCount, Duration
from testbed.workload import kinds
from testbed.workload.kinds.kind import FabricView
from testbed.workload.parameters import Parameter, ParameterType
from testbed.workload.registry import (
    KINDS,
    WITH_BATCHES,
    WITH_COLLECTIVES,
    WITH_REQUESTS,
    build_workload,
    workload_kind,
)
from testbed.workload.steps import Compute, Workload

RATE_BPS = 400_000_000_000
BDP = 600_000
TRACE = Path(__file__).parents[2] / "golden" / "workload" / "formats"
REQUIRED: Mapping[str, dict[str, Any]] = {
    "trace": {"file": str(TRACE / "triggers.cm")},
    "program": {"command": ("true",)},
}
ALL = [pytest.param(kind, id=kind) for kind in KINDS]


def build(kind: str, parameters: Mapping[str, Any] | None = None, *, ranks: int = 8, **more: Any) -> Workload:
    options: dict[str, Any] = {"ranks_per_domain": 2, "leaf_of": lambda rank: rank % 2} | more
    fabric = FabricView(ranks=ranks, rate_bps=RATE_BPS, bdp_bytes=BDP, rng=random.Random(1), **options)
    return build_workload(kind, REQUIRED.get(kind, {}) | dict(parameters or {}), fabric)


def sizes(workload: Workload) -> set[int]:
    return {transfer.size_bytes for transfer in workload.transfers}


@pytest.mark.parametrize("kind", ALL)
def test_every_kind_builds_with_its_defaults_on_eight_ranks(kind: str) -> None:
    workload = build(kind)
    assert workload.transfers or workload.requests
    assert workload.ranks == 8
    assert sum(transfer.size_bytes for transfer in workload.transfers) < 2 * 10**9, "nobody waits for more"
    check_local(workload)
    assert build(kind) == workload, "one seed, one workload"


@pytest.mark.parametrize("kind", ALL)
def test_what_a_kind_has_is_what_its_metrics_are_of(kind: str) -> None:
    """What is said of a kind by its name refuses expectations: nobody may refuse what its workload has."""
    workload = build(kind)
    if kind not in ("tenants", "program"):  # tenants have what theirs have, and nobody sends what a program states
        assert bool(workload.collectives) == (kind in WITH_COLLECTIVES) or kind == "trace"
    assert bool(workload.requests or workload.first_tokens) == (kind in WITH_REQUESTS)
    assert any(isinstance(step, Compute) and step.is_batch for step in workload.steps) == (kind in WITH_BATCHES)


@pytest.mark.parametrize(
    ("parameters", "field", "said"),
    [
        ({"file": "nope.txt"}, "file", "there is no such file"),
        ({"file": "torch.et"}, "file", "there is no trace torch.et.0.et"),
        ({"file": str(TRACE)}, "file", "this is a folder"),
        ({"groups": "nope.json"}, "groups", "there is no such file"),
    ],
)
def test_a_file_that_is_not_there_is_wrong_where_it_is_named(parameters: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said) as refused:
        build("trace", parameters)
    assert refused.value.field == field
    assert refused.value.hint


@pytest.mark.parametrize(
    "text",
    ["0\n", "1\n0 1 3 100 0 2.0\n", "Nodes 2\nConnections 0\n", "0 0\n0 0\n"],
    ids=["hpcc", "hpcc-no-bytes", "htsim", "alltoallv"],
)
def test_a_file_in_which_nothing_is_sent_is_refused_at_its_place(tmp_path: Path, text: str) -> None:
    """It would have run, and passed whatever was expected of its network."""
    (tmp_path / "none.txt").write_text(text)
    format = "htsim" if text.startswith("Nodes") else "alltoallv" if text.startswith("0 0") else "hpcc"
    with pytest.raises(SpecError) as refused:
        build("trace", {"file": str(tmp_path / "none.txt"), "format": format}, ranks=2)
    [problem] = refused.value.problems
    assert problem.code == "no-flows" and problem.position is not None and problem.hint


def test_a_workload_that_draws_no_flow_is_refused() -> None:
    with pytest.raises(WorkloadError, match="nothing is sent") as refused:
        build("mice", {"span": Duration(1), "load": 0.01})
    assert refused.value.field == "span" and refused.value.hint


def test_a_tenant_may_send_nothing_and_not_all_of_them() -> None:
    idle = {"workload": {"kind": "checkpoint", "storage": 2, "checkpoints": 0}}
    assert build("tenants", {"tenants": ({"workload": {"kind": "all-reduce"}}, idle)}).transfers
    with pytest.raises(WorkloadError, match="nothing is sent"):
        build("tenants", {"tenants": (idle, idle)})


@pytest.mark.parametrize("kind", ALL)
def test_every_default_written_out_changes_nothing(kind: str) -> None:
    """What is optional is not in conflict with what it is by default; a model's parameters need a model."""
    written = {
        one.name: one.default
        for one in KINDS[kind].parameters
        if one.default is not None and "with a model" not in one.description
    }
    assert build(kind, written) == build(kind)


@pytest.mark.parametrize("kind", ALL)
def test_every_kind_is_described(kind: str) -> None:
    known = KINDS[kind]
    names = [one.name for one in known.parameters]
    assert len(set(names)) == len(names)
    assert not set(names) & {"kind", "ranks", "duration", "time_limit"}, "those are of every workload"
    for one in known.parameters:
        assert one.description
        assert one.description.endswith(".")
        _check_default(one)
    assert known.as_json()["parameters"]


def _check_default(parameter: Parameter) -> None:
    match parameter.type:
        case ParameterType.CHOICE:
            assert parameter.choices
            assert parameter.default in (None, *parameter.choices)
        case ParameterType.WHOLE | ParameterType.NUMBER:
            assert parameter.low is not None
            assert parameter.high is not None
            assert parameter.default is None or parameter.low <= parameter.default <= parameter.high


@pytest.mark.parametrize(
    ("kind", "written", "expected"),
    [
        ("permutation", {"bytes": "2bdp"}, {2 * BDP}),
        ("permutation", {"bytes": ByteCount(1000)}, {1000}),
        ("all-reduce", {"bytes": "0.1bdp"}, {BDP // 10 // 8}),
        ("all-to-all", {"bytes": ByteCount(4096)}, {4096}),
        ("incast", {"bytes": "0.0000001bdp"}, {1}),
    ],
)
def test_sizes(kind: str, written: dict[str, Any], expected: set[int]) -> None:
    assert sizes(build(kind, written)) == expected


def test_an_odd_part_of_a_bdp_is_rounded_to_elements() -> None:
    [collective] = build("all-reduce", {"bytes": "0.0001001bdp"}).collectives
    assert collective.size_bytes == 60
    with pytest.raises(WorkloadError, match="whole number of float32"):
        build("all-reduce", {"bytes": ByteCount(1001)})


def test_ranks_by_number_and_by_name() -> None:
    assert {one.source for one in build("incast", {"senders": 3}).transfers} == {1, 2, 3}
    assert {one.source for one in build("incast", {"senders": (5, 7)}).transfers} == {5, 7}
    assert {one.destination for one in build("checkpoint", {"storage": 2}).transfers} == {6, 7}
    assert {one.destination for one in build("checkpoint", {"storage": (0,)}).transfers} == {0}


def test_algorithms_have_hyphens() -> None:
    [collective] = build("all-reduce", {"algorithm": "halving-doubling"}).collectives
    assert collective.algorithm == "halving_doubling"
    [collective] = build("all-reduce", {"algorithm": "hierarchical", "rail_algorithm": "tree"}).collectives
    assert collective.algorithm == "hierarchical"


def test_the_steps_of_a_program_are_what_it_is_stated_to_send() -> None:
    stated = build("program", {"bytes": ByteCount(1_000_001), "algorithm": "halving-doubling"})
    [collective] = stated.collectives
    assert (collective.kind, collective.algorithm, collective.size_bytes) == (
        "all_reduce", "halving_doubling", 1_000_000
    )  # fmt: skip
    exchanged = build("program", {"bytes": ByteCount(4096), "collective": "all-to-all"})
    assert {one.size_bytes for one in exchanged.transfers} == {4096}, "as all-to-all itself counts"
    unstated = build("program")
    assert {(one.source, one.destination) for one in unstated.transfers} == {(n, (n + 1) % 8) for n in range(8)}
    assert sum(one.size_bytes for one in unstated.transfers) < 1000, "nothing is stated of its bytes"


def test_a_window_makes_an_all_to_all_serial() -> None:
    assert all(len(one.after) == 0 for one in build("all-to-all").transfers)
    waiting = [one for one in build("all-to-all", {"window": 1}).transfers if one.after]
    assert len(waiting) == 8 * 6


def test_a_training_step_by_model_says_what_it_leaves_out() -> None:
    by_model = build("training-step", {"model": "70B", "tensor": 2, "pipeline": 2})
    assert "Of the bytes of Llama 3 70B 0.001" in by_model.notes[-1]
    # 2 P / (TP PP) bytes, a thousandth of it, over two data-parallel ranks
    gradients = {
        one.size_bytes for one in by_model.collectives if len(one.ranks) == 2 and one.ranks[1] - one.ranks[0] == 2
    }
    assert gradients == {35_000_000}
    assert all(
        step.duration_ns == 0
        for step in build("training-step", {"model": "8B", "time_factor": 0}).steps
        if isinstance(step, Compute)
    )


@pytest.mark.parametrize(
    ("kind", "written", "field", "message"),
    [
        ("training-step", {"model": "8B", "gradient_bytes": ByteCount(2)}, "gradient_bytes", "follows from the model"),
        ("training-step", {"recompute": True}, "recompute", "only with a model"),
        ("training-step", {"tensor": 3}, "tensor", "no multiple"),
        ("training-step", {"tensor": 4, "data": 4}, "data", "16 ranks; there are 8"),
        ("checkpoint", {"model": "8B", "bytes": ByteCount(2)}, "bytes", "follow from the model"),
        ("permutation", {"scope": "inter-leaf"}, "scope", "needs to know the leaf"),
        ("permutation", {"flowz": 2}, "flowz", "no parameter 'flowz'"),
        ("trace", {"file": None}, "file", "file is missing"),
        ("incast", {"bytes": "64"}, "bytes", "which is no size"),
        ("incast", {"jitter": 5}, "jitter", "which is no duration"),
        ("incast", {"senders": 8}, "senders", "8 other ranks"),
        ("kv-cache-incast", {"prefill": 8}, "prefill", "8 ranks are asked for; there are 7"),
        ("program", {"algorithm": "pxn"}, "algorithm", "all-reduce has no algorithm pxn"),
        ("program", {"command": None}, "command", "command is missing"),
        ("tenants", {"tenants": ({"workload": {"kind": "incast"}, "ranks": 9},)}, "tenants", "do not fit on 8"),
    ],
)
def test_what_does_not_fit_names_its_parameter(kind: str, written: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        build(kind, written, leaf_of=None)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", ALL)
def test_no_parameter_may_be_beyond_its_bounds(kind: str) -> None:
    """This is where bounds are checked, whoever gives the values: generators do not do it again."""
    unit = {ParameterType.SIZE: ByteCount, ParameterType.DURATION: Duration}
    for one in KINDS[kind].parameters:
        if one.type is ParameterType.LIST:
            beyond: list[Any] = [(one.default or (0,)) * (int(one.high or 0) + 1), ()]
        else:
            of_type = unit.get(one.type, float if one.type is ParameterType.NUMBER else int)
            has_less = one.low is not None and (one.low > 0 or one.type not in unit)
            beyond = [of_type(one.low - 1)] if has_less else []  # type: ignore[call-arg, operator]
            beyond += [of_type(one.high + 1)] if one.high is not None else []  # type: ignore[call-arg]
        beyond += ["ring-a"] if one.choices else []
        for value in beyond:
            with pytest.raises(WorkloadError) as caught:
                build(kind, {one.name: value})
            assert caught.value.field == one.name


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(WorkloadError, match="did you mean incast"):
        workload_kind("incats")


def test_tenants_are_placed_and_know_who_shares_a_host() -> None:
    entry = {"workload": {"kind": "all-reduce", "algorithm": "hierarchical"}}
    packed = build("tenants", {"tenants": (entry, entry | {"start": Duration(1000)})})
    assert [one.ranks for one in packed.collectives] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert {one.start_ns for one in packed.transfers if one.label.startswith("tenant2/")} == {1000}
    assert any(one.scale_up for one in packed.transfers)

    apart = build("tenants", {"tenants": (entry, entry), "placement": "round-robin"})
    assert [one.ranks for one in apart.collectives] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert not any(one.scale_up for one in apart.transfers)

    named = build("tenants", {"tenants": (entry | {"ranks": (6, 7)}, entry | {"name": "b"})})
    assert [one.ranks for one in named.collectives] == [(6, 7), (0, 1, 2, 3, 4, 5)]


def test_a_trace_of_fewer_ranks_leaves_some_idle_and_one_of_more_is_refused() -> None:
    nodes = build("trace", ranks=1000).ranks
    assert nodes == 1000
    with pytest.raises(WorkloadError, match="the trace has"):
        build("trace", ranks=2)


def test_a_trace_with_process_groups(tmp_path: Path) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text('{"0": [0, 1]}')
    written = {"file": str(TRACE / "pipeline.0.et"), "groups": str(groups)}
    assert build("trace", written).transfers
    groups.write_text('{"0": [0, 1, 2, 3]}')
    with pytest.raises(SpecError, match="has no partner in the collectives of group '0'"):
        build("trace", written)
    groups.write_text("[]")
    with pytest.raises(SpecError, match="no object of groups"):
        build("trace", written)


def test_the_registry_names_every_kind_of_every_module() -> None:
    """It imports a module when one of its kinds is asked for, so that a kind that it does not name is none."""
    modules = [module.name for module in pkgutil.iter_modules(kinds.__path__) if module.name != "kind"]
    found = {kind.name for name in modules for kind in import_module(f"{kinds.__name__}.{name}").KINDS}
    assert found | {"tenants"} == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "parameters", "field"),
    [
        ("incast", {"destination": 8}, "destination"),
        ("point-to-point", {"source": 9}, "source"),
        ("broadcast", {"root": 8}, "root"),
        ("checkpoint", {"storage": (3, 8)}, "storage"),
        ("permutation", {"sources": (0, 8)}, "sources"),
    ],
)
def test_a_rank_that_is_not_there_is_told_at_the_parameter_that_names_it(
    kind: str, parameters: dict[str, Any], field: str
) -> None:
    with pytest.raises(WorkloadError, match=r"rank [89] is not one of the 8 ranks") as caught:
        build(kind, parameters)
    assert (caught.value.field, caught.value.hint) == (field, "ranks count from 0 to 7")


def test_a_shift_by_all_ranks_is_none() -> None:
    with pytest.raises(WorkloadError, match="a shift by 16 of 8 ranks leads each back to itself") as caught:
        build("tornado", {"shift": 16})
    assert (caught.value.field, caught.value.hint) == ("shift", "shift: 1 to 7")
