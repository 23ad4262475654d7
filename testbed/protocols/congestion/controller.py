"""The declaration of a congestion controller, so that everything else takes its name from the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Number = bool | int | float
_Parameters = TypeVar("_Parameters", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """The facts that a controller of a flow is made from."""

    link_rate_bps: int
    """The rate of the NIC, in the lab."""
    base_rtt_ns: int
    """The round trip of the empty fabric, in the lab."""
    time_scale: float
    """By how much the lab is slower than the fabric that it models."""
    mtu_bytes: int
    """The size of a full packet on the wire."""
    parameters: str = ""
    """The name of a set of parameters; "": the controller's default."""
    overrides: Mapping[str, Number] = field(default_factory=dict)
    """Single parameters that are to be others than those of the set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One value of `cc`, of whatever transport: its name, and a line about it. What makes it is each transport's."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowController(Controller):
    """A controller that needs to know of a flow what `FlowSettings` has."""

    make: Callable[[FlowSettings], CongestionControl]
    """Raises `UsageError` for parameters that it does not have, or that cannot work."""
    parameter_sets: tuple[str, ...] = ()
    """The names that `parameters` may have, the default first."""
    defaults: Mapping[str, Number] = field(default_factory=dict)
    """Its parameters by name, as the default set has them."""
    values: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    """The values of every set, by the set's name."""


def chosen_parameters(sets: Mapping[str, _Parameters], settings: FlowSettings, controller: str) -> _Parameters:
    """The set of parameters that a flow is to have, with what it wants otherwise. Raises `UsageError`.

    The first of `sets` is the default one.
    """
    name = settings.parameters or next(iter(sets))
    found = sets.get(name)
    if found is None:
        raise UsageError(f"parameters {name!r} of {controller} are none of {', '.join(sets)}")
    names = parameters_of(found)
    for key in settings.overrides:
        if key not in names:
            raise UsageError(f"{controller} has no parameter {key!r}; it has {', '.join(names)}")
    values: dict[str, Any] = dict(settings.overrides)
    return replace(found, **values)


def parameters_of(parameters: DataclassInstance) -> dict[str, Number]:
    """A set of parameters, by name."""
    return {one.name: getattr(parameters, one.name) for one in fields(parameters)}
