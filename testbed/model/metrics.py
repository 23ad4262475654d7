"""The metrics a scenario can expect and a report prints: name, unit and definition.

A definition is text one can print beside the number; how it is computed stands in `scenario.metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class MetricUnit(StrEnum):
    """How a value is to be read and printed."""

    BITS_PER_S = "bit/s"
    RATIO = "ratio"
    """A dimensionless factor such as max/mean; 1 is 1.000."""
    SHARE = "share"
    """0..1, printed as a percentage."""
    COUNT = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    name: str
    title: str
    unit: MetricUnit
    definition: str
    headline: bool = True
    """Whether it stands in the headline table; the others are about the emulation itself."""


_DEFINITIONS = (
    MetricDefinition(
        name="aggregate_share",
        title="Aggregate share of ideal",
        unit=MetricUnit.SHARE,
        definition=(
            "Sum of the flows' goodputs over the sum of their ideals. A flow's ideal is the lab rate of the slower of"
            " its two NICs times the payload efficiency (MTU - 52) / (MTU + 14); it does not know of shared uplinks."
        ),
    ),
    MetricDefinition(
        name="slowest_share",
        title="Slowest flow, share of ideal",
        unit=MetricUnit.SHARE,
        definition="The smallest goodput over ideal of any flow. A collective ends with its slowest flow.",
    ),
    MetricDefinition(
        name="jain_flows",
        title="Jain's index over flows",
        unit=MetricUnit.RATIO,
        definition="(sum x)^2 / (n * sum x^2) of the flows' goodputs (Jain, Chiu, Hawe 1984). 1 is all equal, 1/n is"
        " one flow having everything.",
    ),
    MetricDefinition(
        name="mmr_uplinks",
        title="Uplink max / mean",
        unit=MetricUnit.RATIO,
        definition=(
            "Bytes sent by the busiest uplink of the rail switches over the mean of all of them (MMR). The ideal"
            " spreads whole flows as evenly as they can be: with fewer flows than uplinks it is above 1."
        ),
    ),
    MetricDefinition(
        name="mmr_worst_switch",
        title="Uplink max / mean, worst switch",
        unit=MetricUnit.RATIO,
        definition="The largest max / mean among the uplinks of a single rail switch.",
    ),
    MetricDefinition(
        name="jain_links",
        title="Jain's index over uplinks",
        unit=MetricUnit.RATIO,
        definition="Jain's index over the bytes sent by each uplink of the rail switches.",
    ),
    MetricDefinition(
        name="aggregate_goodput",
        title="Aggregate goodput",
        unit=MetricUnit.BITS_PER_S,
        definition=(
            "Sum over flows of the payload bits that reached the receiving application, over the receiver's own"
            " measured time, in lab time (the real fabric's figure is this times k)."
        ),
    ),
    MetricDefinition(
        name="retransmits",
        title="Retransmitted segments",
        unit=MetricUnit.COUNT,
        definition="TCP segments sent again by all flows in the measured time (TCP_INFO, as iperf3 reports it).",
    ),
    MetricDefinition(
        name="retransmit_ratio",
        title="Retransmission ratio",
        unit=MetricUnit.SHARE,
        definition="Retransmitted segments over the segments the sent payload fills at the MSS in use.",
    ),
    MetricDefinition(
        name="cpu_busy",
        title="Machine CPU busy",
        unit=MetricUnit.SHARE,
        definition="Share of all CPU time that was not idle while traffic ran, stolen time included (/proc/stat).",
        headline=False,
    ),
    MetricDefinition(
        name="cpu_steal",
        title="Machine CPU stolen",
        unit=MetricUnit.SHARE,
        definition="Share of all CPU time that a hypervisor gave to others while traffic ran (/proc/stat).",
        headline=False,
    ),
)

METRICS: Mapping[str, MetricDefinition] = MappingProxyType({metric.name: metric for metric in _DEFINITIONS})
"""Every metric by name, in the order in which they are printed."""
