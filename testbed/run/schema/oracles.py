"""Expectations `within: oracle` of which no oracle says anything, found before a run that would end invalid for them.

What oracles predict is told by `testbed.run.ideals.predictions`. What only the traffic itself tells is not looked into.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.base.errors import Problem
from testbed.base.yaml.document import Document
from testbed.lab.core.model import BalancingMode, Lab
from testbed.run.schema.model import Scenario, Within, is_point_of
from testbed.run.schema.transports import TRANSPORTS
from testbed.workload.registry import workload_kind

OF_FLOWS = ("aggregate_share", "slowest_share", "jain_flows", "tail_fct_ratio")
"""Metrics that oracles predict for flows that all begin at once."""
OF_LINKS = ("mmr_uplinks", "mmr_worst_switch", "jain_links", "effective_paths")
"""Metrics that they predict for the links that flows take, whenever they begin."""
OF_LATENCY = ("rdma_latency_min", "rdma_latency_p50")
"""Metrics that they predict for messages that are alone."""
_ONE_BY_ONE = ("mice", "background")
"""The kinds whose flows begin one after the other."""
_IN_STEPS = ("all-reduce", "reduce-scatter", "training-step", "pipeline")
"""Kinds whose transfers wait for others, whatever their parameters are."""


def unpredicted(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    """Yield the expectations about a point that no oracle predicts, with the reason."""
    for index, expectation in enumerate(point.expect):
        if expectation.within is not Within.ORACLE or not is_point_of(point.values, expectation.where):
            continue
        if silent := _why_silent(point, lab, expectation.metric):
            message = f"no oracle says what {expectation.metric} is: {silent}"
            yield document.problem("not-predicted", ("expect", index, "within"), message, hint="write min and max")


def _why_silent(point: Scenario, lab: Lab, metric: str) -> str:
    """Say why oracles are silent on a metric of a point; "" where they may not be."""
    kind, transport = point.workload.kind, point.transport
    if point.faults:
        return "they know nothing of faults"
    if point.tenant_transports:
        return "its traffic goes over several transports"
    if transport.measures_latency:
        return "" if metric in OF_LATENCY else f"of latency tests they know {' and '.join(OF_LATENCY)}"
    if metric not in OF_FLOWS + OF_LINKS:
        return f"they know {', '.join(OF_FLOWS + OF_LINKS)}"
    if workload_kind(kind).is_program or kind in _IN_STEPS:
        return f"transfers of the workload {kind} wait for each other"
    if int(transport.options.get("qps", 1)) > 1:
        return "each of a channel's queue pairs has a path of its own (qps: 1 has one)"
    if kind in _ONE_BY_ONE and metric in OF_FLOWS:
        return f"flows of the workload {kind} do not begin at once; they know {', '.join(OF_LINKS)}"
    if metric in OF_LINKS and _divides_at_will(point, lab):
        return "packets go where there is room, and may load the links in many ways"
    return ""


def _divides_at_will(point: Scenario, lab: Lab) -> bool:
    """Tell whether the transport chooses paths by what it hears of them, over switches that leave that to it."""
    modes = {profile.load_balancing.mode for policy in lab.policies for profile in policy.profiles}
    asked = point.transport
    hears = TRANSPORTS[asked.kind.value].hears_of_paths and asked.paths not in ("single", "oblivious")
    return hears and asked.options.get("mode") != "rod" and modes <= {BalancingMode.FLOW}
