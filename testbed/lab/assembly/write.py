"""Writing topology files: a design with all its parameters spelled out, to start from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.base.units import Rate
from testbed.base.validation.engine import validate_model
from testbed.base.yaml.document import Document
from testbed.base.yaml.reader import load_document
from testbed.base.yaml.scalars import ScalarError, resolve_plain_scalar
from testbed.lab.assembly.resolve import resolve_lab
from testbed.lab.assembly.spec import LabSpec
from testbed.lab.core.fabric import DESIGNS, FabricParams
from testbed.lab.core.fabric.shape import resolve_shape
from testbed.lab.core.schema.load import parse_assignment

SCHEMA_HINT = "# yaml-language-server: $schema="
"""First line of a file that tells editors where its schema is (a path relative to the file, or a URL)."""


def render_topology(name: str, design: str, settings: Sequence[str] = (), *, schema: str | None = None) -> str:
    """A topology file of `design` (one of `DESIGNS`), with `settings` such as "fabric.hosts=4" taken over.

    The design's own values are written out, so that they can be edited. `schema` is put where editors look for
    it. Raises `SpecError` if the settings do not fit the design.
    """
    file = f"{name}.yml"
    minimal = load_document(f"name: {json.dumps(name)}\nfabric: {{design: {json.dumps(design)}}}\n", file)
    overrides = dict(parse_assignment(setting) for setting in settings)
    chosen = minimal.with_overrides(overrides)
    resolve_lab(chosen)
    document = minimal.with_overrides({**_spelled_out(chosen), **overrides})
    text = "".join(f"{key}: {flow_yaml(value)}\n" for key, value in document.data.items() if key not in _BLOCKS)
    for block in _BLOCKS:
        if document.has(block):
            text += f"{block}:\n" + "".join(
                f"  {key}: {flow_yaml(value)}\n" for key, value in document.data[block].items()
            )
    what = DESIGNS[design]
    head = f"{SCHEMA_HINT}{schema}\n" if schema else ""
    return f"{head}# {what.summary[0].upper()}{what.summary[1:]} ({what.figure}).\n{text}"


_BLOCKS = ("fabric", "topology", "qos")
"""Sections written with a line for each key; all else is written in braces."""


def _spelled_out(document: Document) -> dict[str, object]:
    """The values a design gives what the document leaves out, by dotted key."""
    fabric = validate_model(LabSpec, document).fabric
    assert fabric is not None
    assert fabric.design is not None
    params: FabricParams = fabric.params(fabric.design)
    shape = resolve_shape(params)
    values: dict[str, object] = {
        "fabric.pods": shape.pods,
        "fabric.segments": shape.segments,
        "fabric.hosts": list(shape.unequal) or shape.hosts,
        "fabric.gpus": shape.gpus,
        "fabric.nic.per": "host" if shape.shared_nics else "gpu",
        "fabric.nic.ports": len(shape.ports),
        "fabric.nic.rate": _short(shape.nic_rate),
        "fabric.rails.per_switch": shape.slots,
        "fabric.spines": shape.spines,
        "fabric.super_spines": shape.super_spines,
    }
    if len(shape.planes) > 1:
        values["fabric.planes"] = len(shape.planes)
    if shape.shared_nics:
        values["fabric.nic.count"] = shape.nics
    if shape.spines:
        values["fabric.uplink.rate"] = _short(shape.uplink_rate)
        values["fabric.uplink.count"] = shape.uplink_count
    if shape.groups > 1:
        values["fabric.super_spine_groups"] = shape.groups
    if shape.switch_radix is not None:
        values["fabric.switch_radix"] = shape.switch_radix
    return {key: value for key, value in values.items() if not document.has(key)}


def _short(rate: Rate) -> str:
    """`400G`; in bit/s where that would round."""
    text = str(rate).removesuffix("bit/s").replace(" ", "")
    return text if Rate.parse(text) == rate else f"{rate.bps}bps"


def flow_yaml(value: Any) -> str:
    """Return a value on one line of YAML."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{flow_yaml(key)}: {flow_yaml(entry)}" for key, entry in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(flow_yaml(entry) for entry in value) + "]"
        case str():
            return value if _reads_back(value) else json.dumps(value)
        case None:
            return "null"
    return json.dumps(value)


def _reads_back(text: str) -> bool:
    """Tell whether `text` may stand without quotes."""
    return text.isascii() and text.replace("-", "").replace("_", "").isalnum() and not _is_number(text)


def _is_number(text: str) -> bool:
    try:
        return not isinstance(resolve_plain_scalar(text), str)
    except ScalarError:
        return True
