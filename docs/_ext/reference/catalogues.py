"""What scenarios and topologies choose from: workloads, metrics, designs of fabrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.command_line import json_of, output_of
from reference.markdown import code, plain, sentence, table


def workloads_page() -> str:
    text = (
        "# Workloads\n\n"
        "What a scenario may say under `workload:`. Every kind takes `ranks`, `duration` where it is timed,"
        " and `time_limit` as well: see [keys of a scenario file](scenario-keys.md). `./lab workloads` prints the same."
        " Sizes may be written in `bdp`, bandwidth-delay products of the lab.\n\n"
    )
    kinds = json_of("workloads", "-f", "json")
    text += table(
        ("Kind", "What it is"),
        ((f"[{code(one['kind'])}](#workload-{one['kind']})", plain(sentence(one["description"]))) for one in kinds),
    )
    for one in kinds:
        text += f"(workload-{one['kind']})=\n## {code(one['kind'])}\n\n"
        text += f"{plain(sentence(one['description']))}{_traits(one)}\n\n"
        text += table(
            ("Key", "Type", "Default", "Range", "What it is"),
            (
                (
                    code(name),
                    plain(parameter["type"]),
                    "needed" if parameter["required"] else _shown(parameter["default"]),
                    plain(parameter["range"]),
                    plain(sentence(parameter["description"])),
                )
                for name, parameter in _parameters(one["parameters"])
            ),
        )
    return text


def _parameters(parameters: list[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Parameters with those of their sections below them."""
    for one in parameters:
        yield f"{prefix}{one['name']}", one
        fields = one.get("fields") or one.get("item", {}).get("fields") or []
        yield from _parameters(fields, f"{prefix}{one['name']}{'' if 'fields' in one else '[]'}.")


def _traits(kind: Any) -> str:
    known = {
        "timed": "Its pairs may send for a `duration` instead of a number of bytes.",
        "knows_hosts": "It treats ranks of one host differently from others.",
        "collective": "Its transfers carry data, and every element is checked.",
    }
    return "".join(f" {text}" for key, text in known.items() if kind[key])


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return code(str(value).lower())
        case list():
            return code(f"[{', '.join(map(str, value))}]")
    return code(value)


def metrics_page() -> str:
    text = (
        "# Metrics\n\n"
        "What a run measures, and what `expect:` may name. `./lab metrics NAME` prints the same. A share is"
        " written as a percentage, a ratio as a number.\n\n"
    )
    about = {False: "Of the traffic and the fabric", True: "Of the emulation itself"}
    definitions = json_of("metrics", "-f", "json")
    for emulation, title in about.items():
        text += f"## {title}\n\n"
        for one in definitions:
            if one["emulation"] is not emulation:
                continue
            text += f"(metric-{one['name'].replace('_', '-')})=\n### {code(one['name'])}\n\n"
            text += f"{plain(sentence(one['title']))}\n\n"
            better = {"more": "more is better", "less": "less is better"}.get(one["better"], "neither is better")
            rows = [
                ("Unit", f"{plain(one['unit'])}; {better}"),
                ("Formula", plain(one["formula"])),
                ("Source", plain(one["source"])),
                ("Measured", "" if one["measured"] else "by no run: it is for samples of your own, from Python"),
            ]
            text += "".join(f"* **{name}:** {value}\n" for name, value in rows if value) + "\n"
    return text


def designs_page() -> str:
    text = (
        "# Fabric designs\n\n"
        "What `fabric: {design: NAME}` may name. A design is a preset of parameters: what it does not fix"
        " can be written otherwise. The file below each is the design with its defaults; `./lab generate NAME --set"
        " fabric.hosts=8` writes one to begin with.\n\n"
    )
    designs = json_of("generate", "-f", "json")
    text += table(
        ("Design", "What it is", "Models"),
        (
            (f"[{code(one['design'])}](#design-{one['design']})", plain(one["summary"]), plain(one["figure"]))
            for one in designs
        ),
    )
    for one in designs:
        lines = output_of("generate", one["design"]).splitlines()
        body = "\n".join(line for line in lines if not line.startswith("#"))
        text += f"(design-{one['design']})=\n## {code(one['design'])}\n\n{plain(sentence(one['summary']))}"
        text += f" It models {plain(one['figure'])}.\n\n```text\n{body}\n```\n\n"
    return text
