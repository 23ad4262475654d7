"""The commands that make a running FRR another one: what stays is not touched, what goes is told once."""

import pytest

from testbed.lab.core.deploy.changing.carrying.routing import comes_last
from testbed.lab.core.render.difference import difference, only_at_start

OLD = """\
! lab x
frr version 8.4.4
hostname a
log file /x/bgpd.log informational
!
ip prefix-list to-hosts seq 5 permit 10.0.0.0/8
router bgp 65001
 bgp router-id 172.18.0.1
 no bgp network import-check
 neighbor fabric peer-group
 neighbor fabric remote-as external
 neighbor fabric timers 3 9
 neighbor uplink1 interface peer-group fabric
 neighbor uplink1 description s1:down1
 neighbor uplink2 interface peer-group fabric
 neighbor uplink2 description s2:down1
 !
 address-family ipv4 unicast
  network 10.0.1.0/24
  neighbor fabric activate
  neighbor uplink2 prefix-list from-uplink2 in
  maximum-paths 64
 exit-address-family
exit
!
interface uplink2
 description s2:down1
 ipv6 nd ra-interval 3
exit
!
"""


def entered(*lines: str) -> list[str]:
    return ["router bgp 65001", *lines, "exit"]


def test_nothing_for_the_same() -> None:
    assert difference(OLD, OLD) == []
    assert difference(OLD, OLD.replace("8.4.4", "10.3")) == []


@pytest.mark.parametrize(
    ("new", "commands"),
    [
        pytest.param(
            OLD.replace("timers 3 9", "timers 1 3"),
            entered("neighbor fabric timers 1 3"),
            id="a value that is replaced is not taken away first",
        ),
        pytest.param(
            OLD.replace("maximum-paths 64", "maximum-paths 8"),
            entered("address-family ipv4 unicast", "maximum-paths 8", "exit-address-family"),
            id="in a context inside",
        ),
        pytest.param(
            OLD.replace(" no bgp network import-check\n", ""),
            entered("bgp network import-check"),
            id="a no is taken back by the command",
        ),
        pytest.param(
            OLD.replace(" neighbor uplink2 interface peer-group fabric\n neighbor uplink2 description s2:down1\n", "")
            .replace("  neighbor uplink2 prefix-list from-uplink2 in\n", "")
            .replace("interface uplink2\n description s2:down1\n ipv6 nd ra-interval 3\nexit\n", ""),
            [*entered("no neighbor uplink2 interface peer-group fabric"), "no interface uplink2"],
            id="all else that was said of a neighbour goes with it",
        ),
        pytest.param(
            OLD.replace("uplink2 interface peer-group fabric", "uplink2 interface peer-group clients"),
            entered(
                "no neighbor uplink2 interface peer-group fabric",
                "neighbor uplink2 interface peer-group clients",
                "neighbor uplink2 description s2:down1",
                "address-family ipv4 unicast",
                "neighbor uplink2 prefix-list from-uplink2 in",
                "exit-address-family",
            ),
            id="one that changes its group is made anew with all that is said of it",
        ),
        pytest.param(
            OLD.replace("  network 10.0.1.0/24\n", "  network 10.0.1.0/24\n  network 10.0.2.0/24\n"),
            entered("address-family ipv4 unicast", "network 10.0.2.0/24", "exit-address-family"),
            id="a network more",
        ),
    ],
)
def test_the_difference_and_nothing_else(new: str, commands: list[str]) -> None:
    assert difference(OLD, new) == commands


def test_a_new_context_is_entered_with_all_that_it_has() -> None:
    more = OLD + "interface uplink3\n description s3:down1\nexit\n!\n"
    assert difference(OLD, more) == ["interface uplink3", "description s3:down1", "exit"]
    assert difference(more, OLD) == ["no interface uplink3"]


TENANT = """\
ip prefix-list external-in-red permit 198.51.100.0/24
!
route-map external-in-red permit 10
 match ip address prefix-list external-in-red
exit
!
router bgp 65001 vrf red
 bgp router-id 172.18.0.1
 neighbor ext7 interface remote-as 64999
 !
 address-family ipv4 unicast
  redistribute connected
  neighbor ext7 route-map external-in-red in
 exit-address-family
exit
!
vrf red
 vni 7
exit-vrf
!
"""


def test_what_a_vrf_names_is_there_before_it() -> None:
    commands = difference(OLD, OLD + TENANT)
    order = [
        "ip prefix-list external-in-red seq 5 permit 198.51.100.0/24",
        "route-map external-in-red permit 10",
        "router bgp 65001 vrf red",
    ]
    assert sorted(order, key=commands.index) == order
    assert "vni 7" in commands


def test_a_vrf_loses_what_it_has_and_stays_as_long_as_the_kernel_has_it() -> None:
    commands = difference(OLD + TENANT, OLD)
    assert commands[:3] == ["vrf red", "no vni 7", "exit-vrf"]
    assert "no router bgp 65001 vrf red" in commands
    last = [command for command in commands if comes_last(command)]
    assert sorted(last) == ["no router bgp 65001 vrf red", "no vrf red"], "what is refused as long as the VRF is there"


def test_a_route_map_of_a_neighbour_is_defined_before_it_is_named() -> None:
    named = OLD.replace(
        "  neighbor uplink2 prefix-list from-uplink2 in\n", "  neighbor uplink2 route-map from-uplink2 in\n"
    )
    later = named + "route-map from-uplink2 deny 10\n match extcommunity foreign\nexit\n!\n"
    commands = difference(OLD, later)
    assert commands.index("route-map from-uplink2 deny 10") < commands.index(
        "neighbor uplink2 route-map from-uplink2 in"
    )


def test_what_depends_on_the_set_of_defaults_takes_a_start_in_a_data_centre() -> None:
    before = "frr defaults datacenter\nrouter bgp 1\n no bgp ebgp-requires-policy\n timers bgp 1 3\nexit\n"
    assert only_at_start(before, before.replace(" no bgp ebgp-requires-policy\n", "")) == [
        "no bgp ebgp-requires-policy"
    ]
    assert only_at_start(before, before.replace("timers bgp 1 3", "timers bgp 2 6")) == []
    assert only_at_start(before, before.replace("datacenter", "traditional"))[0] == "frr defaults traditional"
    traditional = before.replace("datacenter", "traditional")
    assert only_at_start(traditional, traditional.replace(" no bgp ebgp-requires-policy\n", "")) == []
