"""What a lab needs of the machine is asked for before anything is made, and only where the lab needs it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.deploy import mechanisms
from testbed.deploy.mechanisms import require_guards
from testbed.errors import CapabilityError
from testbed.model import Lab
from testbed.spec import load_topology_text


def lab(fabric: str = "off", frontend: str = "off") -> Lab:
    text = f"""name: dc
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, guards: {fabric}}}
networks: {{frontend: {{guards: {frontend}}}, storage: {{}}}}
"""
    return load_topology_text(text, file="dc.yml")


@pytest.fixture
def no_nf_tables(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def why(name: str) -> str:
        asked.append(name)
        return "Protocol not supported"

    def capabilities(_: Any) -> Any:
        return SimpleNamespace(why=why)

    monkeypatch.setattr(mechanisms, "machine_capabilities", capabilities)
    return asked


@pytest.mark.parametrize(
    ("fabric", "frontend", "named"),
    [("on", "off", "backend"), ("off", "{}", "frontend"), ("on", "on", "backend, frontend")],
)
def test_guards_that_the_kernel_cannot_do_are_refused_with_a_way_out(
    no_nf_tables: list[str], fabric: str, frontend: str, named: str
) -> None:
    words = f"the guards of {named} need nf_tables.*Protocol not supported"
    with pytest.raises(CapabilityError, match=words) as caught:
        require_guards(lab(fabric, frontend), None)  # type: ignore[arg-type]
    assert caught.value.missing == "nf_tables" and caught.value.exit_code == 2
    assert "guards: off" in (caught.value.hint or "")
    assert no_nf_tables == ["filter.guards"]


def test_a_lab_without_guards_asks_for_nothing(no_nf_tables: list[str]) -> None:
    require_guards(lab(), None)  # type: ignore[arg-type]
    assert no_nf_tables == []
