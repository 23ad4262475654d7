"""Configurations of FRR as people write them for switches, each a step of work on one: to be changed into each other.

They are made of what data centres load: unnumbered and numbered sessions, policies, communities, EVPN, BFD, static
routes; one of them is not indented, and one leaves no context.
"""

from __future__ import annotations

import random

from testbed.lab.core.render.config_text import WrittenLine, parse_configuration, written_out

LEAF = """\
ip prefix-list LOOPBACKS seq 5 permit 172.16.0.0/12 le 32
ip prefix-list RAILS seq 5 permit 10.0.0.0/16 le 24
ip prefix-list RAILS seq 10 permit 10.1.0.0/16 le 24
!
bgp community-list standard DRAINED seq 5 permit 65000:999
!
route-map TO-SPINES permit 10
 match ip address prefix-list RAILS
 set community 65000:1
exit
!
route-map TO-SPINES permit 20
 match ip address prefix-list LOOPBACKS
exit
!
route-map FROM-SPINES permit 10
 match community DRAINED
 set local-preference 10
 on-match next
exit
!
route-map FROM-SPINES permit 20
exit
!
router bgp 65101
 bgp router-id 172.18.0.1
 bgp log-neighbor-changes
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 bgp bestpath as-path multipath-relax
 timers bgp 3 9
 neighbor SPINES peer-group
 neighbor SPINES remote-as external
 neighbor SPINES description spines of pod 1
 neighbor SPINES timers connect 5
 neighbor SPINES capability extended-nexthop
 neighbor swp1 interface peer-group SPINES
 neighbor swp2 interface peer-group SPINES
 neighbor 192.0.2.1 remote-as 65200
 neighbor 192.0.2.1 description firewall
 neighbor 192.0.2.1 ebgp-multihop 2
 !
 address-family ipv4 unicast
  network 172.18.0.1/32
  network 10.0.1.0/24
  redistribute connected route-map TO-SPINES
  neighbor SPINES activate
  neighbor SPINES route-map TO-SPINES out
  neighbor SPINES route-map FROM-SPINES in
  neighbor 192.0.2.1 activate
  neighbor 192.0.2.1 prefix-list LOOPBACKS out
  neighbor 192.0.2.1 maximum-prefix 100
  maximum-paths 64
 exit-address-family
exit
!
interface lo
 description the loopback
 ip address 172.18.0.1/32
exit
!
interface swp1
 description to spine 1
 ipv6 nd ra-interval 5
 no ipv6 nd suppress-ra
exit
!
"""

DRAINING = (
    LEAF.replace(" set community 65000:1\n", " set community 65000:1 65000:999\n set as-path prepend 65101 65101\n")
    .replace(" set local-preference 10\n on-match next\n", " set local-preference 20\n on-match goto 30\n")
    .replace(" timers bgp 3 9\n", " timers bgp 10 30\n")
    .replace(" neighbor SPINES timers connect 5\n", " neighbor SPINES timers 1 3\n")
    .replace("permit 10.1.0.0/16 le 24\n", "permit 10.2.0.0/16 ge 20 le 24\n")
    .replace("  maximum-paths 64\n", "  maximum-paths 8\n  aggregate-address 10.0.0.0/16 summary-only\n")
    .replace(" description the loopback\n ip address 172.18.0.1/32\n", " ip address 172.18.0.1/32\n")
)
"""The leaf while traffic is moved away from it."""

NO_FIREWALL = "".join(line for line in LEAF.splitlines(keepends=True) if "192.0.2.1" not in line).replace(
    " neighbor swp2 interface peer-group SPINES\n",
    " neighbor swp2 interface peer-group SPINES\n neighbor swp2 advertisement-interval 5\n",
)
"""The leaf with a neighbour less, one of whose values is its own."""

RENUMBERED = (
    LEAF.replace("ip prefix-list RAILS seq 5 permit 10.0.0.0/16 le 24\n", "")
    .replace("ip prefix-list RAILS seq 10 permit 10.1.", "ip prefix-list RAILS seq 5 permit 10.1.")
    .replace("ip prefix-list LOOPBACKS seq 5 permit", "ip prefix-list LOOPBACKS seq 5 deny")
    .replace("standard DRAINED seq 5 permit 65000:999", "standard DRAINED seq 5 permit 65000:998")
    .replace("route-map FROM-SPINES permit 20\nexit\n!\n", "route-map FROM-SPINES permit 30\nexit\n!\n")
)
"""The leaf with other numbers of entries."""

WATCHED = (
    "bfd\n profile fast\n  detect-multiplier 5\n  receive-interval 100\n  transmit-interval 150\n exit\n !\nexit\n!\n"
    + LEAF.replace(
        " neighbor SPINES capability",
        " neighbor SPINES bfd\n neighbor SPINES bfd profile fast\n neighbor SPINES capability",
    )
)
"""The leaf with BFD."""

SLOWER = WATCHED.replace("detect-multiplier 5\n", "detect-multiplier 3\n").replace("  receive-interval 100\n", "")
"""With BFD that is slower: a line less, and a value that is the default."""

STATIC = LEAF + "ip route 203.0.113.0/24 192.0.2.1\nip route 198.51.100.0/24 blackhole 200\n"
"""The leaf with routes that are not BGP's."""

STATIC_MOVED = LEAF + "ip route 203.0.113.0/24 192.0.2.9\nip route 198.51.100.0/24 blackhole 210\n"

VTEP = LEAF.replace(
    "exit\n!\ninterface lo\n",
    " !\n address-family l2vpn evpn\n  neighbor SPINES activate\n  advertise-all-vni\n  vni 100\n   rd 172.18.0.1:100\n"
    "   route-target import 65000:100\n   route-target export 65000:100\n  exit-vni\n exit-address-family\nexit\n!\n"
    "interface lo\n",
)
"""The leaf of an overlay."""

VTEP_CHANGED = VTEP.replace("import 65000:100\n", "import 65000:100\n   route-target import 65000:200\n").replace(
    "  vni 100\n", "  vni 200\n   rd 172.18.0.1:200\n  exit-vni\n  vni 100\n"
)

FLAT = """\
router bgp 65101
bgp router-id 172.18.0.1
no bgp default ipv4-unicast
no bgp ebgp-requires-policy
neighbor SPINES peer-group
neighbor SPINES remote-as external
neighbor SPINES password not-a-secret
neighbor swp1 interface peer-group SPINES
address-family ipv4 unicast
network 172.18.0.1/32
neighbor SPINES activate
neighbor SPINES allowas-in 1
neighbor SPINES soft-reconfiguration inbound
exit-address-family
ip prefix-list OURS permit 10.0.0.0/8
ip prefix-list OURS permit 172.16.0.0/12
bgp as-path access-list LONG seq 5 permit _65001_
interface swp1
description nothing is indented here
"""

EVERYTHING = """\
debug bgp updates
!
ip prefix-list LOOPBACKS seq 5 permit 172.16.0.0/12 le 32
ip prefix-list RAILS seq 5 permit 10.0.0.0/16 le 24
ip prefix-list RAILS seq 10 permit 10.1.0.0/16 le 24
ipv6 prefix-list SIX seq 5 permit fd00::/8 le 64
access-list HOSTS seq 5 permit 10.0.0.0/8
bgp as-path access-list LONG seq 5 permit _65001_
bgp community-list standard DRAINED seq 5 permit 65000:999
bgp community-list expanded ANY seq 5 permit 65000:.*
bgp large-community-list standard BIG seq 5 permit 65000:1:2
bgp extcommunity-list standard TARGETS seq 5 permit rt 65000:100
!
route-map TO-SPINES permit 10
 description towards the spines
 match ip address prefix-list RAILS
 match as-path LONG
 match tag 7
 set community 65000:1 additive
 set metric 50
 set origin igp
 set weight 5
 set local-preference 70
 set large-community 65000:1:1
 set extcommunity rt 65000:1
 set ip next-hop 192.0.2.7
exit
!
route-map TO-SPINES permit 20
 match ip address prefix-list LOOPBACKS
 call INNER
exit
!
route-map FROM-SPINES permit 10
 match community DRAINED
 match large-community BIG
 match extcommunity TARGETS
 match interface swp1
 match metric 7
 match peer 192.0.2.1
 continue 20
exit
!
route-map FROM-SPINES permit 20
exit
!
route-map INNER permit 10
exit
!
router bgp 65101
 bgp router-id 172.18.0.9
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 no bgp fast-external-failover
 no bgp network import-check
 bgp cluster-id 192.0.2.9
 bgp always-compare-med
 bgp deterministic-med
 bgp default local-preference 200
 bgp bestpath compare-routerid
 bgp bestpath as-path multipath-relax
 bgp bestpath med missing-as-worst
 bgp listen limit 20
 coalesce-time 100
 timers bgp 3 9
 neighbor SPINES peer-group
 neighbor SPINES remote-as external
 neighbor SPINES description spines of pod 1
 neighbor SPINES timers connect 7
 neighbor SPINES advertisement-interval 3
 neighbor SPINES ttl-security hops 1
 neighbor SPINES capability extended-nexthop
 neighbor CLIENTS peer-group
 neighbor CLIENTS remote-as 65300
 neighbor CLIENTS passive
 bgp listen range 198.51.100.0/24 peer-group CLIENTS
 neighbor swp1 interface peer-group SPINES
 neighbor swp2 interface peer-group SPINES
 neighbor swp2 description the second
 neighbor swp2 shutdown
 neighbor 192.0.2.1 remote-as 65200
 neighbor 192.0.2.1 ebgp-multihop 5
 neighbor 192.0.2.1 update-source lo
 neighbor 192.0.2.1 password not-a-secret
 neighbor 192.0.2.1 local-as 65199
 neighbor 192.0.2.2 remote-as 65201
 neighbor 192.0.2.2 disable-connected-check
 !
 address-family ipv4 unicast
  network 172.18.0.1/32 route-map INNER
  network 10.0.1.0/24
  network 10.0.2.0/24
  aggregate-address 10.0.0.0/16 as-set summary-only
  redistribute connected
  redistribute static metric 5
  neighbor SPINES activate
  neighbor SPINES allowas-in 2
  neighbor SPINES route-map TO-SPINES out
  neighbor SPINES soft-reconfiguration inbound
  neighbor SPINES next-hop-self
  neighbor CLIENTS activate
  neighbor CLIENTS default-originate
  neighbor CLIENTS maximum-prefix 50 warning-only
  neighbor 192.0.2.1 activate
  neighbor 192.0.2.1 filter-list LONG in
  neighbor 192.0.2.1 weight 9
  neighbor 192.0.2.1 remove-private-AS
  neighbor 192.0.2.1 send-community large
  neighbor 192.0.2.2 activate
  neighbor 192.0.2.2 addpath-tx-all-paths
  maximum-paths 16
  maximum-paths ibgp 4
  distance bgp 30 190 190
 exit-address-family
 !
 address-family ipv6 unicast
  redistribute connected
  neighbor SPINES activate
 exit-address-family
exit
!
interface lo
 description the loopback
 ip address 172.18.0.1/32
 ipv6 address fd00::1/128
exit
!
interface swp1
 description to spine 1
 bandwidth 1000
 ipv6 nd ra-interval 7
 no ipv6 nd suppress-ra
exit
!
ip protocol bgp route-map INNER
ip nht resolve-via-default
"""
"""The leaf with one of almost everything that is changed in place."""

CONFIGS = {
    "leaf": LEAF,
    "draining": DRAINING,
    "no-firewall": NO_FIREWALL,
    "renumbered": RENUMBERED,
    "watched": WATCHED,
    "slower": SLOWER,
    "static": STATIC,
    "static-moved": STATIC_MOVED,
    "vtep": VTEP,
    "vtep-changed": VTEP_CHANGED,
    "flat": FLAT,
    "everything": EVERYTHING,
}

_KEPT = (
    *("neighbor SPINES peer-group", "neighbor SPINES remote-as", "neighbor CLIENTS peer-group", "bgp router-id"),
    *("neighbor CLIENTS remote-as", "neighbor 192.0.2.1 remote-as", "neighbor 192.0.2.2 remote-as"),
    *("no bgp default ipv4-unicast", "advertise-all-vni"),
)
"""The lines that others stand on, or that only a start brings about."""


def may_go(line: WrittenLine) -> bool:
    """Tell whether a configuration is one without this line, too."""
    return not line.opens and not line.text.startswith(_KEPT)


def thinned(text: str, gone: set[int]) -> str:
    """Return a configuration without the lines of these numbers, and without what is said of neighbours that go."""
    lines = parse_configuration(text)
    without = {line.text.split()[1] for line in lines if line.number in gone and " interface peer-group" in line.text}
    kept = [
        line
        for line in lines
        if line.number not in gone and not (line.text.startswith("neighbor ") and line.text.split()[1] in without)
    ]
    return "".join(f"{line}\n" for line, _ in written_out(kept))


def thinned_at_random(text: str, choice: random.Random) -> str:
    """Return a configuration without some of its lines."""
    numbers = [line.number for line in parse_configuration(text) if may_go(line)]
    return thinned(text, set(choice.sample(numbers, choice.randint(0, len(numbers) // 2))))
