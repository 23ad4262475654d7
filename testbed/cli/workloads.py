"""The verb `workloads`: the kinds of workload, and the parameters of each."""

from __future__ import annotations

from typing import Any

from testbed.cli.output import Format, emit_json, emit_rows
from testbed.workload.kinds.kind import WorkloadKind
from testbed.workload.parameters import Parameter, shown
from testbed.workload.registry import KINDS, workload_kind

KIND_COLUMNS = ("kind", "description", "parameters")
PARAMETER_COLUMNS = ("parameter", "type", "default", "values", "description")


def workloads(name: str | None, form: Format) -> None:
    """Print all kinds, or the parameters of one. Raises `WorkloadError` for a kind that there is not."""
    if name is None:
        rows = [
            {
                "kind": kind.name,
                "description": kind.description,
                "parameters": ", ".join(one.name for one in kind.parameters),
            }
            for kind in KINDS.values()
        ]
        emit_rows(rows, KIND_COLUMNS, form, json_document=[kind.as_json() for kind in KINDS.values()])
        return
    kind = workload_kind(name)
    if form is Format.JSON:
        emit_json(kind.as_json())
        return
    if form is Format.TABLE:
        print(_head(kind))
    emit_rows([row for one in kind.parameters for row in _rows(one)], PARAMETER_COLUMNS, form)


def _head(kind: WorkloadKind) -> str:
    more = []
    if kind.collective:
        more.append("its data is checked")
    if kind.timed:
        more.append("takes `duration` instead of bytes, over iperf3 or perftest")
    return f"{kind.name}: {kind.description}" + (f" ({'; '.join(more)})" if more else "") + "\n"


def _rows(parameter: Parameter, prefix: str = "") -> list[dict[str, Any]]:
    """A line for the parameter, and one for each key of what it consists of."""
    own = {
        "parameter": prefix + parameter.name,
        "type": parameter.type.value,
        "default": "required" if parameter.required else _default(parameter),
        "values": parameter.range,
        "description": parameter.description,
    }
    inner = parameter.item.fields if parameter.item is not None else parameter.fields
    return [own, *(row for field in inner for row in _rows(field, f"{prefix}{parameter.name}[]."))]


def _default(parameter: Parameter) -> str:
    value = shown(parameter.default)
    if value is None or isinstance(value, dict):
        return ""
    if isinstance(value, list):
        return "" if any(isinstance(item, dict) for item in value) else ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
