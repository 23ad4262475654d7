"""What ports carried while a program ran, from readings of their counters."""

from dataclasses import replace

from fake_lab import small_lab

from testbed.run.launch.traffic import segments_sent_again, uplinks

SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs \
RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 200 120000 -1 7 6 0 0 4 1000 1200 17 0 2 0
Udp: InDatagrams
Udp: 5
"""


def test_segments_that_tcp_sent_again_are_found_by_their_name() -> None:
    assert segments_sent_again(SNMP) == 17


def test_uplinks_lead_from_a_tier_to_the_one_above() -> None:
    lab, plan = small_lab(segments=2, hosts=1, rails=2, spines=2)
    found = [(port.node, port.name, port.peer.partition(":")[0]) for port in uplinks(lab, plan)]
    assert ("p1-s1-rail1", "uplink1", "p1-spine1") in found and len(found) == 2 * 2 * 2
    assert not [node for node, _, _ in found if "spine" in node or "-h" in node]


def test_switches_that_know_no_tier_lead_up_where_their_hosts_are() -> None:
    lab, plan = small_lab(segments=2, hosts=1, rails=1, spines=2)
    bare = replace(lab, nodes=tuple(replace(node, role=None) for node in lab.nodes))
    assert uplinks(bare, plan) == uplinks(lab, plan)
