"""Tenants, guards, policies and link groups of a lab that is up: changed where they are, isolated before, while and
after, and nothing lost of what a change is not about."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from outages import Flows, running
from sandbox import Sandbox
from waiting import until

from testbed.base.linux import vty
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.linux.processes import has_ended, processes_in
from testbed.base.names import namespace_name
from testbed.daemons.keeper.configuration import PROCESS_NAME
from testbed.daemons.lag.configuration import PROCESS_NAME as LAG
from testbed.lab.checks.isolation.check import IsolationReport, check_isolation
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.differences import changes_of
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import LabState
from testbed.lab.core.deploy.steps import StepEvent
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.model import Guard
from testbed.lab.core.plan.changes import Allow, Effect
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.guards.watch import guard_counters
from testbed.lab.features.mlag.apply import missing_members, read_link_groups
from testbed.lab.features.overlay.watch import read_missing

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGY = """
name: {name}
scale: {{time: 10000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 6
  gpus: 2
  spines: 2
  nic: {{rate: 400G}}
  guards: {guards}
  overlay: {{evpn: {{vrf_by: namespace}}}}
tenants:
  blue:
    vni: 60
    {blue}
    subnets: {{web: {{vni: 600, prefix: 10.201.0.0/24, nics: ["p1-s1-h4:rail1", "p1-s1-h5:rail2"]}}}}
{tenants}
"""
RED = """
  red:
    vni: 70
    {more}
    subnets:
      web: {{vni: 700, prefix: 10.201.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"{nics}]}}
"""
OUTSIDE = "external: {leaf: p1-s1-rail1, asn: 64999, prefixes: [198.51.100.0/24], rate: 100G}"
GREEN = """
  green:
    vni: 80
    subnets: {all: {vni: 800, prefix: 10.210.0.0/24, nics: ["p1-s1-h6:rail1", "p1-s1-h3:rail2"]}}
"""
BLUE = ("p1-s1-h4", "10.201.0.2"), ("p1-s1-h5", "10.201.0.3")
"""Two hosts of a tenant that no change is about, on two leaves."""
LEAVES = ("p1-s1-rail1", "p1-s1-rail2")


def text_of(sandbox: Any, *, tenants: str = "", blue: str = "", guards: str = "on") -> str:
    return TOPOLOGY.format(name=sandbox.name(), tenants=tenants, blue=blue, guards=guards)


def red(*, more: str = "", nics: str = "") -> str:
    return RED.format(more=more, nics=nics)


def apply(sandbox: Any, text: str) -> RunningLab:
    """Bring the lab that is up to what a text says; a second time there is nothing to do."""
    model = load_topology_text(text, file="tenants.yml")
    apply_lab(model, sandbox.state, ApplyOptions())
    sandbox.note_daemons()
    lab = sandbox.running()
    assert not changes_of(lab, model).rows
    return lab


@pytest.fixture(scope="module")
def shared(shared_sandbox: Sandbox) -> Any:
    shared_sandbox.deploy(load_topology_text(text_of(shared_sandbox), file="tenants.yml"))
    return shared_sandbox


@contextmanager
def undisturbed(sandbox: Any, *pairs: tuple[tuple[str, str], tuple[str, str]]) -> Iterator[None]:
    """Flows between hosts that a change is not about lose nothing, and no session of the underlay is another one."""
    lab = sandbox.running()
    both_ways = [pair for one in pairs or (BLUE,) for pair in (one, one[::-1])]
    before = {(one.node, one.interface): one.uptime_s for one in lab.sessions()}
    with running(lab, both_ways) as flows:
        yield
        flows.stop()
        lost = [lost_by(flow) for flow in flows.flows]
    assert lost == [0] * len(lost), f"lost of each flow: {lost}"
    sessions = sandbox.running().sessions()
    after = {(one.node, one.interface): one.uptime_s for one in sessions}
    reset = [key for key, uptime_s in before.items() if key in after and after[key] < uptime_s]
    assert not reset, f"sessions that began anew: {reset}"


def lost_by(flow: Flows) -> int:
    """The datagrams that were sent and did not arrive, but for the last ones, which may be under way."""
    return sum(len(set(range(max(arrived) + 1)) - arrived) for arrived in flow.arrived)


def rail_address(lab: RunningLab, node: str) -> str:
    """The address of a host's first NIC."""
    nic = next(host.nics[0] for host in lab.plan.hosts if host.node == node)
    return str(nic.address.ip)


def pings(lab: RunningLab, node: str, target: str) -> bool:
    return lab.run(node, ["ping", "-c", "2", "-i", "0.2", "-W", "1", target]).returncode == 0


def vrfs_of(lab: RunningLab, switch: str) -> set[str]:
    """The VRFs that zebra of a switch has."""
    lines = vty.ask(lab.run_directory(switch), "zebra", "show vrf").splitlines()
    return {line.split()[1] for line in lines if line.startswith("vrf ") and " id " in line}


def keepers(lab: RunningLab) -> list[int]:
    assert lab.plan.overlay is not None
    places = {lab.identities[vrf.place] for vrf in lab.plan.overlay.vrfs}
    return [process.pid for process in processes_in(places) if process.command == PROCESS_NAME]


def assert_isolated(lab: RunningLab) -> IsolationReport:
    assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}
    report = check_isolation(lab)
    assert report.exit_code == 0, [result for result in report.results if result.status is not CheckStatus.PASS]
    assert not [attack for attack in report.attacks if attack.succeeded]
    return report


def test_a_tenant_comes_and_goes_and_comes_again(shared: Any) -> None:
    """Its VRFs are namespaces, which no daemon holds when they are gone: their VNIs can be had once more."""
    before = assert_isolated(shared.running())
    with undisturbed(shared):
        for _ in range(2):
            lab = apply(shared, text_of(shared, tenants=red()))
            assert not any(read_missing(lab.plan).values())
            assert all(vrfs_of(lab, leaf) == {"blue", "red"} for leaf in LEAVES)
            assert pings(lab, "p1-s1-h1", "10.201.0.3") and pings(lab, "p1-s1-h1", "fd00:1::3")
            assert len(keepers(lab)) == 1
            lab = apply(shared, text_of(shared))
            assert all(vrfs_of(lab, leaf) == {"blue"} for leaf in LEAVES)
            assert not [leaf for leaf in LEAVES if (NETNS_DIRECTORY / namespace_name(lab.name, f"{leaf}-red")).exists()]
            assert pings(lab, "p1-s1-h1", rail_address(lab, "p1-s1-h3")), "its NICs are on their rails again"
    after = assert_isolated(lab)
    assert [(one.attack, one.ports, one.stopped) for one in after.attacks] == [
        (one.attack, one.ports, one.stopped) for one in before.attacks
    ]


@pytest.mark.thorough
def test_a_nic_a_subnet_and_a_way_to_another_tenant(shared: Any) -> None:
    apply(shared, text_of(shared, tenants=red()))
    with undisturbed(shared, (("p1-s1-h1", "10.201.0.2"), ("p1-s1-h2", "10.201.0.3")), BLUE):
        lab = apply(shared, text_of(shared, tenants=red(nics=', "p1-s1-h3:rail1"') + GREEN))
        assert pings(lab, "p1-s1-h3", "10.201.0.3") and pings(lab, "p1-s1-h3", "fd00:1::2")
        assert lab.run("p1-s1-h6", ["ping", "-c", "1", "-W", "1", "10.201.0.2"]).returncode != 0
        asking = red(more="talks_to: {green: [icmp]}", nics=', "p1-s1-h3:rail1"')
        lab = apply(shared, text_of(shared, tenants=asking + GREEN))
        assert pings(lab, "p1-s1-h1", "10.210.0.2")
        assert lab.run("p1-s1-h6", ["ping", "-c", "1", "-W", "1", "10.201.0.2"]).returncode != 0, "it may not ask"
    assert_isolated(lab)
    with undisturbed(shared, (("p1-s1-h1", "10.201.0.2"), ("p1-s1-h2", "10.201.0.3")), BLUE):
        lab = apply(shared, text_of(shared, tenants=red() + GREEN))
        assert lab.run("p1-s1-h1", ["ping", "-c", "1", "-W", "1", "10.210.0.2"]).returncode != 0
    assert_isolated(lab)


@pytest.mark.thorough
def test_a_router_outside_comes_and_goes(shared: Any) -> None:
    apply(shared, text_of(shared, tenants=red()))
    with undisturbed(shared):
        lab = apply(shared, text_of(shared, tenants=red(more=OUTSIDE)))
        assert pings(lab, "p1-s1-h2", "198.51.100.1") and pings(lab, "red-external", "10.201.0.3")
        assert {one.state for one in lab.sessions()} == {"Established"}
        assert_isolated(lab)
        lab = apply(shared, text_of(shared, tenants=red()))
        assert lab.run("p1-s1-h2", ["ping", "-c", "1", "-W", "1", "198.51.100.1"]).returncode != 0
        assert "red-external" not in lab.identities
    assert_isolated(lab)


@pytest.mark.thorough
def test_guards_come_and_go_and_count_on(shared: Any) -> None:
    lab = apply(shared, text_of(shared, tenants=red()))
    assert_isolated(lab)
    before = dropped(lab)
    assert before[Guard.SOURCE] and before[Guard.STORM]
    with undisturbed(shared):
        lab = apply(shared, text_of(shared, tenants=red(), guards="{storm_pps: 300}"))
        assert dropped(lab).items() >= before.items(), "a table that takes the place of another goes on counting"
        lab = apply(shared, text_of(shared, tenants=red(), guards="off"))
    assert [one for one in check_isolation(lab).attacks if one.succeeded], "without guards attacks succeed"
    with undisturbed(shared):
        lab = apply(shared, text_of(shared, tenants=red()))
    assert_isolated(lab)


def dropped(lab: RunningLab) -> dict[Guard, int]:
    found: Counter[Guard] = Counter()
    for counters in guard_counters(lab).values():
        for one in counters:
            found[one.guard] += one.packets
    return dict(found)


def test_what_is_not_there_is_told_before_it_is_done(shared: Any) -> None:
    lab = apply(shared, text_of(shared))
    changes = changes_of(lab, load_topology_text(text_of(shared, tenants=red()), file="tenants.yml"))
    made = {row.what for row in changes.rows if row.effect is Effect.MADE}
    assert {f"VRF red on {leaf}" for leaf in LEAVES} <= made, [f"{row.effect} {row.what}" for row in changes.rows]
    assert "the keeper of the overlay" not in made, "blue has it"
    assert [row for row in changes.rows if row.what == "the keeper of the overlay"]


MLAG = """
name: {name}
scale: {{time: 10000}}
fabric: {{design: rail-optimized, segments: 1, hosts: {hosts}, gpus: 1, spines: 1}}
networks:
  frontend:
    {{design: leaf-spine, homing: mlag, leaves: 4, spines: 2, guards: on, nic: {{per: host, ports: 2, rate: 100G}},
     overlay: {{evpn: {{vrf_by: namespace}}}}}}
{tenants}
"""
ABOVE = """
tenants:
  red: {subnets: {web: {prefix: 172.31.0.0/24, nics: ["p1-s1-h1:fe0", "p1-s1-h5:fe0"]}}}
"""


def lag_processes(lab: RunningLab) -> dict[str, int]:
    """The process of the link groups of each node that has some."""
    return {status.name: status.pids[LAG] for status in lab.status() if LAG in status.pids}


def test_hosts_with_link_groups_come_and_go(sandbox: Sandbox) -> None:
    """Those that stay keep their partners, whatever comes and goes at their leaves; so do tenants above them."""

    def text(hosts: int, tenants: str = "") -> str:
        return MLAG.format(name=sandbox.name(), hosts=hosts, tenants=tenants)

    lab = sandbox.deploy(load_topology_text(text(7), file="mlag.yml")).lab
    addresses = {nic.node: str(nic.address.ip) for host in lab.plan.hosts for nic in host.nics if nic.name == "fe0"}
    pair = (("p1-s1-h2", addresses["p1-s1-h2"]), ("p1-s1-h6", addresses["p1-s1-h6"]))
    staying = [f"p1-s1-h{number}" for number in (2, 3, 4, 6, 7)] + [f"fe-leaf{number}" for number in range(1, 5)]
    before = lag_processes(lab)
    for hosts, tenants in ((8, ""), (8, ABOVE), (8, ""), (7, "")):
        with undisturbed(sandbox, pair):
            lab = apply(sandbox, text(hosts, tenants))
            assert not missing_members(lab.plan, lab.processes_directory)
        after = lag_processes(lab)
        assert [after[node] for node in staying] == [before[node] for node in staying], "none of them began anew"
        assert len([status for status in read_link_groups(lab) if status.pair is None]) == hosts
        assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}
        if tenants:
            assert pings(lab, "p1-s1-h1", "172.31.0.3")
            assert lab.run("p1-s1-h1", ["ping", "-c", "1", "-W", "1", addresses["p1-s1-h2"]]).returncode != 0
        assert check_isolation(lab, "frontend").exit_code == 0


def test_a_process_of_link_groups_that_died_is_started_anew_and_ports_that_vanish_end_none(sandbox: Sandbox) -> None:
    """Of what goes, the kernel knows before the process of the link groups is told."""
    lab = sandbox.deploy(sandbox.load(MLAG, hosts=7, tenants="")).lab
    leaves = ("fe-leaf3", "fe-leaf4")
    died = lag_processes(lab)[leaves[0]]
    os.kill(died, signal.SIGKILL)
    until(lambda: has_ended(died), "the process is gone")
    (line,) = [line for line in missing_members(lab.plan, lab.processes_directory) if line.startswith(leaves[0])]
    assert "has ended" in line
    lab = apply(sandbox, MLAG.format(name=sandbox.name(), hosts=8, tenants=""))
    before = lag_processes(lab)
    assert before[leaves[0]] != died
    assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}
    groups = lab.plan.link_groups
    assert groups is not None
    ports = [(leaf.node, leaf.members[0]) for leaf in groups.leaves if leaf.node in leaves]
    for leaf, member in ports:
        assert lab.run(leaf, ["ip", "link", "del", member.name]).returncode == 0
    gone = {f"{leaf}:{member.name}" for leaf, member in ports}
    until(lambda: _disabled(lab) >= gone, "both ports are said to be gone")
    assert lag_processes(lab) == before


def _disabled(lab: RunningLab) -> set[str]:
    lines = missing_members(lab.plan, lab.processes_directory)
    return {line.split(" ")[0] for line in lines if "disabled" in line}


SIGNED = """
name: {name}
scale: {{time: 10000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 4
  gpus: 1
  spines: 1
  guards: {{control: false}}
  routing: {{password: true, ttl_security: true}}
{overlay}
"""
OVERLAY = "  overlay: {evpn: {vrf_by: namespace, rt_filter: true}}\ntenants:\n"
ONE = '  one: {subnets: {web: {prefix: 172.31.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail1"]}}}\n'
TWO = '  two: {subnets: {web: {prefix: 172.31.0.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h4:rail1"]}}}\n'


def test_an_overlay_where_there_was_none_and_a_tenant_that_asks_for_the_password(sandbox: Sandbox) -> None:
    """Leaves start their routing daemons anew for namespaces as VRFs, if that is allowed; and hosts are strangers to
    BGP in VRFs that come later, too, without the guard that would keep them away."""

    def model(overlay: str) -> Any:
        return sandbox.load(SIGNED, overlay=overlay)

    lab = sandbox.deploy(model("")).lab
    with pytest.raises(ChangeRefused, match="VRFs that are namespaces") as refused:
        apply_lab(model(OVERLAY + ONE), sandbox.state, ApplyOptions())
    assert "--allow restart" in str(refused.value.hint)
    assert lab.life_cycle is LabState.RUNNING
    apply_lab(model(OVERLAY + ONE), sandbox.state, ApplyOptions(allow=frozenset({Allow.RESTART})))
    lab = apply(sandbox, SIGNED.format(name=sandbox.name(), overlay=OVERLAY + ONE + TWO))
    assert pings(lab, "p1-s1-h1", "172.31.0.3") and pings(lab, "p1-s1-h3", "172.31.0.3")
    report = check_isolation(lab)
    bgp = next(one for one in report.attacks if one.attack == "BGP to the gateway")
    assert bgp.ports == bgp.stopped == bgp.by_password == 4
    assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}


@pytest.mark.parametrize(
    "step", ["links", *(pytest.param(step, marks=pytest.mark.thorough) for step in ("routing", "removals"))]
)
def test_a_tenant_that_was_half_there_when_apply_was_killed(shared: Any, step: str) -> None:
    """What was begun is undone for the file of before, and finished for that of after."""
    without, with_red = (load_topology_text(text_of(shared, tenants=more), file="x.yml") for more in ("", red()))
    apply(shared, text_of(shared))
    with undisturbed(shared):
        for wanted, tenants in ((without, {"blue"}), (with_red, {"blue", "red"}), (without, {"blue"})):
            begun = with_red if tenants == {"blue"} and wanted is without else wanted
            killed_at(shared, begun, step)
            apply_lab(wanted, shared.state, ApplyOptions())
            lab = shared.running()
            assert all(vrfs_of(lab, leaf) == tenants for leaf in LEAVES)
            assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}
            assert not changes_of(lab, wanted).rows


def killed_at(sandbox: Any, model: Any, step: str) -> None:
    """Apply in a process that is killed when a step has ended, if it comes to it."""

    def notify(event: StepEvent) -> None:
        if (event.step, event.phase) == (step, "stop"):
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        with suppress(BaseException):
            apply_lab(model, sandbox.state, ApplyOptions(), notify)
        os._exit(0)
    os.waitpid(child, 0)
