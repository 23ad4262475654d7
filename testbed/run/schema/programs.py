"""A workload that is a program of the user's own: what does not go together in its file, though each value is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from testbed.base.errors import Problem, WorkloadError
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.run.schema.model import EXIT_METRIC, PROGRAM, AtStep, Expectation, Fault, Transport, Workload
from testbed.run.schema.transports import TRANSPORTS

SUCCEEDS = Expectation(metric=EXIT_METRIC, maximum=0.0, source="a program that succeeds ends with exit code 0")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}=[^\0]*")
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")


def program_problems(document: Document, workload: Workload, transport: Transport) -> Iterator[Problem]:
    """Return what is wrong with a program; nothing where the workload, and that of each tenant, is none."""
    yield from _tenant_problems(document, workload)
    if not workload.is_program:
        return
    yield from _rank_problems(document, workload)
    yield from _word_problems(document, workload.parameters)
    yield from _step_problems(document, workload.parameters)
    yield from _stated_problems(document, workload.parameters)
    yield from _transport_problems(document, transport)
    if workload.parameters.get("libfabric") and not TRANSPORTS[transport.kind].by_libfabric:
        message = f"the provider of libfabric speaks UET, and the transport is {transport.kind}"
        yield document.problem("contradiction", ("workload", "libfabric"), message, hint="transport: {kind: uet}")


def _tenant_problems(document: Document, workload: Workload) -> Iterator[Problem]:
    tenants = workload.parameters.get("tenants")
    for index, tenant in enumerate(tenants if isinstance(tenants, list | tuple) else ()):
        inner = tenant.get("workload") if isinstance(tenant, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("kind") == PROGRAM:
            path: Path = ("workload", "tenants", index, "workload", "kind")
            message = "a program is the whole workload, and not that of one tenant"
            hint = "workload: {kind: program, ...}; launch a second one beside it by `testbed launch`"
            yield document.problem("contradiction", path, message, hint=hint)


def _rank_problems(document: Document, workload: Workload) -> Iterator[Problem]:
    ranks = workload.ranks
    chosen = {
        "per_rail": ranks.per_rail,
        "joined": ranks.joined,
        "external": ranks.externals,
        "targets": ranks.targets,
        "pool": ranks.pool,
    }
    says = {
        "per_rail": ("a program is started once, with all ranks", "rails: [1]"),
        "joined": ("a program opens its sockets on one port", "planes: [a]"),
        "external": ("the ranks of a program run on hosts, and not on a router outside", None),
        "targets": ("the ranks of a program run on hosts, and not on storage targets", None),
        "pool": ("the ranks of a program run on hosts, and not on memory devices", None),
    }
    for key, (message, hint) in says.items():
        if chosen[key]:
            yield document.problem("contradiction", ("workload", "ranks", key), message, hint=hint, key=True)


def _word_problems(document: Document, written: Mapping[str, object]) -> Iterator[Problem]:
    """Return an empty command, and variables and packages that cannot be such."""
    rules = (
        ("env", _VARIABLE, "{} is no variable of an environment", "write NAME=value"),
        ("needs", _PACKAGE, "{} is no name of a Python package", "such as mpi4py"),
    )
    for key, pattern, message, hint in rules:
        words = written.get(key)
        for index, word in enumerate(words if isinstance(words, list | tuple) else ()):
            if isinstance(word, str) and not pattern.fullmatch(word):
                where: Path = ("workload", key, index)
                yield document.problem("bad-name", where, message.format(quote(word)), hint=hint)
    command = written.get("command")
    if isinstance(command, list | tuple) and command and not command[0]:
        yield document.problem("bad-name", ("workload", "command", 0), "the command is empty", hint="[python3, a.py]")


def _step_problems(document: Document, written: Mapping[str, object]) -> Iterator[Problem]:
    from testbed.workload.program_steps import StepPattern

    text = written.get("step")
    if isinstance(text, str):
        try:
            StepPattern.parse(text)
        except ValueError as error:
            hint = r'step: "step (?P<step>\d+) .* (?P<seconds>[\d.]+) s"'
            yield document.problem("bad-pattern", ("workload", "step"), str(error), hint=hint)
    elif "warm_up" in written:
        message = "no step is known that could be left out"
        hint = r'step: "step (?P<step>\d+)"'
        yield document.problem("missing-key", ("workload", "warm_up"), message, hint=hint, key=True)


def _stated_problems(document: Document, written: Mapping[str, object]) -> Iterator[Problem]:
    """Return what is stated of a step's bytes that has no meaning."""
    from testbed.workload.kinds.programs import check_algorithm

    algorithm, collective = written.get("algorithm"), written.get("collective", "all-reduce")
    if isinstance(algorithm, str) and isinstance(collective, str):
        try:
            check_algorithm(collective, algorithm)
        except WorkloadError as error:
            yield document.problem("contradiction", ("workload", "algorithm"), error.message, hint=error.hint)
    if written.get("bytes") is None:
        for key in ("represents", "algorithm", "collective"):
            if key in written:
                message = f"{key} says something of bytes, and no bytes are stated"
                yield document.problem("missing-key", ("workload", key), message, hint="bytes: 1MB", key=True)


def _transport_problems(document: Document, transport: Transport) -> Iterator[Problem]:
    kind = transport.kind
    allowed = TRANSPORTS[kind].program_keys
    if allowed is None:
        carriers = ", ".join(name for name, one in TRANSPORTS.items() if one.program_keys is not None)
        message = f"the sockets of a program are carried by {carriers}, and not by {kind}"
        yield document.problem("contradiction", ("transport", "kind"), message, hint="transport: {kind: tcp}")
        return
    for key in transport.written():
        if key != "kind" and key not in allowed:
            message = f"{key} is nothing that a program's sockets have over {kind}"
            hint = (
                f"what a program may have besides is {', '.join(allowed)}"
                if allowed
                else f"transport: {{kind: {kind}}}"
            )
            path: Path = ("transport", key)
            yield document.problem("contradiction", path, message, hint=hint, key=document.has(path))


def step_fault_problems(
    document: Document, workload: Workload, faults: Sequence[tuple[Path, Fault]]
) -> Iterator[Problem]:
    """Return the faults that wait for a step where nobody will say that one is done."""
    if workload.is_program and workload.parameters.get("step") is not None:
        return
    for path, fault in faults:
        if isinstance(fault.at, AtStep):
            if workload.is_program:
                message, hint = "nobody knows the steps of this program", r'workload: {step: "step (?P<step>\d+)"}'
            else:
                message = f"steps are those of a program, and the workload is {workload.kind}"
                hint = "at: 2s; or workload: {kind: program, ...}"
            yield document.problem("contradiction", (*path, "at"), message, hint=hint)
