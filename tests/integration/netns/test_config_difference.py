"""FRR that is told a difference runs what it runs when it is started with the new configuration, in its own words."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from real_frr import RealFrr, running_frr
from written_frr import CONFIGS, LEAF, thinned_at_random

from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import ConfigText, StartupConfig
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import SwitchPlan
from testbed.lab.core.render import FrrVersion, SwitchConfig, render_switch
from testbed.lab.core.render.difference import difference, only_at_start
from testbed.lab.core.schema.load import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]

ORDER = sorted(CONFIGS)
SEED = 33


def switch_plan() -> SwitchPlan:
    lab = generate_fabric(FabricParams(design="rail-optimized", segments=1, hosts=1, gpus=1, spines=1), name="x")
    return plan_lab(lab, k=1000).switches[0]


def written(text: str) -> SwitchConfig:
    """A written configuration, dealt out to daemons."""
    plan = replace(switch_plan(), startup=StartupConfig(whole=ConfigText(text=text, place="x")), bfd=None)
    return render(plan)


def render(plan: SwitchPlan) -> SwitchConfig:
    version = FrrVersion(*find_frr().version[:2])
    return render_switch(plan, lab="x", version=version, log_directory="/tmp", password="not-a-secret")


def without_logs(config: SwitchConfig) -> dict[str, str]:
    """The files of daemons, which have no lab that they could log to."""
    return {
        name: "".join(line for line in text.splitlines(keepends=True) if not line.startswith("log file "))
        for name, text in config.daemons.items()
    }


def commands(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, list[str]]:
    """What daemons are told. The loopback is the one interface that their namespace has."""
    leaving = [f"{kind}{number}" for kind in ("swp", "uplink") for number in range(1, 9)]
    return {daemon: difference(old[daemon], new[daemon], leaving=leaving) for daemon in old.keys() & new.keys()}


def check_step(frr: RealFrr, old: SwitchConfig, new: SwitchConfig) -> None:
    """Tell the daemons that run what makes `new` of `old`, and compare them with daemons that are started with it."""
    before, after = (
        {name: text for name, text in without_logs(one).items() if name in frr.daemons} for one in (old, new)
    )
    for daemon in before.keys() & after.keys():
        assert only_at_start(before[daemon], after[daemon]) == []
    frr.tell(commands(before, after))
    with running_frr(without_logs(new), new.modules) as fresh:
        for daemon in before.keys() & after.keys():
            assert frr.shown(daemon) == fresh.shown(daemon), daemon


@pytest.mark.parametrize("new", ORDER)
def test_the_leaf_becomes_each_of_the_others_and_the_leaf_again(new: str) -> None:
    leaf, other = written(LEAF), written(CONFIGS[new])
    if any(only_at_start(leaf.daemons[name], other.daemons[name]) for name in ("zebra", "bgpd")):
        pytest.skip("it takes a start")
    with running_frr(without_logs(leaf)) as frr:
        check_step(frr, leaf, other)
        check_step(frr, other, leaf)


def test_a_random_walk_through_all_of_them() -> None:
    chosen = [name for name in ORDER if name != "flat"]
    random.Random(SEED).shuffle(chosen)
    with running_frr(without_logs(written(CONFIGS[chosen[0]]))) as frr:
        for old, new in itertools.pairwise(chosen):
            check_step(frr, written(CONFIGS[old]), written(CONFIGS[new]))


def test_any_lines_of_them_may_come_and_go() -> None:
    choice = random.Random(SEED)
    names = [choice.choice([name for name in ORDER if name != "flat"]) for _ in range(12)]
    walk = [written(thinned_at_random(CONFIGS[name], choice)) for name in ("everything", *names)]
    with running_frr(without_logs(walk[0])) as frr:
        for old, new in itertools.pairwise(walk):
            check_step(frr, old, new)


def test_static_routes_and_the_profiles_of_bfd_are_told_to_their_daemons() -> None:
    for first, second in (("static", "static-moved"), ("watched", "slower")):
        old, new = written(CONFIGS[first]), written(CONFIGS[second])
        assert old.daemons.keys() & {"staticd", "bfdd"}
        with running_frr(without_logs(old)) as frr:
            check_step(frr, old, new)
            check_step(frr, new, old)


ROUTINGS = (
    "{bfd: off}",
    "{bfd: off, ecmp: 8, ttl_security: true}",
    "{bfd: off, password: true}",
    "{bfd: {interval: 1s, multiplier: 5}}",
    "{bfd: {interval: 300ms}, password: true, ttl_security: true, ecmp: 1}",
)


def rendered(routing: str, spines: int, hosts: int) -> SwitchConfig:
    text = (
        f"name: x\nfabric: {{design: rail-optimized, segments: 1, hosts: {hosts}, gpus: 1, spines: {spines},"
        f" routing: {routing}}}\n"
    )
    plan = plan_lab(load_topology_text(text, file="x.yml"), k=1000)
    return render(next(switch for switch in plan.switches if switch.node == "p1-s1-rail1"))


def test_rendered_configurations_become_each_other() -> None:
    choice = random.Random(SEED)
    walk = [rendered(choice.choice(ROUTINGS), choice.randint(1, 3), choice.randint(1, 2)) for _ in range(8)]
    watched = rendered(ROUTINGS[3], 1, 1)
    with running_frr(without_logs(watched)) as frr:  # bfdd runs all along
        old = watched
        for new in walk:
            before, after = without_logs(old), without_logs(new)
            frr.tell({daemon: lines for daemon, lines in commands(before, after).items() if daemon != "bfdd"})
            with running_frr(after, new.modules) as fresh:
                for daemon in ("zebra", "bgpd"):
                    assert frr.shown(daemon) == fresh.shown(daemon), daemon
            old = new


def test_a_difference_is_seen_where_a_line_is_not_told() -> None:
    leaf, other = written(LEAF), written(CONFIGS["draining"])
    lines = commands(without_logs(leaf), without_logs(other))
    lines["bgpd"] = [line for line in lines["bgpd"] if not line.startswith("timers bgp ")]
    with running_frr(without_logs(leaf)) as frr, running_frr(without_logs(other)) as fresh:
        frr.tell(lines)
        assert frr.shown("bgpd") != fresh.shown("bgpd")
