"""What a change of a subnet has done to its programs: each is compared by what it is started from."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.model import InfinibandFabric, Lab
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.infiniband import change as module
from testbed.lab.features.infiniband.change import (
    CUT_NAME,
    STEP,
    Managing,
    SubnetChange,
    SubnetDifference,
    subnet_change,
)
from testbed.lab.features.infiniband.configuration import network_text, plan_subnet
from testbed.lab.features.infiniband.live import plane_directory

TEXT = """name: lab
fabric:
  design: rail-optimized
  segments: 2
  hosts: {hosts}
  gpus: 1
  spines: {spines}
  nic: {{per: gpu, ports: 1, rate: {rate}}}
  link_layer: infiniband
  infiniband: {infiniband}
"""


def model(infiniband: str = "{}", *, hosts: int = 1, spines: int = 1, rate: str = "400G") -> Lab:
    return load_topology_text(TEXT.format(infiniband=infiniband, hosts=hosts, spines=spines, rate=rate), file="lab.yml")


def fabric(*arguments: Any, **more: Any) -> InfinibandFabric:
    found = model(*arguments, **more).infiniband
    assert found is not None
    return found


def difference(
    old: InfinibandFabric | None, new: InfinibandFabric | None, old_k: float = 1.0, new_k: float = 1.0
) -> SubnetDifference:
    return SubnetDifference(old=old, new=new, old_k=old_k, new_k=new_k)


def rows(found: SubnetDifference, open_hcas: int = 0) -> list[tuple[str, str, str]]:
    return [(str(row.effect), row.what, row.detail) for row in found.rows(open_hcas)]


RED = "{partitions: {red: [p1-s1-h1, p1-s2-h1]}}"
LANES = "{vls: 2, sl2vl: {0: 0, 1: 1}}"


@pytest.mark.parametrize(
    ("before", "after", "managing", "detail"),
    [
        ("{}", RED, Managing.TOLD, "partitions"),
        (RED, "{}", Managing.TOLD, "partitions"),
        ("{}", "{sm: {sweep: 5s}}", Managing.TOLD, "sweep 10 s -> 5 s"),
        ("{}", "{routing: [updn]}", Managing.STARTED_ANEW, "routing ftree, updn -> updn"),
        (
            "{sm: {nodes: [p1-s1-h1]}}",
            "{sm: {nodes: [p1-s2-h1, p1-s1-h1]}}",
            Managing.STARTED_ANEW,
            "hosts with managers p1-s1-h1 -> p1-s2-h1, p1-s1-h1",
        ),
        ("{}", LANES, Managing.TOLD, "virtual lanes 1 -> 2, lanes of service levels, VL arbitration"),
        (LANES, "{}", Managing.TOLD, "virtual lanes 2 -> 1, lanes of service levels, VL arbitration"),
        (LANES, "{vls: 2, sl2vl: {0: 1, 1: 0}}", Managing.TOLD, "lanes of service levels"),
    ],
)
def test_managers_are_told_what_they_read_anew_and_started_anew_for_the_rest(
    before: str, after: str, managing: Managing, detail: str
) -> None:
    found = difference(fabric(before), fabric(after))
    assert found.managing is managing
    first, *_ = found.rows(0)
    effect = Effect.CHANGED if managing is Managing.TOLD else Effect.RESTARTED
    assert (first.effect, first.what, first.detail) == (effect, "subnet managers", detail)
    assert not first.at_stake and not first.allow, "switches keep their tables meanwhile"
    assert found.loses_lanes == (before == LANES and after == "{}")


def test_nue_alone_takes_its_lanes_at_its_start() -> None:
    two, four = (fabric(f"{{routing: [nue], vls: {vls}}}") for vls in (2, 4))
    assert difference(two, four).managing is Managing.STARTED_ANEW


def test_another_network_is_another_subnet_where_that_is_allowed() -> None:
    found = difference(fabric(), fabric("{sm: {sweep: 5s}}", hosts=2))
    assert found.managing is Managing.WITH_SUBNET
    (row,) = found.rows(0)
    assert (row.effect, row.what, row.allow) == (Effect.RESTARTED, "subnet", Allow.RESTART)
    assert row.detail == ("2 HCAs, 3 switches, 4 links -> 4 HCAs, 3 switches, 6 links, sweep 10 s -> 5 s")
    assert "HCAs that programs have open" in row.at_stake


def test_a_subnet_comes_to_a_lab_and_goes() -> None:
    assert rows(difference(None, fabric())) == [("made", "subnet", "2 HCAs, 3 switches, 4 links")]
    assert rows(difference(fabric(), None)) == [("removed", "subnet", "2 HCAs, 3 switches, 4 links")]
    assert not difference(None, fabric()).restarts_wires


def test_wires_begin_again_for_what_they_take_at_their_start_and_cost_who_uses_them() -> None:
    assert rows(difference(fabric(), fabric("{voq: true}"))) == [
        ("restarted", "wires of the subnet", "voq false -> true")
    ]
    faster = difference(fabric(), fabric(rate="800G"))
    (row,) = faster.rows(0)
    assert "rates or delays of its links" in row.detail and not row.allow
    (row,) = faster.rows(3)
    assert row.allow is Allow.RESTART and "3 HCAs that programs have open" in row.at_stake
    slower = difference(fabric(), fabric(), 1.0, 1e6)
    assert [row.what for row in slower.rows(0)] == ["wires of the subnet"]
    assert not difference(fabric(), fabric("{sm: {sweep: 5s}}")).restarts_wires


def test_a_subnet_without_wires_has_none_to_begin_again() -> None:
    large = fabric(hosts=33)
    assert not difference(large, replace(large, settings=replace(large.settings, voq=True))).restarts_wires


def test_words_that_no_program_knows_are_a_change_all_the_same() -> None:
    lab = model()
    described = replace(lab, infiniband=replace(fabric(), rail_subnets=()))
    assert described.infiniband != lab.infiniband
    running = cast(RunningLab, SimpleNamespace(model=lab, plan=SimpleNamespace(k=1.0)))
    found = subnet_change(running, described, cast(Any, SimpleNamespace(k=1.0)))
    assert found is not None and [row.what for row in found.rows] == ["settings of the subnet"]
    assert subnet_change(running, lab, cast(Any, SimpleNamespace(k=1.0))) is None


class Acts:
    """The programs of a subnet, which note what is done to them."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = tmp_path / "run"
        self.directory = plane_directory(self.run)
        self.directory.mkdir(parents=True)
        self.journal = Journal(tmp_path)
        self.journal.nodes({"infiniband": 7})
        self.journal.state(LabState.CHANGING)
        self.pids = {"ibsim": 1, "p1-s1-h1:rail1": 2}
        self.done: list[str] = []
        self.cut: list[int] = []
        self.wires = SimpleNamespace(
            is_running=lambda: True,
            stop=lambda: self.done.append("wires end"),
            set_tables=lambda _: self.done.append("tables"),
        )

        def note(what: str) -> Any:
            return lambda *_, **__: self.done.append(what)

        def start_subnet(plane: Any, plan: Any, fabric: Any, k: float, cut: list[tuple[str, int]]) -> Any:
            assert self.left() == {CUT_NAME}, "nothing else is left of the subnet before"
            self.done.append(f"subnet {cut}")
            return SimpleNamespace(release=lambda: None)

        monkeypatch.setattr(module, "noted_pids", lambda _: self.pids)
        monkeypatch.setattr(module, "kill_all", lambda identities: self.done.append(f"end all of {identities}"))
        monkeypatch.setattr(module, "write_tools", note("tools"))
        monkeypatch.setattr(module, "start_subnet", start_subnet)
        monkeypatch.setattr(module, "start_wires", note("wires"))
        monkeypatch.setattr(module, "start_managers_anew", note("managers anew"))
        monkeypatch.setattr(
            module, "tell_managers", lambda *_, lanes=False: self.done.append(f"told{' of lanes' * lanes}")
        )
        monkeypatch.setattr(module, "wires_of", lambda _: self.wires)
        monkeypatch.setattr(module, "changed_links", lambda *_: self.cut)
        monkeypatch.setattr(module.Simulator, "dump", lambda _: {})
        monkeypatch.setattr(module.SubnetReader, "read", lambda _: None)

    def left(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}

    def carry_out(
        self, old: InfinibandFabric | None, new: InfinibandFabric | None, *, undoes: bool = False
    ) -> list[str]:
        rows: list[ChangeRow] = []
        change = SubnetChange(difference(old, new), rows)
        plan = SimpleNamespace(infiniband=None if new is None else object(), k=1.0)
        changing = SimpleNamespace(
            lab=SimpleNamespace(name="lab"),
            plan=plan,
            run=self.run,
            journal=self.journal,
            undoes=undoes,
            notify=lambda _: None,
        )
        self.done.clear()
        for step in (change.begin, change.created, change.linked, change.routed, change.removed):
            step(cast(Any, changing))
        return list(self.done)


@pytest.fixture
def acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Acts:
    return Acts(tmp_path, monkeypatch)


def test_managers_that_are_told_leave_wires_with_the_new_tables(acts: Acts) -> None:
    assert acts.carry_out(fabric(), fabric(RED)) == ["tools", "told", "tables"]
    assert acts.carry_out(fabric(), fabric("{routing: [updn]}")) == ["tools", "managers anew", "tables"]
    assert acts.carry_out(fabric(), fabric("{voq: true}")) == ["tools", "wires end", "wires"]


def test_lanes_that_become_one_are_written_before_the_manager_leaves_them_alone(acts: Acts) -> None:
    assert acts.carry_out(fabric(LANES), fabric()) == ["tools", "told of lanes", "told", "wires end", "wires"]


def test_a_manager_that_has_ended_is_not_told_but_started(acts: Acts) -> None:
    del acts.pids["p1-s1-h1:rail1"]
    assert acts.carry_out(fabric(), fabric(RED)) == ["tools", "managers anew", "tables"]


def test_a_subnet_that_begins_again_keeps_links_down_and_nothing_else(acts: Acts) -> None:
    old, new = fabric(), fabric(hosts=2)
    (acts.directory / "network").write_text(network_text(plan_subnet(old)))
    (acts.directory / "sm-h1").mkdir()
    acts.cut = [1]
    name = str(old.links[1].a)
    index = [str(link.a) for link in new.links].index(name)
    link = plan_subnet(new).links[index]
    assert acts.carry_out(old, new) == ["end all of {7}", f"subnet {[(link.b, link.b_port)]}"]
    assert not acts.left()


def test_links_that_were_down_are_known_where_a_change_goes_on_that_was_killed(acts: Acts) -> None:
    old, new = fabric(), fabric(hosts=2)
    (acts.directory / CUT_NAME).write_text(json.dumps([str(old.links[0].a)]))
    assert "subnet []" not in acts.carry_out(old, new)
    (acts.directory / "network").write_text(network_text(plan_subnet(new)))  # all was done, and is done again
    acts.cut = [len(new.links) - 1]
    link = plan_subnet(new).links[-1]
    assert acts.carry_out(old, new)[-1] == f"subnet {[(link.b, link.b_port)]}"


def test_the_way_back_leaves_a_subnet_alone_that_was_not_touched(acts: Acts) -> None:
    old, new = fabric(), fabric(hosts=2)
    assert acts.carry_out(new, old, undoes=True) == []
    acts.journal.step(STEP)
    (acts.directory / "network").write_text(network_text(plan_subnet(new)))
    assert acts.carry_out(new, old, undoes=True) == ["end all of {7}", "subnet []"]


def test_a_subnet_that_goes_leaves_no_files(acts: Acts) -> None:
    assert acts.carry_out(fabric(), None) == []
    assert not acts.directory.exists()
