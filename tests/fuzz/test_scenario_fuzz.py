"""Whatever is in a scenario file: a `Scenario`, or a `SpecError` with places in the file. Never anything else."""

from pathlib import Path

from hostile_files import FUZZ, assert_well_said, edited, overrides, pieces, values
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.errors import SpecError
from testbed.run.schema.file import load_scenario_text
from testbed.run.sweep.points import plan_points
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
KEYS = [
    *(f"workload.{name}" for name in (*PARAMETERS, "kind", "ranks", "ranks.hosts", "ranks.count", "duration")),
    *(f"matrix.{name}" for name in ("workload.kind", "workload.bytes", "fabric.hosts", "transport.kind", "x")),
    *(f"faults[0].{name}" for name in ("at", "until", "link", "set", "set.rate", "down", "node", "storm", "flap")),
    *(f"expect[0].{name}" for name in ("metric", "min", "max", "where", "over", "within", "tolerance", "source")),
    "name", "topology", "topology.file", "topology.inline", "topology.set", "transport", "transport.kind",
    "transport.cc", "workload", "matrix", "faults", "repeat", "repeat.runs", "expect", "fabric.hosts",
    "description",
]  # fmt: skip


def check(text: str, overrides: dict[str, object] | None = None) -> None:
    try:
        scenario = load_scenario_text(text, file="fuzz.yml", overrides=overrides).scenario
    except SpecError as error:
        assert_well_said(error, text)
    else:
        points = plan_points(scenario)
        assert len(points) == max(1, len(scenario.variants))
        assert len({point.name for point in points}) == len(points)


@FUZZ
@given(pieces(TOKENS))
def test_pieces_of_yaml(text: str) -> None:
    check(text)


@FUZZ
@given(edited(SEEDS, TOKENS))
def test_files_with_pieces_replaced(text: str) -> None:
    check(text)


@FUZZ
@given(st.sampled_from(SEEDS), overrides(KEYS, TOKENS))
def test_files_with_values_replaced(text: str, changes: dict[str, object]) -> None:
    check(text, changes)


@FUZZ
@given(st.sampled_from(SEEDS), st.text(max_size=30), values(TOKENS))
def test_any_setting(text: str, key: str, value: object) -> None:
    check(text, {key: value})
