"""The time scale of a simulated run: that of the real fabric, or the lab's where a scenario speaks of lab times.

A run whose transport keeps to the fabric's own times is simulated at those: k = 1. Others have times that no scale
changes, because in an emulated lab they are times of this machine's clock: when a fault comes and goes, BFD's interval
and BGP's hold time, a kernel's timers, how long a workload lasts, how long a transfer inside a scale-up domain may
take. Such a run is simulated as it is emulated, at the lab's k, so that all of them stand to the fabric's times as they
do there.
"""

from __future__ import annotations

from typing import Final

from testbed.base.units import Duration
from testbed.lab.core.model import Lab
from testbed.run.faults.links import LinkSet
from testbed.run.faults.registry import lab_fault
from testbed.run.placed.lab import go_over_subnet
from testbed.run.scale_up.domains import goes_by_packets
from testbed.run.schema.model import Fault, Scenario

REAL_TIME: Final = 1.0
AUTO_SCALE: Final = 20_000.0
"""The k of a lab whose file says `auto`, where it matters: in the middle of those that the shipped scenarios have on
two cores, 2,000 to 200,000. It is the same on every machine, so that records are."""
WITHOUT_LAB_TIMES: Final = ("ib", "roce", "uet")
"""The transports whose timers are scaled with the fabric."""


def time_scale(lab: Lab, scenario: Scenario) -> float:
    """Return the k that a scenario is simulated at, on a lab that is seen in all its networks."""
    if go_over_subnet(scenario.transports) or not _speaks_of_lab_times(lab, scenario):
        return REAL_TIME
    return AUTO_SCALE if lab.scale.time is None else lab.scale.time


def _speaks_of_lab_times(lab: Lab, scenario: Scenario) -> bool:
    return (
        scenario.by_programs
        or any(one.kind.value not in WITHOUT_LAB_TIMES for one in scenario.transports)
        or any(goes_by_packets(lab, one) for one in scenario.transports)
        or any(map(is_timed, scenario.faults))
    )


def is_timed(fault: Fault) -> bool:
    """Tell whether a fault has a time of the lab's: it begins or ends during the run, or somebody has to notice it."""
    if fault.until is not None or not isinstance(fault.at, Duration) or fault.at.ns:
        return True
    found = lab_fault(fault)
    return not isinstance(found, LinkSet) or (bool(fault.settings.get("silent")) and not found.of_scale_up)
