"""Workload files of other tools: workload/formats/FILE, and beside it FILE.expected, its steps or its faults."""

from pathlib import Path

import pytest
from golden_files import Golden

from testbed.base.errors import SpecError
from testbed.workload.formats import load_workload
from testbed.workload.steps import Compute, Workload

CORPUS = Path(__file__).with_name("workload") / "formats"
FILES = sorted(
    path for path in CORPUS.iterdir() if path.suffix in {".cm", ".txt", ".simai"} or path.name.endswith(".0.et")
)
BAD = {
    "activations.cm", "alltoallv-faults.txt", "cycle.cm", "deadlock.0.et", "faults.cm", "faults.simai",
    "flow-faults.txt", "own-cycle.0.et", "truncated.0.et", "unmatched.0.et",
}  # fmt: skip


def described(workload: Workload) -> str:
    """One line a step, then collectives and notes."""
    lines = [f"{workload.name}: {workload.ranks} ranks"]
    for step in workload.steps:
        if isinstance(step, Compute):
            what = f"rank {step.rank} computes {step.duration_ns} ns"
        else:
            what = f"{step.source} -> {step.destination} {step.size_bytes} B"
            what += f" from {step.start_ns} ns" if step.start_ns else ""
        after = f" after {', '.join(map(str, step.after))}" if step.after else ""
        lines.append(f"{step.number}: {what}{after}" + (f" [{step.label}]" if step.label else ""))
    for one in workload.collectives:
        lines.append(f"{one.kind} ({one.algorithm}) of {one.ranks}, {one.size_bytes} B, steps {one.steps}")
    return "\n".join([*lines, *(f"note: {note}" for note in workload.notes), ""])


def outcome(path: Path) -> tuple[str, bool]:
    """What a user gets of a file, and whether it was refused."""
    try:
        return described(load_workload(path)), False
    except SpecError as error:
        return f"{error}\n".replace(f"{CORPUS}/", ""), True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_outcome_is_as_reviewed(path: Path, golden: Golden) -> None:
    text, refused = outcome(path)
    golden(path.with_name(f"{path.name}.expected")).check(text)
    assert refused is (path.name in BAD)


def test_every_bad_file_is_there_and_every_fault_has_a_place() -> None:
    assert {path.name for path in FILES} > BAD
    for path in FILES:
        if path.name in BAD:
            with pytest.raises(SpecError) as refused:
                load_workload(path)
            for problem in refused.value.problems:
                assert (
                    problem.position is not None
                    or problem.path.startswith("byte ")
                    or problem.code in {"missing-header", "more"}
                )
