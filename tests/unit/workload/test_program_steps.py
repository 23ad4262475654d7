"""Steps of a program, from the lines that its ranks print."""

import pytest

from testbed.workload.program_steps import LONGEST_LINE, DoneStep, StepPattern, StepReader

DDP = r"step (?P<step>\d+) loss [\d.]+ .* (?P<seconds>[\d.]+) s"


def read(pattern: str, *lines: tuple[int, str, float], warm_up: int = 1) -> StepReader:
    reader = StepReader(StepPattern.parse(pattern), warm_up=warm_up)
    for rank, text, at_s in lines:
        reader.read(rank, text, at_s)
    return reader


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (DDP, "step 7 loss 0.31 forward 4 ms, backward 0.812 s", (7, 0.812)),
        (DDP, "epoch 7", None),
        (r"took (?P<ms>[\d.]+) ms", "iteration took 12.5 ms", (None, 0.0125)),
        (r"it (?P<step>\S+)", "it seven", None),
        (r"it (?P<step>\S+)", "it -7", None),
        (r"it (?P<step>\d+)", "it 99999999999999999999", None),
        (r"took (?P<seconds>\S+)", "took long", None),
        (r"took (?P<seconds>\S+)", "took inf", None),
        (r"took (?P<seconds>\S+)", "took nan", None),
        (r"took (?P<seconds>\S+)", "took -1", None),
        (r"(step (?P<step>\d+)|done)", "done", (None, None)),
    ],
)
def test_a_line_tells_of_a_step(pattern: str, line: str, expected: tuple[int | None, float | None] | None) -> None:
    found = StepPattern.parse(pattern).match(line)
    assert (None if found is None else (found.number, found.seconds)) == expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("step (", "no regular expression"),
        (r"(?P<stp>\d+)", "and no stp"),
        (r"(?P<seconds>\d) (?P<ms>\d)", "and not both"),
        (r"\d*", "matches an empty line"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StepPattern.parse(pattern)


def test_only_the_begin_of_a_line_is_looked_at() -> None:
    assert StepPattern.parse(r"step (?P<step>\d+)").match("x" * LONGEST_LINE + "step 1") is None


def test_the_slowest_rank_counts_where_lines_have_the_time() -> None:
    reader = read(
        r"step (?P<step>\d+) (?P<seconds>\S+)",
        (0, "step 0 5.0", 10.0),
        (1, "step 0 6.0", 10.1),
        (0, "step 1 0.5", 10.6),
        (1, "step 1 0.7", 10.8),
    )
    assert reader.steps == [
        DoneStep(number=0, at_s=10.1, seconds=6.0, warm_up=True),
        DoneStep(number=1, at_s=10.8, seconds=0.7, warm_up=False),
    ]


def test_a_step_without_a_time_took_the_time_since_the_line_before_of_one_rank() -> None:
    reader = read("^done", (3, "done", 1.0), (0, "done", 1.1), (3, "done", 1.5), (0, "done", 1.7), (3, "done", 2.5))
    assert [(one.number, one.seconds, one.warm_up) for one in reader.steps] == [
        (1, None, True), (2, 0.5, False), (3, 1.0, False)
    ]  # fmt: skip


def test_a_step_is_told_of_once_and_the_warm_up_ends() -> None:
    reader = StepReader(StepPattern.parse(r"step (?P<step>\d+)"), warm_up=2)
    told = [reader.read(0, line, float(at)) for at, line in enumerate(("step 0", "x", "step 10", "step 10", "step 20"))]
    assert told == [0, None, 10, None, 20]
    assert reader.count == 3 and reader.is_warm
    assert [one.warm_up for one in reader.steps] == [True, True, False]
    assert not read("^done", (0, "done", 1.0), warm_up=2).is_warm
    assert read("^done", warm_up=0).is_warm
