"""The scenario as its record keeps it: plain data, and nothing about where files lie."""

from __future__ import annotations

import json

from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.written import scenario_as_run

TEXT = """name: traced
topology: {inline: {name: pod, fabric: {design: rail-only}}, set: {fabric.hosts: 2}}
workload:
  kind: tenants
  tenants:
    - {name: a, start: 1ms, workload: {kind: trace, file: secret/place/a.cm, unbounded_bytes: 1MB}}
    - {ranks: [2, 3], workload: {kind: all-reduce, bytes: 2bdp}}
"""


def test_files_are_named_without_their_place() -> None:
    written = scenario_as_run(load_scenario_text(TEXT, file="/home/somebody/s.yml").scenario)
    assert written.workload["tenants"] == [
        {"name": "a", "start": "1 ms", "workload": {"kind": "trace", "file": "a.cm", "unbounded_bytes": "1 MB"}},
        {"ranks": [2, 3], "workload": {"kind": "all-reduce", "bytes": "2bdp"}},
    ]
    assert written.topology == {
        "inline": {"name": "pod", "fabric": {"design": "rail-only"}},
        "set": {"fabric.hosts": 2},
    }
    kept = json.dumps([written.topology, written.workload, written.source])
    assert "secret" not in kept and "somebody" not in kept


def test_a_topology_file_is_named_without_its_place() -> None:
    text = "name: x\ntopology: {file: a/b/pod.yml}\nworkload: {kind: trace, file: c/d.txt, format: hpcc}\n"
    written = scenario_as_run(load_scenario_text(text, file="s.yml").scenario)
    assert written.topology == {"file": "pod.yml", "set": {}}
    assert written.workload["file"] == "d.txt"
