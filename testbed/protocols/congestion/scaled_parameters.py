"""Both sides of the parameters of congestion controllers: in the fabric that is modelled, and in the lab.

What a parameter is, its name says: times of a fabric end in `_us` and are longer in the lab by the time scale, those
counted in base round trips end in `_rtts`, rates end in `_bps` and are lower, and bytes end in `_bytes` and stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from testbed.protocols.congestion.controller import FlowController, FlowSettings, Number
from testbed.protocols.congestion.registry import CONTROLLERS

NIC_BPS = 25e9
"""The NIC for which rates are meant in a set that says `per_25g`."""
PER_NIC = frozenset({"additive_bps", "hyper_bps"})
"""The rates that are in proportion to the NIC's there."""


class Dimension(StrEnum):
    """The unit of a parameter."""

    TIME_NS = "time"
    RATE_BPS = "rate"
    SIZE_BYTES = "size"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledParameter:
    """A parameter of a set, in the unit of its dimension."""

    controller: str
    parameters: str
    """The set's name."""
    name: str
    dimension: Dimension
    fabric: float
    lab: float


def scaled_parameters(settings: FlowSettings) -> Iterator[ScaledParameter]:
    """The times, rates and sizes of every set of every controller, for a NIC of `settings.link_rate_bps` in the lab."""
    for controller in CONTROLLERS.values():
        for parameters, values in controller.values.items():
            for name, value in values.items():
                found = _scaled(controller, parameters, name, value, settings)
                if found is not None:
                    yield found


def _scaled(
    controller: FlowController, parameters: str, name: str, value: Number, settings: FlowSettings
) -> ScaledParameter | None:
    scale = settings.time_scale
    if name.endswith("_us"):
        dimension, fabric, lab = Dimension.TIME_NS, value * 1e3, value * 1e3 * scale
    elif name.endswith("_rtts"):
        lab = float(value * settings.base_rtt_ns)
        dimension, fabric = Dimension.TIME_NS, lab / scale
    elif name.endswith("_bps"):
        grows = name in PER_NIC and controller.values[parameters].get("per_25g")
        share = settings.link_rate_bps * scale / NIC_BPS if grows else 1.0
        dimension, fabric, lab = Dimension.RATE_BPS, value * share, value * share / scale
    elif name.endswith("_bytes"):
        dimension, fabric, lab = Dimension.SIZE_BYTES, float(value), float(value)
    else:
        return None
    return ScaledParameter(
        controller=controller.name, parameters=parameters, name=name, dimension=dimension, fabric=fabric, lab=lab
    )
