"""The file that a lab is to become, and why each thing of it changes: read and explained without a lab that runs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_lab import record_lab

from testbed.api import Changes
from testbed.api.changes import changes_to, read_target
from testbed.base.errors import LabNotFound, PlanError, SpecError
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.changes import Allow, Effect

TEXT = """\
name: one
scale: {time: 5000}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 2
  gpus: 2
  spines: 1
  nic: {per: gpu, ports: 1, rate: 400G}
  routing: {bfd: false}
qos:
  preset: uec
  classes:
    bulk: {weight: 40}
    rdma: {weight: 60}
"""


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state", tmp_path / "run")


@pytest.fixture
def file(tmp_path: Path, state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a lab that is recorded as it says; the working directory is another one."""
    path = tmp_path / "one.yml"
    path.write_text(TEXT)
    record_lab(state, path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return path


Differ = Callable[..., Changes]


@pytest.fixture
def differ(state: StateDirectory, file: Path) -> Differ:
    """Returns what differs once the file has the text with some of it replaced."""

    def differ(*replaced: tuple[str, str], **overrides: object) -> Changes:
        text = TEXT
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)
        return changes_to(read_target(None, state=state, overrides=overrides), state)

    return differ


def test_without_a_file_it_is_the_one_that_the_lab_came_from(state: StateDirectory, file: Path) -> None:
    file.write_text(TEXT.replace("hosts: 2", "hosts: 3"))
    for name in (None, "one"):
        lab = read_target(None, name=name, state=state)
        assert (lab.name, len(lab.hosts), lab.source) == ("one", 3, str(file))
    assert len(read_target(None, state=state, overrides={"fabric.hosts": 5}).hosts) == 5


def test_settings_of_the_deploy_hold_until_a_file_is_named(state: StateDirectory, tmp_path: Path) -> None:
    path = tmp_path / "two.yml"
    path.write_text(TEXT)
    record_lab(state, path, {"name": "two", "fabric.hosts": 4})
    assert len(read_target(None, name="two", state=state).hosts) == 4
    assert len(read_target(None, name="two", state=state, overrides={"fabric.gpus": 1}).hosts) == 4
    assert len(read_target(path, name="two", state=state).hosts) == 2
    assert read_target(path, name="two", state=state).name == "two", "it was deployed by this name from this file"


def test_with_nothing_deployed_it_is_the_only_file_here(
    state: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(SpecError, match="there is no topology file here"):
        read_target(None, state=state)
    Path("lab.yml").write_text(TEXT)
    assert read_target(None, state=state).name == "one"


def test_of_several_labs_one_must_be_named(state: StateDirectory, file: Path) -> None:
    record_lab(state, file, {"name": "other"})
    with pytest.raises(LabNotFound, match="several labs are deployed: one, other") as refused:
        read_target(None, state=state)
    assert refused.value.hint and "-n NAME" in refused.value.hint


def test_a_name_that_is_misspelt_is_answered_with_its_like(state: StateDirectory, file: Path) -> None:
    with pytest.raises(LabNotFound) as refused:
        read_target(None, name="onw", state=state)
    assert refused.value.hint == "did you mean one?"


def test_a_file_of_another_labs_name_is_refused(state: StateDirectory, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yml"
    other.write_text(TEXT.replace("name: one", "name: other"))
    with pytest.raises(ChangeRefused, match="describes the lab other, and one came from") as refused:
        read_target(other, name="one", state=state)
    assert refused.value.hint and "--set name=one" in refused.value.hint
    assert read_target(other, name="one", state=state, overrides={"name": "one"}).name == "one"
    assert read_target(other, state=state).name == "other", "which is another lab, and not up yet"


def test_a_lab_that_is_up_keeps_its_name(state: StateDirectory, file: Path) -> None:
    file.write_text(TEXT.replace("name: one", "name: renamed"))
    for topology, name in ((None, None), (None, "one"), (file, None)):
        with pytest.raises(ChangeRefused, match="a lab that is up keeps its name"):
            read_target(topology, name=name, state=state)
    assert read_target(file, state=state, overrides={"name": "one"}).name == "one"


def test_a_lab_that_came_from_no_file_needs_one(state: StateDirectory, file: Path) -> None:
    record = state.read("one")
    assert record.written is not None
    state.write(replace(record, source="<stdin>", written={**record.written, "file": ""}))
    with pytest.raises(LabNotFound, match="came from <stdin>") as refused:
        read_target(None, state=state)
    assert refused.value.hint == "name the file with -t FILE"


def test_the_record_of_an_earlier_version_has_the_path_alone(state: StateDirectory, file: Path) -> None:
    state.write(replace(state.read("one"), source="one.yml", written=None))
    assert read_target(None, state=state).name == "one"


def test_text_of_standard_input(state: StateDirectory, file: Path) -> None:
    lab = read_target("<stdin>", state=state, text=TEXT.replace("hosts: 2", "hosts: 3"))
    (key,) = changes_to(lab, state).keys
    assert str(key) == "fabric.hosts: 2 -> 3 (<stdin>)"


def test_nothing_differs_of_what_it_came_from(differ: Differ) -> None:
    changes = differ()
    assert not changes and changes.rows == () and changes.keys == ()
    assert changes.to_json()["changes"] == []


def test_one_key_is_the_reason_of_all(differ: Differ, file: Path) -> None:
    changes = differ(("hosts: 2", "hosts: 3"))
    assert changes and {row.reason for row in changes.rows} == {f"fabric.hosts: 2 -> 3 ({file}:6)"}
    assert "host p1-s1-h3" in {row.what for row in changes.rows}


def test_each_row_has_the_keys_that_bring_it_about(differ: Differ, file: Path) -> None:
    changes = differ(("hosts: 2", "hosts: 3"), ("rate: 400G}", "rate: 200G}"))
    hosts, rate = f"fabric.hosts: 2 -> 3 ({file}:6)", f"fabric.nic.rate: 400G -> 200G ({file}:9)"
    by_what = {row.what: row.reason for row in changes.rows if row.kind != "bgpd"}
    assert by_what["host p1-s1-h3"] == hosts
    assert by_what["port p1-s1-h1:rail1"] == rate
    assert {reason for what, reason in by_what.items() if what.startswith("link")} == {hosts}


def test_what_a_switch_is_told_is_no_reason_of_what_its_ports_are_set_to(differ: Differ) -> None:
    changes = differ(("  preset: uec\n", "  preset: uec\n  buffer: {alpha: 0.25}\n  load_balancing: {mode: flowlet}\n"))
    groups = {group.what.split()[-1]: group for group in changes.groups}
    assert "alpha" in groups["ports"].detail and "load_balancing" not in groups["ports"].reason
    assert "qos.buffer" in groups["ports"].reason
    assert "load_balancing" in groups["buffers"].reason and "qos.buffer" not in groups["buffers"].reason


def test_keys_that_are_nothing_alone_are_the_reason_together(differ: Differ) -> None:
    changes = differ(("weight: 40", "weight: 30"), ("weight: 60", "weight: 70"), ("hosts: 2", "hosts: 3"))
    assert next(row.reason for row in changes.rows if row.kind == "host").startswith("fabric.hosts")
    ports = {row.reason for row in changes.rows if row.what == "port p1-s1-h1:rail1"}
    (reason,) = ports
    assert "qos.classes.bulk.weight: 40 -> 30" in reason and "qos.classes.rdma.weight: 60 -> 70" in reason
    assert "fabric.hosts" not in reason


def test_a_setting_is_a_reason_without_a_line(differ: Differ) -> None:
    changes = differ(**{"fabric.hosts": 3})
    assert {row.reason for row in changes.rows} == {"fabric.hosts: 2 -> 3 (--set)"}


def test_another_time_scale_is_told(differ: Differ) -> None:
    changes = differ(("time: 5000", "time: 2500"))
    scale = next(row for row in changes.rows if row.what == "time scale")
    assert (scale.effect, scale.detail) == (Effect.CHANGED, "k 5000 -> 2500")
    ports = [group for group in changes.groups if "port" in group.what]
    assert len(ports) <= 6 and sum(group.things for group in ports) == 12


def test_qos_that_is_gone_costs_what_waits_in_queues(differ: Differ, file: Path) -> None:
    changes = differ((TEXT[TEXT.index("qos:") :], ""))
    assert not changes.needs
    ports = [row for row in changes.rows if row.kind == "port"]
    assert len(ports) == 12 and {row.effect for row in changes.rows} >= {Effect.REMADE}
    for row in ports:
        assert (row.effect, row.detail) == (Effect.REMADE, "one queue in place of those of QoS")
        assert (row.at_stake, row.reason) == ("what waits in its queues", f"qos is gone ({file})")


def test_what_makes_a_node_anew_needs_to_be_allowed(differ: Differ, file: Path) -> None:
    changes = differ(("qos:", "topology: {nodes: {p1-s1-rail1: {runtime: docker}}}\nqos:"))
    assert changes.needs == {Allow.RECREATE}
    row = next(row for row in changes.rows if row.allow)
    assert (row.effect, row.what, row.allow) == (Effect.REMADE, "node p1-s1-rail1", Allow.RECREATE)
    assert "testbed/switch" in row.detail and "sessions" in row.at_stake and "topology" in row.reason


def test_another_link_layer_comes_in_the_place_of_the_first(differ: Differ, file: Path) -> None:
    changes = differ((TEXT[TEXT.index("qos:") :], ""), ("  routing: {bfd: false}", "  link_layer: infiniband"))
    assert not changes.needs
    things = {(str(row.effect), row.what) for row in changes.rows}
    assert {("made", "subnet"), ("removed", "rail switch p1-s1-rail1")} <= things
    assert not any(row.what.startswith("host ") and not row.part_of for row in changes.rows), "hosts stay"


def test_a_link_more_is_no_change_of_ports_elsewhere(differ: Differ) -> None:
    """The paths of a rail switch upwards are more then, which matters to switches that pin destinations alone."""
    links = "topology: {links: [{endpoints: [p1-s1-rail1:more1, p1-spine1:more1], rate: 400G}]}\n"
    rows = [row for row in differ(("qos:", f"{links}qos:")).rows if not row.part_of]
    assert [row.what for row in rows if row.effect is Effect.MADE and row.kind != "bgpd"] == [
        "link p1-s1-rail1:more1 <-> p1-spine1:more1"
    ]
    assert not [row for row in rows if row.kind == "port"]


def test_an_error_of_the_plan_has_its_place(differ: Differ) -> None:
    with pytest.raises((SpecError, PlanError), match="buffer-too-small") as refused:
        differ(("  preset: uec\n", "  preset: uec\n  buffer: {shared: 10kB}\n"))
    assert "one.yml:13" in str(refused.value)


def test_programs_are_told_all(differ: Differ, file: Path) -> None:
    document = json.loads(json.dumps(differ(("hosts: 2", "hosts: 3")).to_json()))
    assert (document["lab"], document["source"], document["deployed"]) == ("one", str(file), True)
    assert document["counts"]["made"] == 3, "a host and its two links"
    assert document["keys"] == [
        {"key": "fabric.hosts", "old": "2", "new": "3", "file": str(file), "line": 6, "column": 3}
    ]
    assert {"effect", "node", "what", "kind", "detail", "reason", "at_stake", "allow", "part_of"} == set(
        document["changes"][0]
    )
