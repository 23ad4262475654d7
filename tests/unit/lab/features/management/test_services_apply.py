"""Services of a lab that is not there: which are chosen to be started again, and how what is seen of them is judged."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.errors import DriverError
from testbed.lab.core.deploy.live import NoSuchNode, RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.management import services_apply as services
from testbed.lab.features.management.services.launcher import require_ports
from testbed.lab.features.management.services_apply import (
    NoSuchService,
    missing_services,
    read_services,
    restart_services,
    service_places,
)

TEXT = """name: lab
fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}
networks: {management: {design: out-of-band, services: [dns, ssh]}}
"""
HOST, SERVER = "p1-s1-h1", "mgmt1"


@pytest.fixture
def lab(tmp_path: Path) -> RunningLab:
    model = load_topology_text(TEXT, file="lab.yml")
    state = StateDirectory(tmp_path / "state", tmp_path / "run")
    state.lab_directory("lab").mkdir(parents=True)
    names = {node.name for node in model.nodes}

    def node(name: str) -> Any:
        if name not in names:
            raise NoSuchNode(f"no node {name}")

    found = SimpleNamespace(
        name="lab",
        model=model,
        plan=plan_lab(model, k=1000),
        state=state,
        state_directory=state.lab_directory("lab"),
        identities=dict.fromkeys(names, 1),
        node=node,
    )
    return cast(RunningLab, found)


def test_what_there_is_not_is_not_started_again(lab: RunningLab) -> None:
    with pytest.raises(NoSuchService, match="no service 'dsn'") as caught:
        restart_services(lab, "dsn")
    assert caught.value.hint == "did you mean dns?"
    with pytest.raises(NoSuchService, match=f"{HOST} does not run dns"):
        restart_services(lab, "dns", HOST)
    with pytest.raises(NoSuchNode, match="no node h9"):
        restart_services(lab, "dns", "h9")


def test_a_service_runs_is_silent_or_is_dead(lab: RunningLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def running(places: Any, _: Any) -> dict[tuple[str, str], dict[str, int]]:
        every = {(place.service, place.node): {"dns": "dnsmasq", "ssh": "sshd"}[place.service] for place in places}
        return {key: {program: 7} if key != ("ssh", HOST) else {} for key, program in every.items()}

    def said(places: Any) -> dict[tuple[str, str], str | None]:
        assert ("ssh", HOST) not in {(place.service, place.node) for place in places}, "the dead are not asked"
        return {(place.service, place.node): None if place.service == "dns" else "well" for place in places}

    monkeypatch.setattr(services, "running_programs", running)
    monkeypatch.setattr(services, "answers", said)
    states = {(status.service, status.node): status.state for status in read_services(lab)}
    assert states["dns", SERVER] == "silent"
    assert states["ssh", HOST] == "dead"
    assert states["ssh", SERVER] == "running"
    lines = missing_services(lab)
    assert len(lines) == 2
    assert any(line.startswith(f"ssh of {HOST} is dead: its log is ") for line in lines)


def test_a_port_that_is_taken_is_named(lab: RunningLab, monkeypatch: pytest.MonkeyPatch) -> None:
    places = services.service_places(lab.model, lab.plan, lab.state)
    monkeypatch.setattr(
        "testbed.lab.features.management.services.launcher._is_free", lambda place, port: place.node != SERVER
    )
    require_ports([place for place in places if place.node == HOST])
    with pytest.raises(DriverError, match=r"of mgmt1 cannot start: tcp/22 of 192\.168\.0\.1 is taken") as caught:
        require_ports(places)
    assert caught.value.hint == "`testbed exec mgmt1 -- ss -lntup` shows by whom"


def test_storage_targets_are_served_as_hosts_are(tmp_path: Path) -> None:
    """Every node that runs a service is prepared for it: it has a host key, and its power can be switched."""
    text = TEXT.replace("networks: {", "networks: {storage: {design: single-switch, targets: {flash: {}}}, ")
    model = load_topology_text(text, file="lab.yml")
    places = service_places(model, plan_lab(model, k=1000), StateDirectory(tmp_path / "state", tmp_path / "run"))
    served = places[0].lab.served
    assert "flash" in served
    assert {place.node for place in places} <= set(served)
