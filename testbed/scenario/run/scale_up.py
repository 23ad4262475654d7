"""The scale-up domains of a lab as runs see them: what their links do in the lab's time, and which host is in which.

Operations in the switch reach a share of the link's rate that NCCL's cost model takes from measurements (NVLS, by
generation; NVIDIA/nccl `src/graph/tuning.cc`): Hopper 0.85, Blackwell 0.74.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.errors import ScenarioError
from testbed.model import Lab, ScaleUp
from testbed.worker.program import ScaleUpLinks
from testbed.workload.steps import Workload

IN_SWITCH_EFFICIENCY: Mapping[str, float] = {"h100": 0.85, "nvl72": 0.74}
"""By preset. Other presets' switches do not compute; links that are written out are taken to be used in full."""
NS_A_SECOND = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpDomains:
    """Rates and times of the lab, and the domain of each host by its name, which no other lab has."""

    links: ScaleUpLinks = field(default_factory=ScaleUpLinks)
    domain_of: Mapping[str, str] = field(default_factory=dict)
    """A host that is not here is a domain by itself."""

    def of(self, host: str) -> str:
        """Return the domain of a host."""
        return self.domain_of.get(host, host)

    @property
    def latency_s(self) -> float:
        """From the last bit of a transfer at its source to its arrival."""
        return self.links.one_way_ns / NS_A_SECOND


def scale_up_domains(lab: Lab, k: float) -> ScaleUpDomains:
    """Return the domains of a lab whose time scale is `k`."""
    scale_up = lab.scale_up
    links = ScaleUpLinks(
        rate_bps=round(scale_up.rate.bps / k),
        in_switch_bps=round(scale_up.rate.bps * _efficiency(scale_up) / k),
        one_way_ns=round(scale_up.latency.ns * k),
    )
    named = {host: domain if domain == host else f"{lab.name}/{domain}" for host, domain in lab.host_domains.items()}
    return ScaleUpDomains(links=links, domain_of=named)


def check_in_switch(lab: Lab, workload: Workload) -> None:
    """Raise `ScenarioError` where a workload has operations in switches that do not compute."""
    preset = lab.scale_up.preset
    if preset and preset not in IN_SWITCH_EFFICIENCY and any(step.in_switch for step in workload.transfers):
        raise ScenarioError(
            f"the scale-up switches of {preset} add nothing up",
            hint=f"another algorithm, or fabric.scale_up.preset: {' or '.join(IN_SWITCH_EFFICIENCY)}",
        )


def _efficiency(scale_up: ScaleUp) -> float:
    return IN_SWITCH_EFFICIENCY.get(scale_up.preset, 1.0)
