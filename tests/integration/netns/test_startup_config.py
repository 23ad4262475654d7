"""A node's own configuration on real FRR: deployed, shown, changed in place, and refused before anything is touched."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sandbox import Sandbox
from waiting import until

from testbed.base.errors import ConvergenceError, DriverError, PlanError, SpecError
from testbed.base.linux import vty
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.refusal import ChangeRefused, ChangeUndone
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.routing import running_daemons
from testbed.lab.core.deploy.watch.running_config import compare_configuration, read_configuration
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow
from testbed.lab.core.schema.load import load_topology

pytestmark = [pytest.mark.netns, pytest.mark.frr]

LEAF, SPINE = "p1-s1-rail1", "p1-spine1"
TIMERS = "router bgp {{asn}}\n timers bgp 5 15\n"


class Fabric:
    """A small fabric of a sandbox: two leaves below two spines."""

    def __init__(self, sandbox: Any) -> None:
        self.sandbox = sandbox
        self.path: Path = sandbox.work / "x.yml"

    def model(self, routing: str = "{bfd: off}", **nodes: str) -> Lab:
        """What a file says; `nodes` have the values of `startup-config`, with `_` for `-`."""
        said = "".join(f"    {name.replace('_', '-')}: {{startup-config: {value}}}\n" for name, value in nodes.items())
        self.path.write_text(
            f"name: {self.sandbox.name()}\n"
            "fabric: {design: rail-optimized, segments: 2, hosts: 1, gpus: 1, spines: 2, routing: "
            + routing
            + "}\n"
            + (f"topology:\n  nodes:\n{said}" if said else "")
        )
        return load_topology(self.path)

    def deploy(self, routing: str = "{bfd: off}", **nodes: str) -> RunningLab:
        lab: RunningLab = self.sandbox.deploy(self.model(routing, **nodes)).lab
        return lab

    def apply(self, routing: str = "{bfd: off}", *, allow: frozenset[Allow] = frozenset(), **nodes: str) -> RunningLab:
        options = ApplyOptions(timeout_s=90.0, allow=allow)
        apply_lab(self.model(routing, **nodes), self.sandbox.state, options)
        self.sandbox.note_daemons()
        return self.sandbox.running()


@pytest.fixture
def fabric(sandbox: Sandbox) -> Fabric:
    return Fabric(sandbox)


def written(text: str) -> str:
    """Lines as one value of YAML."""
    return f"{{add: {json.dumps(text)}}}"


def runs(lab: RunningLab, node: str, daemon: str = "bgpd") -> list[str]:
    return [line.strip() for line in vty.ask(lab.run_directory(node), daemon, "write terminal").splitlines()]


def uptimes(lab: RunningLab) -> Mapping[tuple[str, str], float]:
    return {(session.node, session.interface): session.uptime_s for session in lab.sessions()}


def as_planned(lab: RunningLab) -> list[str]:
    """The lines of all nodes that differ from what `inspect config` compares with."""
    found = []
    for speaker in lab.plan.speakers:
        running = read_configuration(lab.run_directory(speaker.node), lab.daemons[speaker.node])
        lines, is_known = compare_configuration(lab.processes_directory, speaker.node, running)
        assert is_known
        found += [f"{line.node} {line.daemon} {line.differs}{line.line}" for line in lines if line.differs]
    return found


def require_kept(before: Mapping[tuple[str, str], float], lab: RunningLab) -> None:
    after = uptimes(lab)
    assert {key for key, uptime in before.items() if after[key] < uptime} == set()


def test_lines_are_added_changed_and_taken_away_while_sessions_stay(fabric: Fabric) -> None:
    lab = fabric.deploy(p1_s1_rail1=written(TIMERS))
    assert "timers bgp 5 15" in runs(lab, LEAF)
    assert "timers bgp 5 15" not in runs(lab, SPINE)
    before = uptimes(lab)
    lab = fabric.apply(p1_s1_rail1=written(TIMERS.replace("5 15", "6 18")))
    assert "timers bgp 6 18" in runs(lab, LEAF)
    assert as_planned(lab) == []
    assert "timers bgp 6 18" in (lab.run_directory(LEAF) / "bgpd.conf").read_text()
    lab = fabric.apply()
    assert not any(line.startswith("timers bgp") for line in runs(lab, LEAF))
    assert as_planned(lab) == []
    require_kept(before, lab)


def test_what_a_switch_runs_is_a_whole_configuration(fabric: Fabric) -> None:
    lab = fabric.deploy("{bfd: {interval: 1s}}")
    shown = lab.run(LEAF, ["vtysh", "-c", "show running-config"]).stdout
    assert "router bgp" in shown
    (fabric.path.parent / "leaf.conf").write_text(shown)
    before = uptimes(lab)
    rendered = {daemon: sorted(runs(lab, LEAF, daemon)) for daemon in ("zebra", "bfdd", "bgpd")}
    lab = fabric.apply("{bfd: {interval: 1s}}", p1_s1_rail1="leaf.conf")
    require_kept(before, lab)
    assert {daemon: sorted(runs(lab, LEAF, daemon)) for daemon in rendered} == rendered
    fabric.sandbox.destroy()
    lab = fabric.deploy("{bfd: {interval: 1s}}", p1_s1_rail1="leaf.conf")
    assert {daemon: sorted(runs(lab, LEAF, daemon)) for daemon in rendered} == rendered


def test_a_configuration_that_brings_no_routes_is_told_and_stays_for_inspection(fabric: Fabric) -> None:
    (fabric.path.parent / "leaf.conf").write_text("router bgp 65001\n bgp router-id 192.0.2.1\nexit\n")
    with pytest.raises(ConvergenceError, match="missing"):
        fabric.sandbox.deploy(fabric.model(p1_s1_rail1="leaf.conf"), timeout_s=5.0)
    assert "router bgp 65001" in runs(fabric.sandbox.running(), LEAF)


def test_what_vtysh_does_not_know_touches_nothing(fabric: Fabric) -> None:
    with pytest.raises(PlanError, match="line 2: FRR has no such command here: neighbour fabric weight 10"):
        fabric.deploy(p1_s1_rail1=written("router bgp {{asn}}\n neighbour fabric weight 10\n"))
    assert not fabric.sandbox.state.names()
    lab = fabric.deploy()
    before = as_planned(lab), uptimes(lab)
    (fabric.path.parent / "leaf.conf").write_text("router bgp 65001\n  bgp router-id nonsense\nexit\n")
    with pytest.raises(SpecError, match=r"leaf.conf:2:3: bad-config: topology.nodes.p1-s1-rail1.startup-config"):
        fabric.apply(p1_s1_rail1="leaf.conf")
    assert as_planned(lab) == before[0]
    require_kept(before[1], lab)


def test_what_a_daemon_does_not_take_ends_a_deploy_and_leaves_nothing(fabric: Fabric) -> None:
    wrong = "router bgp {{asn}}\n address-family ipv4 unicast\n  neighbor nobody activate\n"
    with pytest.raises(DriverError, match="neighbor nobody activate"):
        fabric.deploy(p1_s1_rail1=written(wrong))
    assert not fabric.sandbox.state.names()


def test_what_a_daemon_refuses_in_the_midst_of_a_change_undoes_all_of_it(fabric: Fabric) -> None:
    lab = fabric.deploy(p1_s1_rail1=written(TIMERS))
    before, rendered = uptimes(lab), sorted(runs(lab, LEAF))
    wrong = TIMERS.replace("5 15", "6 18") + " address-family ipv4 unicast\n  neighbor nobody activate\n"
    with pytest.raises(ChangeUndone, match="neighbor nobody activate"):
        fabric.apply("{bfd: off, ecmp: 8}", p1_s1_rail1=written(wrong))
    lab = fabric.sandbox.running()
    assert sorted(runs(lab, LEAF)) == rendered
    assert "timers bgp 5 15" in (lab.run_directory(LEAF) / "bgpd.conf").read_text()
    assert as_planned(lab) == []
    require_kept(before, lab)


def test_a_file_that_a_daemon_does_not_take_when_it_starts_anew_undoes_all_of_it(fabric: Fabric) -> None:
    lab = fabric.deploy()
    wrong = "router bgp {{asn}}\n bgp default ipv4-unicast\n address-family ipv4 unicast\n  neighbor nobody activate\n"
    with pytest.raises(ChangeUndone, match="neighbor nobody activate"):
        fabric.apply(p1_s1_rail1=written(wrong), allow=frozenset({Allow.RESTART}))
    fabric.sandbox.note_daemons()
    lab = fabric.sandbox.running()
    assert "no bgp default ipv4-unicast" in runs(lab, LEAF)
    assert {session.state for session in lab.sessions()} == {"Established"}
    assert as_planned(lab) == []


def test_a_line_that_takes_a_start_has_its_node_start_alone(fabric: Fabric) -> None:
    lab = fabric.deploy()
    before = uptimes(lab)
    text = "router bgp {{asn}}\n bgp default ipv4-unicast\n"
    with pytest.raises(ChangeRefused, match="bgp default ipv4-unicast"):
        fabric.apply(p1_s1_rail1=written(text))
    lab = fabric.apply(p1_s1_rail1=written(text), allow=frozenset({Allow.RESTART}))
    after = uptimes(lab)
    reset = {key for key, uptime in before.items() if after[key] < uptime}
    peers = {(session.node, session.interface) for session in lab.sessions() if LEAF in (session.node, session.remote)}
    assert reset <= peers, "sessions of others stay"
    assert as_planned(lab) == []


def test_a_static_route_has_its_daemon_while_it_is_there(fabric: Fabric) -> None:
    lab = fabric.deploy()
    before = uptimes(lab)
    lab = fabric.apply(p1_s1_rail1=written("ip route 198.51.100.0/24 blackhole\n"))
    assert "staticd" in {process.command for process in running_daemons(lab, LEAF)}
    until(lambda: "blackhole 198.51.100.0/24" in lab.run(LEAF, ["ip", "route"]).stdout, "the route of staticd")
    assert as_planned(lab) == []
    lab = fabric.apply()
    assert "staticd" not in {process.command for process in running_daemons(lab, LEAF)}
    assert not (lab.run_directory(LEAF) / "staticd.conf").exists()
    require_kept(before, lab)


def test_bfd_comes_and_goes_while_sessions_stay(fabric: Fabric) -> None:
    lab = fabric.deploy()
    before = uptimes(lab)
    lab = fabric.apply("{bfd: {interval: 300ms}}")
    assert {session.bfd for session in lab.sessions()} == {"up"}
    require_kept(before, lab)
    lab = fabric.apply("{bfd: {interval: 600ms, multiplier: 4}}")
    assert "receive-interval 600" in runs(lab, SPINE, "bfdd")
    require_kept(before, lab)
    lab = fabric.apply()
    assert {process.command for node in (LEAF, SPINE) for process in running_daemons(lab, node)} == {"zebra", "bgpd"}
    assert not (lab.run_directory(LEAF) / "bfdd.conf").exists()
    require_kept(before, lab)
    assert as_planned(lab) == []


@pytest.mark.parametrize("routing", ["{bfd: off, ecmp: 1}", "{bfd: off, ttl_security: true}"])
def test_a_key_of_routing_is_changed_in_place(fabric: Fabric, routing: str) -> None:
    lab = fabric.deploy()
    before = uptimes(lab)
    lab = fabric.apply(routing)
    assert as_planned(lab) == []
    require_kept(before, lab)
    lab = fabric.apply()
    assert as_planned(lab) == []
    require_kept(before, lab)


def test_a_password_comes_and_goes(fabric: Fabric) -> None:
    lab = fabric.deploy()
    lab = fabric.apply("{bfd: off, password: true}")
    assert any(line.startswith("neighbor fabric password") for line in runs(lab, LEAF))
    assert as_planned(lab) == []
    lab = fabric.apply()
    assert not any("password" in line or "strangers" in line for line in runs(lab, LEAF))
    assert as_planned(lab) == []


def test_another_protocol_starts_daemons_anew_where_that_is_allowed(fabric: Fabric) -> None:
    lab = fabric.deploy()
    before = {node: {process.pid for process in running_daemons(lab, node)} for node in (LEAF, SPINE)}
    with pytest.raises(ChangeRefused, match="routing daemons"):
        fabric.apply("{bfd: off, protocol: ibgp}")
    assert before == {node: {process.pid for process in running_daemons(lab, node)} for node in before}
    lab = fabric.apply("{bfd: off, protocol: ibgp}", allow=frozenset({Allow.RESTART}))
    assert all(not pids & {process.pid for process in running_daemons(lab, node)} for node, pids in before.items())
    assert {session.state for session in lab.sessions()} == {"Established"}
    assert as_planned(lab) == []
