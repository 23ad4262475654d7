"""A scenario, resolved: which lab, which traffic, what goes wrong, how often, and what is expected of it.

Nothing here knows how traffic is made. A scenario with a matrix stands for many points; `sweep` makes the scenario of
each (`run.sweep.points`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from testbed.base.units import ByteCount, Duration
from testbed.lab.core.model.lab import BACKEND, Lab
from testbed.run.schema.point_names import last_word
from testbed.run.schema.transports import DEFAULT_TRANSPORT, SCALE_UP_KEYS, TransportKind

PROGRAM = "program"
"""The kind of workload that is a program of the user's own (`testbed.workload.kinds.programs`)."""
EXIT_METRIC = "program_exit"
"""The metric that is expected to be 0 of every program, unless the file says otherwise."""

Scalar = str | int | float | bool
"""The value of an overridden key of a topology."""

Parameter = Scalar | Duration | ByteCount | tuple["Parameter", ...] | Mapping[str, "Parameter"] | None
"""A parameter of a workload, as `workload.registry` declares it. Sizes in `bdp` stay text until the lab is known."""

SCALE_UP_TIMEOUT_MS = 5_000
"""After so many ms of lab time a transfer inside a scale-up domain is given up, unless the scenario says otherwise."""

_NOTHING: Mapping[str, Scalar] = MappingProxyType({})
_NO_TIMES: Mapping[str, int] = MappingProxyType({})
_NO_PARAMETERS: Mapping[str, Parameter] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRef:
    """The topology a scenario runs on. `file` is a path that exists from the caller's directory, "" with `inline`.

    `set` overrides keys of the topology by their dotted path, e.g. `fabric.hosts`.
    """

    file: str = ""
    set: Mapping[str, Scalar] = field(default_factory=lambda: _NOTHING)
    inline: Mapping[str, Any] | None = None
    """Instead of a file: what would stand in it, as plain data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """`cc` is the congestion control (TCP: its kernel name; UET: a name of its registry); None leaves the default."""

    kind: TransportKind = DEFAULT_TRANSPORT
    cc: str | None = None
    paths: str | None = None
    """UET: a value of `transport.uet.paths.PathKind`. Of transports with connections: `hashed` (None), or `planned`."""
    traffic_class: str | None = None
    """The `qos:` class whose DSCP the packets carry; None: the lossless or first ECN class there is, else the default
    class."""
    scale_up: str | None = None
    """The way in which transfers inside a scale-up domain are carried, a value of
    `lab.features.scale_up.model.ScaleUpBy`; None: as the topology says."""
    scale_up_errors: str | None = None
    """`count`: one that fails is counted; None or `end`: it ends the run."""
    scale_up_timeout_ms: int | None = None
    """After so long in lab time they are given up; None: `SCALE_UP_TIMEOUT_MS`."""
    options: Mapping[str, Scalar] = field(default_factory=lambda: _NOTHING)
    """The other keys of this kind of transport, as `run.schema.transports` declares them."""

    def written(self) -> dict[str, Scalar]:
        """Return it in the keys of a file."""
        named = {name: getattr(self, name) for name in ("cc", "paths", "traffic_class", *SCALE_UP_KEYS)}
        chosen = {key: value for key, value in named.items() if value is not None}
        return {"kind": self.kind.value, **chosen, **self.options}

    @property
    def measures_latency(self) -> bool:
        """Tell whether pairs send one message at a time, and the time of each is what is measured."""
        return self.options.get("test") == "latency"


NO_TENANT = "none"
"""The word of scenarios for NICs that are in no tenant. No tenant has this name."""


class RankOrder(StrEnum):
    """The order of NICs as ranks 0, 1, 2, ..."""

    HOST = "host"
    """All chosen NICs of the first host, then of the second: consecutive ranks share a host's scale-up network."""
    RAIL = "rail"
    """Rail by rail: consecutive ranks are the same NIC of consecutive hosts, and so hang off the same leaf."""
    SPREAD = "spread"
    """Consecutive ranks hang off different leaves, as far as there are any: the worst order for a ring."""
    SHUFFLED = "shuffled"
    """Drawn by the run's seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The NICs that take part, and their order."""

    networks: tuple[str, ...] = ()
    """The networks that they are in: the NICs of the first, then those of the second, each in their order. None: those
    that the tenants are in; without tenants, the back end."""
    tenants: tuple[str, ...] = ()
    """The tenants of the lab's overlay that they are in, `NO_TENANT` for NICs that are in none: within each network the
    NICs of the first, then those of the second. None: NICs may be in no tenant."""
    externals: tuple[str, ...] = ()
    """The tenants whose routers outside are ranks, too: the first ones, before all NICs, in this order."""
    targets: tuple[str, ...] = ()
    """Names or patterns of storage targets of the networks that are ranks, too: the last ones, behind all NICs of
    hosts."""
    pool: bool = False
    """The regions of pooled memory in the scale-up domains of these ranks are ranks, too: the very last ones."""
    hosts: tuple[str, ...] = ()
    """Names or patterns (`p1-s1-*`); none: all."""
    rails: tuple[int, ...] = ()
    """None: all."""
    planes: tuple[int, ...] = ()
    """The planes of the back end that they are in, from 1; none: all."""
    count: int | None = None
    """The first so many of those NICs."""
    order: RankOrder = RankOrder.HOST
    per_rail: bool | None = None
    """Every rail runs the workload by itself, side by side. None: where rails cannot reach each other and the workload
    does not know of hosts. Planes that cannot reach each other do so anyway."""

    joined: bool = False
    """The ports of a NIC, which are in planes of their own, are one rank: see `testbed.workload.planes`."""

    def networks_in(self, lab: Lab) -> tuple[str, ...]:
        """Return the networks of a lab that they are in. Names of networks and tenants may be unknown to it."""
        if self.networks or not self.tenants:
            return self.networks or (BACKEND,)
        tenants = {tenant.name: tenant for tenant in lab.overlay.tenants} if lab.overlay is not None else {}
        found = [
            network
            for name in self.tenants
            for network in ([subnet.network for subnet in tenants[name].subnets] if name in tenants else [BACKEND])
        ]
        return tuple(dict.fromkeys(found))

    def tenants_in(self, lab: Lab) -> tuple[str, ...]:
        """Return the tenants of a lab that they are in, `NO_TENANT` for none.

        A network that another one carries is a tenant by itself: whoever names it means its NICs.
        """
        if self.tenants or lab.overlay is None:
            return self.tenants or (NO_TENANT,)
        named = self.networks_in(lab)
        carried = (tenant.name for tenant in lab.overlay.tenants if tenant.network and tenant.network in named)
        return (NO_TENANT, *carried)

    def may_take(self, tenant: str, lab: Lab) -> bool:
        """Tell whether the NICs of a tenant of a lab ("" for those of none) may be ranks."""
        return (tenant or NO_TENANT) in self.tenants_in(lab)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`kind` and `parameters` as `workload.registry` declares them.

    With `duration` (lab time) every pair of a pattern sends as long, over iperf3; without, sizes are given and workers,
    one on each host, run the steps.
    """

    kind: str
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: _NO_PARAMETERS)
    ranks: Ranks = field(default_factory=Ranks)
    duration: Duration | None = None
    admission_bytes: int = 0
    """So many bytes may come to a rank at a time; 0: any."""
    time_limit: Duration = field(default_factory=lambda: Duration.parse("60s"))
    """Wall-clock (virtual: guest) time after which a run is ended and its record says so."""

    @property
    def is_program(self) -> bool:
        """Tell whether it is a program of the user's own, whose ranks are started and move their bytes themselves."""
        return self.kind == PROGRAM


@dataclass(frozen=True, slots=True, kw_only=True)
class AtStep:
    """The moment at which a program has said that a step is done: the one of this number, or a later one."""

    step: int

    def __str__(self) -> str:
        return f"step {self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: at `at` something goes wrong, and `until` some moment, when it is undone.

    Both are lab time after the begin of traffic, or both are steps of a program. Without `until` it is undone when the
    run has ended. `kind` is one of `testbed.run.faults.registry`, where each has a class that says what its settings
    mean.
    """

    at: Duration | AtStep
    kind: str
    target: str
    """A port as "node:interface", a switch, or a host, as the kind has it."""
    until: Duration | AtStep | None = None
    period: Duration | None = None
    settings: Mapping[str, Scalar] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Small UDP packets beside the traffic, at a fixed rate; None leaves a figure to the runner, which keeps them few.

    `enabled` False: none are sent, so that nothing is known of loss-derived times and of order.
    """

    enabled: bool = True
    rate_pps: float | None = None
    """The rate of each stream, in lab time."""
    ports: int | None = None
    """Streams from a NIC to another, each with a source port of its own, so that ECMP spreads them over the paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Run n (1-based) draws its permutation from seed `seed + n - 1`."""

    runs: int = 1
    seed: int = 1
    retries: int = 0
    """The number of times that a point is run once more whose runs are invalid because the machine did not keep up."""
    fixes_seed: bool = True
    """The seed was written, or asked for; else it is the default."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + self.runs))


class Within(StrEnum):
    """The figures that an expectation may point at instead of at numbers."""

    ORACLE = "oracle"
    """The prediction of this metric by `workload.oracles`, on this very topology, workload and seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """`metric` (a name in `record.catalogue.CATALOGUE`), as the median over runs, within [`minimum`, `maximum`].

    It is that of all that a run did, but where `network` or `tenant` select one, as `record.catalogue.Selection` says.
    `source` says where the band comes from: a formula, a figure of a paper, an oracle.
    """

    metric: str
    network: str = ""
    tenant: str = ""
    where: Mapping[str, Scalar] = field(default_factory=lambda: _NOTHING)
    """Points of the matrix it is about, by the last word of their keys (`mode`) or the whole key; all by default."""
    over: Mapping[str, Scalar] = field(default_factory=lambda: _NOTHING)
    """The figure is the ratio to that of the point that is equal but for these values."""
    minimum: float | None = None
    maximum: float | None = None
    within: Within | None = None
    tolerance: float = 0.0
    """With `within`: how far from the oracle's mean, in the metric's own unit (a share of 0.08 is 8 points), or, where
    `relative`, as a share of the mean."""
    relative: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    topology: TopologyRef
    transport: Transport = field(default_factory=Transport)
    tenant_transports: tuple[Transport, ...] = ()
    """That of each tenant of the workload, in their order, where they have different ones; else all have
    `transport`."""
    workload: Workload
    faults: tuple[Fault, ...] = ()
    repeat: Repeat = field(default_factory=Repeat)
    probes: Probes = field(default_factory=Probes)
    convergence_ns: Mapping[str, int] = field(default_factory=lambda: _NO_TIMES)
    """Times by which a simulated lab notices failures, where the file states them (`schema.convergence`)."""
    matrix: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    """By dotted key: of this file where it begins with `transport.`, `workload.`, `faults` or `repeat.` or is
    `topology.file`, of the topology otherwise. The points are all combinations, the first key changing slowest."""
    expect: tuple[Expectation, ...] = ()
    overrides: tuple[str, ...] = ()
    """The changes of the command line, as `key=value`, for the record."""
    source: str = ""
    """Path of the file this came from, for messages only."""
    description: str = ""
    """A sentence or two about it, for the report."""
    values: Mapping[str, Scalar] = field(default_factory=lambda: _NOTHING)
    """The value of each key of the matrix, in one of the `variants`."""
    written: Mapping[str, str] = field(default_factory=dict)
    """The spelling in the file of those of `values` that are no text."""
    variants: tuple[Scenario, ...] = ()
    """With a matrix: this scenario at each of its points, in the matrix's order, themselves without a matrix. The
    loader makes them, as if each value stood where its key points."""

    @property
    def transports(self) -> tuple[Transport, ...]:
        """Return the different transports that carry its workload."""
        found: list[Transport] = []
        for one in self.tenant_transports or (self.transport,):
            if one not in found:
                found.append(one)
        return tuple(found)

    @property
    def by_programs(self) -> bool:
        """Tell whether programs move the bytes: iperf3 or perftest, in pairs, or a program of the user's own; otherwise
        the hosts' workers run the steps."""
        return self.workload.is_program or self.workload.duration is not None or self.transport.measures_latency


def names_key(word: str, key: str) -> bool:
    """Tell whether `word` means this key of a matrix: it is the whole key, or its last word."""
    return word in (key, last_word(key))


def same_value(a: object, b: object) -> bool:
    """Numbers are compared as such, and never equal a truth value."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def is_point_of(values: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    """Tell whether the point of a matrix with these values is one of those wanted."""
    return all(
        any(names_key(word, key) and same_value(value, one) for key, value in values.items())
        for word, one in wanted.items()
    )
