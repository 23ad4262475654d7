"""What becomes of routing daemons in a change: told, started beside others, ended, or all of a node started anew."""

import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux.processes import Process
from testbed.lab.core.deploy.changing.carrying import routing
from testbed.lab.core.deploy.changing.carrying.routing import (
    RoutingChanges,
    comes_last,
    require_alive,
    routing_changes,
    tell,
    with_ended_anew,
)
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.telling.rows import routing_rows
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.routing.frr import own_directory, remove_daemon_files, write_configurations
from testbed.lab.core.model import ConfigText, Lab, Node, StartupConfig
from testbed.lab.core.model.containers import Container
from testbed.lab.core.plan.changes import Allow, Effect
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text

LEAF = "p1-s1-rail1"


@dataclass
class Running:
    """As much of a running lab as routing is changed by."""

    model: Lab
    directory: Path

    @property
    def identities(self) -> dict[str, int]:
        return {node.name: number for number, node in enumerate(self.model.nodes, 1)}

    @property
    def processes_directory(self) -> Path:
        return self.directory

    @property
    def state_directory(self) -> Path:
        return self.directory

    def frr_version(self, node: str) -> str:
        return self.configured_frr(node)

    def configured_frr(self, node: str) -> str:
        return "8.4.4"

    def node(self, name: str) -> Node:
        return self.model.node(name)


def lab(routing: str = "{bfd: off}", more: str = "", **own: str) -> Lab:
    """A small fabric; `own` are lines that nodes have beside what is rendered, with `_` for `-` in their names."""
    text = (
        f"name: x\nfabric: {{design: rail-optimized, segments: 1, hosts: 1, gpus: 1, spines: 2, routing: {routing}}}\n"
    )
    found = load_topology_text(text + more, file="x.yml")
    told = {
        name.replace("_", "-"): StartupConfig(added=(ConfigText(text=one, place=name),)) for name, one in own.items()
    }
    return replace(found, nodes=tuple(replace(node, startup=told.get(node.name)) for node in found.nodes))


def changes(directory: Path, old: Lab, new: Lab) -> RoutingChanges:
    running = cast(RunningLab, Running(model=old, directory=directory))
    return routing_changes(running, plan_lab(old, k=1000), plan_lab(new, k=1000), new)


@pytest.fixture(autouse=True)
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """vtysh is not asked here."""
    monkeypatch.setattr(routing, "require_configurations", lambda *_: None)


def test_nothing_is_done_to_daemons_that_stay_as_they_are(tmp_path: Path) -> None:
    found = changes(tmp_path, lab(), lab())
    assert not found
    assert len(found) == 0


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        ("{bfd: off, ecmp: 8}", ["maximum-paths 8"]),
        ("{bfd: off, ttl_security: true}", ["neighbor fabric ttl-security hops 1"]),
    ],
)
def test_a_value_is_told_and_files_follow(tmp_path: Path, new: str, lines: list[str]) -> None:
    found = changes(tmp_path, lab(), lab(new))
    assert set(found) == {LEAF, "p1-spine1", "p1-spine2"}
    assert [line for line in found[LEAF]["bgpd"] if line in lines] == lines
    assert {node.node for node in found.nodes} == set(found)
    assert all(not (node.started or node.ended or node.anew) for node in found.nodes)
    assert lines[0] in found.nodes[0].config.daemons["bgpd"]
    assert list(found.rows()) == []


class RunningNewer(Running):
    """One whose zebra makes groups of next hops."""

    def configured_frr(self, node: str) -> str:
        return "10.3"


class CutShort(Running):
    """A change that has not made its containers yet."""

    def frr_version(self, node: str) -> str:
        return "" if self.model.node(node).container else super().frr_version(node)


def test_where_a_switch_is_to_see_next_hops_zebra_is_started_anew(tmp_path: Path) -> None:
    hashed, adaptive = (
        lab(more=f"qos: {{preset: uec, load_balancing: {{mode: {mode}}}}}\n") for mode in ("flow", "adaptive")
    )
    plans = plan_lab(hashed, k=1000), plan_lab(adaptive, k=1000)
    running = cast(RunningLab, RunningNewer(model=hashed, directory=tmp_path))
    found = routing_changes(running, *plans, adaptive)
    assert len(found.nodes) == 3 and {node.anew for node in found.nodes} == {("no zebra nexthop kernel enable",)}
    back = routing_changes(running, *plans[::-1], hashed)
    assert not any(node.anew for node in back.nodes)
    older = changes(tmp_path, hashed, adaptive)
    assert not any(node.anew for node in older.nodes), "its routes have no groups in any case"


def test_bfd_is_a_daemon_more_and_one_less(tmp_path: Path) -> None:
    watched = "{bfd: {interval: 300ms}}"
    on, off = changes(tmp_path, lab(), lab(watched)), changes(tmp_path, lab(watched), lab())
    assert {node.started for node in on.nodes} == {("bfdd",)} == {node.ended for node in off.nodes}
    assert "neighbor fabric bfd" in on[LEAF]["bgpd"]
    assert "no neighbor fabric bfd" in off[LEAF]["bgpd"]
    assert "bfdd" not in on[LEAF], "it reads its file when it starts"
    assert {(row.effect, row.kind, row.allow) for row in on.rows()} == {(Effect.MADE, "bfdd", "")}
    assert {(row.effect, row.kind, row.allow) for row in off.rows()} == {(Effect.REMOVED, "bfdd", "")}


def test_another_interval_of_bfd_is_told(tmp_path: Path) -> None:
    found = changes(tmp_path, lab("{bfd: {interval: 300ms}}"), lab("{bfd: {interval: 1s}}"))
    assert found[LEAF] == {
        "bfdd": ["bfd", "profile fabric", "receive-interval 1000", "transmit-interval 1000", "exit", "exit"]
    }


def test_another_as_number_starts_the_daemons_of_a_node_anew_where_that_is_allowed(tmp_path: Path) -> None:
    found = changes(tmp_path, lab(), lab("{bfd: off, protocol: ibgp}"))
    assert not found.commands
    rows = list(found.rows())
    assert {row.node for row in rows} == {LEAF, "p1-spine1", "p1-spine2"}
    assert all(row.effect is Effect.RESTARTED and row.allow is Allow.RESTART for row in rows)
    leaf = next(row for row in rows if row.node == LEAF)
    assert leaf.at_stake.startswith("2 BGP sessions")
    assert "router bgp" in leaf.detail


def test_lines_that_a_user_adds_are_told(tmp_path: Path) -> None:
    found = changes(tmp_path, lab(), lab(p1_s1_rail1="router bgp {{asn}}\n timers bgp 5 15\n"))
    assert set(found) == {LEAF}
    assert found[LEAF]["bgpd"][1:] == ["timers bgp 5 15", "exit"]


def test_a_line_taken_away_leaves_the_value_that_was_rendered_before_it(tmp_path: Path) -> None:
    own = "router bgp {{asn}}\n neighbor fabric timers 10 30\n"
    found = changes(tmp_path, lab(p1_s1_rail1=own), lab())
    assert found[LEAF]["bgpd"][1:] == ["neighbor fabric timers 3 9", "exit"]


def test_a_line_that_counts_when_neighbours_are_made_takes_a_start(tmp_path: Path) -> None:
    found = changes(tmp_path, lab(), lab(p1_s1_rail1="router bgp {{asn}}\n bgp default ipv4-unicast\n"))
    assert not found.commands
    assert [node.anew for node in found.nodes] == [("no bgp default ipv4-unicast", "bgp default ipv4-unicast")]


def test_a_static_route_has_its_daemon(tmp_path: Path) -> None:
    found = changes(tmp_path, lab(), lab(p1_s1_rail1="ip route 198.51.100.0/24 blackhole\n"))
    assert [(node.node, node.started) for node in found.nodes] == [(LEAF, ("staticd",))]


def test_the_daemons_of_a_container_are_told_and_not_started(tmp_path: Path) -> None:
    contained = "topology: {kinds: {switch: {runtime: docker}}}\n"
    before = lab(more=contained)
    assert changes(tmp_path, before, lab("{bfd: off, ecmp: 8}", contained))
    with pytest.raises(ChangeRefused, match="is a container"):
        changes(tmp_path, before, lab("{bfd: {interval: 300ms}}", contained))


def test_a_password_is_told_to_all_and_shown_to_nobody(tmp_path: Path) -> None:
    found = changes(tmp_path, lab(), lab("{bfd: off, password: true}"))
    secret = (tmp_path / "bgp-password").read_text()
    assert f"neighbor fabric password {secret}" in found[LEAF]["bgpd"]
    assert all(secret not in row.what + row.detail for row in found.rows())


def test_what_is_refused_while_an_interface_is_there_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(routing.vty, "configure", lambda _, daemon, lines, **__: told.append((daemon, lines)))
    commands = {"a": {"zebra": ["interface b", "description c", "exit", "no interface d", "no vrf e"]}}
    tell(commands, tmp_path, lambda command: not comes_last(command))
    tell(commands, tmp_path, comes_last)
    assert told == [
        ("zebra", ["interface b", "description c", "exit"]),
        ("zebra", ["no interface d"]),
        ("zebra", ["no vrf e"]),
    ]


def test_files_follow_with_their_owners_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    (tmp_path / "bgpd.conf").write_text("old")
    (tmp_path / "bgpd.conf").chmod(0o600)
    own_directory(tmp_path).mkdir()
    write_configurations(tmp_path, {"bgpd": "new", "bfdd": "more", "mgmtd": "interfaces"}, "all")
    assert {path.name: path.read_text() for path in tmp_path.glob("*.conf")} == {
        "bgpd.conf": "new",
        "bfdd.conf": "more",
        "frr.conf": "all",
    }
    assert (own_directory(tmp_path) / "mgmtd.conf").read_text() == "interfaces"
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*.conf")} == {0o600}
    inode = (tmp_path / "bgpd.conf").stat().st_ino
    write_configurations(tmp_path, {"bgpd": "new"}, "all")
    assert (tmp_path / "bgpd.conf").stat().st_ino == inode, "what is right stays"
    remove_daemon_files(tmp_path, ["bfdd"])
    assert not (tmp_path / "bfdd.conf").exists()


def test_a_file_that_says_something_else_is_the_reason_of_what_is_told(tmp_path: Path) -> None:
    def told(timers: str) -> Lab:
        text = ConfigText(text=f"router bgp {{{{asn}}}}\n timers bgp {timers}\n", place="p", file="configs/leaf.conf")
        found = lab()
        own = StartupConfig(added=(text,))
        return replace(found, nodes=tuple(replace(n, startup=own if n.name == LEAF else None) for n in found.nodes))

    old, new = told("5 15"), told("6 18")
    found = changes(tmp_path, old, new)
    [row] = routing_rows(found, plan_lab(old, k=1000), plan_lab(new, k=1000))
    assert (row.detail, row.reason) == ("timers bgp 6 18", "configs/leaf.conf")
    other = lab("{bfd: off, ecmp: 8}")
    assert {row.reason for row in routing_rows(found, plan_lab(old, k=1000), plan_lab(other, k=1000))} == {""}


def test_a_daemon_that_ended_when_it_was_told_is_named_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / LEAF).mkdir()
    (tmp_path / LEAF / "bgpd.out").write_text("Received signal 11\n")
    commands = {LEAF: {"bgpd": ["router bgp 65001"]}}
    with pytest.raises(DriverError, match=f"bgpd of {LEAF} ended when it was told of the change: Received signal 11"):
        tell(commands, tmp_path, lambda _: True)
    with pytest.raises(DriverError, match="ended when it was told"):
        require_alive(commands, tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / LEAF / "bgpd.vty"))
        listening.listen()
        require_alive(commands, tmp_path)


def test_daemons_one_of_which_has_ended_are_started_anew_on_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = lab(), lab(routing="{bfd: off, ecmp: 8}")
    found = changes(tmp_path, old, new)
    running = Running(model=old, directory=tmp_path)
    numbers = running.identities
    there = [Process(pid=1, identity=numbers[node], command="bgpd") for node in found if node != LEAF]
    monkeypatch.setattr(routing, "processes_in", lambda _: there)
    anew = with_ended_anew(cast(RunningLab, running), found)
    assert LEAF in found and LEAF not in anew and set(anew) == set(found) - {LEAF}
    assert [node.node for node in anew.nodes if node.anew] == [LEAF]
    there.append(Process(pid=2, identity=numbers[LEAF], command="bgpd"))
    assert with_ended_anew(cast(RunningLab, running), found) is found


def test_routing_is_waited_for_last_only_where_a_container_that_is_made_anew_has_other_daemons(tmp_path: Path) -> None:
    def contained(routing: str, image: str) -> Lab:
        found, container = lab(routing), Container(image=image, runtime="docker")
        return replace(
            found,
            nodes=tuple(replace(node, container=container) if node.name == LEAF else node for node in found.nodes),
        )

    bfd = "{bfd: {interval: 1s, multiplier: 3}}"
    assert not changes(tmp_path, lab(), lab(bfd)).is_later, "daemons of this machine come and go at once"
    with pytest.raises(ChangeRefused, match="is a container"):
        changes(tmp_path, contained("{bfd: off}", "a"), contained(bfd, "a"))
    for wanted in (contained(bfd, "b"), lab(bfd)):
        found = changes(tmp_path, contained("{bfd: off}", "a"), wanted)
        assert found.is_later and LEAF not in found and LEAF not in {node.node for node in found.nodes}
    begun, before = contained("{bfd: off}", "a"), lab(bfd)
    plans = plan_lab(begun, k=1000), plan_lab(before, k=1000)
    back = routing_changes(cast(RunningLab, CutShort(model=begun, directory=tmp_path)), *plans, before)
    assert not back.is_later, "it is the switch that it was, whose bfdd was to end and is to go on"
    assert [node.started for node in back.nodes if node.node == LEAF] == [("bfdd",)]
