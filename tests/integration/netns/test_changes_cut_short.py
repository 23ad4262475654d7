"""Changes of labs that are killed, interrupted or refused by the kernel anywhere: what follows ends them whole."""

import random
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from cut_short import Bench
from lab_snapshot import differences
from sandbox import Sandbox

from testbed.lab.core.deploy.live import RunningLab

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGY = """
name: {name}
scale: {{time: 10000}}
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: 2, spines: {spines}, nic: {{rate: {rate}}}}}
qos: {{preset: uec}}
"""
BESIDE = {
    "link groups": """\
networks:
  frontend: {design: leaf-spine, homing: mlag, leaves: 2, spines: 1, nic: {per: host, ports: 2, rate: 100G}}
""",
    "scale-up": "",
}
"""The further parts of a lab whose changes are killed, too: there are more hosts afterwards, and so they change."""
FEW, SOME, MANY = 2, 12, 40
FEW_DESTROYS, MANY_DESTROYS = 1, 30


def bench_of(sandbox: Any, kind: str = "") -> Bench:
    """A lab that gets a host and loses a spine, and whose NICs get slower."""

    def text(**values: Any) -> str:
        text = TOPOLOGY.format(name=sandbox.name(), **values)
        if kind == "scale-up":
            text = text.replace("nic:", "scale_up: {rate: 3.6T, by: packets, planes: 2, credits: {limit: 64}}, nic:")
        return text + BESIDE.get(kind, "")

    return Bench(sandbox, text(hosts=2, spines=2, rate="400G"), text(hosts=3, spines=1, rate="200G"))


@pytest.fixture
def bench(sandbox: Sandbox) -> Bench:
    return bench_of(sandbox)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "points", [pytest.param(FEW, marks=pytest.mark.thorough), pytest.param(MANY, marks=pytest.mark.soak)]
)
def test_a_change_killed_anywhere_is_finished_or_taken_back(bench: Bench, points: int) -> None:
    bench.kill_at(points, random.Random(f"changes {points}"))


TENANTS = """
name: {name}
scale: {{time: 10000}}
fabric:
  {{design: rail-optimized, segments: 1, hosts: 4, gpus: 1, spines: 1, guards: on,
   overlay: {{evpn: {{vrf_by: namespace}}}}}}
tenants:
  red: {{subnets: {{web: {{prefix: 172.31.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h{red}:rail1"]}}}}}}
  blue: {{subnets: {{web: {{prefix: 172.31.0.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h{blue}:rail1"]}}}}}}
"""


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "points", [pytest.param(FEW, marks=pytest.mark.thorough), pytest.param(SOME, marks=pytest.mark.soak)]
)
def test_nics_that_tenants_exchange_are_with_one_of_them_after_a_kill(sandbox: Sandbox, points: int) -> None:
    before, after = (TENANTS.format(name=sandbox.name(), red=red, blue=6 - red) for red in (2, 4))
    Bench(sandbox, before, after).kill_at(points, random.Random(f"tenants {points}"))


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", BESIDE)
def test_a_change_of_what_features_run_is_finished_or_taken_back(sandbox: Any, kind: str) -> None:
    bench_of(sandbox, kind).kill_at(SOME, random.Random(kind))


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "points",
    [pytest.param(FEW_DESTROYS, marks=pytest.mark.thorough), pytest.param(MANY_DESTROYS, marks=pytest.mark.soak)],
)
def test_destroy_removes_a_lab_whose_change_was_killed(bench: Bench, points: int) -> None:
    bench.deploy()
    acts = bench.acts()
    random_numbers = random.Random(f"destroys {points}")
    for point in range(points):
        number = 1 + int(acts * (point + random_numbers.random()) / points)
        bench.cut_short(bench.after, number)
        result = bench.sandbox.cli("destroy", "-n", bench.sandbox.name())
        assert result.returncode == 0, result
        assert bench.sandbox.leftovers() == [], f"SIGKILL at act {number} of {acts}"
        bench.deploy()


@pytest.mark.timeout(900)
def test_an_interrupted_change_is_undone(bench: Bench) -> None:
    bench.deploy()
    first = bench.seen()
    for step in ("nodes", "links", "routing", "removals"):
        journal = bench.sandbox.state.lab_directory(bench.sandbox.name()) / "journal.jsonl"
        seen = journal.read_text().count(f'"{step}"')
        process = bench.sandbox.start("apply", "-q", "-t", str(bench.after))
        while journal.read_text().count(f'"{step}"') == seen:
            assert process.poll() is None, (bench.sandbox.root / "out").read_text()
        process.send_signal(signal.SIGINT)
        status = process.wait(60)
        bench.sandbox.note_daemons()
        assert status in (0, 130), (bench.sandbox.root / "out").read_text()
        if status == 0:  # it had ended already
            bench.apply(bench.before)
        assert not bench.sandbox.state.is_changing(bench.sandbox.name())
        assert differences(bench.seen(), first) == [], f"SIGINT in the step {step}, status {status}"


def _uptimes(lab: RunningLab) -> dict[tuple[str, str], float]:
    return {(item.node, item.interface): item.uptime_s for item in lab.sessions()}


def test_what_the_kernel_refuses_half_way_is_undone_and_sessions_stay(bench: Bench) -> None:
    """Somebody has given a switch an interface that has the name of one that is to be made."""
    bench.deploy()
    switch = bench.lab.namespace("p1-s1-rail2")
    subprocess.run(["ip", "-n", switch, "link", "add", "down3", "type", "bridge"], check=True)
    first, uptimes = bench.seen(), _uptimes(bench.lab)
    result = bench.sandbox.cli("apply", "-q", "-t", str(bench.after))
    assert result.returncode == 2, result
    assert "could not be changed, and is as it was" in result.stderr and "File exists" in result.stderr, result
    assert differences(bench.seen(), first) == []
    assert all(uptime >= uptimes[key] for key, uptime in _uptimes(bench.lab).items()), "no session was reset"
    assert bench.sandbox.cli("check", "-n", bench.sandbox.name()).returncode == 0
    subprocess.run(["ip", "-n", switch, "link", "delete", "down3"], check=True)
    bench.apply(bench.after)


def test_a_name_of_somebody_else_is_refused_before_anything_is_touched(bench: Bench) -> None:
    bench.deploy()
    first = bench.seen()
    name = bench.lab.namespace("p1-s1-h1").replace("-h1", "-h3")
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        result = bench.sandbox.cli("apply", "-q", "-t", str(bench.after))
        assert result.returncode == 3 and f"the network namespace {name} exists and is not ours" in result.stderr
        assert differences(bench.seen(), first) == []
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def _other_verbs(bench: Bench) -> list[tuple[tuple[str, ...], Callable[[Any], bool]]]:
    name, says = bench.sandbox.name(), f"testbed apply -n {bench.sandbox.name()}"
    return [
        (("link", "set", "p1-s1-h1:rail1", "--loss", "1%", "-n", name), lambda done: done.returncode == 3),
        (("power", "off", "p1-s1-h1", "-n", name), lambda done: done.returncode == 3),
        (("deploy", "-q", "-t", str(bench.before)), lambda done: done.returncode == 3),
        (("check", "-n", name), lambda done: done.returncode == 2 and "changing" in done.stdout),
        (("inspect", "-n", name), lambda done: done.returncode == 0 and says in done.stderr),
        (("list",), lambda done: done.returncode == 0 and "changing" in done.stdout),
    ]


def test_other_verbs_say_what_to_do_with_a_lab_in_the_middle_of_a_change(bench: Bench) -> None:
    bench.deploy()
    first = bench.seen()
    bench.cut_short(bench.after, 10)
    assert bench.sandbox.state.is_changing(bench.sandbox.name())
    for words, is_right in _other_verbs(bench):
        done = bench.sandbox.cli(*words)
        assert is_right(done), done
        if words[0] not in ("list", "inspect"):
            assert f"testbed apply -n {bench.sandbox.name()}" in done.stdout + done.stderr, done
    bench.apply(bench.before)
    assert differences(bench.seen(), first) == [], "it is taken back whole"
