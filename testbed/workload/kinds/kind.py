"""A kind of workload: what a scenario calls it, its parameters, and what makes its steps."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from testbed.workload.parameters import Parameter, Values
from testbed.workload.steps import Workload

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricView:
    """The fabric that a workload runs on, as far as it must know it.

    `rate_bps` is the rate of a rank's NIC in the real fabric, like all times of a workload; `bdp_bytes` its
    bandwidth-delay product, which no time scale changes. `ranks_per_domain` consecutive ranks share a scale-up domain
    (0: none do).
    `leaf_of` says which leaf a rank hangs off, None that nobody knows; `rng` draws what is random. `domain_of` and
    `rate_of` say more of single ranks, where those of several networks have hosts and rates of many kinds.
    """

    ranks: int
    rate_bps: int
    bdp_bytes: int
    rng: random.Random
    ranks_per_domain: int = 0
    leaf_of: Callable[[int], Hashable] | None = None
    domain_of: Callable[[int], Hashable] | None = None
    rate_of: Callable[[int], int] | None = None
    folds: bool = False
    """Rings may be one step each (`testbed.workload.steps.FoldedRing`)."""
    folds_large: bool = False
    """Rings of more than a million transfers may be."""


def ranks_per_domain(domains: Sequence[Hashable]) -> int:
    """Return how many consecutive ranks share a domain, given that of each; 0 where it is one, or not the same number
    everywhere."""
    size = next((index for index, one in enumerate(domains) if one != domains[0]), len(domains))
    if size < 2 or len(domains) % size:
        return 0
    blocks = [set(domains[start : start + size]) for start in range(0, len(domains), size)]
    alone = all(len(block) == 1 for block in blocks) and len(set().union(*blocks)) == len(blocks)
    return size if alone else 0


Builder = Callable[[Values, FabricView], Workload]
Argument = str | Callable[[Values, FabricView], Any]
"""An argument of a generator: the name of the parameter that gives it, or what computes it."""
_OF_FABRIC = frozenset(one.name for one in fields(FabricView))


def built_by(
    generate: Callable[..., Workload], asked_for: type[DataclassInstance] | None = None, /, **others: Argument
) -> Builder:
    """Return a builder that gives a generator what it asks for by the names of its arguments.

    These are properties of the fabric, or parameters of the kind: `size_bytes` is the parameter `bytes`, `jitter_ns`
    is `jitter`. `others` are arguments that come from elsewhere. With `asked_for` the first argument is an object of
    that class, made of the parameters that its fields declare.
    """
    names = list(inspect.signature(generate).parameters)

    def build(values: Values, fabric: FabricView) -> Workload:
        first = () if asked_for is None else (values.make(asked_for),)
        given: dict[str, Any] = {}
        for name in names[len(first) :]:
            source = others.get(name, "bytes" if name == "size_bytes" else name.removesuffix("_ns"))
            if not isinstance(source, str):
                given[name] = source(values, fabric)
            elif name in _OF_FABRIC:
                given[name] = getattr(fabric, name)
            elif source in values.parameters:
                given[name] = values.plain(source)
        return generate(*first, **given)

    return build


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    name: str
    description: str
    parameters: tuple[Parameter, ...]
    build: Builder
    timed: bool = False
    """Its pairs may send for a `duration` instead of a number of bytes."""
    knows_hosts: bool = False
    """It treats ranks of one scale-up domain differently from others."""
    collective: bool = False
    """Its transfers carry data that can be checked."""
    over_http: bool = False
    """It is requests and answers over HTTP, which go over connections of TCP alone."""
    by_fio: bool = False
    """It is jobs of fio, for a transport whose transfers are such."""
    is_program: bool = False
    """It is a command of the user's own: its transfers are what a step is stated to send, and no worker sends them."""

    def parameter(self, name: str) -> Parameter | None:
        return next((one for one in self.parameters if one.name == name), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.name,
            "description": self.description,
            "timed": self.timed,
            "knows_hosts": self.knows_hosts,
            "collective": self.collective,
            "over_http": self.over_http,
            "by_fio": self.by_fio,
            "is_program": self.is_program,
            "parameters": [one.as_json() for one in self.parameters],
        }
