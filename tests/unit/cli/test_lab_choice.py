"""Errors of a plan have the place in the topology file that they are about."""

from pathlib import Path

import pytest

from testbed.base.errors import PlanError, SpecError
from testbed.cli.lab_choice import placed_plan_errors, read_topology
from testbed.cli.labs.validate import validate
from testbed.lab.core.plan.lab import check_addresses, plan_lab

TENANT = """name: x
fabric: {design: rail-optimized, segments: 1, hosts: 3, gpus: 2, spines: 1, overlay: evpn, mtu: 4200}
tenants:
  red: {subnets: {a: {prefix: 10.0.0.0/16, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail1"]}}}
"""
BESIDE = """name: x
fabric: {design: rail-optimized, segments: 1, hosts: 3, gpus: 2, spines: 1, overlay: evpn, mtu: 4200}
networks: {frontend: {}}
tenants:
  red: {subnets: {a: {prefix: 192.168.0.0/20, nics: ["p1-s1-h1:rail1"]}}}
"""
BUFFER = """name: x
fabric: {design: rail-optimized, segments: 1, hosts: 3, gpus: 2, spines: 1}
networks: {frontend: {qos: {preset: dcqcn, buffer: {shared: 2MB}}}}
"""
WRITTEN = """name: x
fabric: {design: single-switch, hosts: 2, gpus: 1}
networks:
  storage:
    design: hand-written
    switches: {l1: {role: leaf, asn: 4200001024}, s1: {role: spine}}
    links:
      - {endpoints: ["p1-s1-h1:a", "l1:eth1"]}
      - {endpoints: ["l1:up", "s1:eth1"]}
"""


def test_validate_finds_an_as_number_that_the_plan_gives_to_a_neighbour(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text(WRITTEN)
    with pytest.raises(SpecError) as caught:
        validate.main(["-t", str(file)], standalone_mode=False)
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{file}:6:38: same-asn: networks.storage.switches.l1.asn")
    file.write_text(WRITTEN.replace("4200001024", "4200001025"))
    validate.main(["-t", str(file)], standalone_mode=False)


@pytest.mark.parametrize(("text", "place"), [(TENANT, "4:31"), (BESIDE, "5:31")])
def test_a_tenants_prefix_that_a_host_has_elsewhere_is_refused_where_it_is_written(
    tmp_path: Path, text: str, place: str
) -> None:
    file = tmp_path / "x.yml"
    file.write_text(text)
    lab = read_topology(str(file), None)
    with pytest.raises(SpecError) as caught, placed_plan_errors(str(file), None):
        check_addresses(lab)
    (problem,) = caught.value.problems
    assert problem.code == "overlap" and str(problem).startswith(f"{file}:{place}: overlap")
    assert problem.hint and "10.0.0.0/8" in problem.hint


def test_a_buffer_that_is_too_small_at_a_scale_is_refused_in_its_network(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text(BUFFER)
    lab = read_topology(str(file), None)
    with pytest.raises(SpecError) as caught, placed_plan_errors(str(file), None):
        plan_lab(lab, k=1)
    assert str(caught.value.problems[0]).startswith(f"{file}:3:61: buffer-too-small")


def test_an_error_about_nothing_that_is_written_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text(TENANT)
    with pytest.raises(PlanError, match="no key of it"), placed_plan_errors(str(file), None):
        raise PlanError("no key of it", field="tenants.red.subnets.b")
