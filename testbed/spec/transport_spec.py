"""The `transport:` section of a scenario: read by what `model.transports` declares of the kind that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from testbed.errors import Problem
from testbed.model.scenario import Transport
from testbed.model.transports import DEFAULT_TRANSPORT, TRANSPORTS, Conflict, TransportKind
from testbed.spec.document import Document
from testbed.spec.parameter_reader import KindSection, ParameterReader
from testbed.spec.paths import quote

TRANSPORT_SECTION = KindSection(
    noun="transport",
    kinds={name: declared.parameters for name, declared in TRANSPORTS.items()},
    default=DEFAULT_TRANSPORT.value,
    example="transport: {kind: uet, cc: nscc}",
)

_PATH = ("transport",)
_FIELDS = ("cc", "paths", "traffic_class")


def read_transport(reader: ParameterReader) -> Transport:
    """What the document says of it, as far as it is right; problems are kept in `reader`."""
    if reader.document.get(_PATH) is None:
        return Transport()
    kind, values = reader.read_kind(_PATH, TRANSPORT_SECTION)
    if not kind:
        return Transport()
    declared = TRANSPORTS[kind]
    for key, rule in declared.names.items():
        if key in values and not rule.pattern.fullmatch(values[key]):
            message = f"{quote(values[key])} cannot name a {rule.noun}: {rule.example}"
            reader.problems.append(reader.document.problem("bad-name", (*_PATH, key), message))
    reader.problems.extend(_problems(reader.document, declared.conflicts(values)))
    return Transport(
        kind=TransportKind(kind),
        cc=values.get("cc"),
        paths=values.get("paths"),
        traffic_class=values.get("traffic_class"),
        options={key: value for key, value in values.items() if key not in _FIELDS},
    )


def timed_problems(document: Document, transport: Transport) -> Iterator[Problem]:
    """What a workload with a `duration` cannot have of this transport."""
    declared = TRANSPORTS[transport.kind.value]
    if not declared.timed:
        first, *others = (name for name, one in TRANSPORTS.items() if one.timed)
        message = f"iperf3 and perftest, which send for a duration, have no transport {transport.kind}"
        hint = f"bytes: 64bdp, or transport: {{kind: {first}}}" + "".join(f" or {name}" for name in others)
        yield document.problem("contradiction", ("workload", "duration"), message, hint=hint, key=True)
    values = {"cc": transport.cc, "paths": transport.paths, **transport.options}
    yield from _problems(document, declared.timed_conflicts(values))


def _problems(document: Document, conflicts: Iterable[Conflict]) -> Iterator[Problem]:
    for one in conflicts:
        yield document.problem(one.code, (*_PATH, one.key), one.message, hint=one.hint, key=one.of_key)
