"""The lab directory `testbed-<lab>/`: what other tools read about a deployed lab.

`topology-data.json` has nodes, addresses and links; `ansible-inventory.yml` groups nodes by kind and role.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from testbed.base.names import namespace_name
from testbed.lab.core.deploy.records.journal import Journal, writing_state
from testbed.lab.core.model import Lab
from testbed.lab.core.model.containers import CONTAINER_RUNTIMES
from testbed.lab.core.plan.lab_plan import LabPlan

ORIGIN_FILE = ".deployed-on"
"""In a lab directory that a verb on another machine brought here: which machine that is."""
DATA_FILE = "topology-data.json"
INVENTORY_FILE = "ansible-inventory.yml"
REMOVED_VARIABLE = "TESTBED_REMOVED_PATHS"
"""Names a file for the paths that labs had here and that are removed, a JSON string for each line: whoever runs a verb
from another machine has copies of them."""


def topology_data(lab: Lab, plan: LabPlan) -> dict[str, Any]:
    """Everything decided about a lab, as plain data."""
    speakers = {speaker.node: speaker for speaker in plan.speakers}
    ports: dict[str, list[dict[str, Any]]] = {}
    for port in plan.ports:
        ports.setdefault(port.node, []).append(
            {
                "name": port.name,
                "mac": port.mac,
                "mtu": port.mtu_bytes,
                "peer": port.peer,
                "rail": port.rail or None,
                "address": str(port.address) if port.address else None,
                "gateway": str(port.gateway) if port.gateway else None,
                **({"address6": str(port.address6), "gateway6": str(port.gateway6)} if port.address6 else {}),
                "line_rate_bps": port.line_rate_bps,
                "lab_rate_bps": port.rate_bps,
            }
        )
    nodes: dict[str, Any] = {}
    for node in lab.nodes:
        entry: dict[str, Any] = {
            "kind": node.kind.value,
            "role": node.role.value if node.role else None,
            "namespace": namespace_name(lab.name, node.name),
            "runtime": node.runtime,
            "image": None if node.container is None else node.container.image,
            "labels": dict(node.labels),
            "interfaces": ports.get(node.name, []),
        }
        if node.name in speakers:
            entry["asn"] = speakers[node.name].asn
            entry["loopback"] = str(speakers[node.name].loopback)
        nodes[node.name] = entry
    delay_by = {f"{port.node}:{port.name}": port.delay_by.value for port in plan.ports}
    links = [
        {
            "a": str(link.a),
            "b": str(link.b),
            "kind": link.kind.value,
            "rate_bps": link.rate.bps,
            "mtu": link.mtu_bytes,
            "delay_ns": link.delay.value.ns if link.delay else 0,
            "delay_by": delay_by[str(link.a)],
        }
        for link in lab.links
    ]
    return {
        "schema": 1,
        "name": lab.name,
        "design": lab.design or None,
        "source": lab.source,
        "scale": {"time": plan.k},
        "nodes": nodes,
        "links": links,
    }


def ansible_inventory(lab: Lab, plan: LabPlan) -> dict[str, Any]:
    """An Ansible inventory: groups by kind and role, each host with its address and namespace.

    The address is that of management where nodes have one.
    """
    groups: dict[str, dict[str, Any]] = {}
    addresses = {switch.node: str(switch.loopback.ip) for switch in plan.switches}
    for host in plan.hosts:
        addresses[host.node] = next((str(nic.address.ip) for nic in host.nics if nic.address), "")
    if plan.management is not None:
        addresses |= {node: str(address.ip) for node, address in plan.management.addresses.items()}
    for node in lab.nodes:
        group = f"{node.kind.value}_{node.role.value.replace('-', '_')}" if node.role else node.kind.value
        members = groups.setdefault(group, {"hosts": {}})["hosts"]
        members[node.name] = {
            "ansible_host": addresses.get(node.name, ""),
            "testbed_namespace": namespace_name(lab.name, node.name),
        }
        if node.container is not None and (plugin := CONTAINER_RUNTIMES[node.runtime].ansible_connection):
            # That connection's address is the container's name.
            members[node.name] |= {"ansible_connection": plugin, "ansible_host": namespace_name(lab.name, node.name)}
    return {"all": {"vars": {"testbed_lab": lab.name}, "children": groups}}


def write_lab_directory(
    lab: Lab, plan: LabPlan, directory: Path, journal: Journal, before: tuple[Lab, LabPlan] | None = None
) -> None:
    """Write the lab directory, journalling each path before it exists; a directory that was there stays.

    `before` is what the directory says so far, None where nobody knows: a file of it that is there and would say the
    same again stays. Raises `StateError`.
    """
    if not directory.is_dir():
        journal.path(directory)
    with writing_state(directory):
        directory.mkdir(parents=True, exist_ok=True)
    (directory / ORIGIN_FILE).unlink(missing_ok=True)  # the directory is this machine's from now on
    known = set(journal.read().paths)
    data, inventory = directory / DATA_FILE, directory / INVENTORY_FILE
    alike = before is not None and _told(*before) == _told(lab, plan)
    if not (alike and data.is_file()):
        _write(data, _encode(topology_data(lab, plan)), journal, known)
    hosts = ansible_inventory(lab, plan)
    if not (before is not None and inventory.is_file() and ansible_inventory(*before) == hosts):
        _write(inventory, yaml.dump(hosts, Dumper=_Dumper, sort_keys=False), journal, known)


def _told(lab: Lab, plan: LabPlan) -> tuple[Any, ...]:
    """Return all that `topology_data` is made of: to compare it takes less than to make it."""
    speakers = [(speaker.node, speaker.asn, speaker.loopback) for speaker in plan.speakers]
    return lab.name, lab.design, lab.source, plan.k, speakers, lab.nodes, lab.links, plan.ports


def _write(path: Path, content: str, journal: Journal, known: Collection[Path]) -> None:
    if path not in known:
        journal.path(path)
    with writing_state(path):
        path.write_text(content)


def _encode(data: dict[str, Any]) -> str:
    """JSON with a line for each node and link: readable, and encoded in C (indenting is not: 20 times slower)."""
    nodes = ",\n".join(f"  {json.dumps(name)}: {json.dumps(node)}" for name, node in data["nodes"].items())
    links = ",\n".join(f"  {json.dumps(link)}" for link in data["links"])
    head = json.dumps({key: value for key, value in data.items() if key not in ("nodes", "links")})
    return f'{head[:-1]},\n "nodes": {{\n{nodes}\n }},\n "links": [\n{links}\n ]\n}}\n'


_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def remove_paths(paths: list[Path]) -> None:
    """Remove journalled files, then directories that are empty: whatever a user put there stays."""
    for path in reversed(paths):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if path.is_dir() and not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.rmdir()
            else:
                path.unlink()
    told = os.environ.get(REMOVED_VARIABLE)
    if told and Path(told).exists():
        with Path(told).open("a") as stream:
            stream.writelines(f"{json.dumps(str(path))}\n" for path in paths)
