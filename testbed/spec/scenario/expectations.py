"""The entries of `expect:`: bands of metrics, in their units, and the points of the matrix that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import TypeVar

from pydantic_core import PydanticCustomError

from testbed.errors import Problem
from testbed.model.scenario import Expectation, Scalar, Within
from testbed.names import nearest
from testbed.spec.scenario.matrix import same_value
from testbed.spec.scenario.spec import ExpectationSpec
from testbed.spec.scenario.values import parse_bound, parse_tolerance
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import Path, quote
from testbed.workload.metrics import CATALOGUE, MetricUnit

Matrix = Mapping[str, tuple[Scalar, ...]]
Result = TypeVar("Result")


class ExpectationReader:
    """Resolves entries of `expect:`, and keeps the problems."""

    def __init__(self, document: Document, matrix: Matrix) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._matrix = matrix

    def resolve(self, path: Path, spec: ExpectationSpec) -> Expectation:
        """The expectation of the entry at `path`, as far as it is right."""
        unit = CATALOGUE[spec.metric].unit
        # a ratio of two points has no unit but its own
        unit = MetricUnit.RATIO if spec.over else unit
        minimum = self._parsed((*path, "min"), spec.min, unit, parse_bound)
        maximum = self._parsed((*path, "max"), spec.max, unit, parse_bound)
        tolerance = self._parsed((*path, "tolerance"), spec.tolerance, unit, parse_tolerance)
        self.problems.extend(self._contradictions(path, spec))
        if minimum is not None and maximum is not None and minimum > maximum:
            message = f"min {minimum:g} is above max {maximum:g}"
            self.problems.append(self._document.problem("contradiction", (*path, "min"), message))
        for key in ("where", "over"):
            self.problems.extend(self._unmatched((*path, key), getattr(spec, key)))
        self.problems.extend(self._nowhere(path, spec))
        number, relative = tolerance or (0.0, False)
        return Expectation(
            metric=spec.metric,
            where=dict(spec.where),
            over=dict(spec.over),
            minimum=minimum,
            maximum=maximum,
            within=None if spec.within is None else Within(spec.within),
            tolerance=number,
            relative=relative,
            source=spec.source,
        )

    def _parsed(
        self, path: Path, value: Scalar | None, unit: MetricUnit, parse: Callable[[Scalar, MetricUnit], Result]
    ) -> Result | None:
        if value is None:
            return None
        try:
            return parse(value, unit)
        except PydanticCustomError as error:
            context = error.context or {}
            self.problems.append(
                self._document.problem(context["code"], path, context["message"], hint=context["hint"] or None)
            )
            return None

    def _contradictions(self, path: Path, spec: ExpectationSpec) -> Iterator[Problem]:
        problem = self._document.problem
        bounds = [key for key in ("min", "max") if getattr(spec, key) is not None]
        if spec.within is None:
            if not bounds:
                hint = "min: 0.9, or within: oracle with a tolerance"
                yield problem("missing-key", path, "neither min, max nor within is given", hint=hint, key=True)
            if spec.tolerance is not None:
                message = "a tolerance is that of within: oracle"
                yield problem("contradiction", (*path, "tolerance"), message, hint="write min and max", key=True)
            return
        if spec.tolerance is None:
            yield problem(
                "missing-key", (*path, "tolerance"), "within needs a tolerance", hint="tolerance: 8%", key=True
            )
        for key in bounds:
            message = f"both within and {key} are given"
            yield problem("contradiction", (*path, key), message, hint="write two entries", key=True)
        if spec.over:
            message = "an oracle says nothing of the ratio of two points"
            yield problem("contradiction", (*path, "over"), message, hint="write min and max", key=True)

    def _unmatched(self, path: Path, wanted: Mapping[str, Scalar]) -> Iterator[Problem]:
        """Keys and values that the matrix does not have."""
        problem = self._document.problem
        for key, value in wanted.items():
            found = self._keys(key)
            where = (*path, key)
            if not found:
                known = sorted({one.rpartition(".")[2] for one in self._matrix})
                meant = nearest(key, [*known, *self._matrix])
                hint = f"did you mean {meant}?" if meant else f"its keys are {', '.join(known)}" if known else None
                message = f"the matrix has no key {quote(key)}" if known else "the scenario has no matrix"
                yield problem("unknown-key", where, message, hint=hint, key=True)
            elif len(found) > 1:
                message = f"{quote(key)} may be {' or '.join(found)}"
                yield problem("ambiguous-key", where, message, hint="write the whole key, in quotes", key=True)
            elif not any(same_value(value, one) for one in self._matrix[found[0]]):
                values = ", ".join(map(quote, self._matrix[found[0]]))
                message = f"no point of the matrix has {key} {quote(value)}"
                yield problem("no-such-point", where, message, hint=f"its values are {values}")

    def _nowhere(self, path: Path, spec: ExpectationSpec) -> Iterator[Problem]:
        """An `over` that no point differs from."""
        if not spec.over or any(len(self._keys(key)) != 1 for key in (*spec.over, *spec.where)):
            return
        over = {self._keys(key)[0]: value for key, value in spec.over.items()}
        where = {self._keys(key)[0]: value for key, value in spec.where.items()}
        for values in product(*self._matrix.values()):
            point = dict(zip(self._matrix, values, strict=True))
            about = all(same_value(point[key], value) for key, value in where.items())
            if about and not all(same_value(point[key], value) for key, value in over.items()):
                return
        message = "the points that it is about are those that they are compared with"
        hint = "where: names the ones, over: the others"
        yield self._document.problem("no-such-point", (*path, "over"), message, hint=hint, key=True)

    def _keys(self, word: str) -> list[str]:
        if word in self._matrix:
            return [word]
        return [key for key in self._matrix if key.rpartition(".")[2] == word]
