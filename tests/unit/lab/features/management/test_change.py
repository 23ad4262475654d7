"""Services of a lab that is changed: who is started, told, started anew and ended, by what both files say."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.errors import DriverError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.feature import Changing, keep
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.management import change, services_apply
from testbed.lab.features.management.change import ServiceChanges, ServicesChange, compare_services, services_change
from testbed.lab.features.management.services import launcher
from testbed.lab.features.management.services.registry import REGISTRY
from testbed.lab.features.management.services.service import Place
from testbed.lab.features.management.services_apply import service_places

TEXT = """name: lab
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: {gpus}, segments: 1, spines: 1}}
networks: {{management: {{design: out-of-band, services: {services}}}}}
"""
SERVER, SWITCH, HOST, NEW = "mgmt1", "p1-s1-rail1", "p1-s1-h1", "p1-s1-h3"
MANY = "[ssh, dns, dhcp, time, syslog, telemetry, lldp, aaa]"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    monkeypatch.setattr("testbed.lab.features.management.services.ssh._SEPARATION", str(tmp_path / "sshd"))
    monkeypatch.setattr("testbed.lab.features.management.services.lldp._CHROOT", str(tmp_path / "lldpd"))
    found = StateDirectory(tmp_path / "state", tmp_path / "run")
    found.lab_directory("lab").mkdir(parents=True)
    return found


def model(services: str, hosts: int = 2, gpus: int = 1) -> Lab:
    return load_topology_text(TEXT.format(services=services, hosts=hosts, gpus=gpus), file="lab.yml")


def places_of(lab: Lab, state: StateDirectory) -> list[Place]:
    return service_places(lab, plan_lab(lab, k=1000), state)


def deployed(lab: Lab, state: StateDirectory) -> list[Place]:
    """Its places, with the secrets that are there once it is deployed."""
    places = places_of(lab, state)
    for name in {place.service for place in places}:
        REGISTRY[name].prepare(places[0].lab)
    return places


def compared(state: StateDirectory, old: Lab, new: Lab) -> ServiceChanges:
    return compare_services(deployed(old, state), places_of(keep(old, new), state))


def rows(changes: ServiceChanges, effect: Effect) -> set[tuple[str, str]]:
    return {(row.what.removeprefix("service "), row.node) for row in changes.rows if row.effect is effect}


def test_the_same_lab_has_nothing_to_do_though_secrets_are_hashed(state: StateDirectory) -> None:
    every = "[ssh, dns, dhcp, time, syslog, telemetry, lldp, aaa, redfish, sflow, gnmi, bmp]"
    assert not compared(state, model(every), model(every))


def test_a_host_more_has_its_services_and_others_are_told_of_it(state: StateDirectory) -> None:
    changes = compared(state, model(MANY), model(MANY, hosts=3))
    assert rows(changes, Effect.MADE) == {(name, NEW) for name in ("ssh", "time", "syslog", "lldp")}
    assert rows(changes, Effect.CHANGED) == {
        *((name, SERVER) for name in ("dns", "dhcp", "syslog")),
        ("lldp", SWITCH),  # it has a port more
    }
    assert not rows(changes, Effect.RESTARTED) and not rows(changes, Effect.REMOVED)
    assert not any(row.allow for row in changes.rows), "services carry nobody's traffic"


def test_a_host_less_takes_its_services_with_it(state: StateDirectory) -> None:
    changes = compared(state, model(MANY, hosts=3), model(MANY))
    assert rows(changes, Effect.CHANGED) == {*((name, SERVER) for name in ("dns", "dhcp", "syslog")), ("lldp", SWITCH)}
    assert {row.effect for row in changes.rows} == {Effect.CHANGED}, "what is on the host goes with it"
    assert changes, "and what people have of services is written anew"


def test_a_service_more_is_started_where_it_runs_and_who_depends_on_it_is_started_anew(state: StateDirectory) -> None:
    changes = compared(state, model("[ssh, dhcp, telemetry]"), model("[ssh, dhcp, telemetry, dns]"))
    assert rows(changes, Effect.MADE) == {("dns", SERVER)}
    anew = {row.what: row for row in changes.rows if row.effect is Effect.RESTARTED}
    assert set(anew) == {"service ssh", "service dhcp"}, "a resolver for log-ins, an option for leases"
    assert anew["service dhcp"].detail == "dnsmasq.conf"
    assert rows(compared(state, model("[ssh, dns]"), model("[ssh]")), Effect.REMOVED) == {("dns", SERVER)}


def test_another_interval_is_told(state: StateDirectory) -> None:
    old, new = (model(f"{{telemetry: {{interval: {text}}}}}") for text in ("5s", "2s"))
    (row,) = compared(state, old, new).rows
    assert row == ChangeRow(effect=Effect.CHANGED, node=SERVER, what="service telemetry", detail="prometheus.yml")


def test_sflow_and_gnmi_are_told_of_other_samples_and_ports(state: StateDirectory) -> None:
    old, new = (model(f"{{sflow: {{sampling: {number}}}, gnmi: {{}}}}") for number in (400, 200))
    assert rows(compared(state, old, new), Effect.CHANGED) == {("sflow", SERVER)}
    more = compared(state, model("[sflow, gnmi]"), model("[sflow, gnmi]", gpus=2))
    assert rows(more, Effect.CHANGED) == {("sflow", SERVER), ("gnmi", SERVER)}
    elsewhere = compared(state, model("[sflow]"), model('{sflow: {collector: "127.0.0.1:6343"}}'))
    assert rows(elsewhere, Effect.RESTARTED) == {("sflow", SERVER)}, "it needs this machine's network from its start on"


def test_a_secret_that_is_made_for_the_change_is_a_difference(state: StateDirectory) -> None:
    """A switch more is a client of the server of log-ins, whose secret is not there before."""
    changes = compared(state, model("[ssh, aaa]"), model("[ssh, aaa]", gpus=2))
    (row,) = (row for row in changes.rows if row.what == "service aaa")
    assert row.effect is Effect.RESTARTED and row.detail == "secret-p1-s1-rail2"
    assert ("ssh", SWITCH) not in rows(changes, Effect.RESTARTED)


def running(lab: Lab, state: StateDirectory) -> RunningLab:
    deployed(lab, state)
    found = SimpleNamespace(
        name="lab",
        model=lab,
        plan=plan_lab(lab, k=1000),
        state=state,
        state_directory=state.lab_directory("lab"),
        directory=state.run,
        identities={node.name: number for number, node in enumerate(lab.nodes, 1)},
    )
    return cast(RunningLab, found)


def asked(lab: RunningLab, new: Lab) -> ServicesChange | None:
    kept = keep(lab.model, new)
    return services_change(lab, kept, plan_lab(kept, k=1000))


class Told:
    """The programs of a lab that is not there: all of those that are asked for run, but for `dead`."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, str]] = []
        self.dead: set[tuple[str, str]] = set()

    def running_programs(self, places: Any, identities: Any) -> dict[tuple[str, str], dict[str, int]]:
        found: dict[tuple[str, str], dict[str, int]] = {}
        for place in places:
            names = [program.name for program in REGISTRY[place.service].programs(place)]
            alive = (place.service, place.node) not in self.dead
            found[place.service, place.node] = {name: 4_000_000 + number for number, name in enumerate(names) if alive}
        return found

    def noting(self, what: str) -> Any:
        return lambda places: self.done.extend((what, place.service, place.node) for place in places)

    def what(self, done: str) -> set[tuple[str, str]]:
        return {(service, node) for what, service, node in self.done if what == done}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    found = Told()
    monkeypatch.setattr(change, "require_services", lambda _: None)
    monkeypatch.setattr(change, "running_programs", found.running_programs)
    monkeypatch.setattr(change, "end_places", lambda _, places: found.noting("ended")(places))
    monkeypatch.setattr(change, "require_ports", found.noting("free"))
    monkeypatch.setattr(change, "tell", lambda place, changed, pids: found.noting("told")([place]))
    monkeypatch.setattr(change.ServiceLauncher, "start", lambda _, places: found.noting("started")(places))
    monkeypatch.setattr(change.ServiceLauncher, "wait", lambda self, timeout_s: found.noting("awaited")([]))
    yield found


def carried_out(lab: RunningLab, new: Lab) -> None:
    found = asked(lab, new)
    assert found is not None
    kept = keep(lab.model, new)
    journal = SimpleNamespace(path=lambda _: None)
    changing = Changing(
        running=lab,
        lab=kept,
        plan=plan_lab(kept, k=1000),
        record=cast(Any, None),
        timeout_s=1.0,
        undoes=False,
        state=lab.state,
        journal=cast(Any, journal),
        notify=lambda _: None,
    )
    for stage in (found.begin, found.linked, found.routed, found.removed):
        stage(changing)


def test_who_is_told_runs_on_and_who_is_dead_is_started(state: StateDirectory, told: Told) -> None:
    lab = running(model("[dns, dhcp, ssh]"), state)
    told.dead = {("dhcp", SERVER)}
    carried_out(lab, model("[dns, dhcp, ssh]", hosts=3))
    assert told.what("told") == {("dns", SERVER)}
    assert told.what("started") == {("ssh", NEW), ("dhcp", SERVER)}
    order = [what for what, _, _ in told.done if what in ("told", "started")]
    assert order == sorted(order, reverse=True), "a server knows a node before its services begin to speak"
    keys = {path.name for path in (state.run / "lab" / ".svc" / ".ssh").iterdir()}
    assert f"host-{NEW}" in keys
    assert NEW in (state.run / "ssh_config").read_text(), "people find the new host"


def test_what_is_gone_leaves_no_files(state: StateDirectory, told: Told) -> None:
    lab = running(model("[dns, ssh]", hosts=3), state)
    for place in service_places(lab.model, lab.plan, state):
        place.own.mkdir(parents=True)
    services_apply.write_for_people(service_places(lab.model, lab.plan, state), state.run, cast(Any, NoJournal()))
    carried_out(lab, model("[dns]"))
    assert told.what("ended") == {("ssh", node) for node in (SERVER, SWITCH, HOST, "p1-s1-h2", "p1-spine1")}
    assert [path.name for path in (state.run / "lab" / ".svc").iterdir()] == [SERVER]
    assert [path.name for path in (state.run / "lab" / ".svc" / SERVER).iterdir()] == ["dns"]
    assert not (state.run / "ssh_config").exists()


class NoJournal:
    """Notes nothing."""

    def path(self, path: Path) -> None:
        pass


def test_a_program_that_does_not_take_its_settings_is_named(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = (place for place in deployed(model("[dns]"), state) if place.service == "dns")
    place.own.mkdir(parents=True)
    with pytest.raises(DriverError, match="dns of mgmt1 does not take its new settings") as caught:
        launcher.tell(place, ("hosts",), {"dnsmasq": 1 << 22})  # pid_max is no larger
    assert caught.value.hint == "testbed service restart dns mgmt1"
    assert f"{SERVER}.lab" in (place.directory / "hosts").read_text()
    assert not (place.directory / "dnsmasq.conf").exists(), "only what differs is written"
