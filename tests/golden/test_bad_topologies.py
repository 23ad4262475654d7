"""Bad topology files: bad/NAME.yml, and beside it bad/NAME.txt, the exact text a user gets."""

import random
from functools import cache
from pathlib import Path

import pytest
from golden_files import Golden

from testbed.base.errors import SpecError
from testbed.base.yaml.reader import MOST_PROBLEMS, decode
from testbed.lab.core.schema.load import load_topology_text

CORPUS = Path(__file__).with_name("bad")
FILES = sorted(CORPUS.glob("*.yml"))


@cache
def problems_of(path: Path) -> SpecError:
    """What loading a file of the corpus raises. Raises `AssertionError` if it loads."""
    try:
        load_topology_text(decode(path.read_bytes(), path.name), file=path.name)
    except SpecError as error:
        return error
    raise AssertionError(f"{path.name} loads, but it belongs to the bad files")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_text_is_as_reviewed(path: Path, golden: Golden) -> None:
    golden(path.with_suffix(".txt")).check(f"{problems_of(path)}\n")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_problem_has_a_place_in_the_file_and_a_code(path: Path) -> None:
    lines = path.read_bytes().count(b"\n") + 1
    for problem in problems_of(path).problems:
        assert problem.file == path.name
        assert problem.code.replace("-", "").isalnum()
        assert problem.message
        if problem.code != "more-problems":
            assert 1 <= problem.position.line <= lines
            assert problem.position.column >= 1


def test_the_corpus_is_whole() -> None:
    assert len(FILES) >= 45
    texts = {path.stem for path in CORPUS.glob("*.txt")}
    assert texts == {path.stem for path in FILES}
    for word in ("mtu-below-1280", "node-name-path", "node-name-shell", "link-unknown-node", "prefix-overlap"):
        assert word in texts


def _garbage(kind: str, seed: int) -> str:
    """10,000 lines that are no topology."""
    random_source = random.Random(seed)
    printable = [chr(code) for code in range(32, 127)]
    match kind:
        case "characters":
            lines = ["".join(random_source.choices(printable, k=40)) for _ in range(10_000)]
        case "words":
            lines = [f"line {i} of a log that was passed by mistake" for i in range(10_000)]
        case "keys":
            lines = [f"key{i}: value {i}" for i in range(10_000)]
        case "duplicates":
            lines = ["name: pod"] * 10_000
        case "brackets":
            lines = ["[{" * 20] * 10_000
        case _:
            lines = ["- " * 30 + "x"] * 10_000
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["characters", "words", "keys", "duplicates", "brackets", "dashes"])
def test_ten_thousand_lines_of_garbage_get_a_short_answer(kind: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_topology_text(_garbage(kind, seed=1), file="garbage.yml")
    assert len(caught.value.problems) <= MOST_PROBLEMS + 1
    assert len(str(caught.value)) < 5_000
    assert str(caught.value).startswith("garbage.yml:")
