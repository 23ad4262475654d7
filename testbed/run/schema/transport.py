"""The `transport:` section of a scenario: read by what `run.schema.transports` declares of the kind that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Annotated

from testbed.base.errors import Problem
from testbed.base.lazy import LazyMapping
from testbed.base.validation.by_kind import ByKind
from testbed.base.validation.engine import validate_partly
from testbed.base.validation.fields import Name, Section
from testbed.base.validation.model import SpecModel
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.run.schema.declared import models_by_kind, written_values
from testbed.run.schema.model import Transport
from testbed.run.schema.transport_rules import Conflict
from testbed.run.schema.transports import DEFAULT_TRANSPORT, SCALE_UP_KEYS, TRANSPORTS, TransportKind

TRANSPORT_KEY: Path = ("transport",)
"""The place at which the scenario's transport is written."""
_FIELDS = ("cc", "paths", "traffic_class", *SCALE_UP_KEYS)


@cache
def _models() -> Mapping[str, type[SpecModel]]:
    return models_by_kind(
        "transport",
        LazyMapping(TRANSPORTS, lambda kind: TRANSPORTS[kind].parameters),
        default=DEFAULT_TRANSPORT.value,
        descriptions=LazyMapping(TRANSPORTS, lambda kind: TRANSPORTS[kind].description),
    )


TRANSPORT_NAME = re.compile(r"[a-z][a-z0-9-]{0,23}")


def _check_transport_name(name: str) -> None:
    if not TRANSPORT_NAME.fullmatch(name):
        raise ValueError(f"{quote(name)} cannot name a transport: lower-case letters, digits and '-', at most 24")


_NAME = Name(_check_transport_name, f"^{TRANSPORT_NAME.pattern}$")
_EXAMPLE = "transport: {kind: uet, cc: nscc}"
_CALLED = {
    **dict.fromkeys(("infiniband", "verbs"), "write kind: ib, over an InfiniBand back end"),
    **dict.fromkeys(("ultra-ethernet", "ultraethernet", "ue", "uec"), "write kind: uet"),
    **dict.fromkeys(("rxe", "soft-roce", "softroce"), "write kind: rdma, the kernel's, or roce, ours"),
    **dict.fromkeys(("iperf", "iperf3"), "write kind: tcp, with a duration in the workload"),
}
TRANSPORT = ByKind("transport", _models, _EXAMPLE, DEFAULT_TRANSPORT.value, hints=_CALLED)
TENANT_TRANSPORT = ByKind("transport", _models, _EXAMPLE, DEFAULT_TRANSPORT.value, _NAME, _CALLED)
"""The transport of a tenant: a section, or the name of one of the scenario's transports."""
TransportField = Section[Annotated[SpecModel, TRANSPORT]]
TransportName = Annotated[str, _NAME]


def resolve_transport(
    document: Document, directory: FilePath, problems: list[Problem], path: Path = TRANSPORT_KEY
) -> Transport:
    """The transport that the section at `path` describes, as far as its values are right, which is checked with the
    whole file.

    Keys that contradict each other are added to `problems`.
    """
    data = document.get(path)
    if data is None:
        return Transport()
    try:
        model = TRANSPORT.choose(data)
    except ValueError:
        return Transport()
    spec = validate_partly(model, document, path)
    if spec is None:
        return Transport()
    kind = str(getattr(spec, "kind"))  # noqa: B009  # of the models made for the kinds
    values = written_values(spec, directory, without=("kind",))
    declared = TRANSPORTS[kind]
    for key, rule in declared.names.items():
        if key in values and not rule.pattern.fullmatch(values[key]):
            message = f"{quote(values[key])} cannot name a {rule.noun}: {rule.example}"
            lower = str(values[key]).lower()
            hint = f"write {lower}" if rule.pattern.fullmatch(lower) else None
            problems.append(document.problem("bad-name", (*path, key), message, hint=hint))
    problems.extend(_problems(document, path, declared.conflicts(values)))
    return Transport(
        kind=TransportKind(kind),
        cc=values.get("cc"),
        paths=values.get("paths"),
        traffic_class=values.get("traffic_class"),
        **{key: values.get(key) for key in SCALE_UP_KEYS},
        options={key: value for key, value in values.items() if key not in _FIELDS},
    )


def timed_problems(document: Document, transport: Transport) -> Iterator[Problem]:
    """Return what a workload with a `duration` cannot have of this transport."""
    declared = TRANSPORTS[transport.kind.value]
    if not declared.timed:
        first, *others = (name for name, one in TRANSPORTS.items() if one.timed)
        message = f"iperf3 and perftest, which send for a duration, have no transport {transport.kind}"
        hint = f"bytes: 64bdp, or transport: {{kind: {first}}}" + "".join(f" or {name}" for name in others)
        yield document.problem("contradiction", ("workload", "duration"), message, hint=hint, key=True)
    values = {"cc": transport.cc, "paths": transport.paths, **transport.options}
    yield from _problems(document, TRANSPORT_KEY, declared.timed_conflicts(values))


def _problems(document: Document, path: Path, conflicts: Iterable[Conflict]) -> Iterator[Problem]:
    for one in conflicts:
        yield document.problem(one.code, (*path, one.key), one.message, hint=one.hint, key=one.of_key)
