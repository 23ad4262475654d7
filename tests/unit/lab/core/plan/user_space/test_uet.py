"""Endpoints beside a scenario are told what those of a scenario over UET are."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.user_space.uet import UetEndpointSettings
from testbed.lab.core.schema.load import load_topology_text
from testbed.protocols.uet.config import UetConfig
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.transports.registry import transport_on

TEXT = """
name: t
scale: {{time: 20000}}
{more}
fabric: {{design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2}}
"""
QOS = ("", "qos: {preset: uec, base_rtt: 2us}", "qos: {preset: nvidia}")


def lab(more: str) -> Any:
    model = load_topology_text(TEXT.format(more=more), file="t.yml")
    return SimpleNamespace(name="t", model=model, plan=plan_lab(model, k=20_000))


@pytest.mark.parametrize("more", QOS)
def test_settings_are_those_of_a_scenario(more: str) -> None:
    where = lab(more)
    found = UetEndpointSettings(where.model, where.plan)
    scenario: Any = transport_on(where, Transport(kind=TransportKind.UET))
    assert (found.dscp, found.control_dscp, found.tick_ns) == (scenario.dscp, scenario.control_dscp, scenario.tick_ns)
    near, far = where.plan.hosts[0].nics[0], where.plan.hosts[-1].nics[0]
    assert found.config(near) == scenario._config(near)
    UetConfig(**found.config(near))  # type: ignore[arg-type]
    held_ns = scenario.held_ns(scenario.path(far, near))
    assert found.delays_ns(near, [near, far]) == ({str(far.addresses[0]): held_ns} if held_ns else {})


def test_a_full_packet_and_its_answer_take_the_least_round_trip() -> None:
    where = lab(QOS[1])
    found = UetEndpointSettings(where.model, where.plan)
    near, beside, far = (host.nics[0] for host in (*where.plan.hosts[:2], where.plan.hosts[-1]))
    least_ns = found.least_rtts_ns(near, [near, beside, far])
    assert list(least_ns) == [str(beside.addresses[0]), str(far.addresses[0])]
    assert 0 < least_ns[str(beside.addresses[0])] < least_ns[str(far.addresses[0])] <= found.times.base_rtt_ns
