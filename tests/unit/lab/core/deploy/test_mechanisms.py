"""What a lab needs of the machine is asked for before anything is made, and only where the lab needs it."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import CapabilityError, PlanError
from testbed.lab.core.deploy import mechanisms
from testbed.lab.core.deploy.mechanisms import require_password
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.guards.feature import GuardsFeature
from testbed.lab.features.management.feature import ManagementFeature
from testbed.lab.features.targets.feature import TargetsFeature


def lab(fabric: str = "off", frontend: str = "off", password: str = "false") -> Lab:
    text = f"""name: dc
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, guards: {fabric}, routing: {{password: {password}}}}}
networks: {{frontend: {{guards: {frontend}}}, storage: {{}}}}
"""
    return load_topology_text(text, file="dc.yml")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a kernel was asked for that can do nothing."""
    names: list[str] = []

    def why(name: str) -> str:
        names.append(name)
        return "Protocol not supported"

    def capabilities(_: Any) -> Any:
        return SimpleNamespace(why=why)

    monkeypatch.setattr(mechanisms, "machine_capabilities", capabilities)
    return names


@pytest.mark.parametrize(
    ("fabric", "frontend", "named"),
    [("on", "off", "backend"), ("off", "{}", "frontend"), ("on", "on", "backend, frontend")],
)
def test_guards_that_the_kernel_cannot_do_are_refused_with_a_way_out(
    asked: list[str], fabric: str, frontend: str, named: str
) -> None:
    words = f"the guards of {named} need nf_tables.*Protocol not supported"
    with pytest.raises(CapabilityError, match=words) as caught:
        GuardsFeature().require(lab(fabric, frontend), None)  # type: ignore[arg-type]
    assert caught.value.missing == "nf_tables" and caught.value.exit_code == 3
    assert "guards: off" in (caught.value.hint or "")
    assert asked == ["filter.guards"]


def test_a_lab_without_guards_and_password_asks_for_nothing(asked: list[str]) -> None:
    GuardsFeature().require(lab(), None)  # type: ignore[arg-type]
    require_password(lab(), None)  # type: ignore[arg-type]
    ManagementFeature().require(lab(), None)  # type: ignore[arg-type]
    assert asked == []


def test_an_out_of_band_network_that_the_kernel_cannot_keep_apart_is_refused(asked: list[str]) -> None:
    text = "name: dc\nfabric: {design: single-switch, hosts: 2, gpus: 1}\nnetworks: {oob: {design: out-of-band}}\n"
    with pytest.raises(CapabilityError, match=r"network oob needs nf_tables.*Protocol not supported") as caught:
        ManagementFeature().require(load_topology_text(text, file="dc.yml"), None)  # type: ignore[arg-type]
    assert "remove networks.oob" in (caught.value.hint or "")
    assert asked == ["filter.management"]  # a kernel that can that is asked for "filter.guards", too


def test_targets_that_the_kernel_cannot_serve_are_refused_at_their_place(asked: list[str]) -> None:
    text = """name: dc
fabric: {{design: single-switch, hosts: 2, gpus: 1}}
networks: {{storage: {{targets: {{flash: {{count: 2{}}}}}}}}}
"""
    TargetsFeature().require(load_topology_text(text.format(""), file="dc.yml"), None)  # type: ignore[arg-type]
    assert asked == []
    served = load_topology_text(text.format(", served_by: kernel"), file="dc.yml")
    with pytest.raises(PlanError, match=r"flash1 is to be served by the kernel.*Protocol not supported") as caught:
        TargetsFeature().require(served, None)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.field) == ("no-kernel-target", "networks.storage.targets")
    assert "--on vm" in (caught.value.hint or "")
    assert asked == ["storage.nvmet"]


def test_a_password_that_the_kernel_cannot_sign_with_is_refused_with_a_way_out(asked: list[str]) -> None:
    with pytest.raises(CapabilityError, match=r"password of backend needs TCP MD5.*Protocol not supported") as caught:
        require_password(lab(password="true"), None)  # type: ignore[arg-type]
    assert "password: false" in (caught.value.hint or "")
    assert asked == ["socket.md5"]
