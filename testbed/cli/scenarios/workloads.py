"""The verb `workloads`: the kinds of workload, and the parameters of each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.cli import options
from testbed.cli.command import argument, command

if TYPE_CHECKING:
    from testbed.workload.kinds.kind import WorkloadKind
    from testbed.workload.parameters import Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """A kind of workload."""

    kind: str
    description: str
    parameters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRow:
    """A parameter of a kind of workload, or a key of what it consists of."""

    parameter: str
    type: str
    default: str
    values: str
    description: str


@command("workloads")
@argument("kind", required=False, metavar="[KIND]", help="One kind; default: all.")
@options.format_option
def workloads(kind: str | None, format: options.Format) -> None:
    """List the kinds of workload, or the parameters of one: name, type, default, range."""
    from testbed.cli.output import emit, emit_json
    from testbed.workload.registry import KINDS, workload_kind

    if kind is None:
        rows = [
            KindRow(
                kind=known.name,
                description=known.description,
                parameters=", ".join(one.name for one in known.parameters),
            )
            for known in KINDS.values()
        ]
        emit(rows, KindRow, format, document=[known.as_json() for known in KINDS.values()])
        return
    found = workload_kind(kind)
    if format is options.Format.JSON:
        emit_json(found.as_json())
        return
    if format is options.Format.TABLE:
        print(_head(found))
    emit([row for one in found.parameters for row in _rows(one)], ParameterRow, format)


def _head(kind: "WorkloadKind") -> str:
    """Tell in a line above its parameters what a kind is."""
    more = []
    if kind.collective:
        more.append("its data is checked")
    if kind.timed:
        more.append("takes `duration` instead of bytes, over iperf3 or perftest")
    return f"{kind.name}: {kind.description}" + (f" ({'; '.join(more)})" if more else "") + "\n"


def _rows(parameter: "Parameter", prefix: str = "") -> list[ParameterRow]:
    """Make a row for the parameter, and one for each key of what it consists of."""
    own = ParameterRow(
        parameter=prefix + parameter.name,
        type=parameter.type.value,
        default="required" if parameter.required else _default(parameter),
        values=parameter.range,
        description=parameter.description,
    )
    inner = parameter.item.fields if parameter.item is not None else parameter.fields
    return [own, *(row for field in inner for row in _rows(field, f"{prefix}{parameter.name}[]."))]


def _default(parameter: "Parameter") -> str:
    """Write the default as a file has it; nothing for what is too long for a cell."""
    from testbed.workload.parameters import shown

    value = shown(parameter.default)
    if value is None or isinstance(value, dict):
        return ""
    if isinstance(value, list):
        return "" if any(isinstance(item, dict) for item in value) else ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
