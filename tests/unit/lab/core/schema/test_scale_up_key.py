"""`fabric.scale_up`: presets, what changes them, and domains that are written out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.model import (
    SCALE_UP_PRESETS,
    UNSTATED_SCALE_UP,
    Lab,
    NodeKind,
    ScaleUp,
    ScaleUpBy,
)
from testbed.lab.core.schema.load import load_topology_text


def load(text: str) -> Lab:
    body = f"name: lab\nfabric:\n  design: rail-optimized\n  hosts: 2\n{text}"
    return load_topology_text(body, file="lab.yml")


def scale_up(inside: str) -> ScaleUp:
    return load(f"  scale_up: {inside}\n").scale_up


def test_a_file_that_says_nothing_has_what_labs_had_before() -> None:
    assert load("").scale_up == UNSTATED_SCALE_UP


@pytest.mark.parametrize("name", SCALE_UP_PRESETS)
def test_a_preset_is_as_it_is(name: str) -> None:
    lab = load(f"  scale_up: {{preset: {name}}}\n")
    assert lab.scale_up == SCALE_UP_PRESETS[name]
    assert decode_lab(json.loads(json.dumps(encode_lab(lab)))) == lab


@given(planes=st.integers(1, 18))
def test_links_are_spread_over_fewer_planes_as_evenly_as_can_be(planes: int) -> None:
    shares = scale_up(f"{{preset: nvl72, domain: host, switch_ports: 1000, planes: {planes}}}").shares
    assert (len(shares), sum(shares)) == (planes, 18)
    assert max(shares) - min(shares) <= 1


def test_an_override_of_the_command_line_changes_a_domain() -> None:
    text = "name: lab\nfabric:\n  design: rail-optimized\n  hosts: 2\n  scale_up: {preset: nvl72}\n"
    lab = load_topology_text(text, file="lab.yml", overrides={"fabric.scale_up.domain": "host"})
    assert set(lab.host_domains.values()) == {host.name for host in lab.hosts}


def test_gpus_of_containers_may_have_packets() -> None:
    inside = "  scale_up: {preset: h100, by: packets}\ntopology: {kinds: {host: {runtime: docker}}}\n"
    lab = load(inside)
    assert lab.scale_up is not None and lab.scale_up.by is ScaleUpBy.PACKETS
    assert {node.runtime for node in lab.nodes if node.kind is NodeKind.HOST} == {"docker"}
