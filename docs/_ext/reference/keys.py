"""The keys of topology and scenario files and of price lists, from the JSON Schemas that editors get."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from reference.command_line import json_of
from reference.markdown import code, codes, plain, sentence, table
from testbed.protocols.uet.congestion.registry import CONTROLLERS
from testbed.run.schema.transports import TRANSPORTS

Schema = dict[str, Any]
_MOST_CHOICES = 12
RECORD_SCHEMA_FILE = "record.schema.json"
"""The schema of records, beside the page about them."""


def topology_page() -> str:
    return (
        "# Keys of a topology file\n\n"
        "Generated from the JSON Schema that `./lab schema` prints for editors. Where a key of"
        " `fabric` has no default here, the [design](designs.md) has it. `NAME` stands for a name of your own.\n\n"
        + _Walk(json_of("schema", "topology"), "topology").text()
    )


def prices_page() -> str:
    return (
        "# Keys of a price list\n\n"
        "What `./lab validate --prices FILE` reads, generated from the JSON Schema that `./lab schema prices` prints"
        " for editors. `NAME` stands for the name of a model, or for a rate such as 400G. [Choosing a design]"
        "(../guides/choosing-a-design.md#cost-and-power) says what is made of them.\n\n"
        + _Walk(json_of("schema", "prices"), "prices").text()
    )


def scenario_page() -> str:
    elsewhere = {
        "topology.inline": "a whole [topology file](topology-keys.md)",
        "transport": "mapping, see [transports](transports.md)",
        "transports.NAME": "mapping, see [transports](transports.md)",
        "faults": "list, see [faults](faults.md)",
    }
    schema = json_of("schema", "scenario")
    kinds = _choices(schema, schema["properties"]["workload"])
    shared = set.intersection(*(set(kind["properties"]) for kind in kinds))
    timed = {name: kind["properties"][name] for kind in kinds for name in ("duration",) if name in kind["properties"]}
    common = {**{name: value for name, value in kinds[0]["properties"].items() if name in shared}, **timed}
    common["kind"] = {"description": "which of the [workloads](workloads.md)", "type": "string", "markup": True}
    schema["properties"]["workload"] = {
        "type": "object",
        "description": "What is sent. The other keys are those of the [kind](workloads.md).",
        "markup": True,
        "properties": common,
        "required": ["kind"],
    }
    return (
        "# Keys of a scenario file\n\n"
        "Generated from the JSON Schema that `./lab schema scenario` prints for editors."
        " `KEY` stands for a dotted key of the scenario or of its topology.\n\n"
        + _Walk(schema, "scenario", elsewhere).text()
    )


def record_page() -> str:
    return (
        "# Fields of a record\n\n"
        f"`record.json` has everything that a run measured. Its JSON Schema is {{download}}`{RECORD_SCHEMA_FILE}`;"
        " `./lab schema record` prints it. A record may have more fields than are listed here, and a version that gives"
        " a field another meaning has another number in `schema`. Rates are those of the lab unless a name says `real`,"
        " spans are in seconds, sizes in bytes, and what could not be measured is `null` (None). `./lab export` writes"
        " the curves as [one table](../guides/record.md).\n\n"
        + _Walk(_without_bounds(json_of("schema", "record")), "record").text()
    )


def _without_bounds(schema: Any) -> Any:
    """A schema without bounds of numbers: those of a record are what 64 bits can hold."""
    if isinstance(schema, list):
        return [_without_bounds(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_bounds(one) for key, one in schema.items() if key not in ("minimum", "exclusiveMaximum")}


def transports_page() -> str:
    text = "# Transports\n\nWhat a scenario may say under `transport:`, by `kind`. Without the section it is `tcp`.\n\n"
    schema = json_of("schema", "scenario")
    for kind in _choices(schema, schema["properties"]["transport"]):
        properties = dict(kind["properties"])
        name = properties.pop("kind")["const"]
        text += f"(transport-{name})=\n## {code(name)}\n\n{_of_transport(name)}\n\n"
        text += _Walk({**schema, "properties": {}}, "transport").keys({**kind, "properties": properties}, ())
    return text


def _of_transport(name: str) -> str:
    """What its declaration says of it, and, where `cc` is one of ours, of each congestion control."""
    declared = TRANSPORTS[name]
    text = plain(sentence(declared.description))
    if any(one.name == "cc" and one.choices == tuple(CONTROLLERS) for one in declared.parameters):
        rows = [(code(one.name), plain(sentence(one.description))) for one in CONTROLLERS.values()]
        text += "\n\n" + table(("Congestion control", "What it is"), rows)
    return text


def faults_page() -> str:
    schema = json_of("schema", "scenario")
    entry = schema["properties"]["faults"]
    return (
        "# Faults\n\n"
        "What a scenario may say in an entry of `faults:`. An entry names one place (`link`, `node`, `agent` or"
        " `fabric_plane`; of scale-up domains `link`, `plane`, `tray` or `domain`), what happens there (`set`, `down`,"
        " `flap` or `storm` of a link, `set`, `down` or `flap` of a plane, `down` of a tray or of a plane of the"
        " fabric, `kill` of the others), and when."
        " Times are lab time after the begin of traffic; what is not mended by then is mended when the run ends.\n\n"
        + _Walk({**schema, "properties": {"faults": entry}}, "fault").text(with_root=False)
    )


def _choices(root: Schema, schema: Schema) -> list[Schema]:
    """The kinds of a section that has a shape for each."""
    resolved = _Walk(root, "").resolve(schema)
    if "oneOf" in resolved:
        return [_Walk(root, "").resolve(one) for one in resolved["oneOf"]]
    return [kind for one in resolved.get("anyOf", []) for kind in _choices(root, one)]


@dataclass
class _Walk:
    """A walk over a schema, breadth first: a section for each mapping, told once."""

    root: Schema
    part: str
    """What labels of the page begin with: those of all pages differ."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    queue: deque[tuple[str, Schema]] = field(default_factory=deque)
    told: dict[str, str] = field(default_factory=dict)
    """Where each named shape is told, by its reference."""

    def text(self, *, with_root: bool = True) -> str:
        text = ""
        if with_root:
            text = f"## The file\n\n{self.keys(self.root, ())}"
        else:
            self.keys(self.root, ())
        while self.queue:
            path, schema = self.queue.popleft()
            text += f"({self.label(path)})=\n## {code(path)}\n\n{_described(schema)}\n\n" + self.keys(schema, (path,))
        return text

    def resolve(self, schema: Schema) -> Schema:
        """A schema with its references followed and the null that stands for "not written" left out."""
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            found = self.root["$defs"][name]
            return self.resolve(
                {**found, **{key: value for key, value in schema.items() if key != "$ref"}, "title": name}
            )
        for word in ("anyOf", "allOf"):
            rest = [one for one in schema.get(word, ()) if one.get("type") != "null"]
            if len(rest) == 1:
                inner = self.resolve(rest[0])
                own = {key: value for key, value in schema.items() if key != word}
                # What the key says of itself stands in the table, what the shape says of itself above its own.
                return {**inner, **own, "shape": inner.get("shape", inner.get("description", ""))}
        return schema

    def keys(self, schema: Schema, path: tuple[str, ...]) -> str:
        needed = schema.get("required", ())
        rows = []
        for name, written in schema.get("properties", {}).items():
            one = self.resolve(written)
            here = ".".join((*path, name))
            default = "needed" if name in needed else _default(one)
            described = one.get("description", "")
            words = described if one.get("markup") else plain(sentence(described))
            rows.append((code(name), self.type_of(one, here), default, words))
        return table(("Key", "Value", "Default", "What it is"), rows) if rows else ""

    def type_of(self, schema: Schema, path: str) -> str:
        """What values a key may have, in words; mappings get sections of their own."""
        if path in self.elsewhere:
            return self.elsewhere[path]
        one = self.resolve(schema)
        if several := [
            other for other in (*one.get("anyOf", ()), *one.get("oneOf", ())) if other.get("type") != "null"
        ]:
            if any(other.get("type") in ("integer", "number") for other in several):  # its text says the same number
                several = [other for other in several if other.get("type") != "string" or "examples" in other]
            return ", or ".join(dict.fromkeys(self.type_of(other, path) for other in several))
        if "const" in one:
            return code(str(one["const"]).lower() if isinstance(one["const"], bool) else one["const"])
        if "enum" in one:
            shown = codes(one["enum"][:_MOST_CHOICES])
            return shown + (f" and {len(one['enum']) - _MOST_CHOICES} more" if len(one["enum"]) > _MOST_CHOICES else "")
        match one.get("type"):
            case "object":
                return self._mapping(one, path)
            case "array":
                return self._list(one, path)
            case "integer":
                return f"whole number{_range(one)}"
            case "number":
                return f"number{_range(one)}"
            case "boolean":
                return "`true` or `false`"
            case "string" if "examples" in one:
                return f"such as {codes(one['examples'])}"
            case "string":
                return "text"
            case list() as types:
                names = {
                    "string": "text",
                    "integer": "whole number",
                    "number": "number",
                    "boolean": "`true` or `false`",
                }
                return ", or ".join(names.get(name, str(name)) for name in types)
        return "any value"

    def _mapping(self, schema: Schema, path: str) -> str:
        values = [*schema.get("patternProperties", {}).values()]
        if isinstance(schema.get("additionalProperties"), dict):
            values.append(schema["additionalProperties"])
        if "properties" in schema:
            return f"[mapping](#{self._section(schema, path)})"
        if values:
            inner = self.type_of(values[0], f"{path}.{_placeholder(path)}")
            return f"names, each with: {inner}"
        return "mapping"

    def _list(self, schema: Schema, path: str) -> str:
        least, most = schema.get("minItems"), schema.get("maxItems")
        many = f" of {least}" if least == most and least is not None else ""
        if "items" not in schema:
            return f"list{many}"
        return f"list{many}, each: {self.type_of(schema['items'], f'{path}[]')}"

    def _section(self, schema: Schema, path: str) -> str:
        """The label of the section about a mapping, which is told the first time that it is met."""
        shape = schema.get("title") or path
        if shape not in self.told:
            self.told[shape] = self.label(path)
            self.queue.append((path, schema))
        return self.told[shape]

    def label(self, path: str) -> str:
        """The label of a section about a mapping."""
        words = path.replace("[]", "-entry").replace(".", "-").replace("_", "-").lower()
        return f"key-of-{self.part}-{words}"


def _placeholder(path: str) -> str:
    return "KEY" if path.rsplit(".", 1)[-1] in ("matrix", "set", "where", "over") else "NAME"


def _described(schema: Schema) -> str:
    """What a shape says of itself; else what its key says."""
    if schema.get("markup"):
        return str(schema["description"])
    return plain(sentence(schema.get("shape") or schema.get("description", "")))


def _range(schema: Schema) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None and high is not None:
        return f", {_number(low)} to {_number(high)}"
    return f", from {_number(low)}" if low is not None else f", up to {_number(high)}" if high is not None else ""


def _number(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"


def _default(schema: Schema) -> str:
    default = schema.get("default")
    if default in (None, "", [], {}):
        return ""
    return code(str(default).lower() if isinstance(default, bool) else default)
