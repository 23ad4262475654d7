"""Dotted keys of a scenario: which are the scenario file's own, which the topology's; and the points of a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product

from testbed.base.errors import Problem, ScenarioError, SpecError
from testbed.base.names import choice_hint, nearest
from testbed.base.yaml.document import OVERRIDE_FILE, Document, Tree
from testbed.base.yaml.paths import Path, format_path, parse_path, quote
from testbed.lab.assembly.spec import LabSpec
from testbed.run.schema.model import Scalar, is_point_of, names_key
from testbed.run.schema.point_names import point_name, short_keys, show_value
from testbed.run.schema.spec import ScenarioSpec
from testbed.run.schema.transport import TRANSPORT_KEY
from testbed.run.schema.transports import TRANSPORTS
from testbed.workload.registry import KINDS

MAX_POINTS = 10_000
SWEPT = ("transport", "workload", "faults", "repeat", "convergence")
"""Sections of a scenario file that a matrix may change; of `topology` it may change `file`."""
NAMED_TRANSPORTS: Path = ("transports",)
"""As a key of a matrix, `TRANSPORT_KEY` has names of these."""
_OWN = tuple(key for key in ScenarioSpec.model_fields if key != "topology")
_TOPOLOGY_KEYS = tuple(key for key in LabSpec.model_fields if key != "name")


def locate_key(key: str) -> Path:
    """Return where a dotted key of `--set` or of a matrix belongs in a scenario file.

    `fabric.hosts` and `topology.set.fabric.hosts` are both the entry "fabric.hosts" of `topology.set`, `topology.file`
    and `workload.bytes` what they say. Raises `ValueError` for a key that is none and for a section that there is not.
    """
    path = parse_path(key)
    head = path[0]
    if head == "matrix" and len(path) > 2:
        return "matrix", format_path(path[1:])
    if head in _OWN or path == ("topology",):
        return path
    if head == "topology" and path[1] in ("file", "inline"):
        return path
    if head == "topology" and path[1] == "set":
        return path if len(path) == 2 else ("topology", "set", format_path(path[2:]))
    if head not in _TOPOLOGY_KEYS:
        raise ValueError(f"{quote(head)} is no section of a scenario and none of a topology")
    return "topology", "set", format_path(path)


def apply_settings(document: Document, settings: Mapping[str, object]) -> Document:
    """The document with `--set KEY=VALUE` applied; of a key of the matrix, that value alone is left.

    Raises `SpecError` with every key that is none.
    """
    problems = []
    located: dict[str, object] = {}
    swept = _swept_keys(document)
    for key, value in settings.items():
        try:
            path = locate_key(key)
        except ValueError as error:
            problems.append(
                Problem(code="bad-override", file=OVERRIDE_FILE, message=str(error), hint=key_hint(key), path=key)
            )
            continue
        if path in swept:
            located[format_path(("matrix", swept[path]))] = [value]
        else:
            located[format_path(path)] = value
    if problems:
        raise SpecError(problems)
    return document.with_overrides(located)


def key_hint(key: str) -> str:
    """Return what was probably meant by a key that belongs nowhere."""
    head = key.partition(".")[0].partition("[")[0]
    meant = nearest(head, (*_OWN, "topology", *_TOPOLOGY_KEYS))
    for section, declared in (("workload", KINDS), ("transport", TRANSPORTS)):
        if any(one.name == head for owner in declared.values() for one in owner.parameters):
            return f"did you mean {section}.{key}?"
    if meant and meant != head:
        return f"did you mean {meant}{key[len(head) :]}?"
    return "for example workload.bytes, transport.paths, fabric.hosts, qos.load_balancing.mode"


def matrix_problems(document: Document, matrix: Mapping[str, tuple[Scalar, ...]]) -> Iterator[Problem]:
    """Keys that a matrix cannot change, and matrices of too many points."""
    seen: dict[Path, str] = {}
    for key in matrix:
        where = ("matrix", key)
        try:
            path = locate_key(key)
        except ValueError as error:
            yield document.problem("unknown-key", where, str(error), hint=key_hint(key), key=True)
            continue
        if path[0] != "topology" and path[0] not in SWEPT:
            hint = f"a matrix changes {', '.join(SWEPT)}, topology.file and the keys of the topology"
            yield document.problem("unknown-key", where, f"{path[0]} cannot change by point", hint=hint, key=True)
        elif path == TRANSPORT_KEY:
            yield from _transport_problems(document, key, matrix)
        elif path in (("topology",), ("topology", "set")) or path[:2] == ("topology", "inline") or len(path) == 1:
            message = f"{quote(key)} is a whole section, not a single value"
            yield document.problem("unknown-key", where, message, hint="write a key of it", key=True)
        elif path in seen:
            message = f"{quote(key)} is the same key as {quote(seen[path])}"
            yield document.problem("contradiction", where, message, hint="keep one", key=True)
        seen.setdefault(path, key)
    points = math.prod(len(values) for values in matrix.values())
    if points > MAX_POINTS:
        message = f"the matrix has {points} points; there may be {MAX_POINTS}"
        yield document.problem("out-of-range", ("matrix",), message, hint="fewer values or keys", key=True)


def _transport_problems(document: Document, key: str, matrix: Mapping[str, tuple[Scalar, ...]]) -> Iterator[Problem]:
    """A matrix chooses among the transports that the file names, and nothing else says anything of the transport."""
    named = document.get(NAMED_TRANSPORTS)
    known = list(named) if isinstance(named, dict) else []
    for place, value in enumerate(matrix[key]):
        if value not in known:
            hint = choice_hint(str(value), map(str, known)) or "transports: {NAME: {kind: roce}}"
            where = ("matrix", key, place)
            yield document.problem("unknown-value", where, f"transports has none called {quote(value)}", hint=hint)
    if document.get(TRANSPORT_KEY) is not None:
        message = "the matrix chooses the transport"
        yield document.problem("contradiction", TRANSPORT_KEY, message, hint="transports.NAME has its keys", key=True)
    for other in matrix:
        if other.startswith("transport."):
            message = "the matrix chooses whole transports"
            yield document.problem("contradiction", ("matrix", other), message, hint="one more of them", key=True)


def combinations(matrix: Mapping[str, tuple[Scalar, ...]]) -> Iterator[dict[str, int]]:
    """Yield for every point the place of each key's value in its list, the first key changing slowest."""
    for places in product(*(range(len(values)) for values in matrix.values())):
        yield dict(zip(matrix, places, strict=True))


def chosen_combinations(matrix: Mapping[str, tuple[Scalar, ...]], only: Mapping[str, object]) -> list[dict[str, int]]:
    """Return `combinations` of the points with these values, by the last word of a key or the whole key; all without.

    Raises `ScenarioError` for a key that the matrix does not have, and where no point is left.
    """
    for key in only:
        if not any(names_key(key, one) for one in matrix):
            known = f"its keys are {', '.join(matrix)}" if matrix else "the scenario has no matrix"
            hint = choice_hint(key, [*matrix, *short_keys(matrix).values()], known)
            raise ScenarioError(f"--only {key}: the matrix has no such key", hint=hint)
    every = list(combinations(matrix))
    chosen = [places for places in every if is_point_of(_values(matrix, places), only)]
    if not chosen:
        wanted = " ".join(f"{key}={show_value(value)}" for key, value in only.items())
        labels = short_keys(matrix)
        names = [point_name(_values(matrix, places), labels) for places in every]
        raise ScenarioError(f"no point has {wanted}", hint=choice_hint(wanted, names, f"there are: {'; '.join(names)}"))
    return chosen


def _values(matrix: Mapping[str, tuple[Scalar, ...]], places: Mapping[str, int]) -> dict[str, Scalar]:
    return {key: matrix[key][place] for key, place in places.items()}


def written_values(document: Document, places: Mapping[str, int]) -> dict[str, str]:
    """Return how the file writes the values of a point, of those that it writes otherwise than we would."""
    trees = {key: document.tree(("matrix", key, place)) for key, place in places.items()}
    return {key: tree.written for key, tree in trees.items() if tree is not None and tree.written is not None}


def at_point(document: Document, places: Mapping[str, int]) -> Document:
    """The document as if each value stood where its key points; problems with it name its place in the matrix."""
    trees: dict[str, Tree] = {}
    for key, place in places.items():
        where: Path = ("matrix", key, place)
        path = locate_key(key)
        tree = document.tree((*NAMED_TRANSPORTS, str(document.get(where))) if path == TRANSPORT_KEY else where)
        assert tree is not None
        trees[format_path(path)] = tree
    return document.with_trees(trees)


def _swept_keys(document: Document) -> dict[Path, str]:
    """Return where the keys of the matrix belong, by that; those that are wrong are somebody else's to report."""
    found: dict[Path, str] = {}
    matrix = document.get("matrix")
    for key in matrix if isinstance(matrix, dict) else ():
        try:
            found[locate_key(key)] = key
        except ValueError:
            continue
    return found
