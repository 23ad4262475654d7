"""Scenario files: what they mean, and the exact words for what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import SpecError
from testbed.model.scenario import Expectation, Repeat, Scope, Transport, Workload
from testbed.spec import parse_assignment
from testbed.spec.scenario_file import load_scenario
from testbed.units import ByteCount, Duration

ROOT = Path(__file__).parents[2]
GOOD = """name: rail-permutation
topology: {file: ../topologies/demo.yml, set: {fabric.hosts: 4}}
transport: {kind: tcp, cc: cubic}
workload: {kind: permutation, scope: inter-segment, duration: 5s}
repeat: {runs: 3, seed: 7}
expect:
  - {metric: aggregate_share, min: 64%, max: 1.02, source: "a formula"}
"""
SHORT = """name: short
topology: {file: x.yml}
workload: {kind: permutation, bytes: 16MB}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "s.yml"
    path.write_text(text)
    return path


def problems(tmp_path: Path, text: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_scenario(write(tmp_path, text))
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_every_key(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, GOOD))
    assert scenario.name == "rail-permutation"
    assert scenario.topology.file == f"{tmp_path}/../topologies/demo.yml"
    assert dict(scenario.topology.set) == {"fabric.hosts": 4}
    assert scenario.transport == Transport(cc="cubic")
    assert scenario.workload == Workload(duration=Duration.parse("5s"))
    assert scenario.repeat == Repeat(runs=3, seed=7)
    assert scenario.expect == (Expectation(metric="aggregate_share", minimum=0.64, maximum=1.02, source="a formula"),)


def test_defaults(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, SHORT))
    assert scenario.transport == Transport()
    assert scenario.workload == Workload(size=ByteCount.parse("16MB"), scope=Scope.INTER_SEGMENT)
    assert scenario.repeat == Repeat()
    assert scenario.expect == ()


def test_overrides(tmp_path: Path) -> None:
    overrides = dict(parse_assignment(text) for text in ("repeat.seed=9", "workload.bytes=1kB", "repeat.runs=2"))
    scenario = load_scenario(write(tmp_path, SHORT), overrides)
    assert scenario.repeat == Repeat(runs=2, seed=9)
    assert scenario.workload.size == ByteCount(1000)
    assert scenario.overrides == ("repeat.seed=9", "workload.bytes=1kB", "repeat.runs=2")


@pytest.mark.parametrize(
    ("text", "code"),
    [("seed", "bad-override"), ("=3", "bad-override"), ("a..b=1", "bad-override"), ("x=007", "bad-number")],
)
def test_bad_overrides(text: str, code: str) -> None:
    with pytest.raises(SpecError, match=code):
        parse_assignment(text)


@pytest.mark.parametrize("kind", ["uet", "rdma"])
def test_transports_to_come_are_refused(tmp_path: Path, kind: str) -> None:
    text = GOOD.replace("kind: tcp", f"kind: {kind}")
    assert problems(tmp_path, text).startswith(
        f"s.yml:3:19: not-built: transport.kind: transport {kind} is not built yet; this version runs a permutation"
        " over TCP\n    hint: "
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kind: permutation", "kind: incast", "not-built: workload.kind: workload incast is not built yet"),
        ("kind: permutation", "kind: permutatoin", "unknown-workload: workload.kind: there is no workload"),
        ("scope: inter-segment", "scope: inter-leaf", "unknown-value: workload.scope: must be one of"),
        ("duration: 5s", "duration: 1500ms", "must be whole seconds, not 1.5 s"),
        ("duration: 5s", "duration: 5", "no-unit: workload.duration: the duration 5 has no unit"),
        ("duration: 5s", "duration: 5s, bytes: 1MB", "contradiction: workload.bytes: both duration and bytes"),
        (", duration: 5s", "", "missing-key: workload: neither duration nor bytes is given"),
        ("duration: 5s", "bytes: 64bdp", "bad-quantity: workload.bytes: '64bdp' has an unknown unit"),
        ("duration: 5s", "bytes: -1", "bad-quantity: workload.bytes"),
        ("runs: 3", "runs: 0", "out-of-range: repeat.runs: must be"),
        ("metric: aggregate_share", "metric: agregate_share", "did you mean aggregate_share?"),
        (", min: 64%, max: 1.02", "", "missing-key: expect[0]: neither min nor max is given"),
        ("min: 64%", "min: 164%", "contradiction: expect[0].min: min 1.64 is above max 1.02"),
        ("min: 64%", "min: .nan", "wrong-type: expect[0].min: must be a number or a percentage"),
        ("max: 1.02", "within: oracle", "not-built: expect[0].within: 'within': expectations against an oracle"),
        ("repeat: {", "faults: []\nrepeat: {", "not-built: faults: 'faults': faults on a timeline"),
        ("repeat: {", "matrix: {}\nrepeat: {", "not-built: matrix: 'matrix': parameter sweeps"),
        ("repeat: {", "repeets: 1\nrepeat: {", "did you mean 'repeat'?"),
        ("fabric.hosts: 4", "fabric.hosts: [4]", "must be a single value, not a list"),
        ("fabric.hosts: 4", "fabric..hosts: 4", "is not a dotted key"),
        ("cc: cubic", "cc: 'cubic; reboot'", "cannot name a congestion control"),
        ("name: rail-permutation", "name: ../x", "bad-name: name:"),
        ("topology: {file: ../topologies/demo.yml, set: {fabric.hosts: 4}}", "", "the key 'topology' is missing"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert expected in problems(tmp_path, GOOD.replace(old, new))


def test_all_problems_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("runs: 3", "runs: 0").replace("kind: tcp", "kind: uet")
    assert problems(tmp_path, text).count("s.yml:") == 2


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.yml")), ids=lambda path: path.name)
def test_shipped_scenarios_load(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.expect, "a shipped scenario claims something"
    assert Path(scenario.topology.file).is_file()
