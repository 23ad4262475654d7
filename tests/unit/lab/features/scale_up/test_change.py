"""Scale-up domains of a lab that is changed: whose switch is started, started anew or ended, and at what cost."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.units import Duration, Rate
from testbed.daemons.switchd.errors import SwitchMissing
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import SCALE_UP_PRESETS, Credits, DomainSpan, Lab, ScaleUpBy, ScaleUpPool
from testbed.lab.core.model.containers import Container
from testbed.lab.core.plan.changes import Allow, Effect
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode, CreateVeth
from testbed.lab.features.scale_up import change
from testbed.lab.features.scale_up.change import compare_domains, domains_change, errors_of
from testbed.protocols.scale_up.domain.link import LinkErrors

K = 20_000
H100 = replace(SCALE_UP_PRESETS["h100"], by=ScaleUpBy.PACKETS)
RACK = replace(H100, domain=DomainSpan.SEGMENT)


def model(hosts: int = 2, scale_up: Any = H100, gpus: int = 2) -> Lab:
    made = generate_fabric(
        FabricParams(design="rail-optimized", segments=1, hosts=hosts, gpus=gpus, spines=1), name="lab"
    )
    return replace(made, scale_up=scale_up)


def planned(*args: Any, **options: Any) -> LabPlan:
    return plan_lab(model(*args, **options), k=K)


def test_the_same_domains_are_left_alone() -> None:
    assert not list(compare_domains(planned(), planned(), {}).rows)


def test_a_host_more_is_a_domain_more_and_no_other_switch_is_touched() -> None:
    changes = compare_domains(planned(), planned(3), {})
    (row,) = changes.rows
    assert (row.effect, row.node) == (Effect.MADE, changes.started[0].node)
    assert (row.what, row.detail) == ("switch of p1-s1-h3", "2 GPUs, 4 planes") and not row.allow
    (row,) = compare_domains(planned(3), planned(), {}).rows
    assert row.effect is Effect.REMOVED and not row.allow


def test_a_host_more_in_a_rack_starts_its_switch_anew() -> None:
    (row,) = compare_domains(planned(2, RACK), planned(3, RACK), {"p1-s1": 3}).rows
    assert row.effect is Effect.RESTARTED and row.detail.startswith("gpus 4 -> 6")
    assert row.at_stake == "what 3 GPUs in use have under way" and row.allow is Allow.RESTART
    (row,) = compare_domains(planned(2, RACK), planned(3, RACK), {}).rows
    assert not row.allow and not row.at_stake, "no program has a GPU open"


def test_memory_devices_more_are_no_gpus_more() -> None:
    two, four = (replace(RACK, pool=ScaleUpPool(devices=count)) for count in (2, 4))
    (row,) = compare_domains(planned(2, two), planned(2, four), {}).rows
    assert row.effect is Effect.RESTARTED and row.detail.startswith("memory devices 2 -> 4")
    (row,) = compare_domains(planned(2, RACK), planned(2, two), {}).rows
    assert row.detail.startswith("memory devices 0 -> 2")
    (row,) = compare_domains(planned(2, four), planned(3, two), {}).rows
    assert row.detail.startswith("gpus 4 -> 6, memory devices 4 -> 2"), "as many ends as before, and others"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"rate": Rate.parse("1.8T")}, "rates of its links"),
        ({"credits": Credits(limit=100)}, "capacity of its links"),
        ({"rtt": Duration(2_000)}, "delay_ns of its links"),
        ({"retry": None}, "link-level retry"),
        ({"voq": True}, "voq False -> True"),
    ],
)
def test_credits_and_rates_are_told_to_a_new_switch(changed: dict[str, Any], reason: str) -> None:
    rows = list(compare_domains(planned(), planned(2, replace(H100, **changed)), {}).rows)
    assert [row.effect for row in rows] == [Effect.RESTARTED] * 2
    assert all(reason in row.detail for row in rows), rows[0].detail


def test_another_number_of_planes_is_other_wires() -> None:
    old, new = planned(), planned(2, replace(H100, shares=(9, 9)))
    assert all("planes 4 -> 2" in row.detail for row in compare_domains(old, new, {}).rows)
    kernel = kernel_changes(old, new)
    gone = [item for item in kernel.removed if isinstance(item, CreateVeth)]
    assert len(gone) == 2 * 2 * 2 and not kernel.created and not kernel.gone


def test_domains_before_and_after_a_new_one_keep_their_namespaces() -> None:
    """A host in between moves the numbers of all that follow; their namespaces are not made anew."""
    old, new = planned(3), planned(4)
    swapped = replace(new, scale_up_domains=tuple(reversed(new.scale_up_domains)))
    assert not compare_domains(new, swapped, {}).restarted
    kernel = kernel_changes(old, new)
    assert {item.node for item in kernel.created if isinstance(item, CreateNode)} == {
        "p1-s1-h4",
        new.scale_up_domains[3].node,
    }
    assert not kernel.remade


def test_errors_that_were_set_follow_their_links() -> None:
    (domain,) = planned(2, RACK).scale_up_domains
    ports = [{"gpu": wire.gpu, "plane": wire.plane - 1, "errors": asdict(LinkErrors())} for wire in domain.wires]
    ports[5]["errors"] = asdict(LinkErrors(loss=0.1, seed=7))
    wire = domain.wires[5]
    assert errors_of(domain, {"ports": ports}) == {
        (wire.host, wire.local_gpu, wire.plane): LinkErrors(loss=0.1, seed=7)
    }
    assert errors_of(domain, {}) == {}, "its switch does not run"


# ------------------------------------------------------------------ of a lab


class Switch:
    """The switch of a domain that is not there, as `status` says of it."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        self._status = status

    def status(self) -> dict[str, Any]:
        if self._status is None:
            raise SwitchMissing("no switch answers")
        return self._status


def running(lab: Lab) -> RunningLab:
    found = SimpleNamespace(model=lab, plan=plan_lab(lab, k=K), processes_directory=Path("/run/testbed/lab"))
    return cast(RunningLab, found)


def asked(old: Lab, new: Lab) -> change.DomainsChange | None:
    return domains_change(running(old), new, plan_lab(new, k=K))


def test_a_switch_is_asked_whose_gpus_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"p1-s1-h1": {"open_gpus": 2}, "p1-s1-h2": None}
    monkeypatch.setattr(change, "domain_switch", lambda _, name: Switch(said[name]))
    found = asked(model(), model(2, replace(H100, rate=Rate.parse("1.8T"))))
    assert found is not None
    assert [row.allow for row in found.rows] == [Allow.RESTART, ""], "nothing is lost with a switch that is dead"


def test_domains_by_time_are_what_the_record_says() -> None:
    old, new = (model(2, replace(H100, by=ScaleUpBy.TIME, rtt=Duration(rtt))) for rtt in (1_000, 2_000))
    assert asked(old, old) is None
    found = asked(old, new)
    assert found is not None
    assert [(row.effect, row.what) for row in found.rows] == [(Effect.CHANGED, "scale-up domains")]


def test_from_time_to_packets_all_switches_are_new() -> None:
    found = asked(model(2, replace(H100, by=ScaleUpBy.TIME)), model())
    assert found is not None and [row.effect for row in found.rows] == [Effect.MADE] * 2


def test_a_container_that_saw_no_gpus_gets_none() -> None:
    def contained(lab: Lab) -> Lab:
        nodes = tuple(
            replace(node, container=Container(image="x", runtime="docker")) if node.name == "p1-s1-h1" else node
            for node in lab.nodes
        )
        return replace(lab, nodes=nodes)

    by_time = model(2, replace(H100, by=ScaleUpBy.TIME))
    with pytest.raises(ChangeRefused, match="p1-s1-h1 is a container, which sees the files of its GPUs"):
        asked(contained(by_time), contained(model()))
