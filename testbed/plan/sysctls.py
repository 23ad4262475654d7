"""Kernel settings of a node, as `SetSysctl` operations.

They are written before any interface exists, because a new interface copies `conf/default` and
because a namespace of IPv4 starts with the settings of the machine, whatever they are
(net.core.devconf_inherit_init_net).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from testbed.model import BACKEND, HashEngine, LoadBalancing
from testbed.plan.operations import PortPlan, SetSysctl
from testbed.plan.stable import stable_hash

_HOST = (
    # The kernel uses max(all, interface) for each of these (ip-sysctl.rst).
    ("net/ipv4/conf/all/rp_filter", "0"),  # multi-homed: replies may leave by another NIC
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/arp_ignore", "1"),  # a NIC answers for its own address only: rails stay apart
    ("net/ipv4/conf/all/arp_announce", "2"),
    ("net/ipv6/conf/all/disable_ipv6", "1"),  # sets `default` and what exists too (addrconf_disable_ipv6)
    # A connection begins without what an earlier one to the same host has learnt (ssthresh, RTT): runs are alike.
    ("net/ipv4/tcp_no_metrics_save", "1"),
)

_SWITCH = (
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/accept_dad", "0"),  # link-local addresses are usable at once
    ("net/ipv6/conf/default/dad_transmits", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),  # FRR reads router advertisements itself
    ("net/ipv4/conf/all/ignore_routes_with_linkdown", "1"),
    # BGP's last words to a peer that is gone would keep the namespace, with its eBPF programs, for two minutes.
    ("net/ipv4/tcp_orphan_retries", "1"),
    ("net/ipv4/icmp_ratelimit", "0"),  # traceroute and path MTU checks see every hop
)

_BRIDGED_FRAMES = ("net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables")
"""Where br_netfilter is loaded, as by docker, the machine's packet filter takes part in each frame that a bridge
forwards: a switch does not look into them."""

_KERNEL_HASH = (
    # Five-tuple hashing that ignores the sender's socket hash, which survives veth (policy 1 does not).
    ("net/ipv4/fib_multipath_hash_policy", "3"),
    ("net/ipv4/fib_multipath_hash_fields", str(0x37)),
)

_EBPF_HASH = (
    # The kernel takes the hash that the port's ingress program has set (fib_multipath_hash, case 1: skb->l4_hash).
    ("net/ipv4/fib_multipath_hash_policy", "1"),
    ("net/ipv6/fib_multipath_hash_policy", "1"),
)

ACCESS_WITHOUT_IPV6 = ("net/ipv6/conf/default/disable_ipv6", "1")
"""In force while bridges and access ports are created: thousands of them would run DAD and MLD."""
FABRIC_WITH_IPV6 = ("net/ipv6/conf/default/disable_ipv6", "0")
"""In force while fabric ports are created: unnumbered BGP needs their link-local addresses."""


def host_sysctls(node: str) -> tuple[SetSysctl, ...]:
    return tuple(SetSysctl(node=node, key=key, value=value) for key, value in _HOST)


def hash_seed(node: str, *, polarised: bool = False) -> int:
    """Return what a switch's ECMP hash begins with, 32 bits.

    Each switch has its own, or every tier makes the same choice (polarisation); `polarised`: the same everywhere.
    """
    return stable_hash("seed" if polarised else f"seed {node}", 32) or 1


def failover_sysctls(nics: Sequence[PortPlan]) -> list[SetSysctl]:
    """Settings of a host's NICs: where one has several ports in a network, routes of a port whose link is down do not
    count. Written when the ports are there."""
    ports = Counter(nic.network for nic in nics if nic.network != BACKEND)
    return [
        SetSysctl(node=nic.node, key=f"net/ipv4/conf/{nic.name}/ignore_routes_with_linkdown", value="1")
        for nic in nics
        if ports[nic.network] > 1
    ]


def switch_sysctls(node: str, *, forward: bool, balancing: LoadBalancing | None = None) -> tuple[SetSysctl, ...]:
    """`forward` False: a switch whose rails are isolated from each other. `balancing` None: a port without QoS."""
    key, value = ACCESS_WITHOUT_IPV6
    if balancing is not None and balancing.hash is HashEngine.EBPF:
        hashing = tuple(SetSysctl(node=node, key=name, value=setting) for name, setting in _EBPF_HASH)
    else:
        seed = hash_seed(node, polarised=balancing is not None and balancing.polarised)
        hashing = (
            *(SetSysctl(node=node, key=name, value=setting) for name, setting in _KERNEL_HASH),
            # Linux 6.11 or newer.
            SetSysctl(node=node, key="net/ipv4/fib_multipath_hash_seed", value=str(seed), optional=True),
        )
    return (
        # First: changing ip_forward resets other IPv4 settings to the defaults of a router or a host (ip-sysctl.rst).
        SetSysctl(node=node, key="net/ipv4/ip_forward", value="1" if forward else "0"),
        *(SetSysctl(node=node, key=key, value=value) for key, value in _SWITCH),
        *(SetSysctl(node=node, key=key, value="0", optional=True) for key in _BRIDGED_FRAMES),
        *hashing,
        SetSysctl(node=node, key=key, value=value),
    )


def open_ipv6(node: str) -> SetSysctl:
    key, value = FABRIC_WITH_IPV6
    return SetSysctl(node=node, key=key, value=value)


def vrf_sysctls(node: str, *, balancing: LoadBalancing | None = None) -> tuple[SetSysctl, ...]:
    """Return the settings of a VRF: a switch's, and gratuitous ARP makes a neighbour, so that EVPN hears of it."""
    return (
        *switch_sysctls(node, forward=True, balancing=balancing),
        SetSysctl(node=node, key="net/ipv4/conf/default/arp_accept", value="1"),
    )
