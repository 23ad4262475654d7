"""Bad scenario files: bad_scenarios/NAME.yml, and beside it NAME.txt, the exact text a user gets."""

from functools import cache
from pathlib import Path

import pytest
from golden_files import Golden

from testbed.base.errors import Problem, SpecError
from testbed.base.validation.engine import in_file_order
from testbed.run.faults.registry import findings_of_all
from testbed.run.placed.lab import lab_of_runs
from testbed.run.schema.against_lab import check_against
from testbed.run.schema.file import read_scenario

SCENARIOS = Path(__file__).with_name("bad_scenarios")
BAD_SCENARIOS = sorted(SCENARIOS.glob("*.yml"))


@cache
def scenario_problems_of(path: Path) -> SpecError:
    """What a file of the corpus is told: of itself, else of its points' topologies, else of itself on those."""
    try:
        file = read_scenario(path)
    except SpecError as error:
        return error
    found: list[Problem] = []
    for point in file.scenario.variants or (file.scenario,):
        try:
            found += check_against(file, point, lab_of_runs(file.load_lab(point)), findings_of_all)
        except SpecError as error:
            found += error.problems
    assert found, f"{path.name} loads, but it belongs to the bad files"
    return SpecError(in_file_order(dict.fromkeys(found)))


def text_of(path: Path) -> str:
    return f"{scenario_problems_of(path)}\n".replace(f"{path.parent}/", "")


@pytest.mark.parametrize("path", BAD_SCENARIOS, ids=lambda path: path.stem)
def test_the_text_is_as_reviewed(path: Path, golden: Golden) -> None:
    golden(path.with_suffix(".txt")).check(text_of(path))


@pytest.mark.parametrize("path", BAD_SCENARIOS, ids=lambda path: path.stem)
def test_every_problem_has_a_place_in_the_file_and_a_code(path: Path) -> None:
    lines = path.read_bytes().count(b"\n") + 1
    for problem in scenario_problems_of(path).problems:
        assert problem.file == str(path), "what a scenario sets of a topology is wrong in the scenario"
        assert problem.code.replace("-", "").isalnum()
        assert 1 <= problem.position.line <= lines
        assert problem.position.column >= 1


def test_the_corpus_is_whole() -> None:
    assert len(BAD_SCENARIOS) >= 40
    assert {path.stem for path in SCENARIOS.glob("*.txt")} == {path.stem for path in BAD_SCENARIOS}
