"""What `transport: {kind: roce}` means on a lab: the classes of packets and CNPs, and what has parameters."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.base.errors import ScenarioError
from testbed.protocols.roce.config import RoceConfig
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.schema.transports import TRANSPORTS
from testbed.run.transports.registry import transport_on
from testbed.workload.patterns import generate_point_to_point


def lab_of_three_classes() -> Any:
    """The lab has bulk, a lossless class of DSCP 26, and a strict one of DSCP 48."""
    model, plan = small_lab(k=1000.0)
    table = [0] * 64
    table[26], table[48] = 3, 6
    classes = tuple(
        SimpleNamespace(name=name, priority=priority, lossless=lossless, kmin_bytes=None, strict=strict)
        for name, priority, lossless, strict in (
            ("bulk", 0, False, False),
            ("rdma", 3, True, False),
            ("control", 6, False, True),
        )
    )
    profile = SimpleNamespace(switch=True, classes=classes, class_of_dscp=tuple(table), trimming=False, control_class=6)
    qos = SimpleNamespace(profiles=(profile,), buffers=(), base_rtt_ns=10_000, reaction_ns=0)
    return SimpleNamespace(name="fake", model=model, plan=replace(plan, qos=qos, tables=qos))


def settings_of_first_host(cc: str | None = None, **options: Any) -> Any:
    where = lab_of_three_classes()
    subject: Any = transport_on(where, Transport(kind=TransportKind.ROCE, cc=cc, options=options))
    ranks = [where.plan.hosts[0].nics[0], where.plan.hosts[3].nics[0]]
    channels = subject.plan_channels(generate_point_to_point(ranks=2, size_bytes=10), ranks, seed=1)
    return subject._host_settings(ranks[0].node, ranks, channels)


def test_notifications_have_a_class_of_their_own_unless_told_otherwise() -> None:
    found = settings_of_first_host()
    assert (found.dscp, found.ack_dscp, found.notification_dscp) == (26, 26, 48)
    assert settings_of_first_host(cnp_class="rdma").notification_dscp == 26
    assert settings_of_first_host(cnp_class="bulk").notification_dscp == 0


def test_a_class_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ScenarioError, match="no traffic class 'cnp'") as refused:
        settings_of_first_host(cnp_class="cnp")
    assert refused.value.hint == "one of bulk, rdma, control"


def test_without_a_congestion_control_its_parameters_stand_idle() -> None:
    """A matrix that turns it off keeps the keys of the other points."""
    of_dcqcn = {"parameters": "nvidia", "cc_additive_bps": 1e9}
    controlled = settings_of_first_host(cc="dcqcn", **of_dcqcn)
    assert controlled.config["parameters"] == "nvidia" and controlled.cc_parameters == {"additive_bps": 1e9}
    idle = settings_of_first_host(cc="none", **of_dcqcn)
    assert "parameters" not in idle.config and not idle.cc_parameters
    RoceConfig(**idle.config, cc_parameters=idle.cc_parameters)
    declared = TRANSPORTS["roce"]
    assert not list(declared.conflicts({"cc": "none", **of_dcqcn}))
    assert [conflict.key for conflict in declared.conflicts({"cc": "swift", **of_dcqcn})] == [
        "parameters",
        "cc_additive_bps",
    ]
