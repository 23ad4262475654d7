"""Whatever is in a scenario file: a `Scenario`, or a `SpecError` with places in the file. Never anything else."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.errors import SpecError
from testbed.scenario.sweep import plan_points
from testbed.spec.scenario_file import load_scenario_text
from testbed.spec.strict_yaml import MAX_PROBLEMS
from testbed.workload.registry import KINDS

ROOT = Path(__file__).parents[2]
SEEDS = [
    path.read_text()
    for folder in (ROOT / "scenarios", ROOT / "tests" / "golden" / "bad_scenarios")
    for path in sorted(folder.glob("*.yml"))
]
WORDS = (
    "{ } [ ] : # ' \" | - , null true off 0 -1 1e9 .nan 5s 64bdp 1MB 50% 8pp name topology file inline set transport"
    " kind tcp uet cc paths workload bytes duration ranks hosts rails count matrix faults at until link node agent"
    " down kill storm flap period priority repeat runs seed expect metric where over min max within oracle tolerance"
    " source aggregate_share jct p1-s1-rail1:uplink1 fabric.hosts qos.load_balancing.mode workload.bytes"
)
TOKENS = st.sampled_from([*WORDS.split(), *KINDS, "\n", "\n  ", ": ", "- "])
PARAMETERS = sorted({parameter.name for kind in KINDS.values() for parameter in kind.parameters})
KEYS = st.sampled_from(
    [
        *(f"workload.{name}" for name in (*PARAMETERS, "kind", "ranks", "ranks.hosts", "ranks.count", "duration")),
        *(f"matrix.{name}" for name in ("workload.kind", "workload.bytes", "fabric.hosts", "transport.kind", "x")),
        *(f"faults[0].{name}" for name in ("at", "until", "link", "set", "set.rate", "down", "node", "storm", "flap")),
        *(f"expect[0].{name}" for name in ("metric", "min", "max", "where", "over", "within", "tolerance", "source")),
        "name", "topology", "topology.file", "topology.inline", "topology.set", "transport", "transport.kind",
        "transport.cc", "workload", "matrix", "faults", "repeat", "repeat.runs", "expect", "fabric.hosts",
        "description",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | TOKENS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10) | TOKENS, inner, max_size=4),
    max_leaves=8,
)
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(text: str, overrides: dict[str, object] | None = None) -> None:
    try:
        scenario = load_scenario_text(text, file="fuzz.yml", overrides=overrides).scenario
    except SpecError as error:
        assert 0 < len(error.problems) <= MAX_PROBLEMS + 1
        lines = len(text.splitlines()) + 1
        for problem in error.problems:
            assert problem.code
            assert problem.message
            assert "\n" not in problem.message
            assert problem.message.isprintable()
            assert problem.position is None or 1 <= problem.position.line <= lines
    else:
        points = plan_points(scenario)
        assert len(points) == max(1, len(scenario.variants))
        assert len({point.name for point in points}) == len(points)


@FUZZ
@given(st.lists(TOKENS, max_size=40).map("".join))
def test_pieces_of_yaml(text: str) -> None:
    check(text)


@FUZZ
@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 12), TOKENS), max_size=4))
def test_files_with_pieces_replaced(text: str, edits: list[tuple[int, int, str]]) -> None:
    for start, length, token in edits:
        at = start % (len(text) + 1)
        text = text[:at] + token + text[at + length :]
    check(text)


@FUZZ
@given(st.sampled_from(SEEDS), st.dictionaries(KEYS, VALUES, min_size=1, max_size=3))
def test_files_with_values_replaced(text: str, overrides: dict[str, object]) -> None:
    check(text, overrides)


@FUZZ
@given(st.sampled_from(SEEDS), st.text(max_size=30), VALUES)
def test_any_setting(text: str, key: str, value: object) -> None:
    check(text, {key: value})
