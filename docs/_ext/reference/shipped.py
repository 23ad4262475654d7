"""The scenarios and topologies that come with testbed: what each claims or models, in its own words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from reference.markdown import code, codes, plain, table

ROOT = Path(__file__).parents[3]


def topologies_page() -> str:
    text = "# Shipped topologies\n\nFiles in `topologies/`, each as `./lab deploy -t FILE` takes it.\n\n"
    for path in sorted((ROOT / "topologies").glob("*.yml")):
        data = yaml.safe_load(path.read_text())
        text += f"## {code(path.name)}\n\n{first_comment(path)}\n\n"
        fabric = data.get("fabric") or {}
        rows = [
            ("Design", design_link(fabric["design"])) if "design" in fabric else ("Design", "nodes and links by hand")
        ]
        if data.get("qos"):
            rows.append(("Ports", f"preset {code(data['qos']['preset'])}" if "preset" in data["qos"] else "with `qos`"))
        text += "".join(f"* **{name}:** {value}\n" for name, value in rows) + "\n"
    return text


def scenarios_page() -> str:
    paths = [path for folder in ("", "papers") for path in sorted((ROOT / "scenarios" / folder).glob("*.yml"))]
    text = "# Shipped scenarios\n\nFiles in `scenarios/`, each a claim about these fabrics that a run tests."
    text += " Those in `papers/` are claims of others: [papers, reproduced](../papers.md) says what came of them.\n\n"
    for path in paths:
        data = yaml.safe_load(path.read_text())
        claim = plain(data["description"]) if "description" in data else first_comment(path)
        text += f"## {code(path.relative_to(ROOT / 'scenarios'))}\n\n{claim}\n\n"
        rows = [
            ("Topology", _topology(data["topology"])),
            ("Transport", _transport(data)),
            ("Workload", _workload(data)),
        ]
        rows += [("Sweep", _matrix(data["matrix"]))] if data.get("matrix") else []
        rows += [("Faults", ", ".join(map(_fault, data["faults"])))] if data.get("faults") else []
        text += "".join(f"* **{name}:** {value}\n" for name, value in rows) + "\n"
        text += table(("Expected", "Where", "Because"), map(_expectation, data["expect"]))
    return text


def first_comment(path: Path) -> str:
    """The first paragraph of the comment that a file begins with."""
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if not line.startswith("#") or line == "#":
            break
        if "$schema" not in line:
            lines.append(line[1:])
    return plain(" ".join(lines))


def design_link(name: str) -> str:
    return f"[{code(name)}](#design-{name})"


def _topology(topology: Any) -> str:
    written = ", ".join(f"{key}: {value}" for key, value in (topology.get("set") or {}).items())
    if "file" not in topology:
        return "in the file itself"
    return code(Path(topology["file"]).name) + (f" with {code(written)}" if written else "")


def _transport(data: Any) -> str:
    transport = data.get("transport") or {"kind": "tcp"}
    others = ", ".join(f"{key}: {value}" for key, value in transport.items() if key != "kind")
    return code(transport.get("kind", "tcp")) + (f" with {code(others)}" if others else "")


def _workload(data: Any) -> str:
    kind = data["workload"].get("kind")
    return f"[{code(kind)}](#workload-{kind})" if kind else "one of the sweep's"


def _matrix(matrix: Any) -> str:
    return "; ".join(f"{code(key)}: {codes(values)}" for key, values in matrix.items())


def _fault(fault: Any) -> str:
    return code(", ".join(f"{key}: {value}" for key, value in fault.items()))


def _expectation(item: Any) -> tuple[str, str, str]:
    metric = item["metric"]
    bounds = [("min", "at least"), ("max", "at most"), ("within", "within the"), ("tolerance", "±")]
    band = " ".join(f"{word} {item[key]}" for key, word in bounds if key in item)
    where = _values(item.get("where", {}))
    if "over" in item:
        where = f"{where or 'all'}, over {_values(item['over'])}"
    return f"[{code(metric)}](#metric-{metric.replace('_', '-')}) {plain(band)}", where, plain(item["source"])


def _values(values: dict[str, object]) -> str:
    return _joined(f"{key}: {value}" for key, value in values.items())


def _joined(words: Iterable[str]) -> str:
    return codes(words)
