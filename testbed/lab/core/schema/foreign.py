"""Hints for the words of other tools: containerlab (containerlab.dev/manual) and netlab (netlab.tools).

A file that was made for one of them is refused, and for each of its keys, kinds, link types and ends a user is told
what says the same here. The tables are by the place of a word; where what a key means depends on its value, there is a
table of values, in which "" is for all others.
"""

from __future__ import annotations

from collections.abc import Mapping

Hints = Mapping[str, str | Mapping[str, str]]

_MANAGEMENT = "write networks: {oob: {design: out-of-band, prefix: 192.0.2.0/24}}"
_ADDRESS = "remove it: networks: {oob: {design: out-of-band}} gives every node a management port and address"
_CONFIGURATION = "remove it: routing is planned and FRR configured from it; exec lists commands that run after that"
_WAIT = "remove it: deploy waits until routing has converged"
_PER_CONTAINER = (
    "remove it: only image, binds, env, exec, cmd, entrypoint, cpu, memory, capabilities, healthcheck count"
)
_NO_PORTS = "remove it: no port is published here; `testbed exec NODE COMMAND` runs a client in the lab"
_PLANNED = "remove it: addresses are planned; a link of a host in topology.links may have prefix: 192.0.2.0/31"
_ROUTED = "remove it: testbed configures BGP; fabric: {routing: {protocol: ebgp}} says how, asn a switch's AS number"
_OVERLAY = "write fabric: {overlay: evpn} and a section tenants, with the subnets of each tenant"
_SWITCH = "write kind: switch, with role: rail, leaf, spine or super-spine; all switches route with FRR"
_MACHINE = "write kind: host: a virtual machine is not run, its place is taken by a namespace or a container"
_LINK_OUT = "a link joins two nodes; a way out is networks: {oob: {design: out-of-band}}"
_VXLAN_LINK = "VXLAN is between switches of the lab, by fabric: {overlay: evpn}"

FILE_KEYS: Hints = {
    # containerlab
    "mgmt": _MANAGEMENT,
    "prefix": "remove it: names of namespaces cannot be chosen: they are <lab>-<node>",
    "settings": "remove it: certificates are not made",
    "debug": "remove it: testbed --log-level debug says what it does",
    # both
    "defaults": "write it below topology: topology: {defaults: {kind: host}}",
    "groups": "write it below topology: topology: {groups: {NAME: {kind: switch, role: spine}}}",
    "kinds": "write it below topology: topology: {kinds: {switch: {...}}}",
    # netlab
    "nodes": "write it below topology, as a mapping: topology: {nodes: {leaf1: {kind: switch, role: rail}}}",
    "links": 'write it below topology, with ports: topology: {links: [{endpoints: ["h1:eth1", "leaf1:eth2"]}]}',
    "provider": "remove it: a node is a network namespace, or a container with runtime: docker",
    "module": "remove it: BGP and BFD are keys of fabric.routing, VXLAN and EVPN are fabric: {overlay: evpn}",
    "plugin": "remove it: fabric: {design: rail-optimized} generates a fabric; `testbed generate` lists designs",
    "addressing": "remove it: addresses are planned; for a network, write networks: {NAME: {prefix: 192.168.0.0/18}}",
    "mtu": "write fabric: {mtu: 9000}",
    "bgp": _ROUTED,
    "ospf": _ROUTED,
    "isis": _ROUTED,
    "eigrp": _ROUTED,
    "routing": "write fabric: {routing: {protocol: ebgp}}",
    "bfd": "write fabric: {routing: {bfd: {interval: 300ms, multiplier: 3}}}",
    "vrfs": _OVERLAY,
    "vrf": _OVERLAY,
    "vlans": _OVERLAY,
    "vlan": _OVERLAY,
    "vxlan": "write fabric: {overlay: evpn}",
    "evpn": "write fabric: {overlay: evpn}",
    "gateway": "remove it: a host's gateway is its switch",
    "mpls": "remove it: MPLS is not built",
    "sr": "remove it: segment routing is not built",
    "srv6": "remove it: segment routing is not built",
    "lag": "write networks: {NAME: {homing: mlag, nic: {ports: 2}}}: bonds of hosts to two leaves",
    "stp": "remove it: switches route, and no loop needs a spanning tree",
    "dhcp": "remove it: addresses are planned",
    "tools": "remove it: `testbed serve` gives Prometheus what a lab measures",
    "validate": "remove it: `testbed check` tests a live lab; a scenario's expect says what must be measured",
    "message": "remove it, or write a comment: # ...",
    "version": "remove it: files have no version",
    "prefixes": "remove it: addresses are planned",
    "device": "remove it: every switch is FRR",
    "defaults.device": "remove it: every switch is FRR",
    "hosts": "write fabric: {design: rail-optimized, hosts: 4}, or topology: {nodes: {h1: {kind: host}}}",
    "spines": "write fabric: {design: rail-optimized, spines: 2}",
    "fabric.spines": "write fabric: {design: rail-optimized, spines: 2}",
    "fabric.leafs": "write fabric: {design: rail-optimized, segments: 4, gpus: 1}: a rail switch for each segment",
}

NODE_KEYS: Hints = {
    # containerlab
    "type": "remove it: it chooses a chassis, and every switch is FRR",
    "enforce-startup-config": _CONFIGURATION,
    "suppress-startup-config": _CONFIGURATION,
    "config": _CONFIGURATION,
    "startup-delay": _WAIT,
    "wait-for": _WAIT,
    "stages": _WAIT,
    "mgmt-ipv4": _ADDRESS,
    "mgmt-ipv6": _ADDRESS,
    "mgmt_ipv4": _ADDRESS,
    "mgmt_ipv6": _ADDRESS,
    "ports": _NO_PORTS,
    "publish": _NO_PORTS,
    "network-mode": "remove it: a node has a network namespace of its own",
    "license": "remove it: FRR needs none",
    "image-pull-policy": "remove it: pull a missing image yourself with `docker pull IMAGE`",
    "restart-policy": "remove it: a node that dies stays dead, as a fault in a scenario needs it",
    "auto-remove": "remove it: destroy removes every container of the lab",
    "user": _PER_CONTAINER,
    "env-files": "write the variables: env: {NAME: value}",
    "cap-add": "write capabilities: [NET_ADMIN]",
    "sysctls": 'write exec: ["sysctl -w KEY=VALUE"]',
    "dns": "remove it: names of nodes are served by networks: {oob: {design: out-of-band, services: [dns]}}",
    "certificate": _PER_CONTAINER,
    "SANs": _PER_CONTAINER,
    "cpu-set": "write cpu: 2 for a number of CPUs; which ones, the kernel chooses",
    "shm-size": _PER_CONTAINER,
    "devices": _PER_CONTAINER,
    "tmpfs": _PER_CONTAINER,
    "extras": _PER_CONTAINER,
    "credentials": _PER_CONTAINER,
    "components": "remove it: it is the line cards of a chassis, and every switch is FRR",
    "aliases": "remove it: a node has one name",
    "position": "remove it: `testbed graph` lays nodes out by their tier",
    "sandbox": _PER_CONTAINER,
    "kernel": "remove it: all nodes share this machine's kernel",
    # netlab
    "device": _SWITCH,
    "box": "write image: NAME, with runtime: docker",
    "id": "remove it: addresses are planned",
    "loopback": "remove it: loopbacks are planned",
    "mgmt": _ADDRESS,
    "interfaces": "remove it: a port is named where a link ends, as leaf1:eth1",
    "module": "remove it: what a switch runs is said for all by fabric.routing and fabric.overlay",
    "provider": "write runtime: docker for a container; without it a node is a network namespace",
    "bgp": "write asn: 65001",
    "ospf": _ROUTED,
    "isis": _ROUTED,
    "vlans": _OVERLAY,
    "vrfs": _OVERLAY,
    "vxlan": _OVERLAY,
    "mtu": "write mtu: 9000 in fabric, in a network or at a link",
    "unmanaged": "remove it: a lab has nodes of its own alone",
    "clab": "write its keys themselves: image, binds, env, exec",
    "libvirt": _MACHINE,
    "members": "write group: NAME at each node of the group",
    "node_data": "write the keys themselves in the group",
}

KINDS: Mapping[str, str] = {
    "linux": "write kind: host for a server; kind: switch, with a role, for a router such as FRR",
    "host": "write kind: host: a server of the lab; this machine itself is no node",
    "bridge": "write kind: switch, role: leaf: nodes are joined by switches that route, not by a bridge",
    "ovs-bridge": "write kind: switch, role: leaf: nodes are joined by switches that route, not by a bridge",
    "ext-container": "write kind: host, with runtime: docker and image: a container of another tool is no node",
    "k8s-kind": "write a kind: host for each worker: a Kubernetes cluster is not made",
    "mysocketio": "remove the node: " + _NO_PORTS.removeprefix("remove it: "),
    "border0": "remove the node: " + _NO_PORTS.removeprefix("remove it: "),
    "rare": _SWITCH,
    **dict.fromkeys(
        ("keysight_ixia-c-one", "spirent_stc", "ostinato"), "write kind: host: a scenario's workload sends the traffic"
    ),
    "generic_vm": _MACHINE,
    "openbsd": _MACHINE,
    "freebsd": _MACHINE,
    "windows": _MACHINE,
    **dict.fromkeys(
        (
            *("srl", "nokia_srlinux", "nokia_sros", "nokia_srsim", "ceos", "arista_ceos", "arista_veos", "crpd"),
            *("juniper_crpd", "juniper_vmx", "juniper_vqfx", "juniper_vsrx", "juniper_vjunosrouter", "dell_ftosv"),
            *("juniper_vjunosswitch", "juniper_vjunosevolved", "juniper_cjunosevolved", "sonic-vs", "sonic-vm"),
            *("dell_sonic", "cvx", "cumulus_cvx", "cisco_xrd", "cisco_xrv", "cisco_xrv9k", "cisco_csr1000v"),
            *("6wind_vsr", "cisco_n9kv", "cisco_c8000", "cisco_c8000v", "cisco_cat9kv", "cisco_iol", "cisco_asav"),
            *("cisco_vios", "cisco_ftdv", "cisco_sdwan", "aruba_aoscx", "mikrotik_ros", "ipinfusion_ocnos"),
            *("huawei_vrp", "fdio_vpp", "vyosnetworks_vyos", "arrcus_arcos", "paloalto_panos"),
            *("checkpoint_cloudguard", "fortinet_fortigate", "f5_bigip-ve", "frr", "frrouting", "router"),
            *("cumulus", "openwrt"),
            *("cumulus_nvue", "eos", "vyos", "routeros", "iosv", "nxos", "bird", "leaf", "spine", "tor", "rail"),
            *("vr-sros", "vr-nokia_sros", "vr-vmx", "vr-juniper_vmx", "vr-vqfx", "vr-juniper_vqfx", "vr-xrv"),
            *("vr-cisco_xrv", "vr-xrv9k", "vr-cisco_xrv9k", "vr-nxos", "vr-cisco_nxos", "vr-veos", "vr-arista_veos"),
            *("vr-csr", "vr-cisco_csr", "vr-pan", "vr-paloalto_panos", "vr-ros", "vr-mikrotik_ros", "vr-n9kv"),
            *("vr-cisco_n9kv", "vr-ftosv", "vr-dell_ftosv"),
        ),
        _SWITCH,
    ),
    **dict.fromkeys(("server", "vm", "gpu", "node", "client", "container", "docker"), "write kind: host"),
}
"""Kinds of nodes, and devices of netlab."""

LINK_KEYS: Hints = {
    "type": {
        "": "remove it: a link joins two ports of nodes, whatever it is made of",
        "veth": "remove it: every link is one already",
        "mgmt-net": "remove the link: networks: {oob: {design: out-of-band}} gives every node a management port",
        "macvlan": "remove the link: " + _LINK_OUT,
        "host": "remove the link: " + _LINK_OUT,
        "vxlan": "remove the link: " + _VXLAN_LINK,
        "vxlan-stitch": "remove the link: " + _VXLAN_LINK,
        "dummy": "remove the link: a port that leads nowhere needs none",
        "lag": "write the links of the bundle one by one: they are equal paths",
        "lan": "join the nodes to a switch: a link joins two nodes",
        "p2p": "remove it: every link is one already",
        "stub": "remove the link: a link joins two nodes",
        "loopback": "remove the link: loopbacks are planned",
    },
    "endpoint": 'write endpoints: ["leaf1:eth1", "h1:eth1"], the two ends of the link',
    "remote": "remove it: " + _VXLAN_LINK,
    "vni": "remove it: VNIs are keys of tenants and their subnets",
    "udp-port": "remove it: VXLAN has port 4789",
    "dst-udp-port": "remove it: VXLAN has port 4789",
    "src-udp-port": "remove it: VXLAN has port 4789",
    "host-interface": "remove it: " + _LINK_OUT,
    "mode": "remove it: " + _LINK_OUT,
    "vars": "write labels: {NAME: value}",
    "ipv4": _PLANNED,
    "ipv6": "remove it: links between switches have link-local addresses (RFC 5549)",
    # netlab
    "bandwidth": "write rate: 100G",
    "interfaces": 'write endpoints: ["leaf1:eth1", "h1:eth1"], the two ends of the link',
    "bridge": "join the nodes to a switch: a link joins two nodes",
    "name": "write labels: {name: ...}",
    "role": "remove it: a link is what its ends' roles make of it",
    "pool": _PLANNED,
    "unnumbered": "remove it: links between switches are unnumbered",
    "vlan": _OVERLAY,
    "linkindex": "remove it",
    "disable": "remove it; a scenario's faults take links down",
}

ENDS: Mapping[str, str] = {
    "host": "remove the link: " + _LINK_OUT,
    "macvlan": "remove the link: " + _LINK_OUT,
    "mgmt-net": "remove the link: networks: {oob: {design: out-of-band}} gives every node a management port",
    "dummy": "remove the link: a port that leads nowhere needs none",
    "vxlan": "remove the link: " + _VXLAN_LINK,
    "vxlan-stitch": "remove the link: " + _VXLAN_LINK,
}
"""Words at the place of a node in links of containerlab that lead out of the lab."""


KIND_SECTIONS: Hints = {
    kind: f"write {'switch' if hint.startswith('write kind: switch') else 'host'}: the kinds are host and switch"
    for kind, hint in KINDS.items()
    if kind != "host"
} | {"linux": "write host: for servers, and switch: for routers such as FRR"}
"""Hints for a kind before a colon, below `topology.kinds`."""

ROLES: Mapping[str, str] = {
    **dict.fromkeys(("tor", "access", "edge"), "write rail in the fabric, or leaf in a network"),
    **dict.fromkeys(("aggregation", "agg", "fabric"), "write spine"),
    **dict.fromkeys(("core", "superspine", "super_spine"), "write super-spine"),
}
"""Other names of a switch's tier."""

DESIGNS: Mapping[str, str] = dict.fromkeys(
    ("clos", "leaf-spine", "spine-leaf", "fat-tree", "fattree"),
    "write rail-optimized, with gpus: 1 for one leaf in each segment; networks have design: leaf-spine",
)
"""Other names of a Clos network."""

PROTOCOLS: Mapping[str, str] = {
    **dict.fromkeys(("bgp", "ospf", "isis", "static"), "write ebgp, which needs nothing beside it, or ibgp"),
}
"""Routing protocols that are not used in a fabric (RFC 7938)."""
