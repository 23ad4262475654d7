"""What a sweep is going to be, without touching anything: every point as planned, and how long the whole takes."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.base.errors import PlanError, ScenarioError, WorkloadError
from testbed.lab.core.plan import plan_lab
from testbed.lab.core.plan.operations import LabPlan
from testbed.run.sweep.outlook import PointOutlook, deploy_estimate_s, foresee_point
from testbed.run.sweep.points import topology_key
from testbed.run.sweep.prepared import Sweep, Unfit
from testbed.run.sweep.scales import ScenarioScales


def foresee_sweep(sweep: Sweep, scales: ScenarioScales) -> list[PointOutlook]:
    """Plan the lab of every point and make its traffic once, as `foresee_point` does.

    Raises `SpecError` with the problems of all points whose lab cannot be planned or cannot carry the workload.
    """
    plans: dict[str, LabPlan] = {}
    found: list[PointOutlook] = []
    unfit: list[Unfit] = []
    for point in sweep.points:
        lab, key = sweep.lab_of(point), topology_key(point.topology)
        try:
            if key not in plans:
                plans[key] = plan_lab(lab, k=scales(point.topology, lab).k)
            found.append(foresee_point(point, lab, plans[key]))
        except ScenarioError as error:
            if not isinstance(error.__cause__, WorkloadError):
                raise
            unfit.append((point.scenario, error.__cause__))
        except PlanError as error:
            unfit.append((point.scenario, error))
    if unfit:
        raise sweep.reader.explain(unfit)
    return found


def estimate_s(sweep: Sweep, points: Sequence[PointOutlook]) -> float:
    """Wall-clock seconds that the whole sweep takes, bringing its labs up and removing them included."""
    return sum(one.estimated_s for one in points) + sum(deploy_estimate_s(lab) for lab in sweep.labs.values())
