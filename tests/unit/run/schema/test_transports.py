"""Named transports: a matrix chooses among them, tenants name them, and every point has one whole transport."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.base.errors import SpecError
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import Scenario, Transport, TransportKind

HEAD = """
name: both
topology: {inline: {name: lab, fabric: {design: rail-optimized}}}
workload: {kind: permutation, bytes: 1MB}
"""
NAMED = """
transports:
  selective: {kind: roce, recovery: selective}
  uet: {kind: uet, paths: reps}
"""


def load(text: str, **overrides: object) -> Scenario:
    return load_scenario_text(HEAD + text, file="both.yml", overrides=overrides).scenario


def refused(text: str, **overrides: object) -> list[str]:
    with pytest.raises(SpecError) as error:
        load(text, **overrides)
    return [f"{problem.path}: {problem.message}" for problem in error.value.problems]


def test_every_point_has_the_whole_transport_that_it_names() -> None:
    found = load(NAMED + "matrix: {transport: [uet, selective], fabric.hosts: [2, 4]}\n")
    assert [(one.values["transport"], one.transport.kind, one.values["fabric.hosts"]) for one in found.variants] == [
        ("uet", TransportKind.UET, 2),
        ("uet", TransportKind.UET, 4),
        ("selective", TransportKind.ROCE, 2),
        ("selective", TransportKind.ROCE, 4),
    ]
    assert found.variants[0].transport.paths == "reps"
    assert found.variants[2].transport.options == {"recovery": "selective"}
    assert found.transport == found.variants[0].transport


def test_the_command_line_chooses_one_and_changes_its_keys() -> None:
    swept = NAMED + "matrix: {transport: [uet, selective]}\n"
    only = load(swept, transport="selective")
    assert [one.transport.kind for one in only.variants] == [TransportKind.ROCE]
    changed = load(swept, **{"transports.uet.paths": "oblivious"})
    assert changed.variants[0].transport.paths == "oblivious"


def test_an_expectation_is_about_points_by_the_name_of_their_transport() -> None:
    expect = "expect: [{metric: drops, where: {transport: uet}, over: {transport: selective}, max: 1, source: equal}]\n"
    found = load(NAMED + "matrix: {transport: [uet, selective]}\n" + expect)
    assert found.expect[0].where == {"transport": "uet"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (NAMED + "matrix: {transport: [uet, tcp]}\n", "transports has none called 'tcp'"),
        ("matrix: {transport: [uet]}\n", "transports has none called 'uet'"),
        (NAMED, "no matrix chooses among them, and no tenant has one"),
        (NAMED + "transport: {kind: tcp}\nmatrix: {transport: [uet]}\n", "the matrix chooses the transport"),
        (NAMED + "matrix: {transport: [uet], transport.cc: [nscc]}\n", "the matrix chooses whole transports"),
        ("transports: {uet: {kind: uet, cc: cubic}}\nmatrix: {transport: [uet]}\n", "cubic"),
        ("transports: {Uet: {kind: uet}}\nmatrix: {transport: [Uet]}\n", "cannot name a transport"),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, problem: str) -> None:
    assert any(problem in one for one in refused(text)), refused(text)


def test_a_key_of_the_transport_is_not_set_beside_a_matrix_that_chooses_it() -> None:
    text = NAMED + "matrix: {transport: [uet]}\n"
    assert any("the matrix chooses the transport" in one for one in refused(text, **{"transport.cc": "nscc"}))


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


@pytest.mark.parametrize("key", ["cc: swift, cc_repath_rounds", "cc: timely, cc_hyper_after", "cc_fast_recovery"])
def test_rounds_of_a_controller_are_counted(key: str) -> None:
    """What its parameters hold as a whole number is refused at its place where it is none."""
    [problem] = refused(f"transport: {{kind: roce, {key}: 1.5}}\n")
    assert "must be a whole number" in problem
    assert load(f"transport: {{kind: roce, {key}: 2}}\n").transport.options[key.rsplit(maxsplit=1)[-1]] == 2
