"""Transports of tenants: a section, a name, or the scenario's; and what becomes of them where all are the same."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.base.errors import SpecError
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import Scenario, Transport
from testbed.run.schema.transports import TransportKind

TEXT = """name: mixed
topology: {{inline: {{name: lab, fabric: {{design: rail-only}}}}}}
transport: {{kind: uet, cc: rccc}}
transports: {{disks: {{kind: nvme-tcp, depth: 4}}}}
workload:
  kind: tenants
  tenants:
    - {{name: training, ranks: 2, {training} workload: {{kind: all-reduce}}}}
    - {{name: checkpoint, ranks: 2, transport: {checkpoint}, workload: {{kind: checkpoint}}}}
{rest}
"""
CC = """matrix: {"workload.tenants[1].transport.cc": [cubic, reno]}"""
UET = Transport(kind=TransportKind.UET, cc="rccc")


def scenario(training: str = "", checkpoint: str = "disks", rest: str = "") -> Scenario:
    text = TEXT.format(training=training, checkpoint=checkpoint, rest=rest)
    return load_scenario_text(text, file="mixed.yml").scenario


def test_a_tenant_names_a_transport_and_another_has_the_scenarios() -> None:
    found = scenario()
    disks = Transport(kind=TransportKind.NVME_TCP, options={"depth": 4})
    assert found.tenant_transports == found.transports == (UET, disks)
    tenants: Any = found.workload.parameters["tenants"]
    written = [tenant["transport"] for tenant in tenants]
    assert written == [{"kind": "uet", "cc": "rccc"}, {"kind": "nvme-tcp", "depth": 4}], "a record says what it was"


def test_tenants_with_one_and_the_same_are_a_scenario_over_it() -> None:
    found = scenario("transport: {kind: tcp},", "{kind: tcp}", 'matrix: {"workload.tenants[1].transport": [disks]}')
    (variant,) = found.variants
    assert len(variant.transports) == 2
    same = scenario(rest='matrix: {"workload.tenants[0].transport": [disks]}').variants[0]
    assert not same.tenant_transports
    assert same.transport.kind is TransportKind.NVME_TCP


def test_a_matrix_changes_what_a_tenant_says() -> None:
    found = scenario("transport: disks,", "{kind: tcp}", CC)
    assert [one.tenant_transports[1].cc for one in found.variants] == ["cubic", "reno"]


def test_a_name_that_nobody_uses_is_refused() -> None:
    with pytest.raises(SpecError, match="no matrix chooses among them, and no tenant has one"):
        scenario(checkpoint="{kind: tcp}")
