"""Writes a lab as a topology of containerlab, with what its nodes need to be that lab: addresses, routes, FRR.

Hosts are Linux containers with tools, switches containers of FRR. What the plan decides is in files beside the
topology that nodes see by `binds`: a script of addresses and routes that `exec` runs, and FRR's configuration. Rates
and delays of links, which containerlab does not make, stand in their `vars`, and roles of switches in labels, so that
`import` makes the same lab of the file.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from testbed.lab.assembly.write import flow_yaml
from testbed.lab.core.model import NETNS, End, Lab, Link, LinkKind, Node, NodeKind
from testbed.lab.core.model.containers import Container
from testbed.lab.core.plan.lab import plan_addresses
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
from testbed.lab.core.render.frr import FrrVersion, daemons_of, render_switch
from testbed.lab.formats.commands import SCRIPT
from testbed.lab.formats.exported import (
    FRR_VERSION,
    HOST_IMAGE,
    SWITCH_IMAGE,
    ExportedFile,
    left_out,
    rate_text,
    time_text,
    written_links,
    written_nodes,
)
from testbed.lab.formats.node_scripts import node_scripts

_GRAPH_LEVELS = {None: 4, 1: 3, 2: 2, 3: 1}
"""Rows of containerlab's graph from the top, by the tier of a switch; hosts stand below."""
_UNPLANNED = "addresses, routes and FRR's configuration: they are files of their own, which -o FILE writes beside it"
_UNWRITTEN = "addresses, routes and FRR's configuration: with tenants or link groups they take more than scripts"


def write_containerlab(lab: Lab, *, beside: str = "") -> ExportedFile:
    """Write a lab. `beside` is the folder, relative to the file, of the files that it names; "": it names none.

    Raises `PlanError` for a lab that cannot be planned.
    """
    missing = list(left_out(lab))
    simple = lab.overlay is None and all(link.kind not in (LinkKind.MEMBER, LinkKind.PEER) for link in lab.links)
    files: dict[str, str] = {}
    if beside and simple:
        ports = {str(end) for a, b, _ in written_links(lab) for end in (a, b)}
        files = _files(plan_addresses(lab), ports, beside)
    else:
        missing.append(_UNPLANNED if simple else _UNWRITTEN)
    lines = [f"# {lab.name}, exported from testbed.", f"name: {flow_yaml(lab.name)}", "topology:", "  nodes:"]
    for node in written_nodes(lab):
        mine = [path for path in files if path.startswith(f"{beside}/{node.name}/")]
        lines.append(f"    {flow_yaml(node.name)}: {flow_yaml(_node(node, mine))}")
    lines.append("  links:")
    lines += [f"    - {flow_yaml(_link(a, b, link))}" for a, b, link in written_links(lab)]
    return ExportedFile(text="\n".join([*lines, ""]), files=files, left_out=tuple(missing))


# ------------------------------------------------------------------ nodes and links


def _node(node: Node, files: list[str]) -> dict[str, Any]:
    is_switch = node.kind in (NodeKind.SWITCH, NodeKind.ROUTER)
    container = node.container
    tier = None if node.role is None else node.role.tier
    role = {"role": str(node.role or NodeKind.HOST)} if node.kind is not NodeKind.ROUTER else {}
    labels = {**node.labels, **role, "graph-level": str(_GRAPH_LEVELS[tier])}
    labels |= {"runtime": NETNS} if container is None else {}
    found: dict[str, Any] = {
        "kind": "linux",
        "image": (SWITCH_IMAGE if is_switch else HOST_IMAGE) if container is None else container.image,
        "labels": labels,
    }
    if node.env:
        found["env"] = dict(node.env)
    binds = [f"{path}:{_TARGETS[path.rpartition('/')[2]]}" for path in files]
    if container is not None:
        binds += [f"{bind.source}:{bind.target}{':ro' if bind.read_only else ''}" for bind in container.binds]
        found |= _limits(container)
    if binds:
        found["binds"] = binds
    commands = [f"sh {SCRIPT}"] if any(path.endswith("/setup.sh") for path in files) else []
    commands += [shlex.join(command) for command in node.exec]
    if commands:
        found["exec"] = commands
    return found


def _limits(container: Container) -> dict[str, Any]:
    """The settings of a container beside its image and binds, in containerlab's words."""
    found: dict[str, Any] = {}
    if container.entrypoint is not None:
        found["entrypoint"] = shlex.join(container.entrypoint)
    if container.command is not None:
        found["cmd"] = shlex.join(container.command)
    if container.cpus is not None:
        found["cpu"] = container.cpus
    if container.memory_bytes is not None:
        found["memory"] = f"{container.memory_bytes}b"
    if container.capabilities:
        found["cap-add"] = list(container.capabilities)
    if (check := container.health_check) is not None:
        times = {"interval": check.interval, "timeout": check.timeout, "start-period": check.start_period}
        seconds = {key: max(1, round(time.ns / 10**9)) for key, time in times.items() if time is not None}
        found["healthcheck"] = {"test": ["CMD", *check.test], **seconds, "retries": check.retries}
    return found


def _link(a: End, b: End, link: Link) -> dict[str, Any]:
    said = {"rate": rate_text(link.rate)}
    if link.delay is not None:
        said["delay"] = time_text(link.delay.value)
        said |= {"jitter": time_text(link.delay.jitter)} if link.delay.jitter else {}
    said |= {"loss": f"{100 * link.loss:g}%"} if link.loss else {}
    said |= {"prefix": str(link.prefix)} if link.prefix is not None else {}
    return {"endpoints": [str(a), str(b)], "mtu": link.mtu_bytes, "vars": {**said, **link.labels}}


# ------------------------------------------------------------------ files beside

_TARGETS: Mapping[str, str] = {
    "setup.sh": f"{SCRIPT}:ro",
    "frr.conf": "/etc/frr/frr.conf",
    "daemons": "/etc/frr/daemons",
    "vtysh.conf": "/etc/frr/vtysh.conf",
}
"""The path at which a node sees each of its files."""


def _files(plan: LabPlan, ports: Collection[str], beside: str) -> dict[str, str]:
    """The files of all nodes by their paths: a script each, and of those that route FRR's."""
    files = {f"{beside}/{node}/setup.sh": script for node, script in node_scripts(plan, ports).items()}
    version = FrrVersion.parse(FRR_VERSION)
    for speaker in plan.speakers:
        folder = f"{beside}/{speaker.node}"
        files[f"{folder}/frr.conf"] = _frr_configuration(speaker, plan.lab, version)
        files[f"{folder}/daemons"] = "".join(
            f"{daemon}=yes\n" for daemon in daemons_of(speaker, version) if daemon in ("bgpd", "bfdd")
        )
        files[f"{folder}/vtysh.conf"] = "service integrated-vtysh-config\n"
    return files


def _frr_configuration(speaker: SwitchPlan, lab: str, version: FrrVersion) -> str:
    open_plan = replace(speaker, password=False, monitoring=None)
    return render_switch(open_plan, lab=lab, version=version, log_directory="/tmp").integrated
