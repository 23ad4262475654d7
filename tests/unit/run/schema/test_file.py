"""Scenario files: what they mean, and what is told of mistakes that no file of tests/golden/bad_scenarios has."""

import json
from pathlib import Path

import pytest

from testbed.base.errors import SpecError
from testbed.base.units import ByteCount, Duration
from testbed.lab.core.schema.load import parse_assignment
from testbed.run.schema.file import load_scenario, load_scenario_text, load_scenario_topology, read_scenario
from testbed.run.schema.model import (
    Expectation,
    Fault,
    RankOrder,
    Ranks,
    Repeat,
    Scenario,
    Transport,
    TransportKind,
    Within,
    Workload,
)
from testbed.run.schema.written import scenario_as_run

ROOT = Path(__file__).parents[4]
GOOD = """name: rail-permutation
topology: {file: ../topologies/demo.yml, set: {fabric.hosts: 4}}
transport: {kind: tcp, cc: cubic}
workload: {kind: permutation, scope: inter-leaf, duration: 5s}
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
    assert caught.value.exit_code == 3
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_every_key(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, GOOD))
    assert scenario.name == "rail-permutation"
    assert scenario.topology.file == f"{tmp_path}/../topologies/demo.yml"
    assert dict(scenario.topology.set) == {"fabric.hosts": 4}
    assert scenario.transport == Transport(cc="cubic")
    assert scenario.workload == Workload(
        kind="permutation", parameters={"scope": "inter-leaf"}, duration=Duration.parse("5s")
    )
    assert scenario.repeat == Repeat(runs=3, seed=7)
    assert scenario.expect == (Expectation(metric="aggregate_share", minimum=0.64, maximum=1.02, source="a formula"),)


def test_defaults(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, SHORT))
    assert scenario.transport == Transport()
    assert scenario.workload == Workload(kind="permutation", parameters={"bytes": ByteCount.parse("16MB")})
    assert scenario.repeat == Repeat(fixes_seed=False)
    assert scenario.expect == ()


def test_overrides(tmp_path: Path) -> None:
    overrides = dict(parse_assignment(text) for text in ("repeat.seed=9", "workload.bytes=1kB", "repeat.runs=2"))
    scenario = load_scenario(write(tmp_path, SHORT), overrides)
    assert scenario.repeat == Repeat(runs=2, seed=9)
    assert scenario.workload.parameters["bytes"] == ByteCount(1000)
    assert scenario.overrides == ("repeat.seed=9", "workload.bytes=1kB", "repeat.runs=2")


@pytest.mark.parametrize(
    ("text", "code"),
    [("seed", "bad-override"), ("=3", "bad-override"), ("a..b=1", "bad-override"), ("x=007", "bad-number")],
)
def test_bad_overrides(text: str, code: str) -> None:
    with pytest.raises(SpecError, match=code):
        parse_assignment(text)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kind: permutation", "kind: permutatoin", "hint: did you mean permutation?"),
        ("scope: inter-leaf", "scop: inter-leaf", "unknown-key: workload.scop: unknown key 'scop'"),
        ("scope: inter-leaf", "senders: 3", "hint: senders is a key of the workloads incast, overlapped-incast"),
        ("scope: inter-leaf", "flows: 0", "workload.flows: must be from 1 to 1024, not 0"),
        ("scope: inter-leaf", "flows: '2.5'", "must be a whole number, not '2.5'"),
        ("scope: inter-leaf", "scope: ", "no-value: workload.scope: the key has no value"),
        ("scope: inter-leaf", "ranks: {rail: [1]}", "unknown-key: workload.ranks.rail: unknown key 'rail'"),
        ("scope: inter-leaf", "ranks: {hosts: ['p1;']}", "bad-name: workload.ranks.hosts[0]: 'p1;' is no name"),
        ("scope: inter-leaf", "ranks: {order: rails}", "hint: did you mean rail?"),
        ("scope: inter-leaf", "time_limit: 2h", "out-of-range: workload.time_limit"),
        ("duration: 5s", "duration: 1500ms", "must be whole seconds, not 1.5 s"),
        ("duration: 5s", "bytes: -1", "out-of-range: workload.bytes: a size cannot be negative"),
        ("cc: cubic", "cc: 'cubic; reboot'", "cannot name a congestion control"),
        ("min: 64%", "min: .nan", "wrong-type: expect[0].min: must be a number that is one, not nan"),
        ("min: 64%", "min: much", "wrong-type: expect[0].min: must be a share, not 'much'"),
        ("fabric.hosts: 4", "fabric..hosts: 4", "is not a dotted key"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert expected in problems(tmp_path, GOOD.replace(old, new))


TOPOLOGY = "name: pod\nfabric: {design: rail-optimized, hosts: 2, gpus: 2}\n"
SWEEP = """name: sweep
topology: {file: pod.yml}
transport: {kind: uet, cc: nscc, paths: reps}
workload: {kind: incast, bytes: 1MB}
matrix:
  workload.senders: [1, 2]
  fabric.gpus: [2, 1]
expect:
  - {metric: tail_fct_ratio, where: {senders: 2}, max: 1.35, source: "a figure"}
  - {metric: tail_fct, where: {senders: 2, gpus: 1}, over: {senders: 1}, max: 2.5, source: "a figure"}
  - {metric: aggregate_share, within: oracle, tolerance: 8pp, source: "max-min oracle"}
"""


def variants(text: str) -> list[Scenario]:
    return list(load_scenario_text(text, file="s.yml").scenario.variants)


def test_a_matrix_makes_a_scenario_of_each_point() -> None:
    scenario = load_scenario_text(SWEEP, file="s.yml").scenario
    assert dict(scenario.matrix) == {"workload.senders": (1, 2), "fabric.gpus": (2, 1)}
    assert scenario.workload.parameters == {"bytes": ByteCount(1_000_000)}
    assert [dict(one.values) for one in scenario.variants] == [
        {"workload.senders": senders, "fabric.gpus": gpus} for senders in (1, 2) for gpus in (2, 1)
    ]
    for one in scenario.variants:
        assert one.workload.parameters["senders"] == one.values["workload.senders"]
        assert one.topology.set == {"fabric.gpus": one.values["fabric.gpus"]}
        assert one.transport == Transport(kind=TransportKind.UET, cc="nscc", paths="reps")
        assert not one.matrix
        assert not one.variants


def test_a_matrix_may_change_the_kind_and_give_what_it_needs() -> None:
    text = SWEEP.replace("kind: incast, bytes", "bytes").replace(
        "workload.senders: [1, 2]", "workload.kind: [incast, outcast]"
    )
    text = text.partition("expect:")[0]
    assert [one.workload.kind for one in variants(text)] == ["incast"] * 2 + ["outcast"] * 2


def test_expectations() -> None:
    first, second, third = load_scenario_text(SWEEP, file="s.yml").scenario.expect
    assert first == Expectation(metric="tail_fct_ratio", where={"senders": 2}, maximum=1.35, source="a figure")
    assert second.over == {"senders": 1}
    assert (third.within, third.tolerance, third.relative) == (Within.ORACLE, 0.08, False)
    [relative] = load_scenario_text(
        GOOD.replace("min: 64%, max: 1.02", "within: oracle, tolerance: 8%"), file="s"
    ).scenario.expect
    assert (relative.tolerance, relative.relative) == (0.08, True)


@pytest.mark.parametrize(
    ("metric", "written", "expected"),
    [
        ("blackhole_time_rate", "675ms", 0.675),
        ("queue_max", "150KB", 150_000),
        ("aggregate_goodput", "90M", 90e6),
        ("retransmits", "0", 0),
        ("mmr_uplinks", "120%", 1.2),
    ],
)
def test_bounds_have_the_unit_of_their_metric(metric: str, written: str, expected: float) -> None:
    text = GOOD.replace("metric: aggregate_share, min: 64%, max: 1.02", f"metric: {metric}, max: {written}")
    [item] = load_scenario_text(text, file="s.yml").scenario.expect
    assert item.maximum == pytest.approx(expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("workload.senders", "workload", "'workload' is a whole section, not a single value"),
        ("workload.senders", "topology.inline.name", "is a whole section"),
        ("workload.senders", "faults[0].at", "faults[0] does not exist: the list has 0 entries"),
        ("{senders: 2}", "{sender: 2}", "hint: did you mean senders?"),
    ],
)
def test_what_is_wrong_with_a_sweep(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in SWEEP
    text = (
        SWEEP.replace(old, new, 1)
        if "faults" not in new
        else SWEEP.replace("matrix:", "faults: []\nmatrix:").replace(old, new, 1)
    )
    assert expected in problems(tmp_path, text)


def test_a_bad_value_is_said_once_however_many_points_have_it(tmp_path: Path) -> None:
    text = SWEEP.replace("[1, 2]", "[1, two]").replace("[2, 1]", "[2, 1, 3, 4]")
    assert problems(tmp_path, text).count("wrong-type") == 1


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("workload.bytes=2MB", {"bytes": ByteCount(2_000_000)}),
        ("fabric.hosts=4", {"fabric.hosts": 4}),
        ("topology.set.fabric.hosts=4", {"fabric.hosts": 4}),
        ("qos.load_balancing.mode=spray", {"qos.load_balancing.mode": "spray"}),
        ("topology.links[0].rate=100G", {"topology.links[0].rate": "100G"}),
    ],
)
def test_settings_go_where_they_belong(setting: str, expected: dict[str, object]) -> None:
    overrides = dict([parse_assignment(setting)])
    scenario = load_scenario_text(SHORT, file="s.yml", overrides=overrides).scenario
    found = scenario.workload.parameters if setting.startswith("workload") else scenario.topology.set
    assert expected.items() <= dict(found).items()


def test_a_setting_of_a_key_of_the_matrix_leaves_that_value_alone() -> None:
    scenario = load_scenario_text(SWEEP, file="s.yml", overrides={"workload.senders": 3, "fabric.gpus": 2}).scenario
    assert dict(scenario.matrix) == {"workload.senders": (3,), "fabric.gpus": (2,)}
    assert len(scenario.variants) == 1
    assert len(scenario.expect) == 3, "what is expected of the other points is no mistake"


@pytest.mark.parametrize("key", ["fabrik.hosts", "name.x.y", "hosts"])
def test_settings_that_belong_nowhere(key: str) -> None:
    with pytest.raises(SpecError, match="<override>"):
        load_scenario_text(SHORT, file="s.yml", overrides={key: 4})


FAULTS = """
faults:
  - {at: 200ms, link: "p1-s1-rail1:uplink1", set: {rate: 50%, delay: 5us, both: true}, until: 600ms}
  - {at: 0s, link: "p1-s1-rail1:uplink1", down: true}
  - {at: 1s, link: "p1-s1-rail1:uplink1", flap: {period: 100ms}, until: 2s}
  - {at: 1s, link: "p1-s1-h1:rail1", storm: {priority: 3}, until: 2s}
  - {at: 1s, node: p1-spine1, kill: true}
  - {at: 1s, node: p1-spine1, daemon: bgpd, kill: true, until: 3s}
  - {at: 1s, agent: p1-s1-h1, kill: true}
  - {at: 1s, link: "p1-s1-h1.gpu1:plane2", set: {loss: 1e-3, burst: 3}}
  - {at: 1s, plane: 3, state: down, until: 2s}
  - {at: 1s, plane: "p1-s1:plane1-2", flap: {period: 100ms}, until: 2s}
  - {at: 1s, tray: p1-s1-h1, down: true}
  - {at: 1s, domain: p1-s1, kill: true}
"""


def test_every_fault() -> None:
    def at(text: str) -> Duration:
        return Duration.parse(text)

    uplink = "p1-s1-rail1:uplink1"
    assert load_scenario_text(SHORT + FAULTS, file="s.yml").scenario.faults == (
        Fault(
            at=at("200ms"),
            kind="link-set",
            target=uplink,
            until=at("600ms"),
            settings={"rate": "50%", "delay": "5000ns", "both": True},
        ),
        Fault(at=at("0s"), kind="link-down", target=uplink),
        Fault(at=at("1s"), kind="link-flap", target=uplink, until=at("2s"), period=at("100ms")),
        Fault(at=at("1s"), kind="pfc-storm", target="p1-s1-h1:rail1", until=at("2s"), settings={"priority": 3}),
        Fault(at=at("1s"), kind="node-kill", target="p1-spine1"),
        Fault(at=at("1s"), kind="daemon-kill", target="p1-spine1", until=at("3s"), settings={"daemon": "bgpd"}),
        Fault(at=at("1s"), kind="agent-kill", target="p1-s1-h1"),
        Fault(at=at("1s"), kind="link-set", target="p1-s1-h1.gpu1:plane2", settings={"loss": 1e-3, "burst": 3.0}),
        Fault(at=at("1s"), kind="plane-down", target="plane3", until=at("2s")),
        Fault(at=at("1s"), kind="plane-flap", target="p1-s1:plane1-2", until=at("2s"), period=at("100ms")),
        Fault(at=at("1s"), kind="tray-down", target="p1-s1-h1"),
        Fault(at=at("1s"), kind="domain-kill", target="p1-s1"),
    )


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("at: 1s, link: 'a:b', node: a, down: true", "a fault happens in one place: link and node are given"),
        ("at: 1s, agent: a, down: true", "'down' does not happen to an agent"),
        ("at: 1s, link: 'a:b', down: false", "down: false is no fault"),
        ("at: 1s, link: 'a:b', set: {rate: 0%}", "a rate of 0% is no rate"),
        ("at: 1s, link: 'a:b', set: {rate: fast}", "bad-quantity: faults[0].set.rate"),
        ("at: 1s, link: 'a:b', set: {corrupt: 1%}", "hint: did you mean 'corruption'?"),
        ("at: 1s, link: 'a:b', storm: {priority: 8}", "must be from 0 to 7, not 8"),
        ("at: 1s, node: a, kill: true, daemon: bgp", "unknown-daemon: faults[0].daemon: there is no daemon 'bgp'"),
        ("at: 1s, node: a, daemon: bgpd", "the fault does not say what happens to the node"),
        ("at: 1s, plane: 65, down: true", "out-of-range: faults[0].plane: must be from 1 to 64, not 65"),
        (
            "at: 1s, plane: h1, down: true",
            "wrong-type: faults[0].plane: must be a plane of a scale-up domain, not 'h1'",
        ),
        ("at: 1s, plane: 3", "the fault does not say what happens to the plane"),
        ("at: 1s, plane: 3, state: up", "unknown-value: faults[0].state: must be one of down, not 'up'"),
        ("at: 1s, plane: 3, state: down, down: true", "down and state say the same thing"),
        ("at: 1s, plane: 3, set: {delay: 1us}", "delay of a link of a scale-up domain cannot be set"),
        ("at: 1s, link: 'h.gpu1:plane1', set: {both: false}", "both of a link of a scale-up domain cannot be set"),
        (
            "at: 1s, link: 'h.gpu1:plane1', storm: {priority: 3}",
            "'storm' does not happen to a link of a scale-up domain",
        ),
        ("at: 1s, link: 'a:b', set: {loss: 1%, burst: 3}", "burst is a setting of links of scale-up domains"),
        ("at: 1s, plane: 3, set: {burst: 3}", "missing-key: faults[0].set.loss: burst says how frames are lost"),
        ("at: 1s, plane: 3, set: {loss: 1%, burst: 0.5}", "out-of-range: faults[0].set.burst"),
        ("at: 1s, tray: h1, flap: {period: 1s}, until: 2s", "'flap' does not happen to a tray"),
        ("at: 1s, domain: p1-s1, state: down", "faults[0].state: 'state' does not happen to a domain"),
    ],
)
def test_what_is_wrong_with_a_fault(tmp_path: Path, fault: str, expected: str) -> None:
    assert expected in problems(tmp_path, f"{SHORT}faults: [{{{fault}}}]\n")


def test_ranks_and_nested_workloads(tmp_path: Path) -> None:
    text = """name: mixed
topology: {file: x.yml}
workload:
  kind: tenants
  ranks: {hosts: [p1-s1-*], rails: [1, 2], count: 8, order: rail, per_rail: false}
  tenants:
    - {name: a, workload: {kind: all-reduce, bytes: 2bdp}, start: 1ms}
    - {ranks: [4, 5], workload: {kind: trace, file: a.cm}}
"""
    workload = load_scenario(write(tmp_path, text)).workload
    assert workload.ranks == Ranks(hosts=("p1-s1-*",), rails=(1, 2), count=8, order=RankOrder.RAIL, per_rail=False)
    assert workload.parameters["tenants"] == (
        {"name": "a", "workload": {"kind": "all-reduce", "bytes": "2bdp"}, "start": Duration.parse("1ms")},
        {"ranks": (4, 5), "workload": {"kind": "trace", "file": f"{tmp_path}/a.cm"}},
    )
    text = text.replace("bytes: 2bdp", "byte: 2bdp").replace("kind: trace, ", "").replace("[4, 5]", "[4, 4]")
    said = problems(tmp_path, text)
    assert "s.yml:7:46: unknown-key: workload.tenants[0].workload.byte: unknown key 'byte'" in said
    assert "s.yml:8:23: missing-key: workload.tenants[1].workload.kind: the key 'kind' is missing" in said
    assert "workload.tenants[1].ranks: a rank stands twice in the list" in said


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("storage", ("storage",)),
        ("[backend, frontend]", ("backend", "frontend")),
        ("[a, a]", "s.yml:3:61: contradiction: workload.ranks.network: a network stands twice in the list"),
        ("[]", "s.yml:3:61: out-of-range: workload.ranks.network: must have 1 to 16 networks, not 0"),
        ("[1]", "s.yml:3:61: wrong-type: workload.ranks.network: must be text, not 1"),
    ],
)
def test_networks_of_ranks(tmp_path: Path, written: str, expected: object) -> None:
    text = SHORT.replace("16MB}", f"16MB, ranks: {{network: {written}}}}}")
    if isinstance(expected, tuple):
        assert load_scenario(write(tmp_path, text)).workload.ranks.networks == expected
    else:
        assert expected in problems(tmp_path, text)


def test_topologies_of_points(tmp_path: Path) -> None:
    (tmp_path / "pod.yml").write_text(TOPOLOGY)
    file = read_scenario(write(tmp_path, SWEEP))
    nics = [sum(link.kind == "access" for link in file.load_lab(one).links) for one in file.scenario.variants]
    assert nics == [4, 2, 4, 2]
    assert [load_scenario_topology(one.topology) for one in file.scenario.variants] == [
        file.load_lab(one) for one in file.scenario.variants
    ]


def test_a_topology_key_that_is_wrong_is_found_where_the_scenario_sets_it(tmp_path: Path) -> None:
    (tmp_path / "pod.yml").write_text(TOPOLOGY)
    text = SWEEP.replace("fabric.gpus: [2, 1]", "fabric.gpus: [2, many]").replace(", gpus: 1", "")
    text = text.replace("{file: pod.yml}", "{file: pod.yml, set: {fabric.host: 4}}")
    file = read_scenario(write(tmp_path, text))
    with pytest.raises(SpecError) as caught:
        file.load_lab(file.scenario.variants[1])
    said = str(caught.value).replace(f"{tmp_path}/", "")
    assert "s.yml:2:33: unknown-key: fabric.host: unknown key 'host'" in said
    assert "s.yml:7:20: wrong-type: fabric.gpus: must be a whole number, not 'many'" in said


def test_inline_topologies(tmp_path: Path) -> None:
    inline = "{inline: {name: pod, fabric: {design: rail-optimized, hosts: 2, gpus: 2}}, set: {fabric.hosts: 3}}"
    text = SHORT.replace("{file: x.yml}", inline)
    file = read_scenario(write(tmp_path, text))
    lab = file.load_lab(file.scenario)
    assert len(lab.hosts) == 3
    assert load_scenario_topology(file.scenario.topology).links == lab.links
    file = read_scenario(write(tmp_path, text.replace("gpus: 2", "gpus: two")))
    with pytest.raises(SpecError, match=r"s\.yml:2:81: wrong-type: fabric\.gpus: must be a whole number, not 'two'"):
        file.load_lab(file.scenario)


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.yml")), ids=lambda path: path.name)
def test_shipped_scenarios_load(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.expect, "a shipped scenario claims something"
    assert scenario.topology.inline or Path(scenario.topology.file).is_file()


TEXT = """name: traced
topology: {inline: {name: pod, fabric: {design: rail-only}}, set: {fabric.hosts: 2}}
workload:
  kind: tenants
  tenants:
    - {name: a, start: 1ms, workload: {kind: trace, file: secret/place/a.cm, unbounded_bytes: 1MB}}
    - {ranks: [2, 3], workload: {kind: all-reduce, bytes: 2bdp}}
"""


def test_files_are_named_without_their_place() -> None:
    written = scenario_as_run(load_scenario_text(TEXT, file="/home/somebody/s.yml").scenario)
    assert written.workload["tenants"] == [
        {"name": "a", "start": "1 ms", "workload": {"kind": "trace", "file": "a.cm", "unbounded_bytes": "1 MB"}},
        {"ranks": [2, 3], "workload": {"kind": "all-reduce", "bytes": "2bdp"}},
    ]
    assert written.topology == {
        "inline": {"name": "pod", "fabric": {"design": "rail-only"}},
        "set": {"fabric.hosts": 2},
    }
    kept = json.dumps([written.topology, written.workload, written.source])
    assert "secret" not in kept and "somebody" not in kept


def test_a_topology_file_is_named_without_its_place() -> None:
    text = "name: x\ntopology: {file: a/b/pod.yml}\nworkload: {kind: trace, file: c/d.txt, format: hpcc}\n"
    written = scenario_as_run(load_scenario_text(text, file="s.yml").scenario)
    assert written.topology == {"file": "pod.yml", "set": {}}
    assert written.workload["file"] == "d.txt"


def test_a_topology_that_is_not_there_is_the_one_that_is_called_alike(tmp_path: Path) -> None:
    for name in ("topologies/demo.yml", "scenarios/sc.yml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(
            "name: sc\ntopology: {file: ../topologies/dmo.yml}\ntransport: {kind: tcp}\n"
            "workload: {kind: incast, bytes: 1MB}\n"
        )
    file = read_scenario(tmp_path / "scenarios/sc.yml")
    with pytest.raises(SpecError) as caught:
        file.load_lab(file.scenario, None)
    [problem] = caught.value.problems
    assert (problem.code, problem.path) == ("unreadable", "topology.file")
    assert problem.position is not None and problem.position.line == 2
    assert problem.hint == "did you mean ../topologies/demo.yml? it is a path relative to this file"
