"""The password of a lab's BGP sessions: one for each lab, for its owner alone, and nowhere else."""

import json
from pathlib import Path

import pytest

from testbed.lab.core.deploy.records.journal import StateError
from testbed.lab.core.deploy.records.lab_record import encode_lab
from testbed.lab.core.deploy.records.labdir import ansible_inventory, topology_data
from testbed.lab.core.deploy.routing import PASSWORD_FILE, bgp_password
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import Lab, Routing
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.render import FrrVersion, render_switch


def small(*, password: bool) -> tuple[Lab, LabPlan]:
    routing = Routing(password=password)
    params = FabricParams(design="rail-optimized", segments=1, hosts=1, gpus=1, spines=1, routing=routing)
    lab = generate_fabric(params, name="secured")
    return lab, plan_lab(lab, k=1000)


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    _, plan = small(password=True)
    first = bgp_password(plan, tmp_path)
    assert bgp_password(plan, tmp_path) == first, "a switch that is started anew has that of the others"
    assert (tmp_path / PASSWORD_FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / "other").mkdir()
    assert bgp_password(plan, tmp_path / "other") != first
    assert 32 <= len(first) <= 80, "TCP_MD5SIG_MAXKEYLEN"


def test_a_lab_without_has_no_file(tmp_path: Path) -> None:
    _, plan = small(password=False)
    assert bgp_password(plan, tmp_path) == ""
    assert not list(tmp_path.iterdir())


def test_a_state_directory_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    _, plan = small(password=True)
    with pytest.raises(StateError, match=PASSWORD_FILE):
        bgp_password(plan, tmp_path / "absent")


def test_it_is_in_bgpd_s_configuration_and_in_no_model_plan_or_record(tmp_path: Path) -> None:
    lab, plan = small(password=True)
    secret = bgp_password(plan, tmp_path)
    config = render_switch(
        plan.switches[0], lab=lab.name, version=FrrVersion(8, 4), log_directory="/run", password=secret
    )
    assert [name for name, text in config.daemons.items() if secret in text] == ["bgpd"]
    said = repr(plan) + json.dumps([encode_lab(lab), topology_data(lab, plan), ansible_inventory(lab, plan)])
    assert secret not in said


def test_a_configuration_without_the_password_it_is_to_have_is_no_configuration() -> None:
    _, plan = small(password=True)
    with pytest.raises(ValueError, match="there is none"):
        render_switch(plan.switches[0], lab="secured", version=FrrVersion(8, 4), log_directory="/run")
