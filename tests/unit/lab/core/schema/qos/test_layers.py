"""The `qos:` section becomes a `QosPolicy`: presets, overrides at every level, priorities, weights."""

from __future__ import annotations

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.fabric import QOS_PRESETS
from testbed.lab.core.model import (
    Depth,
    DepthUnit,
    EcnCurve,
    Lab,
    MarkAt,
    QosPolicy,
    QosProfile,
    TrafficClass,
)
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.core.schema.write import render_topology

FABRIC = "name: pod\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2}\n"


def lab(qos: str, fabric: str = FABRIC) -> Lab:
    return load_topology_text(f"{fabric}qos:{qos}\n", file="t.yml")


def policy(qos: str) -> QosPolicy:
    found = lab(qos).qos
    assert found is not None
    return found


def profile(qos: str) -> QosProfile:
    return policy(qos).profiles[0]


def refused(qos: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        lab(qos)
    return caught.value


def by_name(found: QosProfile) -> dict[str, TrafficClass]:
    return {item.name: item for item in found.classes}


def bdp(value: float) -> Depth:
    return Depth(value, DepthUnit.BDP)


def test_without_the_section_ports_are_plain() -> None:
    assert load_topology_text(FABRIC, file="t.yml").qos is None


@pytest.mark.parametrize("name", QOS_PRESETS)
def test_a_preset_alone_is_that_preset(name: str) -> None:
    assert profile(f" {{preset: {name}}}") == QOS_PRESETS[name].profile


@pytest.mark.parametrize("name", QOS_PRESETS)
def test_the_documentations_classes_fit_every_preset(name: str) -> None:
    found = by_name(profile(f" {{preset: {name}, classes: {{rdma: {{lossless: true}}, bulk: {{limit: 4bdp}}}}}}"))
    assert set(found) == {"rdma", "control", "bulk"}
    assert found["rdma"].lossless
    assert found["rdma"].limit is None
    assert found["bulk"].limit == bdp(4)


def test_a_value_set_from_outside_is_named_as_such() -> None:
    with pytest.raises(SpecError) as caught:
        load_topology_text(FABRIC, file="t.yml", overrides={"qos.preset": "uec", "qos.classes.rdma.weight": 10})
    (problem,) = caught.value.problems
    assert (problem.code, problem.file, problem.position) == ("weights", "<override>", None)


def test_a_buffer_that_holds_its_reserves_exactly_is_enough() -> None:
    text = " {{classes: {{a: {{default: true}}}}, buffer: {{shared: {}B}}}}"
    four_ports = 4 * 2 * 4514
    assert profile(text.format(four_ports)).buffer.shared_bytes == four_ports
    error = refused(text.format(four_ports - 1))
    assert error.problems[0].code == "buffer-too-small"
    assert "36.112 kB at least" in error.problems[0].message


def test_a_written_topology_reads_back_with_its_qos() -> None:
    settings = [
        "qos.preset=uec",
        "qos.classes.rdma={lossless: true, ecn: {kmin: 0.1bdp, kmax: 150KB}, dscp: [cs3]}",
        "qos.nodes={'p1-spine*': {base_rtt: 12us}}",
        'qos.ports={"p1-s1-rail1:down1": {trimming: false}}',
        "qos.watchdog=false",
    ]
    text = render_topology("pod", "rail-optimized", settings)
    assert "qos:\n  preset: uec\n" in text
    written = load_topology_text(text, file="pod.yml")
    assert written.qos is not None
    assert len(written.qos.profiles) == 3
    rail = by_name(written.qos.of("p1-s1-rail1"))["rdma"]
    assert rail.ecn == EcnCurve(kmin=bdp(0.1), kmax=Depth(150_000), mark_at=MarkAt.DEQUEUE)
