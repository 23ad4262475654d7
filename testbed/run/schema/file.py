"""Loading scenario files: `load_scenario`, and `read_scenario` for whoever also needs to know where things stand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import TypeVar

from testbed.base.errors import Problem, SpecError
from testbed.base.validation.engine import ready_to_show, validate_model, validate_whole
from testbed.base.validation.model import SpecModel
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, format_path, parse_path
from testbed.base.yaml.reader import load_document, meant_file, read_document
from testbed.lab.assembly.resolve import resolve_lab
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import resolve_warned
from testbed.run.schema.expectations import ExpectationReader
from testbed.run.schema.faults import FaultSpec, fault_problems, resolve_fault
from testbed.run.schema.matrix import (
    NAMED_TRANSPORTS,
    apply_settings,
    at_point,
    chosen_combinations,
    combinations,
    matrix_problems,
    written_values,
)
from testbed.run.schema.model import (
    EXIT_METRIC,
    Expectation,
    Fault,
    Repeat,
    Scalar,
    Scenario,
    TopologyRef,
    Transport,
    same_value,
)
from testbed.run.schema.probes import resolve_probes
from testbed.run.schema.programs import SUCCEEDS, program_problems, step_fault_problems
from testbed.run.schema.spec import ExpectationSpec, ScenarioSpec
from testbed.run.schema.tenant_transports import named_by_tenants, resolve_tenant_transports
from testbed.run.schema.transport import TRANSPORT_KEY, resolve_transport, timed_problems
from testbed.run.schema.values import MatrixValues
from testbed.run.schema.workload import fio_problems, http_problems, latency_problems, resolve_workload

Matrix = Mapping[str, tuple[Scalar, ...]]
Model = TypeVar("Model", bound=SpecModel)


NOTHING: Mapping[str, object] = MappingProxyType({})


def load_scenario(path: FilePath, overrides: Mapping[str, object] | None = None) -> Scenario:
    """Read and check a scenario file, every point of its matrix included. Nothing is run and no topology is read.

    `overrides` maps dotted keys of the file (`workload.duration`) or of its topology (`fabric.hosts`) to values, as
    `parse_assignment` makes them. Relative paths are looked up beside the scenario file. Raises `SpecError` with
    every problem.
    """
    return read_scenario(path, overrides).scenario


def read_scenario(
    path: FilePath, overrides: Mapping[str, object] | None = None, only: Mapping[str, object] = NOTHING
) -> ScenarioFile:
    """Read and check a scenario file, and keep its document, so that problems found later have positions too.

    `only` keeps the points of the matrix with these values: what is wrong with others is no problem then. Raises
    `SpecError` with every problem, and `ScenarioError` where no point is left.
    """
    return _resolve_file(read_document(path), path.parent, overrides or {}, only)


def load_scenario_text(
    text: str, *, file: str, overrides: Mapping[str, object] | None = None, only: Mapping[str, object] = NOTHING
) -> ScenarioFile:
    """Read and check text that is not in a file as a scenario; `file` names it in messages."""
    return _resolve_file(load_document(text, file), FilePath(file).parent, overrides or {}, only)


def load_scenario_topology(topology: TopologyRef) -> Lab:
    """The lab that a scenario, or a point of it, runs on. Raises `SpecError`."""
    if topology.inline is None:
        document = read_document(FilePath(topology.file))
    else:
        document = load_document("{}", "<inline topology>").with_overrides(topology.inline)
    return resolve_lab(document.with_overrides(topology.set))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile:
    """A scenario, and the document it was read from with `--set` applied."""

    scenario: Scenario
    document: Document

    def document_at(self, point: Scenario) -> Document:
        """The document with the values of one of the scenario's variants, each at the place it was written at."""
        for places in combinations(self.scenario.matrix):
            if all(
                same_value(self.scenario.matrix[key][place], point.values.get(key)) for key, place in places.items()
            ):
                return at_point(self.document, places) if places else self.document
        return self.document

    def load_lab(self, point: Scenario, warn: Callable[[Problem], None] | None = None) -> Lab:
        """The topology of the scenario, or of one of its variants; `warn` is told of what is valid and works less well
        than it looks. Raises `SpecError`.

        Problems are those of the topology file, or of the scenario file where it is the scenario that sets a key.
        """
        document = self.document_at(point)
        tree = document.tree(("topology", "inline"))
        if tree is None:
            try:
                topology = read_document(FilePath(point.topology.file))
            except SpecError as error:
                raise SpecError([_at_reference(document, problem) for problem in error.problems]) from error
        else:
            topology = Document(file=self.document.file, root=tree)
        written = {key: document.tree(("topology", "set", key)) for key in point.topology.set}
        set_here = {key: tree for key, tree in written.items() if tree is not None}
        return resolve_warned(topology.with_trees(set_here), warn)


def _at_reference(document: Document, problem: Problem) -> Problem:
    """A file that cannot be read is a problem of whoever names it."""
    if problem.code != "unreadable":
        return problem
    message, hint = f"{problem.file}: {problem.message}", "a path relative to this file"
    if (meant := meant_file(FilePath(problem.file))) is not None:
        hint = f"did you mean {os.path.relpath(meant, FilePath(document.file).parent)}? it is {hint}"
    return document.problem(problem.code, ("topology", "file"), message, hint=hint)


def _resolve_file(
    written: Document, directory: FilePath, overrides: Mapping[str, object], only: Mapping[str, object]
) -> ScenarioFile:
    document = apply_settings(written, overrides)
    matrix, problems = _read_matrix(document)
    resolver = _Resolver(
        directory=directory,
        overrides=tuple(f"{key}={value}" for key, value in overrides.items()),
        expected=_joined(_read_matrix(written)[0], matrix),
    )
    variants: list[Scenario] = []
    if (matrix or (only and document.get("matrix") is None)) and not problems:
        for places in chosen_combinations(matrix, only):
            values = {key: matrix[key][place] for key, place in places.items()}
            variant, found = resolver.resolve(at_point(document, places))
            problems += found
            if variant is not None:
                spelt = MappingProxyType(written_values(document, places))
                variants.append(replace(variant, values=MappingProxyType(values), written=spelt))
    scenario, found = resolver.resolve(document)
    if not variants:
        problems += found
    elif scenario is None or found:
        scenario = variants[0]  # what the matrix sets is needed for a whole scenario
    problems += _unused_transports(document, matrix)
    if problems or scenario is None:
        raise SpecError(_to_show(problems))
    if format_path(TRANSPORT_KEY) in matrix:
        first = variants[0]
        scenario = replace(scenario, transport=first.transport, tenant_transports=first.tenant_transports)
    scenario = replace(scenario, matrix=MappingProxyType(matrix), variants=tuple(variants), values=MappingProxyType({}))
    return ScenarioFile(scenario=scenario, document=document)


def _read_matrix(document: Document) -> tuple[dict[str, tuple[Scalar, ...]], list[Problem]]:
    """The matrix, and what is wrong with it as a whole; nothing where a key or value is no such thing.

    That is reported with all other values of the file.
    """
    data = document.get("matrix")
    if not isinstance(data, dict):
        return {}, []
    try:
        matrix = {_dotted(key): MatrixValues().check(values) for key, values in data.items()}
    except ValueError:
        return {}, []
    problems = list(matrix_problems(document, matrix))
    return matrix, problems


def _dotted(key: str) -> str:
    """The key itself. Raises `ValueError` where it is none."""
    parse_path(key)
    return key


def _joined(a: Matrix, b: Matrix) -> dict[str, tuple[Scalar, ...]]:
    """The values that either has for a key."""
    joined = {key: (*a.get(key, ()), *b.get(key, ())) for key in (*a, *b)}
    return {
        key: tuple({(isinstance(one, bool), one): one for one in values}.values()) for key, values in joined.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolver:
    """Resolves a document, or the same one at several points."""

    directory: FilePath
    overrides: tuple[str, ...]
    expected: Matrix
    """The matrix that expectations are about: that of the file, of which the command line may have left one value."""

    def resolve(self, document: Document) -> tuple[Scenario | None, list[Problem]]:
        """The scenario without its matrix, and all problems; None where the values alone are wrong."""
        problems: list[Problem] = []
        spec = _validated(ScenarioSpec, document, problems)
        transport = resolve_transport(document, self.directory, problems)
        workload = resolve_workload(document, self.directory, problems)
        of_tenants: tuple[Transport, ...] = ()
        if workload is not None:
            found = resolve_tenant_transports(document, self.directory, workload, transport, problems)
            workload, transport, of_tenants = found.workload, found.transport, found.of_tenants
        problems.extend(_topology_problems(document))
        if workload is not None and workload.duration is not None:
            problems.extend(timed_problems(document, transport))
        if workload is not None and transport.measures_latency:
            problems.extend(latency_problems(document, workload))
        if workload is not None:
            problems.extend(http_problems(document, workload, transport, of_tenants))
            problems.extend(fio_problems(document, workload, transport, of_tenants))
            problems.extend(program_problems(document, workload, transport))
        placed = self._faults(document, problems)
        faults = [fault for _, fault in placed]
        if workload is not None:
            problems.extend(step_fault_problems(document, workload, placed))
        expect = self._expectations(document, problems)
        if workload is not None and workload.is_program and all(item.metric != EXIT_METRIC for item in expect):
            expect.append(SUCCEEDS)
        if spec is None or workload is None:
            return None, problems
        topology = TopologyRef(
            file="" if spec.topology.file is None else str(self.directory / spec.topology.file),
            set=MappingProxyType(dict(spec.topology.set)),
            inline=spec.topology.inline,
        )
        scenario = Scenario(
            name=spec.name,
            topology=topology,
            transport=transport,
            tenant_transports=of_tenants,
            workload=workload,
            faults=tuple(faults),
            repeat=Repeat(
                runs=spec.repeat.runs,
                seed=spec.repeat.seed,
                retries=spec.repeat.retries,
                fixes_seed="seed" in spec.repeat.model_fields_set,
            ),
            probes=resolve_probes(spec.probes),
            convergence_ns=MappingProxyType(spec.convergence.times_ns()),
            expect=tuple(expect),
            overrides=self.overrides,
            source=document.file,
            description=spec.description,
        )
        return scenario, problems

    def _faults(self, document: Document, problems: list[Problem]) -> list[tuple[Path, Fault]]:
        """Return the faults that are right by themselves, each with its place in the file."""
        faults: list[tuple[Path, Fault]] = []
        for path in _entries(document, "faults"):
            spec = validate_whole(FaultSpec, document, path)
            if spec is None:
                continue  # reported with the whole file
            found = list(fault_problems(spec, document, path))
            problems.extend(found)
            if not found:
                faults.append((path, resolve_fault(spec)))
        return faults

    def _expectations(self, document: Document, problems: list[Problem]) -> list[Expectation]:
        reader = ExpectationReader(document, self.expected)
        expect: list[Expectation] = []
        for path in _entries(document, "expect"):
            spec = validate_whole(ExpectationSpec, document, path)
            if spec is not None:
                expect.append(reader.resolve(path, spec))
        problems.extend(reader.problems)
        return expect


def _entries(document: Document, key: str) -> list[Path]:
    entries = document.get(key)
    return [(key, index) for index in range(len(entries))] if isinstance(entries, list) else []


def _validated(model: type[Model], document: Document, problems: list[Problem]) -> Model | None:
    try:
        return validate_model(model, document)
    except SpecError as error:
        problems.extend(error.problems)
        return None


def _topology_problems(document: Document) -> Iterable[Problem]:
    data = document.get("topology")
    if not isinstance(data, dict):
        return
    given = [key for key in ("file", "inline") if data.get(key) is not None]
    if not given and not {"file", "inline"} & set(data):
        message = "neither file nor inline is given"
        hint = "file: ../topologies/demo.yml"
        yield document.problem("missing-key", ("topology",), message, hint=hint, key=True)
    if len(given) == 2:
        message = "both file and inline are given"
        yield document.problem("contradiction", ("topology", "inline"), message, hint="keep one", key=True)


def _unused_transports(document: Document, matrix: Matrix) -> Iterable[Problem]:
    """Named transports, of which no matrix and no tenant chooses one."""
    if document.get(NAMED_TRANSPORTS) is None or format_path(TRANSPORT_KEY) in matrix or named_by_tenants(document):
        return
    message = "no matrix chooses among them, and no tenant has one"
    hint = "matrix: {transport: [NAME, NAME]}, or transport: NAME of a tenant"
    yield document.problem("contradiction", NAMED_TRANSPORTS, message, hint=hint, key=True)


def _to_show(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, however many points have it."""
    different = dict.fromkeys(problems)
    left_out = sum(int(problem.message.split()[0]) for problem in different if problem.code == "more-problems")
    return ready_to_show([one for one in different if one.code != "more-problems"], left_out=left_out)
