"""`homing:` of a network, how a NIC's ports are joined: what goes with each way, and what is refused."""

from __future__ import annotations

from testbed.base.errors import Problem
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.assembly.network_spec import MLAG, ROUTED, NetworkSpec
from testbed.lab.core.fabric.networks import HAND_WRITTEN
from testbed.lab.core.model import BACKEND, Lab, LinkKind, Protocol, VrfBy

_SUBNETS = "homing: subnets"
_Rule = tuple[Path, bool, str, str]
"""A key, whether it is at fault, why, and a hint."""


def find_unbuilt(document: Document, name: str, spec: NetworkSpec, lab: Lab) -> list[Problem]:
    """Find keys of a network that do not go with its homing. `lab` has the networks before it."""
    ibgp = spec.routing.protocol == Protocol.IBGP
    by_hand, overlay = spec.design == HAND_WRITTEN, spec.overlay is not None
    devices = spec.overlay is not None and VrfBy(spec.overlay.evpn.vrf_by) is VrfBy.DEVICE
    guards, qos = spec.guards is not None and bool(spec.guards.guards()), spec.qos is not None
    rules: tuple[_Rule, ...] = ()
    if spec.homing == ROUTED:
        rules = (
            (("routing", "protocol"), ibgp, "hosts speak eBGP with leaves", "protocol: ebgp"),
            (("design",), by_hand, "hosts speak BGP in networks that are generated", "design: leaf-spine"),
            (("overlay",), overlay, "an overlay above hosts that speak BGP is not built", "overlay: none"),
            (("guards",), guards, "guards of routed links are not built", "guards: off"),
            (("qos",), qos, "QoS of hosts that speak BGP is not built", _SUBNETS),
            (("homing",), bool(lab.routed_hosts), "a host speaks BGP in one network alone", _SUBNETS),
        )
    elif spec.homing == MLAG:
        rules = (
            (("nic", "ports"), (spec.nic.ports or 1) > 2, "a NIC has two ports, on two leaves", "nic: {ports: 2}"),
            (("design",), by_hand, "leaves are paired in networks that are generated", "design: leaf-spine"),
            (("overlay",), devices, "VRFs of pairs of leaves are namespaces", "vrf_by: namespace"),
        )
    problems = [
        document.problem("not-built", ("networks", name, *path), f"homing {spec.homing}: {message}", hint=hint)
        for path, wrong, message, hint in rules
        if wrong
    ]
    if spec.lag_by is not None and spec.homing != MLAG:
        message = "lag_by is of link groups, and hosts have none here"
        problems.append(document.problem("contradiction", ("networks", name, "lag_by"), message, hint="homing: mlag"))
    return problems


def check_contained(document: Document, lab: Lab) -> list[Problem]:
    """Find networks whose hosts speak BGP or have link groups, and that have containers, once all nodes are known."""
    found = {
        link.network: ROUTED if link.kind is LinkKind.HOMED else MLAG
        for link in lab.links
        if link.kind in (LinkKind.HOMED, LinkKind.MEMBER)
    }
    problems = []
    for name, homing in found.items():
        contained = next((node for node in lab.of_network(name).nodes if node.container is not None), None)
        if contained is not None:
            backend = name == BACKEND
            path: Path = ("fabric", "nic", "multihoming") if backend else ("networks", name, "homing")
            what = f"multihoming {homing}" if backend else f"homing {homing}"
            message = f"{what}: {contained.name} is a container, and this is built in namespaces alone"
            hint = "multihoming: subnets" if backend else _SUBNETS
            problems.append(document.problem("not-built", path, message, hint=hint))
    return problems


def find_wrong_ports(document: Document, name: str, spec: NetworkSpec, ports: int) -> list[Problem]:
    """Find a `homing` by which NICs of at most so many ports cannot be joined."""
    if spec.homing is None or (spec.homing == "single") == (ports == 1):
        return []
    message = f"homing {spec.homing} is that of {'one port' if ports > 1 else 'several ports'}; a NIC has {ports}"
    hint = "homing: subnets, routed or mlag" if ports > 1 else "nic: {ports: 2}, or homing: single"
    return [document.problem("contradiction", ("networks", name, "homing"), message, hint=hint)]
