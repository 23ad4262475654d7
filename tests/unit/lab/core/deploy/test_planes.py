"""Changes of scale-up links: what the switch is asked for, and what is refused before it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.base.units import Duration, Rate
from testbed.daemons.switchd.errors import SwitchMissing
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.model import ScaleUpBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.scale_up import planes
from testbed.lab.features.scale_up.links import NoSuchScaleUpLink
from testbed.lab.features.scale_up.planes import PlaneControl, PlaneRefused
from testbed.protocols.scale_up.domain.link import LinkErrors

TOPOLOGY = Path(__file__).parents[5] / "topologies" / "scale-up-domain.yml"
K = 50_000.0
GPUS, PLANES = 8, 4


class Switch:
    """Stands for `DomainSwitch`: keeps what goes wrong on each link, as the process does."""

    def __init__(self) -> None:
        self.runs = True
        self.asked = 0
        self.errors: dict[tuple[int, int], LinkErrors] = {}

    def is_running(self) -> bool:
        return self.runs

    def set_links(self, links: Sequence[tuple[int, int]], changes: Mapping[str, Any] | None) -> None:
        assert self.runs
        self.asked += 1
        for gpu, plane in links:
            assert 0 <= gpu < GPUS and 0 <= plane < PLANES
            before = self.errors.get((gpu, plane), LinkErrors())
            self.errors[gpu, plane] = LinkErrors() if changes is None else replace(before, **changes)

    def status(self) -> dict[str, Any]:
        if not self.runs:
            raise SwitchMissing("no switch answers")
        places = [(gpu, plane) for plane in range(PLANES) for gpu in range(GPUS)]
        errors = {place: asdict(self.errors.get(place, LinkErrors())) for place in places}
        return {"ports": [{"gpu": gpu, "plane": plane, "errors": errors[gpu, plane]} for gpu, plane in places]}


class Lab:
    """A lab as `RunningLab` gives it, planned from the shipped topology and never deployed."""

    name = "scale-up-domain"

    def __init__(self, shares: tuple[int, ...] = (1, 1, 1, 1)) -> None:
        model = load_topology(TOPOLOGY, overrides={})
        self.model = replace(model, scale_up=replace(model.scale_up, shares=shares, by=ScaleUpBy.PACKETS))
        self.plan = plan_lab(self.model, slot=1, k=K)
        self.record = self
        self.k = K
        self.state = self

    @property
    def whole(self) -> Lab:
        return self

    def run_directory(self, name: str) -> Path:
        return Path("/nowhere") / name


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Switch:
    found = Switch()

    def start(plan: object, run: object, only: Sequence[str]) -> None:
        assert list(only) == ["p1-s1-h1"]
        found.runs, found.errors = True, {}

    monkeypatch.setattr(planes, "domain_switch", lambda run, domain: found)
    monkeypatch.setattr("testbed.lab.features.scale_up.apply.start_domain_switches", start)
    return found


@pytest.fixture
def control(switch: Switch) -> PlaneControl:
    return PlaneControl(Lab())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        (LinkChange(loss=1e-3, burst=3), LinkErrors(loss=1e-3, burst=3)),
        (LinkChange(loss_every=100), LinkErrors(every=100)),
        (LinkChange(corruption=0.01), LinkErrors(corrupt=0.01)),
        (LinkChange(silent=True), LinkErrors(silent=True)),
        (LinkChange(up=False), LinkErrors(down=True)),
        (LinkChange(rate_share=0.5), LinkErrors(rate_bps=9_000_000)),
        (LinkChange(rate=Rate.parse("450G")), LinkErrors(rate_bps=9_000_000)),
        (LinkChange(lab_rate=Rate(9_000_000)), LinkErrors(rate_bps=9_000_000)),
        (LinkChange(rate_share=1.0), LinkErrors()),
    ],
)
def test_a_change_reaches_the_switch_in_lab_units(
    switch: Switch, control: PlaneControl, change: LinkChange, errors: LinkErrors
) -> None:
    """A GPU has 900G to each plane: 18 Mbit/s in the lab."""
    control.set("p1-s1-h1.gpu3:plane2", change)
    assert switch.errors == {(2, 1): errors}
    (shown,) = control.show("p1-s1-h1.gpu3:plane2")
    assert shown.errors == errors and shown.rate_bps == 18_000_000
    assert control.changed() == ([] if errors == LinkErrors() else ["p1-s1-h1.gpu3:plane2"])
    control.reset("p1-s1-h1.gpu3:plane2")
    assert control.changed() == []


def test_a_chip_and_a_tray_change_at_one_moment(switch: Switch, control: PlaneControl) -> None:
    control.set("plane2", LinkChange(up=False))
    assert switch.asked == 1
    assert {place for place, errors in switch.errors.items() if errors.down} == {(gpu, 1) for gpu in range(GPUS)}
    control.set("p1-s1-h1:planes", LinkChange(up=False))
    assert switch.asked == 2 and all(errors.down for errors in switch.errors.values())
    assert len(control.reset_all()) == GPUS * PLANES
    assert switch.asked == 3 and control.changed() == []


def test_planes_of_other_rates_are_slowed_down_by_their_own(switch: Switch) -> None:
    control = PlaneControl(Lab(shares=(5, 4, 4, 5)))  # type: ignore[arg-type]
    control.set("planes", LinkChange(rate_share=0.5))
    assert [switch.errors[0, plane].rate_bps for plane in range(PLANES)] == [
        10_000_000,
        8_000_000,
        8_000_000,
        10_000_000,
    ]
    assert switch.asked == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (LinkChange(delay=Duration(5)), "the delay of a link of a scale-up domain cannot be changed"),
        (LinkChange(rate_share=2.0), "36 Mbit/s in the lab is more than the 18 Mbit/s"),
    ],
)
def test_what_such_a_link_does_not_have(switch: Switch, control: PlaneControl, change: LinkChange, words: str) -> None:
    with pytest.raises(PlaneRefused, match=words):
        control.set("p1-s1-h1.gpu1:plane1", change)
    assert switch.asked == 0


def test_a_dead_switch_is_started_by_a_change_and_not_by_a_look(switch: Switch, control: PlaneControl) -> None:
    control.set("plane1", LinkChange(loss=0.5))
    switch.runs = False
    assert {item.errors for item in control.show("plane1")} == {None}
    assert control.changed() == [] and control.reset_all() == [] and not switch.runs
    control.set("p1-s1-h1.gpu1:plane1", LinkChange(up=True))
    assert switch.runs and control.changed() == [], "the one that was started has its links as declared"
    with pytest.raises(NoSuchScaleUpLink, match="no scale-up domain 'p1-s9'"):
        control.start_switch("p1-s9")


def test_one_control_for_ports_and_planes(switch: Switch) -> None:
    """What is a port of the fabric is never taken for a link of a domain."""
    lab = Lab()
    port = lab.plan.ports[0]
    with LinkControl(lab) as control:  # type: ignore[arg-type]
        assert not control.is_beside(f"{port.node}:{port.name}")
        assert control.is_beside("p1-s1-h1.gpu1:plane1") and not control.is_beside("p1-s1-h1:rail77")
        control.prepare("plane1")
        control.set("plane1", LinkChange(up=False), both=True)
        control.reset("plane1")
    assert switch.asked == 2 and set(switch.errors.values()) == {LinkErrors()}


@pytest.mark.parametrize("change", [LinkChange(burst=3), LinkChange(loss=0.0, burst=3)])
def test_a_burst_without_loss_is_refused(switch: Switch, control: PlaneControl, change: LinkChange) -> None:
    """It would change nothing. Beside a loss that is there it is no mistake; a burst of one is none."""
    with pytest.raises(planes.PlaneRefused, match=r"^p1-s1-h1.gpu1:plane2: a burst says"):
        control.set("p1-s1-h1.gpu1:plane2", change)
    assert not switch.asked
    control.set("p1-s1-h1.gpu1:plane2", LinkChange(burst=1))
    control.set("p1-s1-h1.gpu1:plane2", LinkChange(loss=1e-3))
    control.set("p1-s1-h1.gpu1:plane2", LinkChange(burst=3))
    assert switch.errors == {(0, 1): LinkErrors(loss=1e-3, burst=3)}
