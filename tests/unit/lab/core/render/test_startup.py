"""A node's own configuration: its variables, whose line is whose, and what a lab adds to a whole one."""

from dataclasses import replace

import pytest

from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import ConfigText, StartupConfig
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import SwitchPlan
from testbed.lab.core.render import FrrVersion, SwitchConfig, daemons_of, render_switch
from testbed.lab.core.render.config_text import parse_configuration
from testbed.lab.core.render.startup import VARIABLES, checked_text, fill_in, find_strangers, variables_of

OLD, NEW = FrrVersion(8, 4), FrrVersion(10, 3)


def leaf() -> SwitchPlan:
    lab = generate_fabric(FabricParams(design="rail-optimized", segments=1, hosts=1, gpus=1, spines=1), name="x")
    return replace(plan_lab(lab, k=1000).switches[0], bfd=None)


def rendered(*, whole: str = "", added: str = "", version: FrrVersion = OLD) -> SwitchConfig:
    startup = StartupConfig(
        whole=ConfigText(text=whole, place="w") if whole else None,
        added=(ConfigText(text=added, place="a"),) if added else (),
    )
    return render_switch(replace(leaf(), startup=startup), lab="x", version=version, log_directory="/x")


def body(config: SwitchConfig, daemon: str) -> str:
    """What a daemon is told behind the header."""
    return config.daemons[daemon].partition("log timestamp precision 3\n!\n")[2]


def test_every_variable_means_something_on_every_node() -> None:
    assert tuple(variables_of(leaf())) == VARIABLES
    plan = leaf()
    assert fill_in("{{node}} {{ asn }} {{router_id}} {{loopback}} {{role}} {{x}} {1}", variables_of(plan)) == (
        f"p1-s1-rail1 {plan.asn} {plan.router_id} {plan.loopback.ip} rail {{{{x}}}} {{1}}"
    )


def test_added_lines_stand_behind_what_is_rendered() -> None:
    plain = render_switch(leaf(), lab="x", version=OLD, log_directory="/x")
    more = rendered(added="router bgp {{asn}}\n timers bgp 5 15\n")
    assert body(more, "bgpd") == body(plain, "bgpd") + f"router bgp {leaf().asn}\n timers bgp 5 15\nexit\n"
    assert more.daemons["zebra"] == plain.daemons["zebra"]


@pytest.mark.parametrize(("asks", "version", "own"), [(False, OLD, True), (False, NEW, False), (True, NEW, True)])
def test_a_whole_configuration_keeps_next_hops_as_the_data_path_reads_them(
    asks: bool, version: FrrVersion, own: bool
) -> None:
    whole = StartupConfig(whole=ConfigText(text="ip prefix-list A permit 10.0.0.0/8\n", place="w"))
    plan = replace(leaf(), startup=whole, asks_kernel=asks)
    found = render_switch(plan, lab="x", version=version, log_directory="/x").daemons["zebra"]
    assert ("no zebra nexthop kernel enable\n" in found) is own


def test_each_daemon_gets_its_lines() -> None:
    config = rendered(
        whole="""\
frr defaults datacenter
hostname someone
log file /somewhere
service integrated-vtysh-config
interface swp1
 description a
 mpls bgp forwarding
exit
vrf red
 vni 7
 ip route 203.0.113.0/24 blackhole
exit-vrf
ip prefix-list A permit 10.0.0.0/8
route-map M permit 10
 match ip address prefix-list A
 set community 1:1
exit
ip protocol bgp route-map M
ip route 198.51.100.0/24 blackhole
bfd
 profile fast
  transmit-interval 100
 exit
exit
router bgp 65001
 neighbor swp1 interface remote-as external
 neighbor swp1 bfd
exit
"""
    )
    assert list(config.daemons) == ["zebra", "staticd", "bfdd", "bgpd"]
    assert "frr defaults datacenter\nhostname p1-s1-rail1\nlog file /x/bgpd.log" in config.daemons["bgpd"]
    assert body(config, "zebra") == (
        "no zebra nexthop kernel enable\n!\ninterface swp1\n description a\nexit\nvrf red\n vni 7\nexit-vrf\n"
        "ip prefix-list A permit 10.0.0.0/8\nroute-map M permit 10\n match ip address prefix-list A\nexit\n"
        "ip protocol bgp route-map M\n"
    )
    assert body(config, "staticd") == (
        "vrf red\n ip route 203.0.113.0/24 blackhole\nexit-vrf\nip route 198.51.100.0/24 blackhole\n"
    )
    assert body(config, "bfdd") == "debug bfd peer\n!\nbfd\n profile fast\n  transmit-interval 100\n exit\nexit\n"
    assert body(config, "bgpd") == (
        "interface swp1\n mpls bgp forwarding\nexit\nip prefix-list A permit 10.0.0.0/8\nroute-map M permit 10\n"
        " match ip address prefix-list A\n set community 1:1\nexit\nrouter bgp 65001\n bgp log-neighbor-changes\n"
        " neighbor swp1 interface remote-as external\n neighbor swp1 bfd\nexit\n"
    )


def test_zebra_has_no_route_map_that_it_does_not_apply() -> None:
    assert "route-map" not in rendered(added="route-map M permit 10\nexit\n").daemons["zebra"]


def test_mgmtd_of_frr_10_has_interfaces_and_static_routes() -> None:
    config = rendered(whole="interface a\n description b\nexit\nip route 10.0.0.0/8 blackhole\n", version=NEW)
    assert list(config.daemons) == ["mgmtd", "zebra", "staticd", "bgpd"]
    assert body(config, "mgmtd") == "interface a\n description b\nexit\nip route 10.0.0.0/8 blackhole\n"
    assert body(config, "zebra") == body(config, "staticd") == ""


def test_a_daemon_more_is_planned_where_lines_ask_for_it() -> None:
    def asked(text: str) -> tuple[str, ...]:
        startup = StartupConfig(added=(ConfigText(text=text, place="a"),))
        return daemons_of(replace(leaf(), startup=startup), OLD)

    assert asked("debug bgp updates") == ("zebra", "bgpd")
    assert asked("ip route 10.0.0.0/8 blackhole") == ("zebra", "staticd", "bgpd")
    assert asked("router bgp 1\n neighbor fabric bfd\n") == ("zebra", "bfdd", "bgpd")


def test_bmp_needs_its_module() -> None:
    assert rendered(added="debug bgp updates").modules == {}
    assert rendered(added="router bgp 1\n bmp targets a\n exit\nexit\n").modules == {"bgpd": ("bmp",)}


@pytest.mark.parametrize(
    ("text", "strangers"),
    [
        ("router bgp 1\n neighbor a interface\nexit\n", []),
        ("no ip prefix-list a\nno debug bgp updates\n", []),
        ("router ospf\n network 10.0.0.0/8 area 0\nexit\nnonsense\n", [(1, "ospfd"), (4, "")]),
        ("interface a\n ip pim\n description b\n", [(2, "pimd")]),
        ("password zebra\nhostname a\nline vty\n exec-timeout 0 0\nexit\nend\n", []),
    ],
)
def test_lines_for_no_daemon_are_found(text: str, strangers: list[tuple[int, str]]) -> None:
    found = find_strangers(parse_configuration(text))
    assert [(one.line.number, one.daemon) for one in found] == strangers


def test_what_is_checked_has_the_lines_of_the_user_and_their_numbers() -> None:
    lines = [
        (line, number)
        for line, _, number in checked_text(
            ConfigText(text="Building configuration...\nrouter bgp {{asn}}\n a\n", place="p")
        )
    ]
    assert lines == [("router bgp 65000", 2), (" a", 3), ("exit", 0)]
