"""Kernel settings of a node, as `SetSysctl` operations.

They are written before any interface exists, because a new interface copies `conf/default` and
because a namespace of IPv4 starts with the settings of the machine, whatever they are
(net.core.devconf_inherit_init_net).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from testbed.base.datapath.abi import FIVE_TUPLE
from testbed.lab.core.model import BACKEND, HashEngine, HashField, LoadBalancing
from testbed.lab.core.model.tcp import DEFAULT_TCP_CC, FALLBACK_TCP_CC
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.operations import SetSysctl
from testbed.lab.core.plan.stable import seed_of_run, stable_hash

_TCP = (("net/ipv4/tcp_no_metrics_save", "1"),)
"""A connection begins without what an earlier one to the same host has learnt (ssthresh, RTT): runs are alike."""
_TCP_CC = tuple(("net/ipv4/tcp_congestion_control", name) for name in (FALLBACK_TCP_CC, DEFAULT_TCP_CC))
"""Not the machine's own, which a namespace begins with. The first stays where the kernel lacks the second; a machine
may let namespaces have neither (tcp_allowed_congestion_control)."""
_ONE_PATH = (("net/core/txrehash", "0"),)
"""The hash that a TCP socket gives its packets stays after a time-out (ip-sysctl.rst; Linux 5.18 or newer). A VXLAN
device draws the source port of what it wraps by it, where no program of a port has set another: a connection would take
another path each time, which no switch of a data centre would have it do."""

_HOST = (
    # The kernel uses max(all, interface) for each of these (ip-sysctl.rst).
    ("net/ipv4/conf/all/rp_filter", "0"),  # multi-homed: replies may leave by another NIC
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/arp_ignore", "1"),  # a NIC answers for its own address only: rails stay apart
    ("net/ipv4/conf/all/arp_announce", "2"),
    ("net/ipv6/conf/all/disable_ipv6", "1"),  # sets `default` and what exists too (addrconf_disable_ipv6)
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

HOMED = (
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/dad_transmits", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),  # a leaf's advertisements are for FRR: no default route comes of them
    ("net/ipv4/tcp_orphan_retries", "1"),
    ("net/ipv4/fib_multipath_hash_policy", "1"),  # by addresses and ports, as switches do
)
"""The settings of a host that speaks BGP, which a switch has for the same reasons."""

_BRIDGED_IPV4, _BRIDGED_IPV6 = "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"
"""With br_netfilter loaded, these have the namespace's packet filter take part in each frame that a bridge forwards.
A switch has no rules that would look into them. But a packet that is routed leaves its sender's socket in `ip_rcv`, and
one that is bridged only in `setup_pre_routing` of br_netfilter: without, it counts against the socket's buffer for as
long as it waits in the switch, as if it were still in the NIC. The buffer would be a window over the fabric's queue."""

_SERVER = (("net/ipv4/ip_forward", "0"), ("net/ipv4/conf/all/accept_source_route", "0"))
"""The settings of the server of the out-of-band network, beside a host's."""

_BRIDGE = (("net/ipv4/ip_forward", "0"), ("net/ipv6/conf/all/disable_ipv6", "1"))
"""The settings of the switch of the out-of-band network, which has no address."""

MANAGED = (("net/ipv4/conf/all/accept_source_route", "0"),)  # a packet's options must not lead it on past the guard
"""The settings of a host that has a management port beside its other ports."""

MANAGED_SWITCH = (
    *MANAGED,
    ("net/ipv4/conf/all/arp_ignore", "1"),  # as on a host: no port answers for the address of another
    ("net/ipv4/conf/all/arp_announce", "2"),
)

_HASH_FIELDS = "net/ipv4/fib_multipath_hash_fields"
"""With policy 3, which ignores the sender's socket hash, as that survives veth (policy 1 does not)."""
_KERNEL_FIELDS = {
    HashField.SOURCE: 1,
    HashField.DESTINATION: 2,
    HashField.PROTOCOL: 4,
    HashField.SOURCE_PORT: 0x10,
    HashField.DESTINATION_PORT: 0x20,
}
"""Its bits (ip-sysctl.rst, fib_multipath_hash_fields)."""

_EBPF_HASH = (
    # The kernel takes the hash that the port's ingress program has set (fib_multipath_hash, case 1: skb->l4_hash).
    ("net/ipv4/fib_multipath_hash_policy", "1"),
    ("net/ipv6/fib_multipath_hash_policy", "1"),
)

HASH_SEED = "net/ipv4/fib_multipath_hash_seed"
"""The seed of the kernel's own hash in a namespace. Linux 6.11 or newer."""

ACCESS_WITHOUT_IPV6 = (("net/ipv6/conf/default/disable_ipv6", "1"),)
"""In force while bridges and access ports are created: thousands of them would run DAD and MLD."""
FABRIC_WITH_IPV6 = (("net/ipv6/conf/default/disable_ipv6", "0"),)
"""In force while fabric ports are created: unnumbered BGP needs their link-local addresses."""
OPEN_HOMED = (*FABRIC_WITH_IPV6, ("net/ipv4/conf/default/ignore_routes_with_linkdown", "1"))
"""In force while the ports are created that a host speaks BGP on: they have IPv6, and routes over one whose link is
down do not count."""


def settings(node: str, pairs: Iterable[tuple[str, str]], *, optional: bool = False) -> tuple[SetSysctl, ...]:
    """Return such settings of a node; those that are optional may be lacking in its kernel."""
    return tuple(SetSysctl(node=node, key=key, value=value, optional=optional) for key, value in pairs)


def host_sysctls(node: str) -> tuple[SetSysctl, ...]:
    return settings(node, _HOST) + tcp_sysctls(node)


def tcp_sysctls(node: str) -> tuple[SetSysctl, ...]:
    """Return the settings of a node that opens connections which are measured."""
    return settings(node, _TCP) + settings(node, _TCP_CC + _ONE_PATH, optional=True)


def server_sysctls(node: str) -> tuple[SetSysctl, ...]:
    """Return the settings of the server of the out-of-band network."""
    return settings(node, _SERVER) + host_sysctls(node)


def bridge_sysctls(node: str) -> tuple[SetSysctl, ...]:
    """Return the settings of the switch of the out-of-band network."""
    return settings(node, _BRIDGE) + settings(node, ((_BRIDGED_IPV4, "0"), (_BRIDGED_IPV6, "0")), optional=True)


def hash_seed(node: str, *, polarised: bool = False, run: int | None = None) -> int:
    """Return what a switch's ECMP hash begins with, 32 bits.

    Each switch has its own, or every tier makes the same choice (polarisation); `polarised`: the same everywhere.
    `run` is the run whose seeds are wanted, None for the one of seed 1.
    """
    seed = stable_hash("seed" if polarised else f"seed {node}", 32) or 1
    return seed if run is None else seed_of_run(seed, run)


def planned_seed(node: str, balancing: LoadBalancing) -> int:
    """Return what a switch's hash begins with where nothing else is said: that of the run which the file names."""
    return hash_seed(node, polarised=balancing.polarised, run=balancing.seed)


def failover_sysctls(nics: Sequence[PortPlan]) -> list[SetSysctl]:
    """Settings of a host's NICs that have subnets. Written when the ports are there.

    Where a host has several ports in a network, routes of a port whose link is down do not count.
    """
    ports = Counter(nic.network for nic in nics if nic.network != BACKEND)
    return [
        SetSysctl(node=nic.node, key=f"net/ipv4/conf/{nic.name}/ignore_routes_with_linkdown", value="1")
        for nic in nics
        if ports[nic.network] > 1 and nic.gateway is not None
    ]


def switch_sysctls(node: str, *, forward: bool, balancing: LoadBalancing | None = None) -> tuple[SetSysctl, ...]:
    """`forward` False: a switch whose rails are isolated from each other. `balancing` None: a port without QoS."""
    if balancing is not None and balancing.hash is HashEngine.EBPF:
        hashing = settings(node, _EBPF_HASH)
    else:
        seed = hash_seed(node) if balancing is None else planned_seed(node, balancing)
        fields = FIVE_TUPLE if balancing is None else balancing.hash_fields
        bits = str(sum(_KERNEL_FIELDS[field] for field in fields))
        hashing = settings(node, (("net/ipv4/fib_multipath_hash_policy", "3"), (_HASH_FIELDS, bits)))
        hashing += settings(node, ((HASH_SEED, str(seed)),), optional=True)
    return (
        # First: changing ip_forward resets other IPv4 settings to the defaults of a router or a host (ip-sysctl.rst).
        SetSysctl(node=node, key="net/ipv4/ip_forward", value="1" if forward else "0"),
        *settings(node, _SWITCH),
        *settings(node, ((_BRIDGED_IPV4, "1"), (_BRIDGED_IPV6, "0")), optional=True),
        *hashing,
        *settings(node, ACCESS_WITHOUT_IPV6),
    )


def dual_stack_sysctls(node: str, interface: str, *, router: bool) -> tuple[SetSysctl, ...]:
    """Return what gives one interface IPv6 in a node whose interfaces have none unless told so. It is there already.

    Its addresses are usable at once and stay while it is down, as those of IPv4 do; nothing is taken from router
    advertisements. A `router` forwards, and an advertisement makes a neighbour (RFC 9131), as gratuitous ARP does: the
    answer to another leaf, which has the same addresses, comes to the one that the NIC is on.
    """
    place = f"net/ipv6/conf/{interface}"
    values = (
        ("accept_dad", "0"),
        ("dad_transmits", "0"),
        ("accept_ra", "0"),
        ("keep_addr_on_down", "1"),
        ("forwarding", "1" if router else "0"),
        ("disable_ipv6", "0"),  # last: it gives itself its link-local address at once
    )
    accepts = ((f"{place}/accept_untracked_na", "1"),) if router else ()  # Linux 5.19 or newer
    return settings(node, accepts, optional=True) + settings(node, [(f"{place}/{key}", value) for key, value in values])


def vrf_sysctls(node: str, *, balancing: LoadBalancing | None = None) -> tuple[SetSysctl, ...]:
    """Return the settings of a VRF: a switch's, and gratuitous ARP makes a neighbour, so that EVPN hears of it."""
    return (
        *switch_sysctls(node, forward=True, balancing=balancing),
        *settings(node, (("net/ipv4/conf/default/arp_accept", "1"),)),
    )
